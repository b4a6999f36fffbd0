//! What is left of a segment whose records have moved: where each of them is now.
//!
//! - A forwarding never leads to a forwarding: moving again rewrites it.
//! - It holds what is needed to open the records: the salt of the segment's own epoch. Pointers hold the rest.

use std::collections::BTreeMap;

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::SegmentId;

use crate::keys::Salt;
use crate::pointer::small;

/// Where one record lies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The segment whose object holds its bytes.
    pub segment: SegmentId,
    /// Its place in that segment's order: its bit in the live set there.
    pub index: u32,
    /// Byte offset in that object.
    pub offset: u32,
}

/// Where the records of one segment lie now, by their index in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// The salt of the segment's owner epoch.
    pub salt: Salt,
    /// Since when the old object awaits deletion, milliseconds since 1970; `None` once it is deleted.
    pub condemned_at_ms: Option<i64>,
    /// Records that moved; those that were dead then are not here.
    pub records: BTreeMap<u32, Forward>,
}

impl Forwarding {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put(&self.salt);
        out.put_bool(self.condemned_at_ms.is_some());
        if let Some(at) = self.condemned_at_ms {
            out.put_i64(at);
        }
        let mut targets: Vec<SegmentId> = self.records.values().map(|forward| forward.segment).collect();
        targets.sort_unstable();
        targets.dedup();
        out.put_u32(targets.len() as u32);
        for target in &targets {
            out.put_u32(target.epoch);
            out.put_u32(target.counter);
        }
        out.put_u32(self.records.len() as u32);
        let mut next = 0;
        for (&index, forward) in &self.records {
            let target = targets.partition_point(|target| *target < forward.segment);
            out.put_varint(u64::from(index - next));
            out.put_varint(target as u64);
            out.put_varint(u64::from(forward.index));
            out.put_varint(u64::from(forward.offset));
            next = index + 1;
        }
    }

    /// Takes a forwarding from the front of `take`.
    pub fn decode(take: &mut Take<'_>) -> Decoded<Forwarding> {
        let salt = take.array()?;
        let condemned_at_ms = if take.bool()? { Some(take.i64()?) } else { None };
        let mut targets = Vec::new();
        for _ in 0..take.count(8)? {
            targets.push(SegmentId { epoch: take.u32()?, counter: take.u32()? });
        }
        let mut records = BTreeMap::new();
        let mut next = 0u32;
        for _ in 0..take.count(4)? {
            let index = next.checked_add(small(take)?).filter(|&index| index < crate::format::RECORDS_MAX);
            let index = index.ok_or(DecodeError::Range("a forwarded index"))?;
            let target = targets.get(small(take)? as usize).ok_or(DecodeError::Range("a forwarding's target"))?;
            records.insert(index, Forward { segment: *target, index: small(take)?, offset: small(take)? });
            next = index + 1;
        }
        Ok(Forwarding { salt, condemned_at_ms, records })
    }
}
