//! Filling the dedupe index after an opening, or once dedupe is switched on: from the segments' directories, which hold
//! the digest of every record that was stored while it was on (engine rule 25).
//!
//! - The newest segments first, until everything is read or the index is full; some at each turn.
//! - What was stored while it was off is read whole, once after each opening, a segment at a time: its digest is in memory only.
//! - Directories are sealed, so what they say of a record is true; whether it lives is asked when it is used.
//! - What cannot be read is left out: that costs space, never data. Damage is for scrub to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use tarn_base::ids::{SegmentId, Uuid, VolumeId};
use tarn_base::turns::Turns;
use tarn_data::{Directory, DirectoryRecord, FamilyKey, RecordPointer, SegmentState, SegmentValue};

use super::{Memory, Reclaim, ReclaimError};
use crate::dedupe::{Known, LENGTH_MIN};
use crate::key::{Key, Kind, segment_id};
use crate::pages::Pages;

/// Directories read at each turn, and at once.
const AT_A_TURN: usize = 128;
const AT_ONCE: usize = 8;
/// Segments read whole at each turn.
const WHOLE_AT_A_TURN: usize = 2;

/// What is still to be read.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// Families that were begun with.
    begun: BTreeSet<Uuid>,
    /// Segments to be read, the next one last, and the sizes of their objects.
    left: Vec<(SegmentId, u64, Uuid)>,
    /// Segments of which content is to be read, the next one last.
    whole: Vec<(SegmentId, Uuid)>,
}

impl Reclaim {
    /// Reads some directories; false once nothing is left.
    pub(super) async fn recall(&self, memory: &mut Memory) -> Result<bool, ReclaimError> {
        let deduped = self.core.volumes.all().into_iter().filter(|volume| volume.record.settings.dedupe);
        let families: BTreeMap<Uuid, Arc<FamilyKey>> =
            deduped.map(|volume| (volume.family.id(), volume.family.clone())).collect();
        let recall = &mut memory.recall;
        // What was written while dedupe was off is not known.
        recall.begun.retain(|family| families.contains_key(family));
        recall.left.retain(|(_, _, family)| families.contains_key(family));
        recall.whole.retain(|(_, family)| families.contains_key(family));
        if families.keys().any(|family| !recall.begun.contains(family)) {
            recall.left = self.segments_of(&families).await?;
            recall.whole.clear();
            recall.begun = families.keys().copied().collect();
        }
        let room = if self.core.dedupe.is_full() { 0 } else { AT_A_TURN };
        if room == 0 {
            recall.left.clear();
            recall.whole.clear();
        }
        let from = recall.left.len().saturating_sub(room);
        let now: Vec<_> = recall.left.drain(from..).rev().collect();
        let mut reads = futures::stream::iter(now.into_iter().filter_map(|(segment, size, family)| {
            let key = families.get(&family)?.clone();
            Some(async move { (segment, family, self.core.directory(&key, segment, size).await) })
        }))
        .buffered(AT_ONCE);
        let mut unknown = Vec::new();
        while let Some((segment, family, read)) = reads.next().await {
            match read {
                Ok(directory) => {
                    self.learn(segment, &directory);
                    if directory.records.iter().any(lacks_digest) {
                        unknown.push((segment, family));
                    }
                }
                Err(error) => tracing::debug!(%segment, %error, "a directory was not read"),
            }
            self.go_on()?;
        }
        drop(reads);
        unknown.reverse();
        // Older ones than those that wait.
        recall.whole.splice(0..0, unknown);
        if recall.left.is_empty() {
            let from = recall.whole.len().saturating_sub(WHOLE_AT_A_TURN);
            for (segment, family) in recall.whole.drain(from..).rev() {
                self.learn_content(&families, segment, family).await?;
                self.go_on()?;
            }
        }
        Ok(!(recall.left.is_empty() && recall.whole.is_empty()))
    }

    /// Reads the live records of a segment that has no digest of them.
    async fn learn_content(
        &self,
        families: &BTreeMap<Uuid, Arc<FamilyKey>>,
        segment: SegmentId,
        family: Uuid,
    ) -> Result<(), ReclaimError> {
        let view = self.core.stack.load().view.clone();
        let value = view.get(&Key::segment(segment).encode()).await?;
        let value = value.and_then(|value| SegmentValue::decode(&value).ok());
        let Some(value) = value.filter(|value| value.state == SegmentState::Live) else { return Ok(()) };
        let (Some(key), Ok(own)) = (families.get(&family), self.core.salt(segment.epoch).await) else { return Ok(()) };
        let object = match self.core.whole_object(families, segment, &value).await {
            Ok(object) => object,
            Err(error) => {
                tracing::debug!(%segment, %error, "a segment was not read");
                return Ok(());
            }
        };
        let mut turns = Turns::default();
        for index in value.live.iter() {
            let Some(record) = object.directory.records.get(index as usize).filter(|record| lacks_digest(record))
            else {
                continue;
            };
            let salt = record.origin.map_or(own, |origin| origin.salt);
            if let Ok(plain) = object.open(index, &salt) {
                self.core.dedupe.recall(key.hash(&plain), known(segment, index, record));
                turns.worked(plain.len());
            }
        }
        Ok(())
    }

    /// The live segments of families, oldest first.
    async fn segments_of(
        &self,
        families: &BTreeMap<Uuid, Arc<FamilyKey>>,
    ) -> Result<Vec<(SegmentId, u64, Uuid)>, ReclaimError> {
        let mut out = Vec::new();
        let mut pages = Pages::kind(self.core.stack.load().view.clone(), VolumeId(0), Kind::Segment);
        while let Some(entries) = pages.next().await? {
            for (key, value) in entries {
                let (Some(key), Ok(value)) = (Key::decode(&key), SegmentValue::decode(&value)) else { continue };
                if value.state == SegmentState::Live && families.contains_key(&value.family) {
                    out.push((segment_id(key.a), value.object_size, value.family));
                }
            }
        }
        Ok(out)
    }

    fn learn(&self, segment: SegmentId, directory: &Directory) {
        for (index, record) in directory.records.iter().enumerate() {
            if let Some(hash) = record.hash.filter(|_| record.plain as usize >= LENGTH_MIN) {
                self.core.dedupe.recall(hash, known(segment, index as u32, record));
            }
        }
    }
}

/// Whether a record that might be shared is known by its content only.
fn lacks_digest(record: &DirectoryRecord) -> bool {
    record.hash.is_none() && record.plain as usize >= LENGTH_MIN
}

/// A record, by its place in a segment's directory.
fn known(segment: SegmentId, index: u32, record: &DirectoryRecord) -> Known {
    let name = record.origin.map_or((segment, index), |origin| (origin.segment, origin.index));
    let pointer = RecordPointer {
        segment: name.0,
        index: name.1,
        offset: record.offset,
        stored: record.stored,
        plain: record.plain,
        codec: record.codec,
        tag: record.tag,
        ..RecordPointer::default()
    };
    Known { pointer, placed: record.origin.is_none(), trusted: None }
}
