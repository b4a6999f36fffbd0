//! Builds every program and test once and runs the workspace's tests.

use super::tally::Tally;
use crate::workspace::Workspace;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

pub fn build(workspace: &Workspace, _: &mut Tally) -> Result<(), String> {
    // Programs and tests in one call: the same features everywhere, so nothing is built twice.
    let status = workspace
        .cargo()
        .args(["build", "--workspace", "--bins", "--tests"])
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if status.success() { Ok(()) } else { Err("cargo build failed".to_owned()) }
}

/// The whole output goes to a file; the terminal gets what failed, what was skipped, and a line a program.
pub fn test(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let log = workspace.target.join("x-test.log");
    let mut file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut child = workspace
        .cargo()
        .args(["test", "--workspace", "--bins", "--tests", "--no-fail-fast", "--", "--show-output"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo test: {error}"))?;
    let before = tally.failures.len();
    let output = child.stdout.take().ok_or("cargo test has no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("cargo test: {error}"))?;
        let line = String::from_utf8_lossy(&line).into_owned();
        writeln!(file, "{line}").map_err(|error| format!("{}: {error}", log.display()))?;
        if tally.line(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    if tally.failures.len() > before || !status.success() {
        print_failures(&log);
        println!("all output: {}", log.display());
    }
    if !status.success() && tally.failures.len() == before {
        tally.failed("cargo test: a test program ended without a result");
    }
    Ok(())
}

/// Prints the part of the log that explains failures.
fn print_failures(log: &std::path::Path) {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    for part in text.split("\nfailures:\n").skip(1) {
        let end = part.find("\ntest result:").unwrap_or(part.len());
        println!("{}", &part[..end]);
    }
}
