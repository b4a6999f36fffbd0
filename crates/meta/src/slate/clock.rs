//! The world's clock as SlateDB reads it.
//!
//! - It is asked for each key that is written or merged: it is some milliseconds behind.
//! - It never goes backwards: it takes the wall's time once and then follows the steady clock, and it begins no earlier
//!   than the last time the database was written at. SlateDB refuses writes when time has gone backwards.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use tarn_base::world::Clock;

pub struct SlateClock {
    clock: Arc<dyn Clock>,
    /// Milliseconds since 1970 when the steady clock stands at 0.
    base_ms: AtomicI64,
}

impl fmt::Debug for SlateClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlateClock")
    }
}

impl SlateClock {
    pub fn new(clock: Arc<dyn Clock>) -> SlateClock {
        let base_ms = clock.now().as_millis().saturating_sub(steady_ms(&*clock));
        SlateClock { clock, base_ms: AtomicI64::new(base_ms) }
    }

    /// Steps forward to `tick_ms`, milliseconds since 1970, if it is earlier.
    pub fn never_before(&self, tick_ms: i64) {
        self.base_ms.fetch_max(tick_ms.saturating_sub(steady_ms(&*self.clock)), Ordering::SeqCst);
    }
}

fn steady_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.steady_about().as_millis()).unwrap_or(i64::MAX)
}

impl SystemClock for SlateClock {
    fn now(&self) -> DateTime<Utc> {
        let now_ms = self.base_ms.load(Ordering::SeqCst).saturating_add(steady_ms(&*self.clock));
        DateTime::from_timestamp_millis(now_ms).unwrap_or(DateTime::UNIX_EPOCH)
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.clock.sleep(duration)
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}
