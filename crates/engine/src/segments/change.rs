//! Changes of segment keys that come from reclaim and ride in the next checkpoint's batch.
//!
//! - They are applied after the checkpoint has taken dead records out of the live sets, so none is lost.
//! - They wait until the batch that holds them is durable; a checkpoint that fails leaves them waiting.

use tarn_base::ids::SegmentId;
use tarn_base::ids::Uuid;
use tarn_data::{Salt, SegmentObject};

use super::Segments;

/// A record that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its name: the segment it was first written in, and its index there.
    pub from: SegmentId,
    pub index: u32,
    /// Salt of that segment's owner epoch.
    pub salt: Salt,
    /// Where its bytes were taken from: `from` itself, or the segment it was moved to before.
    pub source: SegmentId,
    pub stored: u32,
    /// Its place in the new object.
    pub new_index: u32,
    pub new_offset: u32,
}

/// A change of segment keys.
#[derive(Clone, Debug)]
pub enum SegmentChange {
    /// The object of a condemned segment has been deleted.
    Deleted(SegmentId),
    /// Records were copied into a new object, which has been PUT.
    Move { object: NewObject, records: Vec<Moved> },
}

/// What a segment's key keeps of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewObject {
    pub segment: SegmentId,
    pub family: Uuid,
    pub size: u64,
    pub records: u32,
    pub stored_bytes: u64,
}

impl NewObject {
    pub fn new(family: Uuid, object: &SegmentObject) -> NewObject {
        NewObject {
            segment: object.segment,
            family,
            size: object.bytes.len() as u64,
            records: object.records,
            stored_bytes: object.stored_bytes,
        }
    }
}

impl Segments {
    /// Puts a change into the next batch.
    pub fn queue(&self, change: SegmentChange) {
        self.changes.lock().push(change);
    }

    /// What waits, in order.
    pub(crate) fn waiting(&self) -> Vec<SegmentChange> {
        self.changes.lock().clone()
    }

    /// The first `count` are durable.
    pub(crate) fn done(&self, count: usize) {
        self.changes.lock().drain(..count);
    }
}
