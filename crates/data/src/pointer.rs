//! An extent pointer: the value of (volume, partition, map, record).
//!
//! - It names a record for ever; moving the record changes no pointer.
//! - The key it stands under says where the bytes belong, its tag says which bytes they are.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crypto::TAG_SIZE;
use tarn_base::ids::SegmentId;

use crate::codec::Codec;

const VERSION: u8 = 1;

/// Where a record's bytes are and how to know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordPointer {
    /// The segment that the record was first written in: half of its name, and of its key.
    pub segment: SegmentId,
    /// Its place in that segment's order: the other half.
    pub index: u32,
    /// Byte offset in that segment's object; a forwarding overrules it.
    pub offset: u32,
    /// Bytes stored.
    pub stored: u32,
    /// Bytes once opened and expanded; at most [`RECORD_SIZE_MAX`](crate::RECORD_SIZE_MAX).
    pub plain: u32,
    pub codec: Codec,
    /// The volume's epoch in which this pointer (not the record) was born.
    pub born: u32,
    /// Generation of the map; inside a cut of a later generation the pointer does not count.
    pub generation: u32,
    pub tag: [u8; TAG_SIZE],
}

impl RecordPointer {
    /// Appends 25 to 56 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.codec.code());
        let SegmentId { epoch, counter } = self.segment;
        for value in [epoch, counter, self.index, self.offset, self.stored, self.plain, self.born, self.generation] {
            out.put_varint(u64::from(value));
        }
        out.put(&self.tag);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<RecordPointer> {
        let mut take = Take::new(bytes);
        match take.u8()? {
            VERSION => {}
            0 => return Err(DecodeError::Range("the version of a record pointer")),
            newer => return Err(DecodeError::Version(u32::from(newer))),
        }
        let codec = Codec::from_code(take.u8()?)?;
        let segment = SegmentId { epoch: small(&mut take)?, counter: small(&mut take)? };
        let (index, offset) = (small(&mut take)?, small(&mut take)?);
        let (stored, plain) = (small(&mut take)?, small(&mut take)?);
        let (born, generation) = (small(&mut take)?, small(&mut take)?);
        let tag = take.array()?;
        take.end()?;
        crate::format::check_lengths(codec, stored, plain)?;
        Ok(RecordPointer { segment, index, offset, stored, plain, codec, born, generation, tag })
    }
}

/// A varint of at most 32 bits.
pub(crate) fn small(take: &mut Take<'_>) -> Decoded<u32> {
    u32::try_from(take.varint()?).map_err(|_| DecodeError::Range("a number of 32 bits"))
}
