//! What belongs to the shard: volumes, usage, salts, segments, and the pointers' side of the segments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::codec::Decoded;
use tarn_base::ids::{SegmentId, VolumeId};
use tarn_data::{LiveSet, RecordPointer, SegmentState, SegmentValue, object_name};
use tarn_meta::MetaError;
use tarn_store::{ObjectInfo, Store, StoreError, StoreResult};

use super::{FsckCounts, FsckReport, Walk, name};
use crate::key::{Key, Kind, segment_id};
use crate::value::{CountRecord, NotifyRecord, SaltRecord, ShardState, Usage, VolumeRecord};

/// Objects looked at at once.
const HEADS_MAX: usize = 16;

/// A segment, and what pointers say of it.
#[derive(Debug)]
struct Checked {
    value: SegmentValue,
    found: LiveSet,
    found_bytes: u64,
    /// Of a forwarding: the records that pointers name.
    forwarded: BTreeSet<u32>,
    /// Of records of its name that count keys say are shared: how many, and the bytes that their further pointers save.
    shared: u32,
    saved_bytes: u64,
}

/// A record that has a count key, and the pointers that name it.
#[derive(Debug)]
struct Counted {
    pointers: u64,
    found: u64,
    /// The first of them: the others must say the same of the record.
    first: Option<RecordPointer>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub state: Option<ShardState>,
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    usage: BTreeMap<VolumeId, Usage>,
    /// What the volumes' inodes add up to.
    pub counted: BTreeMap<VolumeId, Usage>,
    salts: BTreeMap<u32, [u8; 16]>,
    segments: BTreeMap<SegmentId, Checked>,
    counts: BTreeMap<(SegmentId, u32), Counted>,
}

/// A volume whose data is being removed: its tree need not be whole.
pub(super) fn goes(record: &VolumeRecord) -> bool {
    record.deleted.is_some() && record.name.is_empty()
}

impl Shard {
    pub fn key(&mut self, key: &Key, value: &[u8], report: &mut FsckReport) {
        let outcome: Decoded<()> = match key.kind {
            Kind::Shard => ShardState::decode(value).map(|state| self.state = Some(state)),
            Kind::Volume => VolumeRecord::decode(value).map(|record| {
                report.counts.volumes += 1;
                self.volumes.insert(VolumeId(key.a as u32), record);
            }),
            Kind::Usage => Usage::decode(value).map(|usage| {
                self.usage.insert(VolumeId(key.a as u32), usage);
            }),
            Kind::Salt => SaltRecord::decode(value).map(|salt| {
                self.salts.insert(key.a as u32, salt.0);
            }),
            Kind::Segment => SegmentValue::decode(value).map(|value| {
                report.counts.segments += 1;
                let found = LiveSet::none(value.live.size());
                let forwarded = BTreeSet::new();
                let checked = Checked { value, found, found_bytes: 0, forwarded, shared: 0, saved_bytes: 0 };
                self.segments.insert(segment_id(key.a), checked);
            }),
            Kind::Notify => NotifyRecord::decode(value).map(|_| ()),
            Kind::Count => CountRecord::decode(value).map(|count| {
                let counted = Counted { pointers: count.pointers, found: 0, first: None };
                self.counts.insert((segment_id(key.a), key.b as u32), counted);
            }),
            _ => {
                report.find(format!("{}: a key of this kind belongs into a volume", name(key)));
                Ok(())
            }
        };
        if let Err(error) = outcome {
            report.find(format!("{}: {error}", name(key)));
        }
    }

    /// Holds a pointer against the segment it names.
    pub fn pointer(&mut self, key: &Key, pointer: &RecordPointer, report: &mut FsckReport) {
        let (segment, index) = (pointer.segment, pointer.index);
        let Some(checked) = self.segments.get_mut(&segment) else {
            report.find(format!("{}: it names segment {segment}, which is not there", name(key)));
            return;
        };
        let place = match &checked.value.state {
            SegmentState::Live => Ok((segment, index, pointer.offset)),
            SegmentState::Condemned { .. } => Err(format!("it names segment {segment}, which is condemned")),
            SegmentState::Forwarding(forwarding) => match forwarding.records.get(&index) {
                Some(forward) => {
                    checked.forwarded.insert(index);
                    Ok((forward.segment, forward.index, forward.offset))
                }
                None => Err(format!("record {index} of segment {segment} is not forwarded")),
            },
        };
        let outcome = place.and_then(|place| {
            let further = self.count(pointer)?;
            self.place(key, pointer, place, further)
        });
        if let Err(what) = outcome {
            report.find(format!("{}: {what}", name(key)));
        }
    }

    /// Notes a pointer to a record that has a count key; whether another one was seen before.
    fn count(&mut self, pointer: &RecordPointer) -> Result<bool, String> {
        let (segment, index) = (pointer.segment, pointer.index);
        let Some(counted) = self.counts.get_mut(&(segment, index)) else { return Ok(false) };
        counted.found += 1;
        let Some(first) = counted.first else {
            counted.first = Some(*pointer);
            if let Some(checked) = self.segments.get_mut(&segment) {
                checked.shared += 1;
                let further = counted.pointers.saturating_sub(1).saturating_mul(u64::from(pointer.stored));
                checked.saved_bytes = checked.saved_bytes.saturating_add(further);
            }
            return Ok(false);
        };
        let says = |of: &RecordPointer| (of.tag, of.stored, of.plain, of.codec);
        if says(&first) == says(pointer) {
            Ok(true)
        } else {
            Err(format!("another pointer says something else of record {index} of segment {segment}"))
        }
    }

    /// Notes that a pointer's record lies at `place`; `further`: that another one named it before.
    fn place(
        &mut self,
        key: &Key,
        pointer: &RecordPointer,
        (segment, index, offset): (SegmentId, u32, u32),
        further: bool,
    ) -> Result<(), String> {
        let family =
            self.volumes.get(&key.volume).map(|record| record.family_key.slice(..record.family_key.len().min(16)));
        let Some(checked) = self.segments.get_mut(&segment) else {
            return Err(format!("it is forwarded to segment {segment}, which is not there"));
        };
        let value = &checked.value;
        if value.state != SegmentState::Live {
            return Err(format!("it is forwarded to segment {segment}, which does not live"));
        }
        if !further {
            checked.found_bytes += u64::from(pointer.stored);
        }
        if index >= checked.found.size() {
            return Err(format!("record {index} lies outside segment {segment}"));
        }
        if !checked.found.insert(index) && !further {
            return Err(format!("record {index} of segment {segment} has another pointer already, and no count"));
        }
        if !value.live.contains(index) {
            return Err(format!("record {index} of segment {segment} is not in the live set"));
        }
        if u64::from(offset) + u64::from(pointer.stored) > value.object_size {
            return Err(format!("record {index} ends outside the object of segment {segment}"));
        }
        if family.is_some_and(|family| family[..] != value.family.0) {
            return Err(format!("segment {segment} is of another family"));
        }
        Ok(())
    }

    /// What can be said once every key has been seen.
    pub fn finish(&self, report: &mut FsckReport) {
        let Some(state) = &self.state else {
            report.find("the shard's state is missing".into());
            return;
        };
        for (id, record) in &self.volumes {
            if id.0 >= state.next_volume {
                report.find(format!("volume {}: its number is still to be given out", id.0));
            }
            if goes(record) {
                continue;
            }
            let counted = self.counted.get(id).copied().unwrap_or_default();
            match self.usage.get(id) {
                Some(usage) if *usage == counted => {}
                Some(usage) => {
                    report.find(format!("volume {}: its usage is {usage:?}, but {counted:?} is there", id.0))
                }
                None => report.find(format!("volume {}: its usage is missing", id.0)),
            }
            if counted.inodes == 0 {
                report.find(format!("volume {}: it has no inode", id.0));
            }
        }
        for id in self.usage.keys().filter(|id| !self.volumes.contains_key(id)) {
            report.find(format!("usage of volume {}, which is not there", id.0));
        }
        for ((segment, index), Counted { pointers, found, .. }) in &self.counts {
            if pointers != found {
                let text =
                    format!("record {index} of segment {segment}: it counts {pointers} pointers, but has {found}");
                report.find(text);
            }
        }
        for (segment, checked) in &self.segments {
            self.finish_segment(state, *segment, checked, report);
        }
    }

    fn finish_segment(&self, state: &ShardState, segment: SegmentId, checked: &Checked, report: &mut FsckReport) {
        let Checked { value, found, found_bytes, forwarded, shared, saved_bytes } = checked;
        let mut find = |what: String| report.find(format!("segment {segment}: {what}"));
        let reserved = segment.epoch < state.reserved_epoch
            || (segment.epoch == state.reserved_epoch && segment.counter < state.reserved_counter);
        if !reserved {
            find("its number was not reserved".into());
        }
        let salt = self.salts.get(&segment.epoch);
        if salt.is_none() && !matches!(value.state, SegmentState::Condemned { .. }) {
            find(format!("the salt of owner epoch {} is missing", segment.epoch));
        }
        let unnamed: Vec<u32> = value.live.iter().filter(|index| !found.contains(*index)).collect();
        if let Some(first) = unnamed.first() {
            find(format!("{} records are live but no pointer names them, the first {first}", unnamed.len()));
        }
        if (value.shared, value.saved_bytes) != (*shared, *saved_bytes) {
            let (says, bytes) = (value.shared, value.saved_bytes);
            find(format!(
                "it says {says} records are shared and save {bytes} bytes, counts {shared} and {saved_bytes}"
            ));
        }
        match &value.state {
            SegmentState::Live if value.live.count() == 0 => {
                find("nothing in it lives, and it is not condemned".into())
            }
            SegmentState::Live if value.live_bytes != *found_bytes => {
                find(format!("it counts {} live bytes, pointers {found_bytes}", value.live_bytes));
            }
            SegmentState::Live => {}
            SegmentState::Condemned { .. } if value.live.count() > 0 => {
                find("it is condemned though records live".into())
            }
            SegmentState::Condemned { .. } => {}
            SegmentState::Forwarding(forwarding) => {
                if value.live.count() > 0 {
                    find("its records were moved though some live in it".into());
                }
                if salt.is_some_and(|salt| *salt != forwarding.salt) {
                    find("its forwarding has another salt than its owner epoch".into());
                }
                let stale = forwarding.records.keys().filter(|index| !forwarded.contains(index)).count();
                if stale > 0 {
                    find(format!("it forwards {stale} records that no pointer names"));
                }
            }
        }
    }

    fn objects(&self) -> Vec<(SegmentId, u64)> {
        let live = self.segments.iter().filter(|(_, checked)| checked.value.state == SegmentState::Live);
        live.map(|(segment, checked)| (*segment, checked.value.object_size)).collect()
    }
}

impl Walk<'_> {
    /// Whether the object of every live segment is there, with the right size.
    pub(super) async fn look_at_objects(
        &mut self,
        progress: &mut (dyn FnMut(&FsckCounts) + Send),
    ) -> Result<(), MetaError> {
        let mut objects = self.shard.objects().into_iter();
        let mut heads = FuturesUnordered::new();
        loop {
            while heads.len() < HEADS_MAX
                && let Some((segment, size)) = objects.next()
            {
                heads.push(head(self.store.clone(), segment, size));
            }
            let Some((segment, size, outcome)) = heads.next().await else { return Ok(()) };
            self.report.counts.objects += 1;
            let what = match outcome {
                Ok(info) if info.size == size => continue,
                Ok(info) => format!("it is {} bytes long, not {size}", info.size),
                Err(StoreError::NotFound(_)) if self.left_meanwhile(segment).await? => continue,
                Err(StoreError::NotFound(_)) => "it is missing".into(),
                Err(error) => format!("it could not be looked at: {error}"),
            };
            self.report.find(format!("segment {segment}, object {}: {what}", object_name(segment)));
            progress(&self.report.counts);
        }
    }

    /// Whether the running engine has emptied a segment since the view was taken.
    async fn left_meanwhile(&self, segment: SegmentId) -> Result<bool, MetaError> {
        let Some(core) = self.core else { return Ok(false) };
        let view = core.stack.load().view.clone();
        let value = view.get(&Key::segment(segment).encode()).await?;
        let lives = value.and_then(|value| SegmentValue::decode(&value).ok());
        Ok(lives.is_none_or(|value| value.state != SegmentState::Live))
    }
}

async fn head(store: Arc<dyn Store>, segment: SegmentId, size: u64) -> (SegmentId, u64, StoreResult<ObjectInfo>) {
    let outcome = store.head(&object_name(segment)).await;
    (segment, size, outcome)
}
