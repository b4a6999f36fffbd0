//! A segment's directory: what is in it, sealed at its end.
//!
//! - With it and the family key a segment opens without any metadata: names, tags, hashes, origins and their salts.
//! - Every record lies between header and directory.

use std::collections::BTreeMap;

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crypto::TAG_SIZE;
use tarn_base::ids::SegmentId;

use crate::codec::Codec;
use crate::error::DamageError;
use crate::format::{FOOTER_SIZE, Footer, HEADER_SIZE, SegmentHeader, check_lengths};
use crate::keys::{FamilyKey, RecordHash, Salt, SegmentKey};

/// Bytes a record takes in the directory if it was moved here; less if not.
pub(crate) const RECORD_BYTES: usize = 4 + 4 + 4 + 1 + 1 + TAG_SIZE + 32 + ORIGIN_BYTES;
const ORIGIN_BYTES: usize = 12;
const SALT_BYTES: usize = 20;

/// The name and key of a record that was first written in another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub segment: SegmentId,
    pub index: u32,
    /// Salt of that segment's owner epoch.
    pub salt: Salt,
}

/// Stands where a record has no digest: no content has this one.
const NO_HASH: RecordHash = [0; 32];

/// What a directory says of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// Byte offset in this object.
    pub offset: u32,
    pub stored: u32,
    pub plain: u32,
    pub codec: Codec,
    pub tag: [u8; TAG_SIZE],
    /// Digest of the plaintext; `None` where nobody needed one ([`SegmentBuilder::push_hashed`](crate::SegmentBuilder::push_hashed)).
    pub hash: Option<RecordHash>,
    /// For a moved record, its name: the segment whose key opens it. Otherwise this segment and its place in order.
    pub origin: Option<Origin>,
}

/// All records of a segment, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub segment: SegmentId,
    pub records: Vec<DirectoryRecord>,
}

impl Directory {
    pub(crate) fn new(segment: SegmentId) -> Directory {
        Directory { segment, records: Vec::new() }
    }

    /// The directory of a whole `object`, which must be `segment` of this family. The salt is the header's own: a
    /// wrong one opens nothing.
    pub fn read(family: &FamilyKey, segment: SegmentId, object: &[u8]) -> Result<Directory, DamageError> {
        let header = SegmentHeader::decode(object)?;
        if header.segment != segment {
            return Err(DamageError::OtherSegment { expected: segment, found: header.segment });
        }
        let footer = Footer::decode(object, object.len() as u64)?;
        let (from, end) = (footer.directory as usize, object.len() - FOOTER_SIZE);
        let sealed = object.get(from..end).ok_or(DecodeError::Short)?;
        Directory::open(&family.segment(&header.salt, segment), &footer, sealed)
    }

    /// The directory from its `sealed` bytes, which lie at `footer.directory`.
    pub fn open(key: &SegmentKey, footer: &Footer, sealed: &[u8]) -> Result<Directory, DamageError> {
        if footer.segment != key.segment() {
            return Err(DamageError::OtherSegment { expected: key.segment(), found: footer.segment });
        }
        let plain = key.open_directory(footer, sealed)?;
        let directory = Directory::decode(footer.segment, footer.directory, &plain)?;
        if directory.records.len() != footer.records as usize {
            return Err(DamageError::Format(DecodeError::Range("a directory's count")));
        }
        Ok(directory)
    }

    /// The name of record `index`: (segment, index) as pointers have it.
    pub fn name(&self, index: u32) -> Option<(SegmentId, u32)> {
        let record = self.records.get(index as usize)?;
        Some(record.origin.map_or((self.segment, index), |origin| (origin.segment, origin.index)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let origins = self.records.iter().filter_map(|record| record.origin);
        let salts: BTreeMap<u32, Salt> = origins.map(|origin| (origin.segment.epoch, origin.salt)).collect();
        let mut out = Vec::with_capacity(8 + salts.len() * SALT_BYTES + self.records.len() * RECORD_BYTES);
        out.put_u32(salts.len() as u32);
        for (epoch, salt) in salts {
            out.put_u32(epoch);
            out.put(&salt);
        }
        out.put_u32(self.records.len() as u32);
        for record in &self.records {
            out.put_u32(record.offset);
            out.put_u32(record.stored);
            out.put_u32(record.plain);
            out.put_u8(record.codec.code());
            out.put_bool(record.origin.is_some());
            out.put(&record.tag);
            out.put(&record.hash.unwrap_or(NO_HASH));
            if let Some(origin) = record.origin {
                out.put_u32(origin.segment.epoch);
                out.put_u32(origin.segment.counter);
                out.put_u32(origin.index);
            }
        }
        out
    }

    /// Judges an opened directory of an object whose records end at `end`.
    pub(crate) fn decode(segment: SegmentId, end: u32, plain: &[u8]) -> Decoded<Directory> {
        let mut take = Take::new(plain);
        let mut salts = BTreeMap::new();
        for _ in 0..take.count(SALT_BYTES)? {
            salts.insert(take.u32()?, take.array()?);
        }
        let count = take.count(RECORD_BYTES - ORIGIN_BYTES)?;
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            records.push(decode_record(&mut take, &salts, end)?);
        }
        take.end()?;
        Ok(Directory { segment, records })
    }
}

fn decode_record(take: &mut Take<'_>, salts: &BTreeMap<u32, Salt>, end: u32) -> Decoded<DirectoryRecord> {
    let (offset, stored, plain) = (take.u32()?, take.u32()?, take.u32()?);
    let codec = Codec::from_code(take.u8()?)?;
    let moved = take.bool()?;
    let tag = take.array()?;
    let hash = Some(take.array()?).filter(|hash| *hash != NO_HASH);
    let mut origin = None;
    if moved {
        let segment = SegmentId { epoch: take.u32()?, counter: take.u32()? };
        let salt = *salts.get(&segment.epoch).ok_or(DecodeError::Range("an origin without a salt"))?;
        origin = Some(Origin { segment, index: take.u32()?, salt });
    }
    check_lengths(codec, stored, plain)?;
    let inside = offset as usize >= HEADER_SIZE && offset.checked_add(stored).is_some_and(|last| last <= end);
    if !inside {
        return Err(DecodeError::Range("a record's place"));
    }
    Ok(DirectoryRecord { offset, stored, plain, codec, tag, hash, origin })
}
