//! Looking over the segments: how full they are, what is condemned, what is worth rewriting.

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_base::ids::{SegmentId, Uuid, VolumeId};
use tarn_data::{FOOTER_SIZE, HEADER_SIZE, SegmentState, SegmentValue};

use super::{Memory, Reclaim, ReclaimError};
use crate::key::{Key, Kind, segment_id};
use crate::pages::Pages;

/// Segments rewritten by one pass.
const SPARSE_MAX: usize = 256;
/// Bytes that a record takes in its segment's directory, at least.
const DIRECTORY_BYTES: u64 = 62;
/// Less than this is not worth the forwardings that a move leaves behind, bytes.
const GAIN_MIN: u64 = 4 << 10;

/// So many small segments of about one size are put together: each byte is then rewritten once for each power of this.
const MERGE_MIN: usize = 8;

/// What a family's records take in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyTotals {
    /// Stored bytes of its live records.
    pub stored_bytes: u64,
    /// Stored bytes that more pointers than one to a record save.
    pub saved_bytes: u64,
}

/// All segments of the shard by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentTotals {
    pub live: u64,
    /// Bytes of their objects.
    pub live_object_bytes: u64,
    /// Stored bytes of their live records.
    pub live_bytes: u64,
    /// Objects that await deletion, forwarded ones included.
    pub condemned: u64,
    pub condemned_bytes: u64,
    /// Segments whose records live elsewhere.
    pub forwarded: u64,
    /// Stored bytes that more pointers than one to a record save.
    pub saved_bytes: u64,
}

/// When the last survey was, and what it was of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub version: u64,
    pub at: Duration,
    /// When the next object may be deleted, milliseconds since 1970.
    pub next_due_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Objects whose hold time is over, their bytes, and since when they are condemned, milliseconds since 1970.
    pub due: Vec<(SegmentId, u64, i64)>,
    /// What is worth rewriting.
    pub sparse: Vec<(SegmentId, SegmentValue)>,
}

/// Small segments, by family and size.
#[derive(Default)]
struct Small(BTreeMap<(Uuid, u32), Vec<(SegmentId, SegmentValue)>>);

impl Reclaim {
    /// Reads the keys of all segments.
    pub(super) async fn survey(&self, memory: &mut Memory) -> Result<Survey, ReclaimError> {
        let stack = self.core.stack.load();
        let now = self.core.world.clock.now().as_millis();
        let hold = i64::try_from(self.core.config.hold.as_millis()).unwrap_or(i64::MAX);
        let (mut survey, mut totals, mut next_due_ms) = (Survey::default(), SegmentTotals::default(), None::<i64>);
        let (mut families, mut small) = (BTreeMap::<Uuid, FamilyTotals>::new(), Small::default());
        let (mut deleted, mut moved) = (std::mem::take(&mut memory.deleted), std::mem::take(&mut memory.moved));
        let mut pages = Pages::kind(stack.view.clone(), VolumeId(0), Kind::Segment);
        while let Some(entries) = pages.next().await? {
            for (key, value) in entries {
                let Some(key) = Key::decode(&key) else { continue };
                let value = match SegmentValue::decode(&value) {
                    Ok(value) => value,
                    Err(error) => {
                        self.core.damaged(&key, &error.to_string());
                        continue;
                    }
                };
                let segment = segment_id(key.a);
                totals.count(&value);
                families.entry(value.family).or_default().count(&value);
                if let Some(at) = condemned_at(&value) {
                    let due = at.saturating_add(hold);
                    if deleted.remove(&segment) {
                        memory.deleted.insert(segment);
                    } else if due <= now {
                        survey.due.push((segment, value.object_size, at));
                    } else {
                        next_due_ms = Some(next_due_ms.map_or(due, |held| held.min(due)));
                    }
                } else if value.state == SegmentState::Live && moved.remove(&segment) {
                    memory.moved.insert(segment);
                } else if !memory.immovable.contains(&segment) {
                    if is_sparse(&value) && survey.sparse.len() < SPARSE_MAX {
                        survey.sparse.push((segment, value));
                    } else {
                        small.note(segment, value, u64::from(self.core.config.segment_bytes));
                    }
                }
            }
        }
        memory.survey = Some(Taken { version: stack.version, at: self.core.world.clock.steady(), next_due_ms });
        small.merge(&mut survey.sparse);
        *self.totals.lock() = Some((totals, families));
        Ok(survey)
    }
}

impl Small {
    /// Keeps a segment that is small beside a full one. What lives in it is counted, for that is what would be moved.
    fn note(&mut self, segment: SegmentId, value: SegmentValue, full: u64) {
        if value.state == SegmentState::Live
            && let Some(size) = size_class(value.live_bytes, full)
        {
            let held = self.0.entry((value.family, size)).or_default();
            if held.len() < SPARSE_MAX {
                held.push((segment, value));
            }
        }
    }

    /// Hands over what is to be put together.
    fn merge(self, out: &mut Vec<(SegmentId, SegmentValue)>) {
        for (_, segments) in self.0 {
            if segments.len() >= MERGE_MIN && out.len() < SPARSE_MAX {
                out.extend(segments);
            }
        }
    }
}

/// The policy: which segments are put together. Those of less than a quarter of a full one, by powers of eight of their
/// size, so that a large one is not rewritten for the sake of each tiny one: tiny checkpoints leave at most seven
/// objects of each size, and no byte is moved more than once for each power.
fn size_class(live_bytes: u64, full: u64) -> Option<u32> {
    (live_bytes < full / 4).then(|| live_bytes.max(1).ilog2() / 3)
}

impl FamilyTotals {
    fn count(&mut self, value: &SegmentValue) {
        if value.state == SegmentState::Live {
            self.stored_bytes += value.live_bytes;
        }
        self.saved_bytes += value.saved_bytes;
    }
}

impl SegmentTotals {
    fn count(&mut self, value: &SegmentValue) {
        if value.state == SegmentState::Live {
            self.live += 1;
            self.live_object_bytes += value.object_size;
            self.live_bytes += value.live_bytes;
        }
        self.saved_bytes += value.saved_bytes;
        self.forwarded += u64::from(matches!(value.state, SegmentState::Forwarding(_)));
        if condemned_at(value).is_some() {
            self.condemned += 1;
            self.condemned_bytes += value.object_size;
        }
    }
}

/// Since when a segment's object awaits deletion, if nothing in it lives.
fn condemned_at(value: &SegmentValue) -> Option<i64> {
    match &value.state {
        SegmentState::Live => None,
        SegmentState::Condemned { at_ms } => Some(*at_ms),
        SegmentState::Forwarding(forwarding) => forwarding.condemned_at_ms,
    }
    .filter(|_| value.live.count() == 0)
}

/// The policy: whether a segment is worth rewriting. Less than half of its records' bytes live, and the gain is worth
/// the forwardings. What a move has written has no dead records, so nothing is moved for its own overhead.
fn is_sparse(value: &SegmentValue) -> bool {
    let overhead = (HEADER_SIZE + FOOTER_SIZE) as u64 + DIRECTORY_BYTES * u64::from(value.live.size());
    let stored = value.object_size.saturating_sub(overhead);
    let dead = stored.saturating_sub(value.live_bytes);
    value.state == SegmentState::Live
        && value.live.count() < value.live.size()
        && value.live_bytes < stored / 2
        && dead >= GAIN_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_data::{Heat, LiveSet};

    fn segment(records: u32, live: u32) -> SegmentValue {
        let mut value = SegmentValue {
            family: Default::default(),
            object_size: u64::from(records) * 4096 + 100 + u64::from(records) * 70,
            live_bytes: u64::from(records) * 4096,
            shared: 0,
            saved_bytes: 0,
            live: LiveSet::all(records),
            state: SegmentState::Live,
            tier: 0,
            heat: Heat::NONE,
        };
        (live..records).for_each(|index| assert!(value.kill(index, 4096)));
        value
    }

    #[test]
    fn only_what_is_less_than_half_alive_is_moved() {
        assert!(!is_sparse(&segment(100, 100)) && !is_sparse(&segment(100, 60)));
        assert!(is_sparse(&segment(100, 40)) && is_sparse(&segment(100, 1)));
        // Nothing dead, however large its directory is beside its records.
        let tiny = SegmentValue { live_bytes: 10, ..segment(1, 1) };
        assert!(!is_sparse(&tiny));
        let condemned = SegmentValue { state: SegmentState::Condemned { at_ms: 5 }, ..segment(10, 0) };
        assert!(!is_sparse(&condemned));
        assert_eq!((condemned_at(&condemned), condemned_at(&segment(10, 0))), (Some(5), None));
    }

    #[test]
    fn small_segments_are_put_together_with_those_of_their_size() {
        let full = 16 << 20;
        let merged = |sizes: &[(u32, usize)]| {
            let mut small = Small::default();
            let all = sizes.iter().flat_map(|(records, count)| std::iter::repeat_n(*records, *count));
            for (counter, records) in all.enumerate() {
                small.note(SegmentId { epoch: 1, counter: counter as u32 }, segment(records, records), full);
            }
            let mut out = Vec::new();
            small.merge(&mut out);
            out.len()
        };
        assert_eq!(merged(&[(1, 7)]), 0);
        assert_eq!(merged(&[(1, 8)]), 8);
        // 4 KiB, 32 KiB and 256 KiB are of different sizes; 4 MiB is no small segment.
        assert_eq!(merged(&[(1, 7), (8, 7), (64, 7)]), 0);
        assert_eq!(merged(&[(1, 3), (8, 9), (1024, 50)]), 9);
    }
}
