//! The keys of segments as one batch changes them.
//!
//! - A record that no pointer names any more leaves the live set in the batch that takes the pointer (engine rule 16).
//! - A segment is condemned in the batch that takes its last record (rule 24).
//! - A forwarding never leads to a forwarding (rule 22).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::SegmentId;
use tarn_data::{Forward, Forwarding, Heat, LiveSet, RecordPointer, SegmentState, SegmentValue};
use tarn_meta::MetaView;

use super::CheckpointError;
use super::collect::{damaged, old_values};
use crate::core::Core;
use crate::key::Key;
use crate::segments::{Moved, NewObject, SegmentChange};

/// The segments a batch touches; `None`: the key goes.
pub struct Table<'a> {
    core: &'a Core,
    view: &'a Arc<dyn MetaView>,
    segments: BTreeMap<SegmentId, Option<SegmentValue>>,
    now_ms: i64,
}

impl<'a> Table<'a> {
    /// Begins with segments written just now.
    pub fn new(core: &'a Core, view: &'a Arc<dyn MetaView>, new: &BTreeMap<SegmentId, SegmentValue>) -> Table<'a> {
        let segments = new.iter().map(|(id, value)| (*id, Some(value.clone()))).collect();
        Table { core, view, segments, now_ms: core.world.clock.now().as_millis() }
    }

    /// Sees to it that the values of `wanted` are here, as far as there are any.
    async fn load(&mut self, wanted: impl IntoIterator<Item = SegmentId>) -> Result<(), CheckpointError> {
        let missing: BTreeSet<SegmentId> =
            wanted.into_iter().filter(|segment| !self.segments.contains_key(segment)).collect();
        let found = old_values(self.view, missing.iter().map(|segment| Key::segment(*segment)).collect()).await?;
        for segment in missing {
            let key = Key::segment(segment);
            if let Some(bytes) = found.get(&key) {
                let value = SegmentValue::decode(bytes);
                let value = value.map_err(|error| damaged(self.core, &key, &error.to_string()))?;
                self.segments.insert(segment, Some(value));
            }
        }
        Ok(())
    }

    fn value(&mut self, segment: SegmentId) -> Option<&mut SegmentValue> {
        self.segments.get_mut(&segment).and_then(Option::as_mut)
    }

    /// Takes records out of the live sets.
    pub async fn kill(&mut self, dead: &[RecordPointer]) -> Result<(), CheckpointError> {
        self.load(dead.iter().map(|pointer| pointer.segment)).await?;
        let mut moved = Vec::new();
        for pointer in dead {
            let Some(value) = self.value(pointer.segment) else {
                self.core.damaged(&Key::segment(pointer.segment), "a pointer names a segment without a key");
                continue;
            };
            match &mut value.state {
                SegmentState::Forwarding(forwarding) => match forwarding.records.remove(&pointer.index) {
                    Some(forward) => moved.push((forward, pointer.stored)),
                    None => self.core.damaged(&Key::segment(pointer.segment), "a pointer names a record not forwarded"),
                },
                SegmentState::Live | SegmentState::Condemned { .. } => {
                    self.bury(pointer.segment, pointer.index, pointer.stored)
                }
            }
        }
        self.load(moved.iter().map(|(forward, _)| forward.segment)).await?;
        for (forward, stored) in moved {
            self.bury(forward.segment, forward.index, stored);
        }
        Ok(())
    }

    /// Takes one record out of the segment whose object holds it.
    fn bury(&mut self, segment: SegmentId, index: u32, stored: u32) {
        let now = self.now_ms;
        let known = self.value(segment).is_some_and(|value| {
            let known = value.kill(index, stored);
            if value.live.count() == 0 && value.state == SegmentState::Live {
                value.state = SegmentState::Condemned { at_ms: now };
            }
            known
        });
        if !known {
            self.core.damaged(&Key::segment(segment), &format!("record {index} was not live when its pointer went"));
        }
    }

    /// What reclaim has done since the last batch.
    pub async fn apply(&mut self, changes: &[SegmentChange]) -> Result<(), CheckpointError> {
        for change in changes {
            match change {
                SegmentChange::Deleted(segment) => {
                    self.load([*segment]).await?;
                    self.deleted(*segment);
                }
                SegmentChange::Move { object, records } => {
                    self.load([object.segment]).await?;
                    self.load(records.iter().flat_map(|record| [record.from, record.source])).await?;
                    // In a batch whose answer was lost it may be there already.
                    if self.value(object.segment).is_none() {
                        self.moved(object, records);
                    }
                }
            }
        }
        Ok(())
    }

    fn deleted(&mut self, segment: SegmentId) {
        let Some(value) = self.value(segment) else { return };
        match &mut value.state {
            SegmentState::Forwarding(forwarding) => forwarding.condemned_at_ms = None,
            SegmentState::Condemned { .. } => {
                self.segments.insert(segment, None);
            }
            SegmentState::Live => self.core.damaged(&Key::segment(segment), "its object was deleted though it lives"),
        }
    }

    /// Records have been copied into `object`: those that live still live there from now on.
    fn moved(&mut self, object: &NewObject, records: &[Moved]) {
        let mut target = SegmentValue {
            family: object.family,
            object_size: object.size,
            live_bytes: 0,
            live: LiveSet::none(object.records),
            state: SegmentState::Live,
            tier: 0,
            heat: Heat::NONE,
        };
        for record in records {
            if self.take_away(record) {
                target.live.insert(record.new_index);
                target.live_bytes += u64::from(record.stored);
                let forward = Forward { segment: object.segment, index: record.new_index, offset: record.new_offset };
                self.forward(record, forward);
            }
        }
        if target.live.count() == 0 {
            target.state = SegmentState::Condemned { at_ms: self.now_ms };
        }
        self.segments.insert(object.segment, Some(target));
    }

    /// Takes a moved record out of the object it was copied from; false if it had died meanwhile.
    fn take_away(&mut self, record: &Moved) -> bool {
        if record.source == record.from {
            return self.value(record.from).is_some_and(|value| value.kill(record.index, record.stored));
        }
        let placed = self.value(record.from).and_then(|value| match &value.state {
            SegmentState::Forwarding(forwarding) => forwarding.records.get(&record.index).copied(),
            SegmentState::Live | SegmentState::Condemned { .. } => None,
        });
        let Some(placed) = placed.filter(|placed| placed.segment == record.source) else { return false };
        let now = self.now_ms;
        self.value(record.source).is_some_and(|value| {
            let known = value.kill(placed.index, record.stored);
            if value.live.count() == 0 && value.state == SegmentState::Live {
                value.state = SegmentState::Condemned { at_ms: now };
            }
            known
        })
    }

    /// Notes where a record of `record.from` lies now.
    fn forward(&mut self, record: &Moved, forward: Forward) {
        let now = self.now_ms;
        let Some(value) = self.value(record.from) else { return };
        if !matches!(value.state, SegmentState::Forwarding(_)) {
            let condemned_at_ms = Some(now);
            let forwarding = Forwarding { salt: record.salt, condemned_at_ms, records: BTreeMap::new() };
            value.state = SegmentState::Forwarding(forwarding);
        }
        if let SegmentState::Forwarding(forwarding) = &mut value.state {
            forwarding.records.insert(record.index, forward);
        }
    }

    /// The changed keys. What nothing is left of goes.
    pub fn finish(self) -> BTreeMap<Key, Option<Bytes>> {
        let mut out = BTreeMap::new();
        for (segment, value) in self.segments {
            let empty = |forwarding: &Forwarding| forwarding.records.is_empty();
            let value = value.filter(|value| match &value.state {
                SegmentState::Forwarding(forwarding) => !empty(forwarding) || forwarding.condemned_at_ms.is_some(),
                SegmentState::Live | SegmentState::Condemned { .. } => true,
            });
            out.insert(Key::segment(segment), value.map(|value| Bytes::from(value.encode())));
        }
        out
    }
}
