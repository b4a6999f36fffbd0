//! What passed, failed and was skipped, and the status that says so.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Lines of a program that begin so say why it failed.
const REASONS: [&str; 4] = ["FAILED", "NOT MET", "NOT RUN", "WRONG"];
/// Reasons that the end of a run repeats of one program; what it printed has all of them.
const REASONS_REPEATED: usize = 3;

/// Names, so that the end of a run can list them.
#[derive(Debug, Default)]
pub struct Tally {
    pub passed: usize,
    pub failures: Vec<String>,
    /// `name: needs thing`.
    pub skips: Vec<String>,
}

impl Tally {
    pub fn failed(&mut self, name: &str) {
        self.failures.push(name.to_owned());
    }

    pub fn outcome(&mut self, name: &str, passed: bool) {
        match passed {
            true => self.passed += 1,
            false => self.failed(name),
        }
    }

    /// Runs a program whose status is one outcome. The end of the run, which may be all of it that is kept, says why it failed.
    pub fn program(&mut self, name: &str, mut command: Command) -> Result<(), String> {
        let told = |error: std::io::Error| format!("{name}: {error}");
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(told)?;
        let output = child.stdout.take().ok_or("a program has no output")?;
        let mut reasons = Vec::new();
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(told)?).into_owned();
            println!("{line}");
            if REASONS.iter().any(|reason| line.starts_with(reason)) {
                reasons.push(line);
            }
        }
        let status = child.wait().map_err(told)?;
        reasons.truncate(REASONS_REPEATED);
        match (status.success(), reasons.is_empty()) {
            (true, _) => self.passed += 1,
            (false, true) => self.failed(&format!("{name}: {status}")),
            (false, false) => self.failed(&format!("{name}: {}", reasons.join("; "))),
        }
        Ok(())
    }

    /// Takes in one line that a test program printed: results of Rust's test harness and `SKIPPED name: needs thing`.
    /// Answers whether the line is worth a reader's time.
    pub fn line(&mut self, line: &str) -> bool {
        // A test that prints without an end of line leaves its words before ours.
        if let Some(at) = line.find("SKIPPED ") {
            let skip = line[at + 8..].trim().to_owned();
            if skip.contains(": needs ") && !self.skips.contains(&skip) {
                self.skips.push(skip);
            }
            return true;
        }
        let Some(result) = line.strip_prefix("test ") else {
            return line.starts_with("test result: FAILED");
        };
        let Some((name, verdict)) = result.rsplit_once(" ... ") else {
            return result.starts_with("result: FAILED");
        };
        if verdict == "ok" {
            self.passed += 1;
        } else if let Some(reason) = verdict.strip_prefix("ignored") {
            let reason = reason.trim_start_matches(", ");
            let reason = if reason.is_empty() { "to be asked for (it is marked ignored)" } else { reason };
            self.skips.push(format!("{name}: needs {}", reason.trim_start_matches("needs ")));
        } else {
            self.failed(name);
            return true;
        }
        false
    }

    /// 0 all passed, 1 something failed, 3 passed with skips. Where everything was installed, a skip is a failure.
    pub fn status(&self, installed: bool) -> u8 {
        match (self.failures.is_empty(), self.skips.is_empty()) {
            (false, _) => 1,
            (true, true) => 0,
            (true, false) if installed => 1,
            (true, false) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.line(line);
        }
        tally
    }

    #[test]
    fn lines_of_the_harness_are_counted() {
        let tally =
            told(&["test a::b ... ok", "test c ... FAILED", "test d ... ignored, needs a disk", "running 3 tests"]);
        assert_eq!((tally.passed, tally.failures.len()), (1, 1));
        assert_eq!(tally.skips, ["d: needs a disk"]);
        assert_eq!(tally.status(false), 1);
    }

    #[test]
    fn the_end_of_a_run_says_why_a_program_failed() {
        let mut tally = Tally::default();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        tally.program("good", shell("echo FAILED is but a word; exit 0")).unwrap();
        tally.program("bad", shell("echo much; echo 'NOT MET: a flush fails: 1 times of 2'; exit 1")).unwrap();
        tally.program("gone", shell("exit 101")).unwrap();
        assert_eq!(tally.passed, 1);
        assert_eq!(tally.failures, ["bad: NOT MET: a flush fails: 1 times of 2", "gone: exit status: 101"]);
    }

    #[test]
    fn a_skip_is_listed_once_and_ends_with_three() {
        let tally = told(&["test a ... ok", "SKIPPED s3: needs versitygw", "SKIPPED s3: needs versitygw"]);
        assert_eq!(tally.skips, ["s3: needs versitygw"]);
        assert_eq!((tally.status(false), tally.status(true)), (3, 1));
        assert_eq!(told(&["test a ... ok"]).status(true), 0);
    }
}
