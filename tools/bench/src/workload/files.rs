//! A file set: what it is planned to be, how it is made, and what is known of each file while the load runs.
//!
//! - Each sector's version is kept, so any read can be judged.
//! - Ranges in flight are kept: a read never meets a write of the same bytes, whose outcome would be open.

use crate::Outcome;
use crate::drive::pattern::{Pattern, SECTOR};
use crate::drive::random::{Random, Shares};
use crate::drive::reactor::Reactor;
use crate::workload::definition::{FileSet, Stability, mean};
use crate::workload::generator::Part;
use crate::workload::place::{Node, Pending, Place};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// Files that are made at a time.
const MAKERS: usize = 32;
/// Writes between two COMMITs while files are made.
const COMMIT_EVERY: usize = 16;
/// Bytes of one write while files are made.
const PART: u64 = 1 << 20;

/// A file of the load.
#[derive(Debug)]
pub struct File {
    /// Part of the content's stamp; unique in a run.
    pub id: u32,
    pub directory: usize,
    pub name: String,
    /// `None`: it does not exist.
    pub node: Option<Node>,
    pub size: u64,
    /// Of each sector; 0: never written (reads as zeros).
    pub versions: Vec<u8>,
    /// Ranges in flight: from, to, whether they are written.
    busy: Vec<(u64, u64, bool)>,
    /// Where the next sequential operation begins.
    pub cursor: u64,
    /// Written, not committed.
    pub pending: Vec<Pending>,
    /// Its content is there.
    pub written: bool,
}

impl File {
    /// Claims a range; false if it collides with one in flight.
    pub fn claim(&mut self, from: u64, to: u64, write: bool) -> bool {
        let collides = |busy: &(u64, u64, bool)| busy.0 < to && from < busy.1 && (write || busy.2);
        if self.busy.iter().any(collides) {
            return false;
        }
        self.busy.push((from, to, write));
        true
    }

    pub fn release(&mut self, from: u64, to: u64, write: bool) {
        if let Some(index) = self.busy.iter().position(|busy| *busy == (from, to, write)) {
            self.busy.swap_remove(index);
        }
    }

    /// The versions that a write of the range gives its sectors.
    pub fn next_versions(&self, from: u64, to: u64) -> Vec<u8> {
        let sectors = (from / SECTOR) as usize..to.div_ceil(SECTOR) as usize;
        sectors.map(|sector| self.versions.get(sector).copied().unwrap_or(0) % 255 + 1).collect()
    }

    /// The range holds these versions now.
    pub fn set_versions(&mut self, from: u64, versions: &[u8]) {
        let first = (from / SECTOR) as usize;
        if self.versions.len() < first + versions.len() {
            self.versions.resize(first + versions.len(), 0);
        }
        self.versions[first..first + versions.len()].copy_from_slice(versions);
        self.size = self.size.max((first + versions.len()) as u64 * SECTOR);
    }

    /// Whether `data`, read at `from`, is what was written there.
    pub fn check(&self, pattern: &Pattern, from: u64, data: &[u8]) -> Result<(), String> {
        let first = (from / SECTOR) as usize;
        let last = first + data.len().div_ceil(SECTOR as usize);
        let versions = self.versions.get(first..last).ok_or("a read brought bytes past the end of the file")?;
        let told = |mismatch: crate::drive::pattern::Mismatch| {
            format!("WRONG DATA in {} at {}: {}", self.name, mismatch.offset, mismatch.found)
        };
        pattern.check(data, self.id, from, versions).map_err(told)
    }
}

pub struct Directory {
    pub name: String,
    pub node: Node,
    /// Files that stood in it when it was made; they stay.
    pub files: Vec<usize>,
    pub links: Vec<(String, Node)>,
}

/// A file set that exists.
pub struct Files {
    pub directories: Vec<Directory>,
    pub files: Vec<RefCell<File>>,
    /// The first so many files of each process's share are touched.
    pub touched: f64,
}

/// How much there is to make.
#[derive(Clone, Debug)]
pub struct Plan {
    pub sizes: Vec<u64>,
    pub directories: usize,
    pub links: usize,
    /// Whose: files of the whole are dealt out one by one.
    pub part: Part,
}

impl Plan {
    /// Of `set` at `peak` units of load, `scale` times as much as it says.
    pub fn new(set: &FileSet, peak: f64, scale: f64, seed: u64) -> Plan {
        let scale = if set.fixed { 1.0 } else { scale };
        let files = match (set.files, set.files_per_unit > 0.0) {
            (0, true) => set.files_per_unit * peak * scale,
            (0, false) => set.bytes_per_unit * peak * scale / mean(&set.sizes),
            (files, _) => files as f64 * scale,
        };
        let files = (files.round() as usize).max(1);
        let mut random = Random::new(seed);
        let shares = Shares::new(set.sizes.iter().map(|(_, share)| *share));
        let sizes = (0..files).map(|_| set.sizes[shares.pick(&mut random)].0).collect();
        Plan { sizes, directories: 0, links: 0, part: Part::WHOLE }.deal(set, Part::WHOLE)
    }

    /// The part of it that is dealt to one of several generators.
    pub fn deal(self, set: &FileSet, part: Part) -> Plan {
        let sizes: Vec<u64> = self.sizes.into_iter().skip(part.index).step_by(part.count).collect();
        let directories = sizes.len().div_ceil(set.files_per_directory as usize);
        let links = if set.files_per_link == 0 { 0 } else { sizes.len().div_ceil(set.files_per_link as usize) };
        Plan { sizes, directories, links, part }
    }

    pub fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }
}

/// Makes the set's directories, links and files. Identifiers begin at `first`. Sizes of an empty set are what the load
/// will write.
pub fn make(
    reactor: &Reactor,
    place: &Rc<Place>,
    pattern: &Rc<Pattern>,
    (set, plan, first): (&FileSet, Plan, u32),
    done: &Rc<Cell<u64>>,
) -> Outcome<Files> {
    let directories = make_directories(reactor, place, set, &plan)?;
    let file = |(index, size): (usize, &u64)| {
        let (directory, name) = (index % plan.directories.max(1), format!("f{index:07}"));
        let (versions, busy, pending) = (Vec::new(), Vec::new(), Vec::new());
        // Its number among the files of all generators.
        let (id, size) = (first + (index * plan.part.count + plan.part.index) as u32, *size);
        let file = File { id, directory, name, node: None, size, versions, busy, cursor: 0, pending, written: false };
        RefCell::new(file)
    };
    let files = plan.sizes.iter().enumerate().map(file).collect();
    let made = Rc::new(RefCell::new(Files { directories, files, touched: set.touched }));
    let next = Rc::new(Cell::new(0));
    for _ in 0..MAKERS.min(plan.sizes.len()) {
        let (place, pattern, made, next) = (place.clone(), pattern.clone(), made.clone(), next.clone());
        let (done, reactor_of_task, empty) = (done.clone(), reactor.clone(), set.empty);
        reactor.spawn(async move {
            while !reactor_of_task.stopping() {
                let index = next.replace(next.get() + 1);
                match make_file(&place, &pattern, &made, index, empty, &done).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => return reactor_of_task.fail(format!("preparing files: {error}")),
                }
            }
        });
    }
    reactor.run()?;
    if reactor.stopping() {
        return Err("stopped while files were prepared".to_owned());
    }
    let mut made = Rc::try_unwrap(made).map_err(|_| "a maker of files is left")?.into_inner();
    for index in 0..made.files.len() {
        let directory = made.files[index].borrow().directory;
        made.directories[directory].files.push(index);
    }
    Ok(made)
}

fn make_directories(reactor: &Reactor, place: &Rc<Place>, set: &FileSet, plan: &Plan) -> Outcome<Vec<Directory>> {
    let made = Rc::new(RefCell::new(Vec::new()));
    let (inner, place, name) = (made.clone(), place.clone(), set.name.clone());
    let (count, links, of_task) = (plan.directories, plan.links, reactor.clone());
    reactor.spawn(async move {
        let all = async {
            for index in 0..count {
                let name = format!("{name}{index:05}");
                let (node, _) = place.mkdir(&place.root(), &name).await?;
                inner.borrow_mut().push(Directory { name, node, files: Vec::new(), links: Vec::new() });
            }
            for index in 0..links {
                let name = format!("l{index:07}");
                let directory = inner.borrow()[index % count].node.clone();
                let (node, _) = place.symlink(&directory, &name, &format!("to-{index}")).await?;
                inner.borrow_mut()[index % count].links.push((name, node));
            }
            Ok::<(), String>(())
        };
        if let Err(error) = all.await {
            of_task.fail(format!("preparing directories: {error}"));
        }
    });
    reactor.run()?;
    Rc::try_unwrap(made).map(RefCell::into_inner).map_err(|_| "a maker of directories is left".to_owned())
}

/// Makes one file; false if there is no such.
async fn make_file(
    place: &Place,
    pattern: &Pattern,
    made: &RefCell<Files>,
    index: usize,
    empty: bool,
    done: &Cell<u64>,
) -> Outcome<bool> {
    let (directory, name, id, size) = {
        let made = made.borrow();
        let Some(file) = made.files.get(index) else { return Ok(false) };
        let file = file.borrow();
        (made.directories[file.directory].node.clone(), file.name.clone(), file.id, file.size)
    };
    if empty {
        return Ok(true);
    }
    let (node, _) = place.create(&directory, &name).await?;
    let mut pending = Vec::new();
    let mut at = 0;
    while at < size {
        let part = PART.min(size - at);
        let fill =
            |at, out: &mut [u8]| pattern.fill(out, id, at, &vec![1; (out.len() as u64).div_ceil(SECTOR) as usize]);
        place.write(&node, (at, part), &fill, Stability::Commit, &mut pending).await?;
        done.set(done.get() + part);
        at += part;
        if at >= size || pending.len() >= COMMIT_EVERY {
            settle(place, pattern, &node, id, |sectors| vec![1; sectors.len()], std::mem::take(&mut pending)).await?;
        }
    }
    let made = made.borrow();
    let mut file = made.files[index].borrow_mut();
    file.versions = vec![1; (size / SECTOR) as usize];
    file.node = Some(node);
    file.written = true;
    Ok(true)
}

/// Makes `pending` durable; what a restarted server has lost is written again (RFC 1813, 3.3.21).
pub async fn settle(
    place: &Place,
    pattern: &Pattern,
    node: &Node,
    id: u32,
    versions: impl Fn(std::ops::Range<usize>) -> Vec<u8>,
    mut pending: Vec<Pending>,
) -> Outcome<Instant> {
    loop {
        let (lost, at) = place.commit(node, &pending).await?;
        if lost.is_empty() {
            return Ok(at);
        }
        pending.clear();
        for range in lost {
            let sectors = (range.offset / SECTOR) as usize..(range.offset + range.size).div_ceil(SECTOR) as usize;
            let versions = versions(sectors);
            let of = |at: u64| &versions[((at - range.offset) / SECTOR) as usize..];
            let fill = |at, out: &mut [u8]| pattern.fill(out, id, at, of(at));
            place.write(node, (range.offset, range.size), &fill, Stability::Commit, &mut pending).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File {
            id: 1,
            directory: 0,
            name: "f".to_owned(),
            node: None,
            size: 2048,
            versions: vec![1; 4],
            busy: Vec::new(),
            cursor: 0,
            pending: Vec::new(),
            written: true,
        }
    }

    #[test]
    fn what_is_in_flight_meets_no_write() {
        let mut file = file();
        assert!(file.claim(0, 1024, false));
        assert!(file.claim(512, 2048, false), "readers meet");
        assert!(!file.claim(1024, 2048, true));
        file.release(512, 2048, false);
        assert!(file.claim(1024, 2048, true));
        assert!(!file.claim(1536, 2048, false));
    }

    #[test]
    fn a_write_gives_new_versions_and_a_lost_one_is_found() {
        let (mut file, pattern) = (file(), Pattern::new(Default::default()));
        let mut old = vec![0; 1024];
        pattern.fill(&mut old, 1, 512, &file.versions[1..3]);
        assert_eq!(file.check(&pattern, 512, &old), Ok(()));
        let versions = file.next_versions(512, 1536);
        file.set_versions(512, &versions);
        assert!(file.check(&pattern, 512, &old).unwrap_err().contains("WRONG DATA"));
        assert!(file.check(&pattern, 1536, &[0; 1024]).is_err(), "past the end");
        file.versions = vec![255; 4];
        assert_eq!(file.next_versions(0, 512), [1], "0 means never written");
    }

    #[test]
    fn a_plan_grows_with_load_and_scale() {
        let set = r#"name = "a"
            bytes_per_unit = 1e6
            sizes = [[1024, 1], [3072, 1]]"#;
        let set: FileSet = toml::from_str(set).unwrap();
        let plan = Plan::new(&set, 100.0, 0.5, 1);
        assert_eq!(plan.sizes.len(), 24_414);
        assert!((plan.bytes() as f64 / 50e6 - 1.0).abs() < 0.02);
        assert_eq!(plan.directories, 24_414_usize.div_ceil(30));
        let part = |index| plan.clone().deal(&set, Part { index, count: 3 });
        assert_eq!((0..3).map(|index| part(index).bytes()).sum::<u64>(), plan.bytes());
        assert_eq!(part(1).sizes[..2], [plan.sizes[1], plan.sizes[4]]);
    }
}
