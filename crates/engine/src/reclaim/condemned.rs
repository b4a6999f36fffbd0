//! Deleting objects of segments in which nothing lives, once their hold time is over (engine rule 24).
//!
//! - What the view calls condemned was condemned by a durable batch, and nothing can come to live there again.
//! - Nothing goes that an older checkpoint of the metadata store may still name: followers, copies and backups hold one.
//! - The object goes before its key does: a crash between the two deletes it again, which does no harm.
//! - A forwarding keeps its key for as long as it forwards anything.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::SegmentId;
use tarn_data::object_name;
use tarn_store::StoreResult;

use super::survey::Survey;
use super::{Memory, Reclaim, ReclaimError, Reclaimed};
use crate::segments::SegmentChange;

/// Deletions at once.
const DELETES_MAX: usize = 8;
/// A checkpoint made so much later than a segment was condemned knows of that: more than a batch takes from being built
/// to being there, and than two machines' clocks are apart. Milliseconds.
const LATER_MS: i64 = 5 * 60 * 1000;
/// How often it is looked whether an older checkpoint has gone, milliseconds.
const AGAIN_MS: i64 = 60 * 1000;

impl Reclaim {
    pub(super) async fn delete_condemned(
        &self,
        memory: &mut Memory,
        survey: &Survey,
        done: &mut Reclaimed,
    ) -> Result<(), ReclaimError> {
        if survey.due.is_empty() {
            return Ok(());
        }
        let oldest = self.keeper.oldest_checkpoint().await?;
        let free = |at: i64| oldest.is_none_or(|made| made > at.saturating_add(LATER_MS));
        if survey.due.iter().any(|(_, _, at)| !free(*at))
            && let Some(taken) = &mut memory.survey
        {
            let again = self.core.world.clock.now().as_millis() + AGAIN_MS;
            taken.next_due_ms = Some(taken.next_due_ms.map_or(again, |due| due.min(again)));
        }
        let mut due = survey.due.iter().filter(|(_, _, at)| free(*at));
        let mut deletes = FuturesUnordered::new();
        loop {
            while deletes.len() < DELETES_MAX
                && let Some((segment, bytes, _)) = due.next()
            {
                deletes.push(self.delete(*segment, *bytes));
            }
            let Some((segment, bytes, outcome)) = deletes.next().await else { return Ok(()) };
            match outcome {
                Ok(()) => {
                    self.core.config.crash_point("a condemned object is deleted").await;
                    self.core.segments.queue(SegmentChange::Deleted(segment));
                    memory.deleted.insert(segment);
                    done.deleted += 1;
                    done.deleted_bytes += bytes;
                }
                Err(error) => tracing::warn!(%segment, %error, "a condemned object could not be deleted"),
            }
            self.go_on()?;
        }
    }

    async fn delete(&self, segment: SegmentId, bytes: u64) -> (SegmentId, u64, StoreResult<()>) {
        (segment, bytes, self.core.segments.store.delete(&object_name(segment)).await)
    }
}
