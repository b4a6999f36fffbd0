//! A clock for tests: it stands still until somebody moves it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock};

/// Where a [`FixedClock`] starts: 2001-09-09 01:46:40 UTC.
const START_NANOS: i64 = 1_000_000_000_000_000_000;

/// A clock that stands still. Clones are the same clock. Sleeping moves it, so nothing ever waits for it.
#[derive(Clone, Debug, Default)]
pub struct FixedClock {
    passed: Arc<Mutex<Duration>>,
}

impl FixedClock {
    pub fn new() -> FixedClock {
        FixedClock::default()
    }

    /// Moves both clocks.
    pub fn advance(&self, span: Duration) {
        *self.passed.lock() += span;
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Time {
        Time::from_nanos(START_NANOS.saturating_add(self.steady().as_nanos() as i64))
    }

    fn steady(&self) -> Duration {
        *self.passed.lock()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        self.advance(span);
        Box::pin(std::future::ready(()))
    }
}
