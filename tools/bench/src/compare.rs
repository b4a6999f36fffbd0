//! Several servers in turns.
//!
//! - A round measures every server once; the next round goes in the opposite order, so that a machine that grows slower
//!   favours nobody.
//! - Figures are medians over the rounds; ratios are medians of the ratios within each round, with the interval that
//!   holds the true median in at least nine cases of ten (order statistics; of five rounds it is least to greatest).
//! - Processor time of a call is the process's; where the core's busy time differs from it by 15 %, the larger counts.

use crate::Outcome;
use crate::load::{Length, Operation, Plan, Run, Site};
use std::time::Duration;

/// What is repeated, over how many connections, how many at once on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub operation: Operation,
    pub connections: usize,
    pub depth: usize,
    /// An open loop at half of what the closed one gave.
    pub half: bool,
}

impl Shape {
    pub fn closed((operation, connections, depth): (Operation, usize, usize)) -> Shape {
        Shape { operation, connections, depth, half: false }
    }
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
    /// The 99th percentile by the median, of each whole tenth of a second: the median of a round's, and of the rounds'.
    pub tail: f64,
    /// Share of the time that the generator was busy: near 1, the figure is the generator's.
    pub generator: f64,
}

/// Beyond this share the generator was the limit, and what it measured is void.
pub const GENERATOR_MAX: f64 = 0.95;
/// Where process and core differ by more than this, the larger counts.
const DIFFERENCE_MAX: f64 = 1.15;

impl Seen {
    /// Whether the generator was the limit.
    pub fn is_void(&self) -> bool {
        self.generator > GENERATOR_MAX
    }

    /// Processor time of a call, microseconds: the process's, or the larger of both where they differ.
    pub fn counted_us(&self) -> f64 {
        let (process, core) = (self.process_us, self.core_us);
        if process * DIFFERENCE_MAX < core || core * DIFFERENCE_MAX < process { process.max(core) } else { process }
    }
}

/// A median and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Ratio {
    /// Of what was seen in each round.
    pub fn of(mut values: Vec<f64>) -> Ratio {
        values.sort_by(f64::total_cmp);
        let (Some(_), last) = (values.first(), values.len().saturating_sub(1)) else {
            return Ratio { median: f64::NAN, low: f64::NAN, high: f64::NAN };
        };
        let skip = skipped(values.len());
        Ratio { low: values[skip], high: values[last - skip], median: median(values) }
    }
}

/// How many of the least and of the greatest of `count` values lie outside the interval: the largest number for which
/// the median lies inside in nine cases of ten.
fn skipped(count: usize) -> usize {
    let (mut outside, mut term, mut skip) = (0.0, 0.5f64.powi(count as i32), 0);
    while skip + 1 < count.div_ceil(2) {
        // Of tossing a coin `count` times, `skip` heads.
        outside += 2.0 * term;
        term *= (count - skip) as f64 / (skip + 1) as f64;
        if outside + 2.0 * term > 0.1 {
            break;
        }
        skip += 1;
    }
    skip
}

/// A server's figures beside the first's.
#[derive(Clone, Debug)]
pub struct Row {
    pub shape: Shape,
    pub server: String,
    pub seen: Seen,
    /// The first server's rate by this one's.
    pub rate_ratio: Ratio,
    /// The first server's calls per processor second by this one's.
    pub cpu_ratio: Ratio,
}

/// Measures `shape` at every site. The first site is the one the others are held against. `paces`: the rate of each
/// site's open loop, calls a second; without it the loop is closed.
pub fn compare(sites: &mut [&mut Site], shape: Shape, rounds: Rounds, paces: Option<&[f64]>) -> Outcome<Vec<Row>> {
    let Shape { operation, connections, depth, .. } = shape;
    let length = Length::Time(rounds.length);
    let plan = Plan { connections, depth, warm_up: rounds.warm_up, length, pace: None };
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
            let plan = Plan { pace: paces.and_then(|paces| paces.get(index).copied()), ..plan };
            seen[index].push(Seen::of(&sites[index].measure(operation, plan, rounds.bytes)?));
        }
    }
    let row = |(index, site): (usize, &&mut Site)| {
        let paired = |ratio: fn(&Seen, &Seen) -> f64| {
            Ratio::of(seen[0].iter().zip(&seen[index]).map(|(first, this)| ratio(first, this)).collect())
        };
        Row {
            shape,
            server: site.target.name.clone(),
            seen: Seen::medians(&seen[index]),
            rate_ratio: paired(|first, this| first.rate / this.rate),
            cpu_ratio: paired(|first, this| this.counted_us() / first.counted_us()),
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
            tail: median(run.tails.clone()),
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
            tail: of(|seen| seen.tail),
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

    #[test]
    fn an_interval_holds_the_median_in_nine_cases_of_ten() {
        assert_eq!(Ratio::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]), Ratio { median: 3.0, low: 1.0, high: 5.0 });
        // 1 - 2 * (1 + 9) / 2^9 is 0.96, and one more on each side would leave 0.82.
        assert_eq!((skipped(1), skipped(2), skipped(5), skipped(9), skipped(10)), (0, 0, 0, 1, 1));
        assert_eq!((skipped(15), skipped(20)), (3, 5));
        assert!(Ratio::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn the_larger_time_counts_where_they_differ() {
        let seen = |process_us, core_us| Seen { process_us, core_us, ..Seen::default() }.counted_us();
        assert_eq!((seen(1.0, 1.1), seen(1.0, 1.2), seen(1.0, 0.7)), (1.0, 1.2, 1.0));
        assert!(seen(1.0, f64::NAN) == 1.0);
    }
}
