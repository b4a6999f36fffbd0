//! What passed, failed and was skipped, and the status that says so.

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
    fn a_skip_is_listed_once_and_ends_with_three() {
        let tally = told(&["test a ... ok", "SKIPPED s3: needs versitygw", "SKIPPED s3: needs versitygw"]);
        assert_eq!(tally.skips, ["s3: needs versitygw"]);
        assert_eq!((tally.status(false), tally.status(true)), (3, 1));
        assert_eq!(told(&["test a ... ok"]).status(true), 0);
    }
}
