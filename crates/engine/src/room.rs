//! Room for large changes: what keeps one client's stream from standing before everybody's small changes.
//!
//! - What waits to be written is bounded, so that whoever waits for a flush waits for few bytes of others: for those of a flush
//!   that runs, which ends as soon as it can once he waits, and of the next. A little more comes in at once: who is let in
//!   counts once his bytes have come.
//! - A log that fills holds them back ([`crate::brake`]), their bytes still in the client's connection.
//! - A log that is full is the change's own to wait for, and to be refused by.
//! - First come, first let in; but a COMMIT before all, whose data has come already.
//! - Nobody waits for ever: after the time that a change may wait for the log, the change itself is tried.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tarn_vfs::{Answer, Done};

use crate::core::Core;

/// Bytes that wait to be written beyond which large changes wait too: two flushes of this take some ten milliseconds of a disk that
/// writes 2 GB/s.
const BUFFERED_MAX: usize = (8 << 20) + (64 << 10);

/// Who waits looks again so often: who was let in before him may have gone without a word.
const LOOK: Duration = Duration::from_millis(500);

impl Core {
    /// Ready when a change of `bytes` may come, or has waited long enough.
    pub fn room(self: &Arc<Self>, bytes: usize) -> Answer<()> {
        let held = self.hold(bytes);
        if held.is_none() && self.log.has_room(bytes, BUFFERED_MAX) {
            return Answer::ok(());
        }
        let core = self.clone();
        Answer::Waits(Box::pin(async move {
            if let Some(held) = held {
                held.over().await;
            }
            core.wait_for_room(bytes, false).await;
            Ok(Done::now(()))
        }))
    }

    /// `first`: before those who wait already.
    pub(crate) async fn wait_for_room(&self, bytes: usize, first: bool) {
        let clock = &self.world.clock;
        let until = clock.steady() + self.config.log_wait;
        let mut room = pin!(self.log.wait_for_room(bytes, BUFFERED_MAX, first));
        while clock.steady() < until {
            match select(room.as_mut(), clock.sleep(LOOK)).await {
                // An error is the change's to hear.
                Either::Left(_) => return,
                Either::Right(_) => {}
            }
        }
    }
}
