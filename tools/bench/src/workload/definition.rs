//! What a workload is: a documented TOML file, strict in every key.
//!
//! - A *file set* is what lies in the directory before the load begins. A *component* is a number of processes that
//!   work on one file set with one mix of operations. A *cell* is one measurement: a load point, or a named phase.
//! - Load is counted in *units*: op/s, jobs, streams. Components, file sets and processes may grow with it.
//! - Tables of sizes and shares are data, so that somebody who holds an official table can put it in.

use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A workload, as its file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// One line.
    pub title: String,
    /// Whose measurement it follows, and how closely.
    pub follows: String,
    /// What every report of it must say.
    #[serde(default)]
    pub notice: String,
    pub load: Load,
    #[serde(default)]
    pub valid: Valid,
    #[serde(default)]
    pub reducible: Reducible,
    pub fileset: Vec<FileSet>,
    pub component: Vec<Component>,
    /// Named phases, in order; without them there are load points.
    #[serde(default)]
    pub cell: Vec<Cell>,
}

/// How much, in what steps, how long.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What load is counted in: "op/s", "job", "stream".
    pub unit: String,
    /// Load points, evenly spaced up to the peak; 0 where there are cells.
    #[serde(default)]
    pub points: u32,
    /// Units at the peak unless the command line says otherwise; 0: found by a closed loop before the first point.
    #[serde(default)]
    pub peak: f64,
    /// Mean response that a peak which is found may have, milliseconds; 0: as any point.
    #[serde(default)]
    pub peak_response_max_ms: f64,
    #[serde(default)]
    pub response: Response,
    /// Seconds before a cell is measured, and that it is measured.
    pub warm_up: f64,
    pub seconds: f64,
    /// The same for `--quick`, and its number of points and peak.
    #[serde(default)]
    pub quick: Option<Quick>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub warm_up: f64,
    pub seconds: f64,
    #[serde(default)]
    pub points: u32,
    #[serde(default)]
    pub peak: f64,
    /// The data's size, as a share of the full run's.
    #[serde(default = "one")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

/// Which overall response time is computed of the points (`ort`).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    #[default]
    None,
    Sfs2008,
    Spec2020,
}

/// When a cell counts.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Valid {
    /// Per cent by which the achieved rate may miss the requested one.
    pub rate_percent: f64,
    /// Points by which an operation's share may miss the mix.
    pub mix_points: f64,
    /// Milliseconds: the mean response time at most; 0: no bound.
    pub response_max_ms: f64,
    /// Milliseconds: no operation takes longer; 0: no bound.
    pub silence_max_ms: f64,
}

impl Default for Valid {
    fn default() -> Valid {
        Valid { rate_percent: 5.0, mix_points: 1.0, response_max_ms: 0.0, silence_max_ms: 900.0 }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reducible {
    /// Share of blocks that stand elsewhere too, in per cent.
    pub dedupe_percent: f64,
    /// Bytes of such a block.
    pub block: u64,
    /// Data compresses to about a half.
    pub compressible: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSet {
    pub name: String,
    /// Files, whatever the load; or so many a unit of load at the peak; or so many bytes a unit.
    #[serde(default)]
    pub files: u64,
    #[serde(default)]
    pub files_per_unit: f64,
    #[serde(default)]
    pub bytes_per_unit: f64,
    /// Bytes of a file and share of files: `[[1024, 17], [2048, 16]]`.
    pub sizes: Vec<(u64, f64)>,
    #[serde(default = "thirty")]
    pub files_per_directory: u64,
    /// Share of files that operations touch, of 1.
    #[serde(default = "one")]
    pub touched: f64,
    /// Symbolic links beside the files, one for so many files; 0: none.
    #[serde(default)]
    pub files_per_link: u64,
    /// Files that are there without content, so that the load writes them.
    #[serde(default)]
    pub empty: bool,
    /// Not multiplied by the scale.
    #[serde(default)]
    pub fixed: bool,
}

fn thirty() -> u64 {
    30
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    pub name: String,
    pub fileset: String,
    /// The cell it belongs to; without one, to all.
    #[serde(default)]
    pub cell: Option<String>,
    /// Processes, whatever the load, or so many a unit (at least one).
    #[serde(default)]
    pub processes: u32,
    #[serde(default)]
    pub processes_per_unit: f64,
    /// Operations a second and unit of load, of all its processes together; 0: a closed loop.
    #[serde(default)]
    pub rate_per_unit: f64,
    /// Operations that a process has in flight.
    #[serde(default = "one_operation")]
    pub outstanding: u32,
    /// Every file once instead of for a time.
    #[serde(default)]
    pub once: bool,
    /// All processes work on all files instead of each on its own share.
    #[serde(default)]
    pub shared: bool,
    pub operation: Vec<Operation>,
}

fn one_operation() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub op: Kind,
    pub share: f64,
    /// Bytes of a read or write and their share; for whole files: bytes of one call.
    #[serde(default)]
    pub sizes: Vec<(u64, f64)>,
    /// When a write is durable.
    #[serde(default)]
    pub stable: Stability,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// FILE_SYNC: when the reply comes.
    #[default]
    File,
    /// UNSTABLE and a COMMIT that belongs to the operation.
    Commit,
    /// UNSTABLE; a COMMIT every 16 MiB and at the end.
    Stream,
}

/// What a process does at a time. Names are NFSv3's where one call does it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Getattr,
    Lookup,
    Access,
    Setattr,
    Readlink,
    Readdir,
    Readdirplus,
    Fsstat,
    Create,
    Remove,
    Mkdir,
    Rename,
    /// At a random place.
    Read,
    Write,
    /// From where the last one ended, around and around.
    ReadSequential,
    WriteSequential,
    /// LOOKUP and the file from its beginning to its end.
    ReadFile,
    /// CREATE of a new file, its content, COMMIT.
    WriteFile,
    /// LOOKUP, and the whole file written again.
    RewriteFile,
}

impl Kind {
    /// Whether it moves file content.
    pub fn moves_data(self) -> bool {
        self.reads() || self.writes()
    }

    pub fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::ReadSequential | Kind::ReadFile)
    }

    pub fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteSequential | Kind::WriteFile | Kind::RewriteFile)
    }

    /// As the workload's file calls it.
    pub fn name(self) -> String {
        let mut name = String::new();
        for (index, letter) in format!("{self:?}").chars().enumerate() {
            if letter.is_uppercase() && index > 0 {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub name: String,
    /// Units of load.
    #[serde(default = "one")]
    pub load: f64,
}

impl Definition {
    /// Reads and checks one; the error names the key.
    pub fn parse(text: &str) -> Outcome<Definition> {
        let definition: Definition = toml::from_str(text).map_err(|error| error.to_string())?;
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Outcome<()> {
        let cells: BTreeSet<&str> = self.cell.iter().map(|cell| cell.name.as_str()).collect();
        if cells.is_empty() == (self.load.points == 0) {
            return Err("give either load.points or [[cell]]s".to_owned());
        }
        for set in &self.fileset {
            let counts = [set.files as f64, set.files_per_unit, set.bytes_per_unit];
            if counts.iter().filter(|count| **count > 0.0).count() != 1 {
                return Err(format!("fileset {}: one of files, files_per_unit, bytes_per_unit", set.name));
            }
            if set.files_per_directory == 0 || !(0.0..=1.0).contains(&set.touched) {
                return Err(format!("fileset {}: files_per_directory from 1, touched from 0 to 1", set.name));
            }
            check_sizes(&set.sizes, &format!("fileset {}", set.name))?;
        }
        for component in &self.component {
            let name = format!("component {}", component.name);
            if !self.fileset.iter().any(|set| set.name == component.fileset) {
                return Err(format!("{name}: there is no fileset {}", component.fileset));
            }
            if component.cell.as_deref().is_some_and(|cell| !cells.contains(cell)) {
                return Err(format!("{name}: there is no such cell"));
            }
            if (component.processes == 0) == (component.processes_per_unit <= 0.0) {
                return Err(format!("{name}: one of processes, processes_per_unit"));
            }
            if component.outstanding == 0 || component.operation.is_empty() {
                return Err(format!("{name}: outstanding begins at 1, and there must be an operation"));
            }
            for operation in &component.operation {
                let name = format!("{name}: {}", operation.op.name());
                if operation.op.moves_data() {
                    check_sizes(&operation.sizes, &name)?;
                } else if !operation.sizes.is_empty() {
                    return Err(format!("{name} moves no data: no sizes"));
                }
            }
        }
        Ok(())
    }

    /// The components of a cell and their indices: those that name it, and those that name none.
    pub fn taking_part(&self, cell: Option<&str>) -> impl Iterator<Item = (usize, &Component)> {
        let belongs = move |component: &Component| component.cell.is_none() || component.cell.as_deref() == cell;
        self.component.iter().enumerate().filter(move |(_, component)| belongs(component))
    }
}

fn check_sizes(sizes: &[(u64, f64)], name: &str) -> Outcome<()> {
    let right = |(size, share): &(u64, f64)| *size > 0 && size % 512 == 0 && *share >= 0.0;
    if sizes.is_empty() || !sizes.iter().all(right) || sizes.iter().all(|(_, share)| *share == 0.0) {
        return Err(format!("{name}: sizes are multiples of 512 bytes with a share, at least one above 0"));
    }
    Ok(())
}

/// Mean of a table of sizes.
pub fn mean(sizes: &[(u64, f64)]) -> f64 {
    let shares: f64 = sizes.iter().map(|(_, share)| share).sum();
    sizes.iter().map(|(size, share)| *size as f64 * share).sum::<f64>() / shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        title = "t"
        follows = "f"
        load = { unit = "job", points = 2, warm_up = 1, seconds = 1 }
        [[fileset]]
        name = "a"
        files = 10
        sizes = [[1024, 1]]
        [[component]]
        name = "c"
        fileset = "a"
        processes = 1
        operation = [{ op = "read_file", share = 1, sizes = [[1024, 1]] }]
    "#;

    #[test]
    fn a_definition_is_strict() {
        assert!(Definition::parse(SMALL).is_ok());
        for (from, to) in [
            ("files = 10", "files = 10\nfiles_per_unit = 2.0"),
            ("files = 10", "fils = 10"),
            ("points = 2", "points = 0"),
            ("fileset = \"a\"", "fileset = \"b\""),
            ("[[1024, 1]] }", "[[1000, 1]] }"),
            ("\"read_file\"", "\"read_all\""),
            ("processes = 1", "processes = 0"),
        ] {
            assert!(SMALL.contains(from));
            assert!(Definition::parse(&SMALL.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn names_are_those_of_the_file() {
        assert_eq!(Kind::ReadSequential.name(), "read_sequential");
        assert_eq!(Kind::Readdirplus.name(), "readdirplus");
    }
}
