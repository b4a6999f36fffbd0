//! Several servers in turns.
//!
//! - A round measures every server once; the next round goes in the opposite order, so that a machine that grows slower
//!   favours nobody.
//! - Figures are medians over the rounds; ratios are medians of the ratios within each round.

use crate::Outcome;
use crate::load::{Length, Operation, Plan, Run, Site};
use std::time::Duration;

/// What is repeated, over how many connections, how many at once on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub operation: Operation,
    pub connections: usize,
    pub depth: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: usize,
    pub warm_up: Duration,
    pub length: Duration,
    /// How much a round of large writes moves, since it ends with a COMMIT and not with a time.
    pub bytes: u64,
}

/// One server in one round, or the medians over all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Calls a second.
    pub rate: f64,
    /// Microseconds that the server's process took for a call.
    pub process_us: f64,
    /// Microseconds that its core was busy for a call.
    pub core_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Share of the time that the generator was busy: near 1, the figure is the generator's.
    pub generator: f64,
}

/// A server's figures beside the first's.
#[derive(Clone, Debug)]
pub struct Row {
    pub shape: Shape,
    pub server: String,
    pub seen: Seen,
    /// The first server's rate by this one's.
    pub rate_ratio: f64,
    /// The first server's calls per processor second by this one's.
    pub cpu_ratio: f64,
}

/// Measures `shape` at every site. The first site is the one the others are held against.
pub fn compare(sites: &mut [&mut Site], shape: Shape, rounds: Rounds) -> Outcome<Vec<Row>> {
    let Shape { operation, connections, depth } = shape;
    let length = Length::Time(rounds.length);
    let plan = Plan { connections, depth, warm_up: rounds.warm_up, length };
    if operation.is_counted() {
        // The first time, files grow; that is another figure.
        for site in sites.iter_mut() {
            site.measure(operation, plan, rounds.bytes)?;
        }
    }
    let mut seen = vec![Vec::new(); sites.len()];
    for round in 0..rounds.count {
        let mut order: Vec<usize> = (0..sites.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            seen[index].push(Seen::of(&sites[index].measure(operation, plan, rounds.bytes)?));
        }
    }
    let row = |(index, site): (usize, &&mut Site)| {
        let paired = |ratio: fn(&Seen, &Seen) -> f64| {
            median(seen[0].iter().zip(&seen[index]).map(|(first, this)| ratio(first, this)).collect())
        };
        Row {
            shape,
            server: site.target.name.clone(),
            seen: Seen::medians(&seen[index]),
            rate_ratio: paired(|first, this| first.rate / this.rate),
            cpu_ratio: paired(|first, this| this.process_us / first.process_us),
        }
    };
    Ok(sites.iter().enumerate().map(row).collect())
}

impl Seen {
    pub fn of(run: &Run) -> Seen {
        let calls = run.calls as f64;
        let each = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6 / calls);
        let quantile = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e3;
        Seen {
            rate: calls / run.elapsed.as_secs_f64(),
            process_us: each(run.spent.process),
            core_us: each(run.spent.core),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            generator: run.spent.generator.as_secs_f64() / run.elapsed.as_secs_f64(),
        }
    }

    fn medians(all: &[Seen]) -> Seen {
        let of = |field: fn(&Seen) -> f64| median(all.iter().map(field).collect());
        Seen {
            rate: of(|seen| seen.rate),
            process_us: of(|seen| seen.process_us),
            core_us: of(|seen| seen.core_us),
            p50_us: of(|seen| seen.p50_us),
            p99_us: of(|seen| seen.p99_us),
            generator: of(|seen| seen.generator),
        }
    }
}

/// The middle one, or the mean of the two; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
