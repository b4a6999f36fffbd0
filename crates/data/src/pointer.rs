//! An extent pointer: the value of (volume, partition, map, record).
//!
//! - It names a record for ever; moving the record changes no pointer.
//! - The key it stands under says where the bytes belong, its tag says which bytes they are.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crypto::TAG_SIZE;
use tarn_base::ids::SegmentId;

use crate::codec::Codec;

const VERSION: u8 = 1;
/// With the length of the list of lost bytes; written only where there is one.
const VERSION_LOST: u8 = 2;
/// With the zeros that its data begins with; written only where there are some and nothing is lost.
const VERSION_ZEROS: u8 = 3;

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
    /// Bytes once opened and expanded: at most [`RECORD_SIZE_MAX`](crate::RECORD_SIZE_MAX) of data, and the list of
    /// lost bytes.
    pub plain: u32,
    /// Bytes at the end of the plaintext that list what is lost of the others ([`LostBytes`](crate::LostBytes)); 0: nothing
    /// is.
    pub lost: u32,
    /// Bytes at the beginning of its data that are zeros, if that is known and nothing is lost: who writes all the others anew
    /// need not read it. 0: nothing is known.
    pub zeros: u32,
    pub codec: Codec,
    /// The volume's epoch in which this pointer (not the record) was born.
    pub born: u32,
    /// Generation of the map; inside a cut of a later generation the pointer does not count.
    pub generation: u32,
    pub tag: [u8; TAG_SIZE],
}

impl RecordPointer {
    /// Bytes of the record that are data.
    pub fn data(&self) -> u32 {
        self.plain - self.lost.min(self.plain)
    }

    /// Appends 25 to 61 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (version, more) = match (self.lost, self.zeros) {
            (0, 0) => (VERSION, None),
            (0, zeros) => (VERSION_ZEROS, Some(zeros)),
            (lost, _) => (VERSION_LOST, Some(lost)),
        };
        out.put_u8(version);
        out.put_u8(self.codec.code());
        let SegmentId { epoch, counter } = self.segment;
        for value in [epoch, counter, self.index, self.offset, self.stored, self.plain, self.born, self.generation] {
            out.put_varint(u64::from(value));
        }
        if let Some(more) = more {
            out.put_varint(u64::from(more));
        }
        out.put(&self.tag);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<RecordPointer> {
        let mut take = Take::new(bytes);
        let version = take.u8()?;
        match version {
            VERSION | VERSION_LOST | VERSION_ZEROS => {}
            0 => return Err(DecodeError::Range("the version of a record pointer")),
            newer => return Err(DecodeError::Version(u32::from(newer))),
        }
        let codec = Codec::from_code(take.u8()?)?;
        let segment = SegmentId { epoch: small(&mut take)?, counter: small(&mut take)? };
        let (index, offset) = (small(&mut take)?, small(&mut take)?);
        let (stored, plain) = (small(&mut take)?, small(&mut take)?);
        let (born, generation) = (small(&mut take)?, small(&mut take)?);
        let more = if version == VERSION { 0 } else { small(&mut take)? };
        let (lost, zeros) = if version == VERSION_ZEROS { (0, more) } else { (more, 0) };
        let tag = take.array()?;
        take.end()?;
        crate::format::check_lengths(codec, stored, plain)?;
        if more > plain || (version != VERSION && more == 0) {
            return Err(DecodeError::Range("a list of lost bytes, or the zeros before data"));
        }
        Ok(RecordPointer { segment, index, offset, stored, plain, lost, zeros, codec, born, generation, tag })
    }
}

/// A varint of at most 32 bits.
pub(crate) fn small(take: &mut Take<'_>) -> Decoded<u32> {
    u32::try_from(take.varint()?).map_err(|_| DecodeError::Range("a number of 32 bits"))
}
