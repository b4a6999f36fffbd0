//! How often, how long, with what outcome: one set of counters per procedure.
//!
//! - Counting takes no lock.
//! - A call is counted when its reply may leave, the wait for the log included.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::service::{Called, Program, STATUS_REFUSED};

/// Buckets of the latency histogram. Bucket `i` holds what took at most 2^i microseconds; the last, everything.
pub const LATENCY_BUCKETS: usize = 25;
/// Statuses counted apart: 0 to 79, 10,000 to 10,014, refused before a status, and all others.
const STATUS_SLOTS: usize = 97;
const HIGH_STATUS: u32 = 10_000;

/// The counters of one procedure.
struct Procedure {
    statuses: [AtomicU64; STATUS_SLOTS],
    latency: [AtomicU64; LATENCY_BUCKETS],
    latency_ns_sum: AtomicU64,
}

impl Default for Procedure {
    fn default() -> Procedure {
        Procedure {
            statuses: [const { AtomicU64::new(0) }; STATUS_SLOTS],
            latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
            latency_ns_sum: AtomicU64::new(0),
        }
    }
}

/// A procedure's counters at one moment, for whoever renders them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureStats {
    /// "nfs".
    pub program: &'static str,
    /// "GETATTR".
    pub procedure: &'static str,
    pub calls: u64,
    /// Calls by status, those that occurred; `u32::MAX` stands for a call refused by RPC, `u32::MAX - 1` for
    /// statuses not counted apart.
    pub statuses: Vec<(u32, u64)>,
    /// Calls that took at most so long and longer than the bucket before; the last has no bound.
    pub latency: [u64; LATENCY_BUCKETS],
    pub latency_sum: Duration,
}

/// Upper bound of a latency bucket; `None` for the last.
pub fn latency_bound(bucket: usize) -> Option<Duration> {
    (bucket + 1 < LATENCY_BUCKETS).then(|| Duration::from_micros(1 << bucket))
}

/// Counters of all procedures of all programs of a port.
pub struct Counters {
    programs: Vec<(&'static str, &'static [&'static str], Vec<Procedure>)>,
}

impl Counters {
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a dyn Program>) -> Counters {
        let counters = |program: &dyn Program| {
            let names = program.procedures();
            (program.name(), names, names.iter().map(|_| Procedure::default()).collect())
        };
        Counters { programs: programs.into_iter().map(counters).collect() }
    }

    /// A call whose reply may leave now.
    pub fn count(&self, called: &Called, status: u32, elapsed: Duration) {
        let Some((_, _, procedures)) = called.program.and_then(|index| self.programs.get(index)) else { return };
        let Some(procedure) = procedures.get(called.procedure as usize) else { return };
        procedure.statuses[slot_of(status)].fetch_add(1, Relaxed);
        procedure.latency[bucket_of(elapsed)].fetch_add(1, Relaxed);
        procedure.latency_ns_sum.fetch_add(elapsed.as_nanos() as u64, Relaxed);
    }

    /// "nfs GETATTR", for the log.
    pub fn names(&self, called: &Called) -> (&'static str, &'static str) {
        called
            .program
            .and_then(|index| self.programs.get(index))
            .and_then(|(program, names, _)| Some((*program, *names.get(called.procedure as usize)?)))
            .unwrap_or(("unknown", "unknown"))
    }

    /// All procedures that have a name, in the order of programs and numbers.
    pub fn snapshot(&self) -> Vec<ProcedureStats> {
        let mut out = Vec::new();
        for (program, names, procedures) in &self.programs {
            for (name, procedure) in names.iter().zip(procedures).filter(|(name, _)| !name.is_empty()) {
                out.push(procedure.snapshot(program, name));
            }
        }
        out
    }
}

impl Procedure {
    fn snapshot(&self, program: &'static str, procedure: &'static str) -> ProcedureStats {
        let counted = |(slot, count): (usize, &AtomicU64)| {
            let count = count.load(Relaxed);
            (count > 0).then_some((status_of(slot), count))
        };
        let statuses: Vec<_> = self.statuses.iter().enumerate().filter_map(counted).collect();
        ProcedureStats {
            program,
            procedure,
            calls: statuses.iter().map(|(_, count)| count).sum(),
            statuses,
            latency: std::array::from_fn(|bucket| self.latency[bucket].load(Relaxed)),
            latency_sum: Duration::from_nanos(self.latency_ns_sum.load(Relaxed)),
        }
    }
}

fn slot_of(status: u32) -> usize {
    match status {
        0..80 => status as usize,
        HIGH_STATUS..10_015 => 80 + (status - HIGH_STATUS) as usize,
        STATUS_REFUSED => 95,
        _ => 96,
    }
}

fn status_of(slot: usize) -> u32 {
    match slot {
        0..80 => slot as u32,
        80..95 => HIGH_STATUS + (slot - 80) as u32,
        95 => STATUS_REFUSED,
        _ => u32::MAX - 1,
    }
}

fn bucket_of(elapsed: Duration) -> usize {
    let micros = elapsed.as_nanos().div_ceil(1000).max(1) as u64;
    (micros.next_power_of_two().trailing_zeros() as usize).min(LATENCY_BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_keep_their_numbers() {
        for status in [0, 2, 70, 79, 10_001, 10_008, 10_014, STATUS_REFUSED] {
            assert_eq!(status_of(slot_of(status)), status);
        }
        assert_eq!(status_of(slot_of(9999)), u32::MAX - 1);
    }

    #[test]
    fn a_latency_falls_below_its_bound() {
        for nanos in [0, 999, 1000, 1001, 2000, 2001, 1_000_000, 8_000_000_000] {
            let elapsed = Duration::from_nanos(nanos);
            let bucket = bucket_of(elapsed);
            assert!(latency_bound(bucket).is_none_or(|bound| elapsed <= bound), "{nanos} in {bucket}");
            assert!(bucket == 0 || latency_bound(bucket - 1).is_some_and(|bound| elapsed > bound));
        }
        assert_eq!(bucket_of(Duration::from_secs(100)), LATENCY_BUCKETS - 1);
    }
}
