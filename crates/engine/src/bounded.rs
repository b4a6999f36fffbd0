//! What a crash may lose of changes that were answered from memory (engine rule 35) is bounded in time.
//!
//! - The log is flushed every second, if anything in it is not durable: UNSTABLE data gains by it too.
//! - What was appended is durable [`LATE`] later, or from the next look on every reply waits, write speed `high` or
//!   not, until the medium has caught up. So what a crash takes was answered within [`LATE`] and two looks: 7 s of
//!   the 10 s that are promised.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::Core;

/// Between two looks, and so between two flushes of what nobody waits for.
const LOOK: Duration = Duration::from_secs(1);
/// A medium that takes longer than this to flush makes everybody wait for it.
const LATE: u64 = 5;
/// Looks after which the log gives memory back that nobody needed: a burst within a write-back delay of another finds it.
const REST: u64 = 30;

impl Core {
    /// Flushes what nobody waits for, until the engine is closed or its log has failed.
    pub(crate) async fn flush_steadily(self: Arc<Self>) {
        // The last position at each of the last looks, the latest at the end.
        let mut looks = VecDeque::new();
        let mut count = 0u64;
        while self.log.poisoned().is_none() && !self.health.closing.load(Ordering::Relaxed) {
            self.world.clock.sleep(LOOK).await;
            count += 1;
            if count.is_multiple_of(REST) {
                self.log.rest();
            }
            let (appended, durable) = (self.log.appended(), self.log.durable());
            looks.push_back(appended);
            if looks.len() as u64 > LATE {
                let then = looks.pop_front().unwrap_or(appended);
                let late = then > durable;
                if self.health.log_late.swap(late, Ordering::Relaxed) != late {
                    tracing::warn!(late, "the log's medium took more than {LATE} s to flush, or has caught up");
                }
            }
            if appended > durable {
                self.log.request_flush();
            }
        }
    }
}
