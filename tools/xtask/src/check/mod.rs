//! `cargo x check`: what the house asks of every file, held by a program.
//!
//! - Each check is a row of `CHECKS`: a name and a function from the tree to findings.
//! - A finding says where and what in one line, and names the replacement where there is one.
//! - Each check has a test with an example it must refuse: a check that cannot fail is a defect.

mod blobs;
mod calls;
mod cycles;
mod formats;
mod layers;
mod length;
mod links;
mod promises;
mod tools;
mod words;

use crate::source::Source;
use crate::workspace::{Package, Workspace};
use std::process::{Command, ExitCode};
use std::time::Instant;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these checks
    names: Vec<String>,
}

/// Something to change. `line` counts from 1; 0 means the whole file.
#[derive(Debug, PartialEq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// What the checks look at: the committed files and those about to be.
pub struct Tree<'a> {
    pub workspace: &'a Workspace,
    pub files: Vec<File>,
    pub sources: Vec<Source>,
}

pub struct File {
    /// Relative to the root.
    pub path: String,
    pub bytes: Vec<u8>,
}

type Check = fn(&Tree) -> Result<Vec<Finding>, String>;

/// Quick checks first, so that their findings do not wait for the compiler.
const CHECKS: &[(&str, Check)] = &[
    ("layers", layers::check),
    ("words", words::check),
    ("calls", calls::check),
    ("cycles", cycles::check),
    ("length", length::check),
    ("links", links::check),
    ("promises", promises::check),
    ("blobs", blobs::check),
    ("formats", formats::check),
    ("fmt", tools::fmt),
    ("clippy", tools::clippy),
];

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    let tally = tally(workspace, &arguments.names)?;
    println!("check: {} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub struct Tally {
    pub passed: usize,
    pub failed: usize,
}

/// Runs the named checks (all, if none is named) and prints every finding.
pub fn tally(workspace: &Workspace, names: &[String]) -> Result<Tally, String> {
    if let Some(unknown) = names.iter().find(|name| CHECKS.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no check is called {unknown}; there are {}", known.join(", ")));
    }
    let tree = Tree::read(workspace)?;
    let mut tally = Tally { passed: 0, failed: 0 };
    for (name, check) in CHECKS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)) {
        let started = Instant::now();
        let findings = check(&tree)?;
        let verdict = if findings.is_empty() { "ok" } else { "FAILED" };
        println!("check {name:<8} {verdict:<6} {:>5.1}s", started.elapsed().as_secs_f64());
        for finding in &findings {
            println!("  {finding}");
        }
        match findings.is_empty() {
            true => tally.passed += 1,
            false => tally.failed += 1,
        }
    }
    Ok(tally)
}

impl<'a> Tree<'a> {
    pub fn read(workspace: &'a Workspace) -> Result<Tree<'a>, String> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&workspace.root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !listed.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim()));
        }
        let mut paths: Vec<String> = String::from_utf8_lossy(&listed.stdout).split('\0').map(str::to_owned).collect();
        paths.retain(|path| !path.is_empty());
        paths.sort();
        paths.dedup();
        // A file listed and not there is being removed; a symbolic link is judged where it points.
        let files: Vec<File> = paths
            .into_iter()
            .filter_map(|path| std::fs::read(workspace.root.join(&path)).ok().map(|bytes| File { path, bytes }))
            .collect();
        let mut sources: Vec<Source> = files
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .map(|file| Source::new(&file.path, &String::from_utf8_lossy(&file.bytes)))
            .collect();
        let test_files: Vec<String> = sources.iter().flat_map(Source::test_files).collect();
        for source in sources.iter_mut().filter(|source| test_files.contains(&source.path)) {
            source.mark_test();
        }
        Ok(Tree { workspace, files, sources })
    }

    pub fn packages(&self) -> &[Package] {
        &self.workspace.packages
    }

    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }
}
