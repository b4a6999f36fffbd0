//! What rounds of fairness come to: a line for each load of each round, and one of all calls of all rounds, which is judged.

use super::{Beside, GETATTR_P99_MAX, Seen, WRITE_P99_MAX};
use hdrhistogram::Histogram;

/// The names of a line's columns.
pub fn head() -> String {
    format!(
        "{:<12} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}   {:>8} {:>8}   {:>10} {:>11} {:>6} {:>10}",
        "beside",
        "GETATTR",
        "p99 ms",
        "max",
        "WRITE",
        "p99 ms",
        "max",
        "disk p99",
        "max",
        "read MiB/s",
        "write MiB/s",
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
        "{:<12} {:>8.3} {:>8.3} {:>8.3}   {:>8.3} {:>8.3} {:>8.3}   {:>8.3} {:>8.3}   {:>10.0} {:>11.0} {:>6} {:>10}{}",
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

/// A line for each load of the calls of all its rounds, and whether all are within the limits and what was to go on beside
/// them always did.
pub fn whole(all: &[Seen]) -> (String, bool) {
    let mut text = format!(
        "{:<12} {:>12} {:>12} {:>12} {:>14}\n",
        "p99 of all", "GETATTR ms", "WRITE ms", "disk ms", "rounds beyond"
    );
    let mut good = true;
    for beside in Beside::ALL {
        let rounds: Vec<&Seen> = all.iter().filter(|seen| seen.beside == beside).collect();
        if rounds.is_empty() {
            continue;
        }
        let together = slowest_hundredth(&rounds);
        let beyond = rounds.iter().filter(|round| !within(round.slowest_hundredth())).count();
        let verdict = match (rounds.iter().all(|seen| seen.worked()), within(together)) {
            (false, _) => "  nothing went on beside the probes",
            (true, false) => "  beyond the limit",
            (true, true) => "",
        };
        good &= verdict.is_empty();
        let [getattr, write, disk] = together;
        let (name, rounds) = (beside.name(), format!("{beyond} of {}", rounds.len()));
        text += &format!("{name:<12} {getattr:>12.3} {write:>12.3} {disk:>12.3} {rounds:>14}{verdict}\n");
    }
    (text, good)
}

/// 99th percentiles of the calls of all `rounds`, milliseconds: GETATTR, WRITE, the disk alone.
fn slowest_hundredth(rounds: &[&Seen]) -> [f64; 3] {
    let of: [fn(&Seen) -> &Histogram<u64>; 3] =
        [|seen| &seen.getattr.latency, |seen| &seen.write.latency, |seen| &seen.disk];
    of.map(|of| {
        let mut all = of(rounds[0]).clone();
        rounds[1..].iter().for_each(|seen| all += of(seen));
        all.value_at_quantile(0.99) as f64 / 1e6
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Run;
    use std::time::Duration;

    fn run(calls: &[(u64, u64)]) -> Run {
        let mut latency = Histogram::new(3).unwrap();
        calls.iter().for_each(|(count, ms)| latency.record_n(ms * 1_000_000, *count).unwrap());
        Run {
            calls: latency.len(),
            elapsed: Duration::from_secs(1),
            latency,
            tails: Vec::new(),
            spent: Default::default(),
        }
    }

    fn seen(beside: Beside, write: &[(u64, u64)], background: u64) -> Seen {
        let (getattr, write, disk) = (run(&[(100, 1)]), run(write), run(&[(100, 1)]).latency);
        Seen { beside, getattr, write, disk, read_rate: 0.0, write_rate: 0.0, busy: 0, background }
    }

    #[test]
    fn all_calls_of_all_rounds_are_judged_together() {
        let rounds = |slow: [u64; 3]| whole(&slow.map(|slow| seen(Beside::Scrub, &[(1000 - slow, 5), (slow, 300)], 1)));
        let (text, good) = rounds([0, 29, 0]);
        assert!(good && text.contains("1 of 3"), "{text}");
        let (text, good) = rounds([0, 33, 0]);
        assert!(!good && text.contains("beyond the limit"), "{text}");
        assert!(!rounds([11, 11, 11]).1);
    }

    #[test]
    fn a_load_beside_which_nothing_went_on_fails() {
        let calls = &[(100, 1)];
        let (text, good) =
            whole(&[seen(Beside::Scrub, calls, 1), seen(Beside::Scrub, calls, 0), seen(Beside::Reads, calls, 0)]);
        assert!(!good && text.contains("nothing went on"), "{text}");
        assert!(whole(&[seen(Beside::Reads, calls, 0)]).1);
    }
}
