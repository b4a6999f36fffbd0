//! The bits of a segment object. `docs/format/segment.md` says the same in words.
//!
//! - header, stored records back to back, sealed directory, footer; nothing between, nothing after.
//! - Whatever is sealed is bound to segment, index, codec and plain length by its associated data.
//! - Nothing here does IO or holds a key.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crc32c;
use tarn_base::crypto::{NONCE_SIZE, nonce};
use tarn_base::ids::{SegmentId, Uuid};

use crate::codec::Codec;

pub const VERSION: u32 = 1;
pub const HEADER_MAGIC: [u8; 8] = *b"TARNSEG\0";
pub const FOOTER_MAGIC: [u8; 8] = *b"TARNDIR\0";
/// Bytes before the first record.
pub const HEADER_SIZE: usize = 56;
/// Bytes at the end of the object that say where its directory is.
pub const FOOTER_SIZE: usize = 36;
/// The largest record, bytes of data.
pub const RECORD_SIZE_MAX: u32 = 1 << 20;
/// The longest plaintext: such a record and the list of what is lost of it.
pub const PLAIN_SIZE_MAX: u32 = RECORD_SIZE_MAX + RECORD_SIZE_MAX / 8 + 16;
/// The most records in one segment.
pub const RECORDS_MAX: u32 = 1 << 20;
/// The nonce's index of the directory; no record has it.
pub const DIRECTORY_INDEX: u32 = u32::MAX;

const _: () = assert!(RECORDS_MAX < DIRECTORY_INDEX);

/// The first bytes of a segment: whose it is, and what its key is derived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub segment: SegmentId,
    pub family: Uuid,
    /// The owner epoch's salt; no secret.
    pub salt: [u8; 16],
}

impl SegmentHeader {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.put(&HEADER_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.segment.epoch);
        out.put_u32(self.segment.counter);
        out.put(&self.family.0);
        out.put(&self.salt);
        let crc = crc32c(&out[at..]);
        out.put_u32(crc);
    }

    /// Decodes the first [`HEADER_SIZE`] bytes of `object`.
    pub fn decode(object: &[u8]) -> Decoded<SegmentHeader> {
        let bytes = object.get(..HEADER_SIZE).ok_or(DecodeError::Short)?;
        let mut take = judge(bytes, HEADER_MAGIC)?;
        let segment = SegmentId { epoch: take.u32()?, counter: take.u32()? };
        Ok(SegmentHeader { segment, family: Uuid(take.array()?), salt: take.array()? })
    }
}

/// The last bytes of a segment: where its directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    pub segment: SegmentId,
    pub records: u32,
    /// Byte offset of the sealed directory: where the records end.
    pub directory: u32,
    /// Bytes of the sealed directory, its tag included; the footer follows.
    pub directory_len: u32,
}

impl Footer {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.put(&FOOTER_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.segment.epoch);
        out.put_u32(self.segment.counter);
        out.put_u32(self.records);
        out.put_u32(self.directory);
        out.put_u32(self.directory_len);
        let crc = crc32c(&out[at..]);
        out.put_u32(crc);
    }

    /// Decodes the last [`FOOTER_SIZE`] bytes of an object of `object_size` bytes, of which `tail` is some end.
    pub fn decode(tail: &[u8], object_size: u64) -> Decoded<Footer> {
        let bytes = tail.last_chunk::<FOOTER_SIZE>().ok_or(DecodeError::Short)?;
        let mut take = judge(bytes, FOOTER_MAGIC)?;
        let segment = SegmentId { epoch: take.u32()?, counter: take.u32()? };
        let footer = Footer { segment, records: take.u32()?, directory: take.u32()?, directory_len: take.u32()? };
        let end = u64::from(footer.directory) + u64::from(footer.directory_len) + FOOTER_SIZE as u64;
        if footer.records > RECORDS_MAX || (footer.directory as usize) < HEADER_SIZE || end != object_size {
            return Err(DecodeError::Range("the extent of a segment"));
        }
        Ok(footer)
    }
}

/// Checks magic, checksum (the last four bytes) and version, in this order; leaves what follows the version.
fn judge(bytes: &[u8], magic: [u8; 8]) -> Decoded<Take<'_>> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(DecodeError::Short)?;
    let mut take = Take::new(body);
    if take.array::<8>()? != magic {
        return Err(DecodeError::Range("the magic of a segment"));
    }
    if *crc != crc32c(body).to_le_bytes() {
        return Err(DecodeError::Range("the checksum of a segment"));
    }
    match take.u32()? {
        VERSION => Ok(take),
        newer => Err(DecodeError::Version(newer)),
    }
}

/// Whether a record may have these lengths.
pub fn check_lengths(codec: Codec, stored: u32, plain: u32) -> Decoded<()> {
    let plausible = match codec {
        Codec::Plain => stored == plain,
        // Kept only where it saves something.
        Codec::Lz4 | Codec::Zstd => stored < plain && stored > 0,
    };
    if plausible && plain <= PLAIN_SIZE_MAX { Ok(()) } else { Err(DecodeError::Range("a record's lengths")) }
}

/// The nonce of record `index`, under its segment's key.
pub fn record_nonce(index: u32) -> [u8; NONCE_SIZE] {
    nonce(0, u64::from(index))
}

/// What a record's tag covers besides its bytes: format, segment, index, codec, plain length.
pub fn record_aad(segment: SegmentId, index: u32, codec: Codec, plain: u32) -> [u8; 24] {
    let mut out = [0u8; 24];
    out[0..4].copy_from_slice(b"TREC");
    out[4..6].copy_from_slice(&(VERSION as u16).to_le_bytes());
    out[6] = codec.code();
    out[8..12].copy_from_slice(&segment.epoch.to_le_bytes());
    out[12..16].copy_from_slice(&segment.counter.to_le_bytes());
    out[16..20].copy_from_slice(&index.to_le_bytes());
    out[20..24].copy_from_slice(&plain.to_le_bytes());
    out
}

/// What the directory's tag covers besides it: format, segment, count, place.
pub fn directory_aad(footer: &Footer) -> [u8; 24] {
    let mut out = [0u8; 24];
    out[0..4].copy_from_slice(b"TDIR");
    out[4..8].copy_from_slice(&VERSION.to_le_bytes());
    out[8..12].copy_from_slice(&footer.segment.epoch.to_le_bytes());
    out[12..16].copy_from_slice(&footer.segment.counter.to_le_bytes());
    out[16..20].copy_from_slice(&footer.records.to_le_bytes());
    out[20..24].copy_from_slice(&footer.directory.to_le_bytes());
    out
}
