//! Room for large changes: what keeps one client's stream from standing before everybody's small changes.
//!
//! - What waits for the medium is bounded, so that whoever waits for a flush waits for few bytes of others.
//! - A log that fills holds them back ([`crate::brake`]), their bytes still in the client's connection.
//! - A log that is full is the change's own to wait for, and to be refused by.
//! - Nobody waits for ever: after the time that a change may wait for the log, the change itself is tried.

use std::sync::Arc;

use tarn_vfs::{Answer, Done};

use crate::core::Core;

/// Bytes that wait for the medium beyond which large changes wait too: two flushes of this take some ten milliseconds.
const BUFFERED_MAX: usize = 4 << 20;

impl Core {
    /// Ready when a change of `bytes` may come, or has waited long enough.
    pub fn room(self: &Arc<Self>, bytes: usize) -> Answer<()> {
        let held = self.hold(bytes);
        if held.is_none() && !self.is_crowded(bytes) {
            return Answer::ok(());
        }
        let core = self.clone();
        Answer::Waits(Box::pin(async move {
            if let Some(held) = held {
                held.over().await;
            }
            core.wait_for_room(bytes).await;
            Ok(Done::now(()))
        }))
    }

    fn is_crowded(&self, bytes: usize) -> bool {
        self.log.buffered() + bytes > BUFFERED_MAX
    }

    pub(crate) async fn wait_for_room(&self, bytes: usize) {
        let clock = &self.world.clock;
        let until = clock.steady() + self.config.log_wait;
        while clock.steady() < until && self.log.poisoned().is_none() {
            if !self.is_crowded(bytes) || self.log.appended() <= self.log.durable() {
                return;
            }
            // An error is the change's to hear.
            let _ = self.log.wait(self.log.flushing()).await;
        }
    }
}
