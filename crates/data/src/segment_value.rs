//! The value of a segment's key in the metadata.
//!
//! - All of it changes in the batch that changes the pointers, so it never disagrees with them.
//! - `live_bytes` are the stored bytes of the live records, and nothing else.
//! - `shared` and `saved_bytes` go by the records' names: they stay with the segment a record was first written in,
//!   wherever its bytes lie.

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::Uuid;

use crate::forwarding::Forwarding;
use crate::live::LiveSet;

const VERSION: u8 = 2;

/// What becomes of a segment's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentState {
    Live,
    /// No record lives; the object awaits deletion since this time, milliseconds since 1970.
    Condemned {
        at_ms: i64,
    },
    /// Its records live in other segments.
    Forwarding(Forwarding),
}

/// How warm records are: four bits each, two records a byte, the even index in the low half.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat(Bytes);

impl Heat {
    /// Nothing known: all cold.
    pub const NONE: Heat = Heat(Bytes::new());
    /// The warmest age; it counts down by one a scan without a read.
    pub const AGE_MAX: u8 = 7;
    /// Set when only snapshots point to the record.
    const SNAPSHOT_ONLY: u8 = 8;

    /// (age, only snapshots point to it) of each of `records`.
    pub fn from_records(records: impl Iterator<Item = (u8, bool)>) -> Heat {
        let mut out = Vec::new();
        for (index, (age, snapshot_only)) in records.enumerate() {
            let bits = age.min(Self::AGE_MAX) | if snapshot_only { Self::SNAPSHOT_ONLY } else { 0 };
            match out.last_mut() {
                Some(last) if index % 2 == 1 => *last |= bits << 4,
                _ => out.push(bits),
            }
        }
        Heat(Bytes::from(out))
    }

    /// (age, only snapshots point to it).
    pub fn get(&self, index: u32) -> (u8, bool) {
        let byte = self.0.get(index as usize / 2).copied().unwrap_or(0);
        let bits = if index.is_multiple_of(2) { byte & 0xf } else { byte >> 4 };
        (bits & Self::AGE_MAX, bits & Self::SNAPSHOT_ONLY != 0)
    }
}

/// A segment as the metadata knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentValue {
    /// The family whose key opens it.
    pub family: Uuid,
    /// Bytes of the whole object.
    pub object_size: u64,
    /// Stored bytes of the records that live here.
    pub live_bytes: u64,
    /// Records of this segment's name that more than one pointer names: each has a count key.
    pub shared: u32,
    /// Stored bytes that their further pointers would take.
    pub saved_bytes: u64,
    /// One bit per record, in the order of the directory.
    pub live: LiveSet,
    pub state: SegmentState,
    /// The tier whose store holds the object: 0 is the volume's first.
    pub tier: u8,
    pub heat: Heat,
}

impl SegmentValue {
    /// A new segment, all of whose records live.
    pub fn new(family: Uuid, object: &crate::builder::SegmentObject) -> SegmentValue {
        SegmentValue {
            family,
            object_size: object.bytes.len() as u64,
            live_bytes: object.stored_bytes,
            shared: 0,
            saved_bytes: 0,
            live: LiveSet::all(object.records),
            state: SegmentState::Live,
            tier: 0,
            heat: Heat::NONE,
        }
    }

    /// Marks record `index`, of `stored` bytes, dead; false if it was already, or does not exist.
    pub fn kill(&mut self, index: u32, stored: u32) -> bool {
        let was = self.live.remove(index);
        if was {
            self.live_bytes = self.live_bytes.saturating_sub(u64::from(stored));
        }
        was
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(VERSION);
        out.put(&self.family.0);
        out.put_varint(self.object_size);
        out.put_varint(self.live_bytes);
        out.put_varint(u64::from(self.shared));
        out.put_varint(self.saved_bytes);
        out.put_u8(self.tier);
        self.live.encode(&mut out);
        out.put_bytes(&self.heat.0);
        match &self.state {
            SegmentState::Live => out.put_u8(0),
            SegmentState::Condemned { at_ms } => {
                out.put_u8(1);
                out.put_i64(*at_ms);
            }
            SegmentState::Forwarding(forwarding) => {
                out.put_u8(2);
                forwarding.encode(&mut out);
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Decoded<SegmentValue> {
        let mut take = Take::new(bytes);
        match take.u8()? {
            VERSION => {}
            0 | 1 => return Err(DecodeError::Range("the version of a segment's value")),
            newer => return Err(DecodeError::Version(u32::from(newer))),
        }
        let family = Uuid(take.array()?);
        let (object_size, live_bytes) = (take.varint()?, take.varint()?);
        let (shared, saved_bytes, tier) = (crate::pointer::small(&mut take)?, take.varint()?, take.u8()?);
        let live = LiveSet::decode(&mut take)?;
        let heat = Heat(take.owned(live.size().div_ceil(2) as usize)?);
        let state = match take.u8()? {
            0 => SegmentState::Live,
            1 => SegmentState::Condemned { at_ms: take.i64()? },
            2 => SegmentState::Forwarding(Forwarding::decode(&mut take)?),
            _ => return Err(DecodeError::Range("a segment's state")),
        };
        take.end()?;
        Ok(SegmentValue { family, object_size, live_bytes, shared, saved_bytes, live, state, tier, heat })
    }
}
