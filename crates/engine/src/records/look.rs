//! A closer look at a record that could not be read: alone, apart from its neighbours, and at its object as a whole.

use tarn_base::ids::SegmentId;
use tarn_data::{RecordPointer, object_name};
use tarn_store::{ObjectInfo, StoreError};

use crate::core::Core;
use crate::key::Key;

/// An object as the store shows it; another one if it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    pub modified_ms: i64,
}

/// What the store says of a record and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The record opens.
    Fine,
    /// The object is not there, is not as long as it was written, or has no such bytes.
    Incomplete(Option<Shape>),
    /// The record does not open, and the object is as long as it was written.
    Damaged(Shape),
    /// The store, or the metadata, did not say.
    Unknown,
}

impl Core {
    /// Looks at a record, and tells the object that it was looked for in.
    pub async fn look(&self, key: Key, pointer: &RecordPointer) -> (SegmentId, Look) {
        let known = self.find(pointer.segment).await;
        let object = self.lies(pointer).0;
        let look = if known { self.look_in(object, key, pointer).await } else { None };
        (object, look.unwrap_or(Look::Unknown))
    }

    /// Learns where a segment's records lie now, for they may have been moved; `false` if the metadata does not say.
    pub async fn find(&self, segment: SegmentId) -> bool {
        self.segments.forget_forwarding(segment);
        self.forwarding(segment).await.is_ok()
    }

    async fn look_in(&self, object: SegmentId, key: Key, pointer: &RecordPointer) -> Option<Look> {
        let there = match self.get_alone(key, pointer).await {
            Ok(stored) if self.opens(key, pointer, &stored).await.ok()? => return Some(Look::Fine),
            Ok(_) | Err(StoreError::Damaged(..)) => true,
            Err(StoreError::NotFound(_) | StoreError::Range(..)) => false,
            Err(_) => return None,
        };
        let shape = match self.segments.store.head(&object_name(object)).await {
            Ok(ObjectInfo { size, modified_ms, .. }) => Some(Shape { size, modified_ms }),
            Err(StoreError::NotFound(_)) => None,
            Err(_) => return None,
        };
        let written = self.segment(object).await.ok()??.object_size;
        Some(match shape.filter(|shape| there && shape.size == written) {
            Some(shape) => Look::Damaged(shape),
            None => Look::Incomplete(shape),
        })
    }

    /// Whether an object is surely not there.
    pub async fn is_absent(&self, object: SegmentId) -> bool {
        matches!(self.segments.store.head(&object_name(object)).await, Err(StoreError::NotFound(_)))
    }
}
