//! Looking over the segments: how full they are, what is condemned, what is worth rewriting.

use std::time::Duration;

use tarn_base::ids::{SegmentId, VolumeId};
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
    /// Objects whose hold time is over, and their bytes.
    pub due: Vec<(SegmentId, u64)>,
    pub sparse: Vec<(SegmentId, SegmentValue)>,
}

impl Reclaim {
    /// Reads the keys of all segments.
    pub(super) async fn survey(&self, memory: &mut Memory) -> Result<Survey, ReclaimError> {
        let stack = self.core.stack.load();
        let now = self.core.world.clock.now().as_millis();
        let hold = i64::try_from(self.core.config.hold.as_millis()).unwrap_or(i64::MAX);
        let (mut survey, mut totals, mut next_due_ms) = (Survey::default(), SegmentTotals::default(), None::<i64>);
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
                if let Some(at) = condemned_at(&value) {
                    let due = at.saturating_add(hold);
                    if deleted.remove(&segment) {
                        memory.deleted.insert(segment);
                    } else if due <= now {
                        survey.due.push((segment, value.object_size));
                    } else {
                        next_due_ms = Some(next_due_ms.map_or(due, |held| held.min(due)));
                    }
                } else if value.state == SegmentState::Live && moved.remove(&segment) {
                    memory.moved.insert(segment);
                } else if is_sparse(&value) && survey.sparse.len() < SPARSE_MAX && !memory.immovable.contains(&segment)
                {
                    survey.sparse.push((segment, value));
                }
            }
        }
        memory.survey = Some(Taken { version: stack.version, at: self.core.world.clock.steady(), next_due_ms });
        *self.totals.lock() = Some(totals);
        Ok(survey)
    }
}

impl SegmentTotals {
    fn count(&mut self, value: &SegmentValue) {
        if value.state == SegmentState::Live {
            self.live += 1;
            self.live_object_bytes += value.object_size;
            self.live_bytes += value.live_bytes;
        }
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
}
