//! Whether a cell counts: the rate, the mix, the response time, and that nothing went wrong on the way.

use crate::workload::definition::Valid;
use crate::workload::result::Cell;

/// An idle process that begins later than that says the generator is at its end, not the server.
const LATENESS_MAX_US: f64 = 500.0;

/// Per cent that a percentile may miss that of the sorted latencies.
const HISTOGRAM_OFF_MAX: f64 = 1.0;

/// Operations from which on a share holds by itself.
const FEW: f64 = 20_000.0;

/// Why the cell does not count; empty if it does. A quick run is a check of answers: its times are not judged.
pub fn judge(cell: &Cell, valid: &Valid, quick: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if cell.operations.iter().all(|operation| operation.count == 0) {
        reasons.push("no operation ended".to_owned());
    }
    if !quick {
        reasons.extend(times(cell, valid));
    }
    let operations = cell.achieved * cell.seconds;
    for operation in &cell.operations {
        let Some(wanted) = operation.wanted else { continue };
        let off = operation.share - wanted;
        // Few operations keep no share by nature: so much of a point is chance.
        let share = wanted / 100.0;
        let chance = 300.0 * (share * (1.0 - share) / operations.max(1.0)).sqrt() + 300.0 / operations.max(1.0);
        let allowed = valid.mix_points.max(if operations < FEW { chance } else { 0.0 });
        if off.abs() > allowed {
            let name = &operation.operation;
            reasons.push(format!("{name}: share off by {off:+.2} points, {allowed:.2} allowed"));
        }
    }
    if let Some(off) = cell.histogram_off.filter(|off| *off > HISTOGRAM_OFF_MAX) {
        reasons.push(format!("a percentile is off by {off:.2} % from the sorted latencies"));
    }
    if cell.reopened > 0 {
        reasons.push(format!("the server closed connections {} times", cell.reopened));
    }
    if cell.verifiers > 0 {
        reasons.push(format!("the write verifier changed {} times: the server restarted", cell.verifiers));
    }
    reasons
}

/// What is wrong with the cell's times.
fn times(cell: &Cell, valid: &Valid) -> Vec<String> {
    let mut reasons = Vec::new();
    if cell.requested > 0.0 {
        let off = (cell.achieved / cell.requested - 1.0) * 100.0;
        if off.abs() > valid.rate_percent {
            reasons.push(format!("the rate is off by {off:+.1} %, {} allowed", valid.rate_percent));
        }
        if cell.lateness_us > LATENESS_MAX_US {
            reasons
                .push(format!("the generator was late by {:.0} us: its own limit, not the server's", cell.lateness_us));
        }
    }
    let latency = cell.latency_ms;
    if valid.response_max_ms > 0.0 && latency.mean > valid.response_max_ms {
        reasons.push(format!("mean response {:.2} ms, {} allowed", latency.mean, valid.response_max_ms));
    }
    if valid.silence_max_ms > 0.0 && latency.max > valid.silence_max_ms {
        reasons.push(format!("an operation took {:.0} ms, {} allowed", latency.max, valid.silence_max_ms));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::result::{Latency, Operation};

    fn cell() -> Cell {
        let latency_ms = Latency { mean: 1.0, p50: 1.0, p90: 2.0, p99: 3.0, p999: 4.0, max: 5.0 };
        let operation = Operation {
            component: "c".to_owned(),
            operation: "getattr".to_owned(),
            count: 1000,
            share: 26.5,
            wanted: Some(26.0),
            latency_ms,
        };
        Cell {
            name: "10 %".to_owned(),
            load: 1000.0,
            seconds: 100.0,
            requested: 1000.0,
            achieved: 990.0,
            latency_ms,
            read_mb_s: 0.0,
            write_mb_s: 0.0,
            operations: vec![operation],
            server_cpu_s: None,
            server_rss_mib: None,
            generator_cpu_s: 0.1,
            lateness_us: 20.0,
            histogram_off: Some(0.1),
            requests: None,
            reopened: 0,
            jukebox: 0,
            verifiers: 0,
            valid: true,
            reasons: Vec::new(),
        }
    }

    #[test]
    fn each_rule_voids_a_cell_by_itself() {
        let valid = Valid { response_max_ms: 20.0, ..Valid::default() };
        assert_eq!(judge(&cell(), &valid, false), Vec::<String>::new());
        let bad: [fn(&mut Cell); 9] = [
            |cell| cell.achieved = 900.0,
            |cell| cell.operations[0].share = 27.5,
            |cell| cell.latency_ms.mean = 21.0,
            |cell| cell.latency_ms.max = 1000.0,
            |cell| cell.reopened = 1,
            |cell| cell.verifiers = 1,
            |cell| cell.lateness_us = 1000.0,
            |cell| cell.operations[0].count = 0,
            |cell| cell.histogram_off = Some(1.5),
        ];
        for (index, spoil) in bad.into_iter().enumerate() {
            let mut cell = cell();
            spoil(&mut cell);
            assert_eq!(judge(&cell, &valid, false).len(), 1, "rule {index}");
            let of_times = matches!(index, 0 | 2 | 3 | 6);
            assert_eq!(judge(&cell, &valid, true).is_empty(), of_times, "rule {index} in a quick run");
        }
    }
}
