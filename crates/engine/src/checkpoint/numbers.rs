//! Segments for reclaim: numbers drawn beside those of checkpoints.
//!
//! - A number lent counts as unsettled until a batch holds its segment's key, so that a crash in between leaves
//!   nothing behind (engine rule 24).
//! - None is drawn once the engine is closing.

use std::sync::Arc;

use tarn_base::ids::SegmentId;
use tarn_data::{FamilyKey, SegmentBuilder};

use super::{CheckpointError, Keeper, Turn};
use crate::segments::SegmentChange;

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

    /// Gives a lent number up; its object is deleted, if there is one.
    pub(crate) async fn surrender(&self, segment: SegmentId) {
        let mut turn = self.turn.lock().await;
        if turn.lent.remove(&segment.counter) {
            turn.given_up.push(segment.counter);
            self.remove_given_up(&mut turn).await;
        }
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
