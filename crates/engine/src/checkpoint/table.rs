//! The keys of segments as one batch changes them.
//!
//! - A record that no pointer names any more leaves the live set in the batch that takes the pointer (engine rule 16).
//! - A record that two pointers or more name has a count key, which changes with them (rule 23). Counts go by names, so
//!   moving records does not touch them.
//! - A segment is condemned in the batch that takes its last record (rule 24).
//! - A forwarding never leads to a forwarding (rule 22).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::SegmentId;
use tarn_base::mutant;
use tarn_data::{Forward, Forwarding, Heat, LiveSet, RecordPointer, SegmentState, SegmentValue};
use tarn_meta::MetaView;

use super::CheckpointError;
use super::collect::{damaged, old_values};
use crate::core::Core;
use crate::key::Key;
use crate::segments::{Moved, NewObject, SegmentChange};
use crate::value::CountRecord;

/// The segments a batch touches; `None`: the key goes.
pub struct Table<'a> {
    core: &'a Core,
    view: &'a Arc<dyn MetaView>,
    segments: BTreeMap<SegmentId, Option<SegmentValue>>,
    /// Those of them that the batch changes.
    changed: BTreeSet<SegmentId>,
    counts: BTreeMap<Key, Option<Bytes>>,
    now_ms: i64,
}

/// What a batch does to the pointers of one record.
struct Repointed {
    pointer: RecordPointer,
    gone: u64,
    new: u64,
}

/// All changes of each record together, in order of name.
fn repointed(dead: &[RecordPointer], shared: &[RecordPointer]) -> Vec<Repointed> {
    let gone = dead.iter().map(|pointer| Repointed { pointer: *pointer, gone: 1, new: 0 });
    let new = shared.iter().map(|pointer| Repointed { pointer: *pointer, gone: 0, new: 1 });
    let mut all: Vec<Repointed> = gone.chain(new).collect();
    let name = |change: &Repointed| (change.pointer.segment, change.pointer.index);
    all.sort_by_key(name);
    all.dedup_by(|next, held| {
        let same = name(next) == name(held);
        if same {
            held.gone += next.gone;
            held.new += next.new;
        }
        same
    });
    all
}

impl<'a> Table<'a> {
    /// Begins with segments written just now.
    pub fn new(core: &'a Core, view: &'a Arc<dyn MetaView>, new: &BTreeMap<SegmentId, SegmentValue>) -> Table<'a> {
        let segments = new.iter().map(|(id, value)| (*id, Some(value.clone()))).collect();
        let (changed, counts) = (new.keys().copied().collect(), BTreeMap::new());
        Table { core, view, segments, changed, counts, now_ms: core.world.clock.now().as_millis() }
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

    /// A segment's value, to be changed.
    fn value(&mut self, segment: SegmentId) -> Option<&mut SegmentValue> {
        let value = self.segments.get_mut(&segment).and_then(Option::as_mut)?;
        self.changed.insert(segment);
        Some(value)
    }

    fn peek(&self, segment: SegmentId) -> Option<&SegmentValue> {
        self.segments.get(&segment).and_then(Option::as_ref)
    }

    /// Brings live sets and counts to what pointers say after this batch: those of `dead` go, those of `shared` come, to
    /// records that have one already. A record that loses its last pointer and gains another in one batch lives on.
    pub async fn point(&mut self, dead: &[RecordPointer], shared: &[RecordPointer]) -> Result<(), CheckpointError> {
        let changes = repointed(dead, shared);
        self.load(changes.iter().map(|change| change.pointer.segment)).await?;
        let targets: Vec<SegmentId> =
            changes.iter().filter_map(|change| self.place(&change.pointer)).map(|(segment, _)| segment).collect();
        self.load(targets).await?;
        let counts = self.counts(&changes).await?;
        for change in &changes {
            self.repoint(change, &counts)?;
        }
        Ok(())
    }

    /// The count keys of those records that may have one.
    async fn counts(&self, changes: &[Repointed]) -> Result<BTreeMap<Key, u64>, CheckpointError> {
        let counted = changes.iter().filter(|change| self.peek(change.pointer.segment).is_some_and(|of| of.shared > 0));
        let keys = counted.map(|change| Key::count(change.pointer.segment, change.pointer.index)).collect();
        let found = old_values(self.view, keys).await?;
        let decode = |(key, bytes): (Key, Bytes)| match CountRecord::decode(&bytes) {
            Ok(count) => Ok((key, count.pointers)),
            Err(error) => Err(damaged(self.core, &key, &error.to_string())),
        };
        found.into_iter().map(decode).collect()
    }

    fn repoint(&mut self, change: &Repointed, counts: &BTreeMap<Key, u64>) -> Result<(), CheckpointError> {
        let Repointed { pointer, gone, new } = change;
        let name = Key::segment(pointer.segment);
        if self.peek(pointer.segment).is_none() && *new == 0 {
            self.core.damaged(&name, "a pointer names a segment without a key");
            return Ok(());
        }
        let lives = self
            .place(pointer)
            .is_some_and(|(segment, index)| self.peek(segment).is_some_and(|value| value.live.contains(index)));
        if !lives && *new > 0 {
            // It was looked at before; whatever changed it, its content is stored again by the next try.
            self.core.dedupe.damaged(pointer.segment, pointer.index);
            return Err(CheckpointError::Damaged(format!("record {} of segment {}", pointer.index, pointer.segment)));
        }
        if !lives {
            let text = format!("record {} was not live when its pointer went", pointer.index);
            self.core.damaged(&name, &text);
            return Ok(());
        }
        let key = Key::count(pointer.segment, pointer.index);
        let before = counts.get(&key).copied().unwrap_or(1);
        let new = if mutant::on(mutant::COUNT_NOT_RAISED) { &0 } else { new };
        let after = before.saturating_add(*new).checked_sub(*gone).unwrap_or_else(|| {
            self.core.damaged(&key, "more pointers went than it counts");
            0
        });
        let after = if mutant::on(mutant::SHARED_TAKEN_AS_DEAD) && gone > new { 0 } else { after };
        if after != before {
            self.count(pointer, before, after);
        }
        if after == 0 {
            self.unname(pointer);
        }
        Ok(())
    }

    /// Notes that so many pointers name a record.
    fn count(&mut self, pointer: &RecordPointer, before: u64, after: u64) {
        if before < 2 && after < 2 {
            return;
        }
        let further = |pointers: u64| pointers.saturating_sub(1).saturating_mul(u64::from(pointer.stored));
        let Some(value) = self.value(pointer.segment) else { return };
        value.saved_bytes = value.saved_bytes.saturating_sub(further(before)) + further(after);
        value.shared = value.shared.saturating_sub(u32::from(before > 1)) + u32::from(after > 1);
        let encoded = (after > 1).then(|| {
            let mut out = Vec::new();
            CountRecord { pointers: after }.encode(&mut out);
            Bytes::from(out)
        });
        self.counts.insert(Key::count(pointer.segment, pointer.index), encoded);
    }

    /// Takes a record out of the live set that no pointer names any more.
    fn unname(&mut self, pointer: &RecordPointer) {
        let Some(value) = self.value(pointer.segment) else { return };
        let forwarded = match &mut value.state {
            SegmentState::Forwarding(forwarding) => forwarding.records.remove(&pointer.index),
            SegmentState::Live | SegmentState::Condemned { .. } => None,
        };
        match forwarded {
            Some(forward) => self.bury(forward.segment, forward.index, pointer.stored),
            None => self.bury(pointer.segment, pointer.index, pointer.stored),
        }
    }

    /// The segment whose object holds a pointer's record, and its place there.
    fn place(&self, pointer: &RecordPointer) -> Option<(SegmentId, u32)> {
        match &self.peek(pointer.segment)?.state {
            SegmentState::Forwarding(forwarding) => {
                forwarding.records.get(&pointer.index).map(|forward| (forward.segment, forward.index))
            }
            SegmentState::Live | SegmentState::Condemned { .. } => Some((pointer.segment, pointer.index)),
        }
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
                    if self.peek(object.segment).is_none() {
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
            shared: 0,
            saved_bytes: 0,
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
        self.changed.insert(object.segment);
    }

    /// Takes a moved record out of the object it was copied from; false if it had died meanwhile.
    fn take_away(&mut self, record: &Moved) -> bool {
        if record.source == record.from {
            return self.value(record.from).is_some_and(|value| value.kill(record.index, record.stored));
        }
        let placed = self.peek(record.from).and_then(|value| match &value.state {
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
        let mut out = self.counts;
        for (segment, value) in self.segments {
            if !self.changed.contains(&segment) {
                continue;
            }
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
