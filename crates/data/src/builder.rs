//! Making a segment: records are reduced, sealed and packed in the order they come.
//!
//! - Each index is sealed once under the segment's key, which seals nothing else; a builder that is dropped takes its
//!   segment's number with it.
//! - Moved records keep name, key and stored bytes; only their place is new.
//! - The object is written whole, once, and never changes.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded};
use tarn_base::ids::SegmentId;

use crate::codec::{Compression, Compressor};
use crate::directory::{Directory, DirectoryRecord, Origin, RECORD_BYTES};
use crate::format::{FOOTER_SIZE, Footer, HEADER_SIZE, PLAIN_SIZE_MAX, RECORDS_MAX, SegmentHeader, check_lengths};
use crate::keys::{FamilyKey, RecordHash, Salt, SegmentKey};
use crate::memory::{Buffer, SegmentMemory};
use crate::name::object_name;
use crate::pointer::RecordPointer;

/// 16 MiB: large enough that a PUT's price and latency vanish, small enough to be rewritten and cached whole.
pub const TARGET_SIZE_DEFAULT: usize = 16 << 20;
pub const TARGET_SIZE_MIN: usize = 4 << 20;
pub const TARGET_SIZE_MAX: usize = 32 << 20;

/// A segment in the making.
#[derive(Debug)]
pub struct SegmentBuilder {
    segment: SegmentId,
    family: Arc<FamilyKey>,
    key: SegmentKey,
    target: usize,
    bytes: Buffer,
    directory: Directory,
    compressor: Compressor,
}

/// Where a moved record lies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its place in the new segment's order: its bit in the live set there.
    pub index: u32,
    /// Byte offset in the new object.
    pub offset: u32,
}

/// A finished segment, to be PUT under [`SegmentObject::name`].
#[derive(Clone, Debug)]
pub struct SegmentObject {
    pub segment: SegmentId,
    pub bytes: Bytes,
    pub records: u32,
    /// Stored bytes of all records.
    pub stored_bytes: u64,
}

impl SegmentObject {
    /// The object's name below the shard's prefix.
    pub fn name(&self) -> String {
        object_name(self.segment)
    }
}

impl SegmentBuilder {
    /// Begins `segment`, a number never used before, under the salt of its owner epoch.
    ///
    /// `target` is the object's size in bytes at which [`SegmentBuilder::full`] says so; the last record may exceed it.
    pub fn new(segment: SegmentId, family: Arc<FamilyKey>, salt: &Salt, target: usize) -> SegmentBuilder {
        SegmentBuilder::within(&SegmentMemory::default(), segment, family, salt, target)
    }

    /// As [`SegmentBuilder::new`], in memory that is used again.
    pub fn within(
        memory: &SegmentMemory,
        segment: SegmentId,
        family: Arc<FamilyKey>,
        salt: &Salt,
        target: usize,
    ) -> SegmentBuilder {
        let mut bytes = memory.take(target + PLAIN_SIZE_MAX as usize);
        let mut header = Vec::with_capacity(HEADER_SIZE);
        SegmentHeader { segment, family: family.id(), salt: *salt }.encode(&mut header);
        bytes.append(&header);
        let key = family.segment(salt, segment);
        let directory = Directory::new(segment);
        SegmentBuilder { segment, family, key, target, bytes, directory, compressor: Compressor::default() }
    }

    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    pub fn records(&self) -> u32 {
        self.directory.records.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.directory.records.is_empty()
    }

    /// Whether the object has reached its target, directory included.
    pub fn full(&self) -> bool {
        let directory = self.directory.records.len() * RECORD_BYTES;
        self.bytes.len() + directory + FOOTER_SIZE >= self.target || self.records() >= RECORDS_MAX
    }

    /// Adds a record of at most [`PLAIN_SIZE_MAX`] bytes; `born` and `generation` are the pointer's.
    ///
    /// An error says that the record is too long or the segment has no place left ([`SegmentBuilder::full`]).
    pub fn push(
        &mut self,
        plain: &[u8],
        compression: Compression,
        born: u32,
        generation: u32,
    ) -> Decoded<RecordPointer> {
        let hash = Some(self.family.hash(plain));
        self.push_hashed(plain, hash, compression, born, generation)
    }

    /// As [`SegmentBuilder::push`], for a caller that has computed [`FamilyKey::hash`] of `plain` already, or needs none: it
    /// costs as much as encryption and compression together, and only dedupe asks for it.
    pub fn push_hashed(
        &mut self,
        plain: &[u8],
        hash: Option<RecordHash>,
        compression: Compression,
        born: u32,
        generation: u32,
    ) -> Decoded<RecordPointer> {
        self.check_room(plain.len())?;
        let plain_len = plain.len() as u32;
        let (codec, packed) = self.compressor.compress(plain, compression);
        let (index, offset) = (self.directory.records.len() as u32, self.bytes.len());
        let tag = self.key.seal(index, codec, plain_len, packed, self.bytes.grow(packed.len()));
        let stored = (self.bytes.len() - offset) as u32;
        let offset = offset as u32;
        self.directory.records.push(DirectoryRecord {
            offset,
            stored,
            plain: plain_len,
            codec,
            tag,
            hash,
            origin: None,
        });
        Ok(RecordPointer {
            segment: self.segment,
            index,
            offset,
            stored,
            plain: plain_len,
            codec,
            born,
            generation,
            tag,
            ..RecordPointer::default()
        })
    }

    /// Adds a record of another segment, its `stored` bytes as they are. `record` is its entry in that segment's
    /// directory, `from` that entry's name and salt - used unless the record was moved before, when its first name
    /// stays. The caller has verified the bytes, or accepts moving damage that every reader will notice.
    pub fn push_moved(&mut self, from: Origin, record: &DirectoryRecord, stored: &[u8]) -> Decoded<Placed> {
        self.check_room(stored.len())?;
        check_lengths(record.codec, stored.len() as u32, record.plain)?;
        if stored.len() != record.stored as usize {
            return Err(DecodeError::Range("a moved record's length"));
        }
        let placed = Placed { index: self.records(), offset: self.bytes.len() as u32 };
        self.bytes.append(stored);
        let origin = Some(record.origin.unwrap_or(from));
        self.directory.records.push(DirectoryRecord { offset: placed.offset, origin, ..record.clone() });
        Ok(placed)
    }

    fn check_room(&self, len: usize) -> Decoded<()> {
        if len > PLAIN_SIZE_MAX as usize {
            return Err(DecodeError::Range("a record's length"));
        }
        // Far above every target; keeps all offsets within 32 bits whatever the caller does.
        if self.records() >= RECORDS_MAX || self.bytes.len() > 1 << 30 {
            return Err(DecodeError::Range("a segment's size"));
        }
        Ok(())
    }

    /// Seals the directory and ends the object.
    pub fn finish(mut self) -> SegmentObject {
        let plain = self.directory.encode();
        let footer = Footer {
            segment: self.segment,
            records: self.records(),
            directory: self.bytes.len() as u32,
            directory_len: (plain.len() + tarn_base::crypto::TAG_SIZE) as u32,
        };
        let mut end = Vec::with_capacity(footer.directory_len as usize + FOOTER_SIZE);
        self.key.seal_directory(&footer, &plain, &mut end);
        footer.encode(&mut end);
        self.bytes.append(&end);
        let stored_bytes = u64::from(footer.directory) - HEADER_SIZE as u64;
        let records = footer.records;
        SegmentObject { segment: self.segment, bytes: self.bytes.finish(), records, stored_bytes }
    }
}
