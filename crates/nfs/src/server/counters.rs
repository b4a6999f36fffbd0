//! How often, how long, with what outcome: one set of counters per procedure.
//!
//! - Counting takes no lock, and threads do not count in the same memory.
//! - A call is counted when its reply may leave, the wait for the log included.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::thread::{self, THREADS};
use crate::service::{Called, Program, STATUS_REFUSED};

/// Buckets of the latency histogram. Bucket `i` holds what took at most 2^i microseconds; the last, everything.
pub const LATENCY_BUCKETS: usize = 25;
/// Statuses counted apart: 0 to 79, 10,000 to 10,014, refused before a status, and all others.
const STATUS_SLOTS: usize = 97;
const HIGH_STATUS: u32 = 10_000;

/// A number that only grows.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    /// `alone`: no other thread adds to it.
    fn add(&self, by: u64, alone: bool) {
        if alone {
            self.0.store(self.0.load(Relaxed) + by, Relaxed);
        } else {
            self.0.fetch_add(by, Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one procedure.
struct Procedure {
    statuses: [Count; STATUS_SLOTS],
    latency: [Count; LATENCY_BUCKETS],
    latency_ns_sum: Count,
}

impl Default for Procedure {
    fn default() -> Procedure {
        Procedure {
            statuses: std::array::from_fn(|_| Count::default()),
            latency: std::array::from_fn(|_| Count::default()),
            latency_ns_sum: Count::default(),
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
    /// Their names and those of their procedures.
    programs: Vec<(&'static str, &'static [&'static str])>,
    /// By thread, then as `programs`.
    threads: [OnceLock<Vec<Vec<Procedure>>>; THREADS],
}

impl Counters {
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a dyn Program>) -> Counters {
        let names = |program: &dyn Program| (program.name(), program.procedures());
        Counters { programs: programs.into_iter().map(names).collect(), threads: [const { OnceLock::new() }; THREADS] }
    }

    fn procedures(&self) -> Vec<Vec<Procedure>> {
        let procedures = |names: &[&str]| names.iter().map(|_| Procedure::default()).collect();
        self.programs.iter().map(|(_, names)| procedures(names)).collect()
    }

    /// A call whose reply may leave now.
    pub fn count(&self, called: &Called, status: u32, elapsed: Duration) {
        // Those beyond the last but one count together.
        let thread = thread::number();
        let alone = thread < THREADS - 1;
        let programs = self.threads[thread.min(THREADS - 1)].get_or_init(|| self.procedures());
        let Some(procedures) = called.program.and_then(|index| programs.get(index)) else { return };
        let Some(procedure) = procedures.get(called.procedure as usize) else { return };
        procedure.statuses[slot_of(status)].add(1, alone);
        procedure.latency[bucket_of(elapsed)].add(1, alone);
        procedure.latency_ns_sum.add(elapsed.as_nanos() as u64, alone);
    }

    /// "nfs GETATTR", for the log.
    pub fn names(&self, called: &Called) -> (&'static str, &'static str) {
        called
            .program
            .and_then(|index| self.programs.get(index))
            .and_then(|(program, names)| Some((*program, *names.get(called.procedure as usize)?)))
            .unwrap_or(("unknown", "unknown"))
    }

    /// All procedures that have a name, in the order of programs and numbers.
    pub fn snapshot(&self) -> Vec<ProcedureStats> {
        let mut out = Vec::new();
        for (at, (program, names)) in self.programs.iter().enumerate() {
            for (procedure, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                let threads = self.threads.iter().filter_map(|thread| Some(&thread.get()?[at][procedure]));
                out.push(stats(program, name, &threads.collect::<Vec<_>>()));
            }
        }
        out
    }
}

/// What all threads have counted of a procedure.
fn stats(program: &'static str, procedure: &'static str, threads: &[&Procedure]) -> ProcedureStats {
    let sum = |count: &dyn Fn(&Procedure) -> &Count| threads.iter().map(|counted| count(counted).get()).sum::<u64>();
    let statuses = (0..STATUS_SLOTS).map(|slot| (status_of(slot), sum(&|counted| &counted.statuses[slot])));
    let statuses: Vec<_> = statuses.filter(|(_, count)| *count > 0).collect();
    ProcedureStats {
        program,
        procedure,
        calls: statuses.iter().map(|(_, count)| count).sum(),
        statuses,
        latency: std::array::from_fn(|bucket| sum(&|counted| &counted.latency[bucket])),
        latency_sum: Duration::from_nanos(sum(&|counted| &counted.latency_ns_sum)),
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
    use crate::service::tests::Echo;

    #[test]
    fn statuses_keep_their_numbers() {
        for status in [0, 2, 70, 79, 10_001, 10_008, 10_014, STATUS_REFUSED] {
            assert_eq!(status_of(slot_of(status)), status);
        }
        assert_eq!(status_of(slot_of(9999)), u32::MAX - 1);
    }

    #[test]
    fn no_call_of_any_thread_is_missed() {
        let program: &dyn Program = &Echo;
        let counters = Counters::new([program]);
        let one = Called { xid: 0, program: Some(0), procedure: 2 };
        // More than have memory of their own, many of them at once.
        std::thread::scope(|scope| {
            for _ in 0..2 * THREADS {
                scope.spawn(|| (0..1000).for_each(|call| counters.count(&one, call % 2, Duration::from_micros(3))));
            }
        });
        counters.count(&Called { procedure: 3, ..one }, 0, Duration::ZERO);
        let [echo, later, one] = &counters.snapshot()[..] else { panic!("three have names") };
        assert_eq!((echo.calls, later.calls, one.procedure), (0, 0, "GARBAGE"));
        let each = 1000 * THREADS as u64;
        assert_eq!((one.calls, &one.statuses[..]), (2 * each, &[(0, each), (1, each)][..]));
        assert_eq!(one.latency_sum, Duration::from_micros(6 * each));
        assert_eq!(one.latency[2], 2 * each);
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
