//! Latencies of a run: of all of it, and the shape of each tenth of a second.
//!
//! - In an open loop near half load a pause of the machine, 5 ms of a second, is the 99th percentile of the whole second, whatever
//!   the server does. It spoils a window or two; the median of the windows says what is between pauses, whoever's. Both are told.
//! - A call counts in the window in which its reply came.

use crate::Outcome;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// How long a window is.
const WINDOW: Duration = Duration::from_millis(100);

pub struct Latencies {
    /// Nanoseconds, of the windows that are closed.
    all: Histogram<u64>,
    open: Histogram<u64>,
    end: Option<Instant>,
    tails: Vec<f64>,
}

impl Latencies {
    pub fn new() -> Outcome<Latencies> {
        let all = Histogram::new_with_bounds(100, 100_000_000_000, 3).map_err(|error| error.to_string())?;
        Ok(Latencies { open: all.clone(), all, end: None, tails: Vec::new() })
    }

    /// The first window begins.
    pub fn begin(&mut self, now: Instant) {
        self.end = Some(now + WINDOW);
    }

    pub fn record(&mut self, latency: Duration) {
        self.open.saturating_record(latency.as_nanos() as u64);
    }

    /// Ends the window whose time is over, and begins the next.
    pub fn pass(&mut self, now: Instant) -> Outcome<()> {
        let Some(end) = self.end.filter(|end| now >= *end) else { return Ok(()) };
        // In step with the first, so that a second has ten; anew after a long pause.
        self.end = Some(if now < end + WINDOW { end + WINDOW } else { now + WINDOW });
        let quantile = |quantile| self.open.value_at_quantile(quantile) as f64;
        self.tails.extend((!self.open.is_empty()).then(|| quantile(0.99) / quantile(0.5)));
        self.close()
    }

    fn close(&mut self) -> Outcome<()> {
        self.all.add(&self.open).map_err(|error| error.to_string())?;
        self.open.reset();
        Ok(())
    }

    /// All latencies, and of each window that was over the 99th percentile by the median.
    pub fn end(mut self) -> Outcome<(Histogram<u64>, Vec<f64>)> {
        self.close()?;
        Ok((self.all, self.tails))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::median;

    #[test]
    fn a_pause_spoils_one_window_of_the_ten_and_the_whole() {
        let mut latencies = Latencies::new().unwrap();
        let start = Instant::now();
        latencies.begin(start);
        for window in 0..10 {
            for call in 0..1000_u64 {
                let paused = window == 3 && call % 5 == 0;
                latencies.record(Duration::from_micros(if paused { 9000 } else { 100 + call / 10 }));
            }
            latencies.pass(start + WINDOW * window + WINDOW / 2).unwrap();
            latencies.pass(start + WINDOW * (window + 1)).unwrap();
        }
        latencies.record(Duration::from_secs(1));
        let (all, tails) = latencies.end().unwrap();
        assert_eq!((all.len(), tails.len()), (10_001, 10), "what is in no whole window counts in the whole");
        assert!(all.value_at_quantile(0.99) > 8_900_000);
        assert!(tails[3] > 50.0 && (1.3..1.4).contains(&median(tails.clone())), "{tails:?}");
    }
}
