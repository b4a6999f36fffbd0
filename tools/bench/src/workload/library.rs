//! The workloads that come with the program, by name; others are files of their own.

use crate::Outcome;
use crate::workload::definition::Definition;
use std::path::Path;

macro_rules! library {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../workloads/", $name, ".toml")))),*]
    };
}

/// Name and text of each.
pub const LIBRARY: &[(&str, &str)] = library![
    "sfs2008-like",
    "ai-image-like",
    "eda-like",
    "swbuild-like",
    "vda-like",
    "genomics-like",
    "oltp",
    "stream-read",
    "stream-write",
    "analytics",
    "vdbench-grid",
    "small-files",
    "render",
    "bowtie",
    "softnas-matrix",
];

/// The workload of that name, or in that file.
pub fn find(name: &str) -> Outcome<(String, Definition)> {
    let (name, text) = text(name)?;
    let definition = Definition::parse(&text).map_err(|error| format!("{name}: {error}"))?;
    Ok((name, definition))
}

/// Its name and what its file says.
pub fn text(name: &str) -> Outcome<(String, String)> {
    if let Some((name, text)) = LIBRARY.iter().find(|(known, _)| *known == name) {
        return Ok(((*name).to_owned(), (*text).to_owned()));
    }
    let path = Path::new(name);
    if path.extension().is_none() {
        let names: Vec<&str> = LIBRARY.iter().map(|(name, _)| *name).collect();
        return Err(format!("no workload is called {name}; there are {}, or give a .toml file", names.join(", ")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((stem, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::definition::mean;

    #[test]
    fn every_workload_of_the_library_is_sound() {
        for (name, _) in LIBRARY {
            let (_, definition) = find(name).unwrap();
            assert!(definition.load.quick.is_some(), "{name} has a quick form");
        }
        assert!(find("nothing").unwrap_err().contains("sfs2008-like"));
    }

    #[test]
    fn the_mix_and_sizes_are_those_of_the_seeds() {
        let (_, sfs) = find("sfs2008-like").unwrap();
        let operations = &sfs.component[0].operation;
        assert!((operations.iter().map(|operation| operation.share).sum::<f64>() - 100.0).abs() < 1e-9);
        let kib = |index: usize| mean(&operations[index].sizes) / 1024.0;
        let index = |name: &str| operations.iter().position(|operation| operation.op.name() == name).unwrap();
        assert!((kib(index("read")) - 26.3).abs() < 0.2, "{}", kib(index("read")));
        assert!((kib(index("write")) - 17.5).abs() < 0.2, "{}", kib(index("write")));
        assert!((mean(&sfs.fileset[0].sizes) / 1024.0 - 131.0).abs() < 2.0);
        let (_, ai) = find("ai-image-like").unwrap();
        let rate: f64 = ai.component.iter().map(|component| component.rate_per_unit).sum();
        assert!((rate - 435.0).abs() < 0.1, "{rate}");
    }
}
