//! What a run keeps in files, and what of it another run may take over.
//!
//! - A file that cannot be written is told before the run, not after hours of it.
//! - While a run goes on its report is there and does not count.
//! - Cells are taken over only where the same was asked for: otherwise a report would tell of one measurement and show another.

use crate::Outcome;
use crate::content::fold;
use crate::workload::result::Report;
use crate::workload::run::Options;
use std::io::ErrorKind;
use std::path::Path;

const NOT_ENDED: &str = "the run has not ended: the same command with --resume goes on";

/// Whether the file can be written; leaves what is there as it is.
pub fn writable(path: &Path) -> Outcome<()> {
    let there = path.symlink_metadata().is_ok();
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}; name another file", path.display());
    std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
    if there { Ok(()) } else { std::fs::remove_file(path).map_err(failed) }
}

/// The reports of a file; none if it is not there.
pub fn read(path: &Path) -> Outcome<Vec<Report>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

pub fn write(path: &Path, reports: &[&Report]) -> Outcome<()> {
    let text = serde_json::to_string_pretty(reports).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The report of a run that goes on: it is read as one that does not count.
pub fn unfinished(report: &Report) -> Report {
    let mut so_far = report.clone();
    so_far.valid = false;
    so_far.reasons.push(NOT_ENDED.to_owned());
    so_far
}

/// What was asked for beside workload and target, in words.
pub fn asked(options: &Options, agents: usize, definition: &str) -> String {
    let given = |name: &str, value: Option<f64>| value.map_or_else(String::new, |value| format!(" --{name} {value}"));
    format!(
        "{}--scale {} --peak {} --points {}{}{} --connections {} --seed {}, {agents} agents, definition {:016x}",
        if options.quick { "--quick " } else { "" },
        options.scale,
        options.peak,
        options.points,
        given("warm-up", options.warm_up),
        given("seconds", options.seconds),
        options.connections,
        options.seed,
        fold(definition.as_bytes()),
    )
}

/// The report of an earlier run of the workload at the target, if there is one; an error if something else was asked of it.
pub fn earlier(reports: &[Report], (workload, target): (&str, &str), asked: &str) -> Outcome<Option<Report>> {
    let same = |report: &&Report| report.workload == workload && report.target == target;
    let Some(report) = reports.iter().find(same) else { return Ok(None) };
    match report.asked == asked {
        true => Ok(Some(report.clone())),
        false => Err(format!(
            "nothing can be taken over for {target}: the earlier run was asked for \"{}\", this one for \"{asked}\"; ask for the \
             same, or name another file",
            report.asked
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let text = serde_json::json!({
            "version": 1, "workload": "oltp", "title": "", "follows": "", "notice": "", "target": "a", "unit": "",
            "began": 0, "seed": 1, "scale": 1.0, "asked": "--scale 1", "peak": 1.0, "files": 1, "bytes": 1,
            "directories": 1, "connections": 1, "rtt_us": 1.0, "stable_storage": "", "configuration": null,
            "machine": "a machine", "cells": [], "ort_ms": null, "valid": true, "reasons": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn only_what_was_asked_for_is_taken_over() {
        let reports = [report()];
        assert!(earlier(&reports, ("oltp", "a"), "--scale 1").unwrap().is_some());
        assert!(earlier(&reports, ("oltp", "b"), "--scale 2").unwrap().is_none());
        assert!(earlier(&reports, ("vda-like", "a"), "--scale 2").unwrap().is_none());
        let refused = earlier(&reports, ("oltp", "a"), "--scale 2").unwrap_err();
        assert!(refused.contains("--scale 1") && refused.contains("--scale 2"), "{refused}");
    }

    #[test]
    fn a_run_that_goes_on_does_not_count() {
        let so_far = unfinished(&report());
        assert!(!so_far.valid && so_far.reasons == [NOT_ENDED]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_and_no_other_is_touched() {
        let directory = std::env::temp_dir().join(format!("tarn-bench-kept-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (new, old) = (directory.join("new"), directory.join("old"));
        std::fs::write(&old, "kept").unwrap();
        writable(&new).unwrap();
        writable(&old).unwrap();
        assert!(!new.exists());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "kept");
        for wrong in [directory.join("missing/file"), directory.clone()] {
            assert!(writable(&wrong).is_err_and(|error| error.contains("name another file")));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
