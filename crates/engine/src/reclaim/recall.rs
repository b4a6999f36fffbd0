//! Filling the dedupe index after an opening, or once dedupe is switched on: from the segments' directories, which hold
//! every record's digest (engine rule 25).
//!
//! - The newest segments first, until everything is read or the index is full; some at each turn.
//! - Directories are sealed, so what they say of a record is true; whether it lives is asked when it is used.
//! - What cannot be read is left out: that costs space, never data. Damage is for scrub to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use tarn_base::ids::{SegmentId, Uuid, VolumeId};
use tarn_data::{Directory, FamilyKey, RecordPointer, SegmentState, SegmentValue};

use super::{Memory, Reclaim, ReclaimError};
use crate::dedupe::{Known, LENGTH_MIN};
use crate::key::{Key, Kind, segment_id};
use crate::pages::Pages;

/// Directories read at each turn, and at once.
const AT_A_TURN: usize = 128;
const AT_ONCE: usize = 8;

/// What is still to be read.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// Families that were begun with.
    begun: BTreeSet<Uuid>,
    /// Segments to be read, the next one last, and the sizes of their objects.
    left: Vec<(SegmentId, u64, Uuid)>,
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
        if families.keys().any(|family| !recall.begun.contains(family)) {
            recall.left = self.segments_of(&families).await?;
            recall.begun = families.keys().copied().collect();
        }
        let room = if self.core.dedupe.is_full() { 0 } else { AT_A_TURN };
        if room == 0 {
            recall.left.clear();
        }
        let from = recall.left.len().saturating_sub(room);
        let now: Vec<_> = recall.left.drain(from..).rev().collect();
        let mut reads = futures::stream::iter(now.into_iter().filter_map(|(segment, size, family)| {
            let key = families.get(&family)?.clone();
            Some(async move { (segment, self.core.directory(&key, segment, size).await) })
        }))
        .buffered(AT_ONCE);
        while let Some((segment, read)) = reads.next().await {
            match read {
                Ok(directory) => self.learn(segment, &directory),
                Err(error) => tracing::debug!(%segment, %error, "a directory was not read"),
            }
            self.go_on()?;
        }
        Ok(!memory.recall.left.is_empty())
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
            if (record.plain as usize) < LENGTH_MIN {
                continue;
            }
            let name = record.origin.map_or((segment, index as u32), |origin| (origin.segment, origin.index));
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
            self.core.dedupe.recall(record.hash, Known { pointer, placed: record.origin.is_none(), trusted: None });
        }
    }
}
