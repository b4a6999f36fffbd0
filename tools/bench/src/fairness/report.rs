//! What rounds of fairness come to: a line for each load of each round, and one of the medians, which is judged.

use super::{Beside, GETATTR_P99_MAX, Seen, WRITE_P99_MAX};
use hdrhistogram::Histogram;

/// The names of a line's columns.
pub fn head() -> String {
    format!(
        "{:<12} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}   {:>8} {:>8}   {:>9} {:>9} {:>6} {:>10}",
        "beside",
        "GETATTR",
        "p99 ms",
        "max",
        "WRITE",
        "p99 ms",
        "max",
        "disk p99",
        "max",
        "read MiB",
        "write MiB",
        "busy",
        "background"
    )
}

/// One load of one round.
pub fn line(seen: &Seen) -> String {
    let at = |latency: &Histogram<u64>, quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
    let (getattr, write) = (&seen.getattr.latency, &seen.write.latency);
    let background = match seen.beside.has_background() {
        true => format!("{} MiB", seen.background >> 20),
        false => String::new(),
    };
    format!(
        "{:<12} {:>8.3} {:>8.3} {:>8.3}   {:>8.3} {:>8.3} {:>8.3}   {:>8.3} {:>8.3}   {:>9.0} {:>9.0} {:>6} {:>10}{}",
        seen.beside.name(),
        at(getattr, 0.5),
        at(getattr, 0.99),
        at(getattr, 1.0),
        at(write, 0.5),
        at(write, 0.99),
        at(write, 1.0),
        at(&seen.disk, 0.99),
        at(&seen.disk, 1.0),
        seen.read_rate / (1 << 20) as f64,
        seen.write_rate / (1 << 20) as f64,
        seen.busy,
        background,
        match (seen.worked(), within(seen.slowest_hundredth())) {
            (false, _) => "  nothing went on beside the probes",
            (true, false) => "  beyond the limit",
            (true, true) => "",
        }
    )
}

fn within([getattr, write, _]: [f64; 3]) -> bool {
    getattr <= GETATTR_P99_MAX.as_secs_f64() * 1e3 && write <= WRITE_P99_MAX.as_secs_f64() * 1e3
}

/// A line of medians for each load, and whether all are within the limits and what was to go on beside them always did.
pub fn medians(all: &[Seen]) -> (String, bool) {
    let mut text = format!(
        "{:<12} {:>12} {:>12} {:>12} {:>14}\n",
        "p99, median", "GETATTR ms", "WRITE ms", "disk ms", "rounds beyond"
    );
    let mut good = true;
    for beside in Beside::ALL {
        let rounds: Vec<&Seen> = all.iter().filter(|seen| seen.beside == beside).collect();
        if rounds.is_empty() {
            continue;
        }
        let found: Vec<[f64; 3]> = rounds.iter().map(|seen| seen.slowest_hundredth()).collect();
        let medians = [0, 1, 2].map(|of| median(found.iter().map(|round| round[of]).collect()));
        let beyond = found.iter().filter(|round| !within(**round)).count();
        let verdict = match (rounds.iter().all(|seen| seen.worked()), within(medians)) {
            (false, _) => "  nothing went on beside the probes",
            (true, false) => "  beyond the limit",
            (true, true) => "",
        };
        good &= verdict.is_empty();
        let [getattr, write, disk] = medians;
        let (name, rounds) = (beside.name(), format!("{beyond} of {}", rounds.len()));
        text += &format!("{name:<12} {getattr:>12.3} {write:>12.3} {disk:>12.3} {rounds:>14}{verdict}\n");
    }
    (text, good)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Run;
    use std::time::Duration;

    fn run(ms: u64) -> Run {
        let mut latency = Histogram::new(3).unwrap();
        latency.record(ms * 1_000_000).unwrap();
        Run { calls: 1, elapsed: Duration::from_secs(1), latency, spent: Default::default() }
    }

    fn seen(beside: Beside, write: u64, background: u64) -> Seen {
        let (getattr, write, disk) = (run(1), run(write), run(1).latency);
        Seen { beside, getattr, write, disk, read_rate: 0.0, write_rate: 0.0, busy: 0, background }
    }

    #[test]
    fn one_round_in_three_may_be_slow_and_no_two() {
        let rounds = |writes: [u64; 3]| medians(&writes.map(|write| seen(Beside::Scrub, write, 1)));
        assert!(rounds([5, 300, 6]).1);
        assert!(!rounds([21, 300, 6]).1);
        assert!(rounds([5, 300, 6]).0.contains("1 of 3"));
    }

    #[test]
    fn a_load_beside_which_nothing_went_on_fails() {
        let (text, good) = medians(&[seen(Beside::Scrub, 1, 1), seen(Beside::Scrub, 1, 0), seen(Beside::Reads, 1, 0)]);
        assert!(!good && text.contains("nothing went on"), "{text}");
        assert!(medians(&[seen(Beside::Reads, 1, 0)]).1);
    }
}
