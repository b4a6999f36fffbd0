//! Segment numbers without a key: lent to reclaim, beside those that checkpoints draw, or given up.
//!
//! - A number lent counts as unsettled until a batch holds its segment's key, so that a crash in between leaves
//!   nothing behind (engine rule 24). None is drawn once the engine is closing.
//! - One given up counts as unsettled until its object, if there is one, was deleted twice: a PUT may still be on its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tarn_base::ids::SegmentId;
use tarn_data::{FamilyKey, SegmentBuilder, object_name};

use super::{CheckpointError, Done, Keeper, Turn};
use crate::fetch::either;
use crate::segments::SegmentChange;

/// Objects without a key that are deleted after one attempt, all at once, and how long they are waited for.
const DELETES_AT_ONCE: usize = 8;
const DELETES_LAST: Duration = Duration::from_secs(10);

impl Keeper {
    /// Begins a segment under a number that is durably reserved and lent until [`Keeper::surrender`], or until the
    /// batch that makes it a segment.
    pub(crate) async fn begin_segment(&self, family: Arc<FamilyKey>) -> Result<SegmentBuilder, CheckpointError> {
        let mut turn = self.turn.lock().await;
        if self.stopping() {
            return Err(CheckpointError::Stopping);
        }
        if turn.next_segment >= turn.state.reserved_counter {
            self.reserve(&mut turn).await?;
        }
        let counter = turn.next_segment;
        turn.next_segment += 1;
        turn.lent.insert(counter);
        let target = self.core.config.segment_bytes as usize;
        let segment = SegmentId { epoch: self.epoch, counter };
        Ok(SegmentBuilder::within(&self.memory, segment, family, &self.salt, target))
    }

    /// When the oldest living checkpoint of the metadata store was made, milliseconds since 1970.
    pub(crate) async fn oldest_checkpoint(&self) -> Result<Option<i64>, CheckpointError> {
        let meta = {
            let mut turn = self.turn.lock().await;
            self.ready(&mut turn).await?
        };
        Ok(meta.oldest_checkpoint().await?)
    }

    /// Gives a lent number up; its object, if there is one, is deleted in its turn.
    pub(crate) async fn surrender(&self, segment: SegmentId) {
        let mut turn = self.turn.lock().await;
        if turn.lent.remove(&segment.counter) {
            turn.given_up.push(segment.counter);
            self.remove_given_up(&mut turn).await;
        }
    }

    /// Deletes objects without a key after an attempt. Not where the store is another's or not there: that it has no such
    /// object would say nothing of the one it has when it is put back.
    pub(super) async fn tidy(&self, turn: &mut Turn, outcome: &Result<Done, CheckpointError>) {
        match outcome {
            Ok(_) => {
                self.remove_given_up(turn).await;
                self.remove_late(turn).await;
            }
            Err(CheckpointError::Gone(_) | CheckpointError::Deposed) => {}
            // The next opening finds them.
            Err(_) if self.stopping() => {}
            // What it has left takes the room that the next one needs.
            Err(CheckpointError::Full(_)) => while !self.stopping() && self.remove_given_up(turn).await {},
            Err(_) => _ = self.remove_given_up(turn).await,
        }
    }

    /// Deletes a few objects without a key; those that stay have their turn after the next attempt, or at the next opening. Says whether
    /// any has gone.
    ///
    /// A PUT that was not answered may arrive after that: each is deleted once more when the hold time is over, and
    /// counts as unsettled until then.
    async fn remove_given_up(&self, turn: &mut Turn) -> bool {
        let now = self.core.world.clock.steady();
        let few = turn.given_up.len().min(DELETES_AT_ONCE);
        let gone = self.delete_numbers(&turn.given_up[..few]).await;
        // Those that stay make room for others.
        turn.given_up.rotate_left(few);
        turn.given_up.retain(|counter| !gone.contains(counter));
        let any = !gone.is_empty();
        turn.deleted.extend(gone.into_iter().map(|counter| (counter, now)));
        any
    }

    /// Deletes a few objects once more that may have arrived after they were deleted.
    async fn remove_late(&self, turn: &mut Turn) {
        let due = self.core.world.clock.steady().saturating_sub(self.core.config.hold);
        let late = turn.deleted.iter().filter(|(_, at)| *at <= due).map(|(counter, _)| *counter);
        let late: Vec<u32> = late.take(DELETES_AT_ONCE).collect();
        let gone = self.delete_numbers(&late).await;
        turn.deleted.retain(|(counter, _)| !gone.contains(counter));
    }

    /// Those whose objects are surely not there now.
    async fn delete_numbers(&self, counters: &[u32]) -> BTreeSet<u32> {
        let gone = Mutex::new(BTreeSet::new());
        let deletes = counters.iter().map(|counter| async {
            if self.delete_number(*counter).await {
                gone.lock().insert(*counter);
            }
        });
        let all = async {
            join_all(deletes).await;
        };
        either(all, self.core.world.clock.sleep(DELETES_LAST)).await;
        gone.into_inner()
    }

    async fn delete_number(&self, counter: u32) -> bool {
        let name = object_name(SegmentId { epoch: self.epoch, counter });
        self.core.segments.store.delete(&name).await.is_ok()
    }
}

impl Turn {
    /// The lowest number whose object may lie in the store without a key.
    pub(super) fn settled(&self) -> u32 {
        let deleted = self.deleted.iter().map(|(counter, _)| counter);
        let open = self.given_up.iter().chain(&self.lent).chain(deleted).copied().min();
        open.unwrap_or(self.next_segment)
    }

    /// A batch that holds `changes` is durable.
    pub(super) fn landed(&mut self, changes: &[SegmentChange]) {
        for change in changes {
            if let SegmentChange::Move { object, .. } = change {
                self.lent.remove(&object.segment.counter);
            }
        }
    }
}
