//! What a cell of the load has shown: latencies, rates, bytes, and whether the generator kept up.

use crate::workload::definition::Kind;
use crate::workload::process::Done;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nanoseconds that a histogram holds at most: longer counts as this.
const LONGEST: u64 = 3_600_000_000_000;
/// Digits that a recorded value keeps: within a thousandth.
const DIGITS: u8 = 3;

/// Of one kind of operation.
pub struct Seen {
    pub latency: Histogram<u64>,
    pub read: u64,
    pub written: u64,
}

impl Seen {
    pub fn new() -> Seen {
        Seen { latency: histogram(), read: 0, written: 0 }
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen::new()
    }
}

/// Nanoseconds.
pub fn histogram() -> Histogram<u64> {
    // Bounds and digits are constants that the crate takes.
    // From 1 on: a histogram's digits hold only above its least value times some thousands.
    Histogram::new_with_bounds(1, LONGEST, DIGITS).unwrap_or_else(|error| unreachable!("{error}"))
}

/// Per cent by which a percentile of `latency` misses the same percentile of the latencies themselves, at most. Sorts them.
pub fn off_percent(latency: &Histogram<u64>, raw: &mut [u64]) -> f64 {
    raw.sort_unstable();
    let percentiles = (1..100).map(f64::from).chain([99.9, 99.99, 100.0]);
    let off = |percentile: f64| {
        let rank = ((percentile / 100.0 * raw.len() as f64).ceil() as usize).clamp(1, raw.len());
        let (found, sorted) = (latency.value_at_quantile(percentile / 100.0), raw[rank - 1].max(1));
        (found as f64 / sorted as f64 - 1.0).abs() * 100.0
    };
    if raw.is_empty() { 0.0 } else { percentiles.map(off).fold(0.0, f64::max) }
}

/// Operations that were due in the window, whenever they ended.
pub struct Recorder {
    window: Cell<(Instant, Instant)>,
    seen: RefCell<BTreeMap<(usize, Kind), Seen>>,
    late: RefCell<Histogram<u64>>,
    /// Every latency as it was, where a check asks for them.
    raw: Option<RefCell<Vec<u64>>>,
    longest: Cell<Duration>,
    last: Cell<Option<Instant>>,
}

impl Recorder {
    pub fn new(from: Instant, to: Instant, raw: bool) -> Recorder {
        Recorder {
            window: Cell::new((from, to)),
            seen: RefCell::default(),
            late: RefCell::new(histogram()),
            raw: raw.then(RefCell::default),
            longest: Cell::default(),
            last: Cell::default(),
        }
    }

    /// An operation that was due then has ended.
    pub fn done(&self, component: usize, kind: Kind, due: Instant, done: Done) {
        let (from, to) = self.window.get();
        if due < from || due >= to {
            return;
        }
        let took = done.at.saturating_duration_since(due);
        let mut seen = self.seen.borrow_mut();
        let entry = seen.entry((component, kind)).or_default();
        entry.latency.saturating_record(took.as_nanos() as u64);
        entry.read += done.read;
        entry.written += done.written;
        if let Some(raw) = &self.raw {
            raw.borrow_mut().push(took.as_nanos() as u64);
        }
        self.longest.set(self.longest.get().max(took));
        self.last.set(Some(self.last.get().map_or(done.at, |last| last.max(done.at))));
    }

    /// A process that had nothing to do began so much after the moment that was due: the generator's own fault.
    pub fn late(&self, due: Instant, by: Duration) {
        let (from, to) = self.window.get();
        if due >= from && due < to {
            self.late.borrow_mut().saturating_record(by.as_nanos() as u64);
        }
    }

    pub fn longest(&self) -> Duration {
        self.longest.get()
    }

    /// When the last operation ended.
    pub fn last(&self) -> Option<Instant> {
        self.last.get()
    }

    /// How late the generator was, 99 of 100 times at most.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.late.borrow().value_at_quantile(0.99))
    }

    pub fn take(&self) -> (BTreeMap<(usize, Kind), Seen>, Vec<u64>) {
        let raw = self.raw.as_ref().map(|raw| std::mem::take(&mut *raw.borrow_mut())).unwrap_or_default();
        (std::mem::take(&mut *self.seen.borrow_mut()), raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::random::Random;

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let begin = Instant::now();
        // From what a call of the system takes to what a slow server does.
        for least in [300.0, 3_000.0, 20_000.0, 5_000_000.0] {
            let recorder = Recorder::new(begin, begin + Duration::from_secs(60), true);
            let mut random = Random::new(3);
            for _ in 0..100_000 {
                let took = Duration::from_nanos((least / (1.0 - random.unit()).powf(0.7)) as u64);
                recorder.done(0, Kind::Getattr, begin, Done { at: begin + took, read: 0, written: 0 });
            }
            let (seen, mut raw) = recorder.take();
            let off = off_percent(&seen[&(0, Kind::Getattr)].latency, &mut raw);
            assert!(off < 0.2, "{off} % at {least} ns");
        }
    }

    #[test]
    fn only_what_was_due_in_the_window_counts() {
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let recorder = Recorder::new(begin + second, begin + 2 * second, false);
        for due in [begin, begin + second, begin + 2 * second] {
            recorder.done(0, Kind::Read, due, Done { at: due + second, read: 512, written: 0 });
        }
        assert_eq!(recorder.take().0[&(0, Kind::Read)].read, 512);
    }
}
