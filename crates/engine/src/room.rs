//! Room for large changes: what keeps one client's stream from standing before everybody's small changes.
//!
//! - What waits to be written is bounded, so that whoever waits for a flush waits for few bytes of others: for those of a
//!   flush that runs, as many at most, and of the next.
//! - A log that fills holds them back ([`crate::brake`]), their bytes still in the client's connection.
//! - A log that is full is the change's own to wait for, and to be refused by.
//! - First come, first let in.

use std::sync::Arc;

use tarn_vfs::{Answer, Done};

use crate::core::Core;

/// Bytes that wait to be written beyond which large changes wait too: two flushes of this take some ten milliseconds.
const BUFFERED_MAX: usize = (8 << 20) + (64 << 10);

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
        !self.log.has_room(bytes, BUFFERED_MAX)
    }

    pub(crate) async fn wait_for_room(&self, bytes: usize) {
        // An error is the change's to hear.
        let _ = self.log.wait_for_room(bytes, BUFFERED_MAX).await;
    }
}
