//! A stream of large UNSTABLE writes to the reply of its last COMMIT, beside what the disk gives one writer alone.
//!
//! - Every block that is written is another one, and nothing of it compresses.
//! - A round is a checkpoint, dd, and the stream. Before the first there is a stream that counts for nothing: memory that a
//!   server has not used before is the machine's to find, which is another figure.
//! - dd writes over a file that it has written before, with `conv=fdatasync,notrunc`.

use super::own::Own;
use super::{Common, mib};
use crate::Outcome;
use crate::compare::{Ratio, Seen, median};
use crate::load::{Length, Plan, Site};
use crate::measure::machine;
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: f64 = (1 << 20) as f64;

#[derive(Args)]
pub struct Stream {
    #[command(flatten)]
    pub(super) common: Common,
    /// What a stream moves, GiB
    #[arg(long, default_value_t = 4)]
    size: u64,
    /// What the stream before it moves, GiB
    #[arg(long, default_value_t = 4)]
    before: u64,
    /// What dd moves, GiB
    #[arg(long, default_value_t = 4)]
    dd: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Connections x calls in flight on each
    #[arg(long, default_value = "4x4", value_parser = crate::load::shape)]
    calls: (usize, usize),
}

/// Bytes a second of `dd` on any of the first `cores`, over a file that is there.
fn dd(path: &Path, bytes: u64, cores: usize) -> Outcome<f64> {
    let started = Instant::now();
    let output = Command::new("taskset")
        .args(["--cpu-list", &format!("0-{}", cores - 1), "dd"])
        .args(["if=/dev/zero", "bs=1M", "conv=fdatasync,notrunc"])
        .arg(format!("of={}", path.display()))
        .arg(format!("count={}", bytes >> 20))
        .output()
        .map_err(|error| format!("dd: {error}"))?;
    if !output.status.success() {
        return Err(format!("dd: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64())
}

/// What a round gave.
struct Round {
    /// Bytes a second of dd and of the stream.
    alone: f64,
    stream: f64,
    seen: Seen,
}

impl Stream {
    pub fn run(&self) -> Outcome<()> {
        let path = self.common.directory.join(format!("tarn-bench-dd-{}", std::process::id()));
        let ran = self.rounds(&path);
        let _ = std::fs::remove_file(&path);
        let rounds = ran?;
        let of = |field: fn(&Round) -> f64| median(rounds.iter().map(field).collect());
        let ratio = Ratio::of(rounds.iter().map(|round| round.stream / round.alone).collect());
        println!(
            "medians: {:.0} MiB/s, dd {:.0} MiB/s; of dd {:.2} ({:.2} to {:.2}); process {:.0} us/MiB, core {:.0}",
            of(|round| round.stream) / MIB,
            of(|round| round.alone) / MIB,
            ratio.median,
            ratio.low,
            ratio.high,
            of(|round| round.seen.process_us),
            of(|round| round.seen.core_us),
        );
        println!("{}; load average {:.2}", machine::tcp(), machine::load_average());
        Ok(())
    }

    fn rounds(&self, path: &Path) -> Outcome<Vec<Round>> {
        // Asked before the generator is kept on one.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The first time, dd is given its blocks.
        dd(path, self.dd << 30, cores)?;
        let own = Own::start(&self.common)?;
        let mut site = Site::prepare(own.target.clone())?;
        if self.before > 0 {
            self.stream(&mut site, self.before)?;
        }
        (0..self.rounds.max(1)).map(|_| self.round(&own, &mut site, path, cores)).collect()
    }

    fn round(&self, own: &Own, site: &mut Site, path: &Path, cores: usize) -> Outcome<Round> {
        own.tarn(&["checkpoint"])?;
        let alone = dd(path, self.dd << 30, cores)?;
        let checkpoints = || Ok::<_, String>(own.status()?["checkpoint"]["count"].as_u64().unwrap_or(0));
        let before = checkpoints()?;
        let (stream, seen) = self.stream(site, self.size)?;
        println!(
            "{:.0} MiB/s, dd {:.0}: {:.2}; process {:.0} us/MiB, core {:.0}, generator busy {:.2}; p50 {:.1} ms, \
             p99 {:.1} ms; {} checkpoints meanwhile, {} resident",
            stream / MIB,
            alone / MIB,
            stream / alone,
            seen.process_us,
            seen.core_us,
            seen.generator,
            seen.p50_us / 1e3,
            seen.p99_us / 1e3,
            checkpoints()? - before,
            mib(super::watch::resident(own.pid()).unwrap_or(0)),
        );
        Ok(Round { alone, stream, seen })
    }

    /// Moves so many GiB; gives bytes a second and what else was seen.
    fn stream(&self, site: &mut Site, size: u64) -> Outcome<(f64, Seen)> {
        let (connections, depth) = self.calls;
        let plan = Plan { connections, depth, warm_up: Duration::ZERO, length: Length::Calls(0), pace: None };
        let run = site.flood(plan, size << 30)?;
        let rate = run.calls as f64 * MIB / run.elapsed.as_secs_f64();
        Ok((rate, Seen::of(&run)))
    }
}
