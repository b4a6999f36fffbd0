//! Room for large changes: what keeps one client's stream from standing before everybody's small changes.
//!
//! - What waits for the medium is bounded, so that whoever waits for a flush waits for few bytes of others.
//! - A quarter of the log is kept for small changes: a stream waits for a checkpoint before they do.
//! - Nobody waits for ever: after the time that a change may wait for the log, the change itself is tried and refused.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tarn_vfs::{Answer, Done};

use crate::core::Core;
use crate::fetch::either;

/// Bytes that wait for the medium beyond which large changes wait too: two flushes of this take some ten milliseconds.
const BUFFERED_MAX: usize = 4 << 20;
/// How often the log's fill is looked at while nobody tells of a trim.
const LOOK: Duration = Duration::from_millis(20);

impl Core {
    /// Ready when a change of `bytes` may come, or has waited long enough.
    pub fn room(self: &Arc<Self>, bytes: usize) -> Answer<()> {
        if !self.is_crowded(bytes) && !self.is_full(bytes) {
            return Answer::ok(());
        }
        let core = self.clone();
        Answer::Waits(Box::pin(async move {
            core.wait_for_room(bytes).await;
            Ok(Done::now(()))
        }))
    }

    fn is_crowded(&self, bytes: usize) -> bool {
        self.log.buffered() + bytes > BUFFERED_MAX
    }

    /// Not while the store is full: no trim comes then, and the change itself has to hear that there is no space.
    fn is_full(&self, bytes: usize) -> bool {
        if self.health.store_full.load(Ordering::Relaxed) {
            return false;
        }
        let capacity = self.log.capacity();
        self.log.used() + bytes as u64 > capacity - capacity / 4
    }

    async fn wait_for_room(&self, bytes: usize) {
        let clock = &self.world.clock;
        let until = clock.steady() + self.config.log_wait;
        while clock.steady() < until && self.log.poisoned().is_none() {
            if self.is_crowded(bytes) && self.log.appended() > self.log.durable() {
                // An error is the change's to hear.
                let _ = self.log.wait(self.log.flushing()).await;
            } else if self.is_full(bytes) {
                self.checkpoint_due.notify_one();
                either(pin!(self.log_trimmed.notified()), clock.sleep(LOOK)).await;
            } else {
                return;
            }
        }
    }
}
