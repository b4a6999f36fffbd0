//! Checkpoints of a Tarn at set moments, so that every cell of a measurement bears the same share of them.
//!
//! - What was changed before a cell is in the store when the cell begins: its checkpoint is not the cell's.
//! - One checkpoint is asked for in each cell, as long after the one before it as the cell is measured: the cell bears
//!   the checkpoint of as much change as it makes. Where more or fewer fall into it, or it ends after the cell, the cell does
//!   not count.
//! - It is asked for by the command, which runs on the server's core and is not counted as the server's.

use crate::Outcome;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a running Tarn is asked for a checkpoint.
#[derive(Clone, Debug)]
pub struct Steady {
    pub program: PathBuf,
    /// Its directory of state.
    pub data: PathBuf,
    /// Where the command runs.
    pub core: usize,
}

impl Steady {
    /// Brings everything to the store; returns when it is there.
    pub fn checkpoint(&self) -> Outcome<()> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &self.core.to_string()]).arg(&self.program).arg("checkpoint");
        let output = command.arg("--data").arg(&self.data).output();
        let output = output.map_err(|error| format!("taskset {}: {error}", self.program.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("tarn checkpoint: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// The same so long from now, beside the load; gives when it was over.
    pub fn later(&self, wait: Duration) -> JoinHandle<Outcome<Instant>> {
        let steady = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            steady.checkpoint().map(|()| Instant::now())
        })
    }
}

/// Why a cell that should have borne one checkpoint does not count.
pub fn judge(count: u64, late: Duration) -> Option<String> {
    match (count, late) {
        (1, Duration::ZERO) => None,
        (1, late) => Some(format!("the checkpoint ended {} ms after the cell: measure longer", late.as_millis())),
        (count, _) => Some(format!("{count} checkpoints fell into the cell: there must be the one that was asked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_checkpoint_that_ends_in_time_counts() {
        assert_eq!(judge(1, Duration::ZERO), None);
        assert!(judge(0, Duration::ZERO).is_some_and(|reason| reason.starts_with("0 checkpoints")));
        assert!(judge(2, Duration::ZERO).is_some());
        assert!(judge(1, Duration::from_millis(7)).is_some_and(|reason| reason.contains("7 ms")));
    }

    #[test]
    fn a_command_that_fails_is_told() {
        let steady = Steady { program: "/bin/false".into(), data: "/".into(), core: 0 };
        assert!(steady.checkpoint().is_err_and(|error| error.starts_with("tarn checkpoint")));
        let later = Steady { program: "/bin/true".into(), ..steady }.later(Duration::from_millis(5));
        assert!(later.join().is_ok_and(|ended| ended.is_ok()));
    }
}
