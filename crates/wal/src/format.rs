//! The bits of the log: two header slots and frames. `docs/format/log.md` says the same in words.
//!
//! - A slot is 4 KiB: magic first, version after it, CRC32C in its last four bytes, in every version for ever.
//! - A frame's header is plaintext and has a CRC of its own, so that what it claims can be believed even if the body
//!   after it is damaged; its other CRC covers the body.
//! - Nothing here does IO or decides what a bad value means.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crc32c;
use tarn_base::crypto::{Cipher, Key, NONCE_SIZE, OpenError, TAG_SIZE, nonce};
use tarn_base::ids::{Position, Uuid};

/// Frames begin on, and are rounded up to, this many bytes.
pub const BLOCK: u64 = 4096;
pub const SLOT_SIZE: usize = 4096;
/// Where the ring begins on the device: after the two slots.
pub const RING_START: u64 = 2 * SLOT_SIZE as u64;
pub const VERSION: u32 = 1;
pub const HEADER_MAGIC: [u8; 8] = *b"TARNLOG\0";
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TLFR");
pub const FRAME_VERSION: u16 = 1;
pub const FRAME_HEADER: usize = 96;
/// No frame body is longer: the soft size plus one entry, with room to spare.
pub const BODY_SIZE_MAX: u32 = 16 << 20;

/// No log offset is beyond this and no ring is larger, so that sums of a few of them never overflow.
pub const OFFSET_MAX: u64 = 1 << 60;

const FLAG_CLEAN: u32 = 1;
const MAC_AT: usize = SLOT_SIZE - 4 - 32;
const CRC_AT: usize = SLOT_SIZE - 4;

const _: () = assert!(BLOCK as usize >= FRAME_HEADER && SLOT_SIZE as u64 == BLOCK);

/// The log key, wrapped by a key of the master key's for this log alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    pub nonce: [u8; NONCE_SIZE],
    pub sealed: [u8; 32 + TAG_SIZE],
}

impl WrappedKey {
    pub fn wrap(log_key: &Key, master: &Key, id: Uuid, nonce: [u8; NONCE_SIZE]) -> WrappedKey {
        let mut out = Vec::with_capacity(48);
        wrapping_key(master, id).cipher().seal_to(nonce, &id.0, log_key.expose(), &mut out);
        let sealed = out.try_into().expect("32 bytes and a tag are 48 bytes");
        WrappedKey { nonce, sealed }
    }

    pub fn unwrap(&self, master: &Key, id: Uuid) -> Result<Key, OpenError> {
        let plain = wrapping_key(master, id).cipher().open(self.nonce, &id.0, &self.sealed)?;
        Ok(Key::new(plain.try_into().map_err(|_| OpenError)?))
    }
}

fn wrapping_key(master: &Key, id: Uuid) -> Key {
    master.derive(&id.0, &[b"tarn log key 1"])
}

/// The keys that a log key gives.
pub struct LogKeys {
    pub frames: Cipher,
    header: Key,
}

impl LogKeys {
    pub fn new(log_key: &Key, id: Uuid) -> LogKeys {
        LogKeys {
            frames: log_key.derive(&id.0, &[b"tarn log frames 1"]).cipher(),
            header: log_key.derive(&id.0, &[b"tarn log header 1"]),
        }
    }

    fn mac(&self, slot: &[u8]) -> [u8; 32] {
        *self.header.derive(b"", &[b"tarn log header mac 1", &slot[..MAC_AT]]).expose()
    }
}

/// What a header slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Counts header writes; the slot with the higher one holds.
    pub generation: u64,
    pub id: Uuid,
    /// Bytes of the ring, a multiple of [`BLOCK`].
    pub ring: u64,
    pub shard: u32,
    /// Openings for writing so far; half of every frame's nonce.
    pub opening: u32,
    /// The incarnation of the last opening.
    pub incarnation: u32,
    /// Closed cleanly: the log ends at `end` exactly.
    pub clean: bool,
    /// Log offset of the first frame that is still needed.
    pub tail: u64,
    /// Position of the last entry before `tail`.
    pub trimmed: Position,
    /// Log offset up to which the log was durable when this was written; from here on only frames of `opening` count.
    pub end: u64,
    /// Position of the last entry before `end`.
    pub last: Position,
    /// Log offset that no frame reaches beyond, as long as this is the last header.
    pub limit: u64,
    pub key: WrappedKey,
}

impl Header {
    pub fn encode(&self, keys: &LogKeys) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_SIZE);
        out.put(&HEADER_MAGIC);
        out.put_u32(VERSION);
        out.put_u32(if self.clean { FLAG_CLEAN } else { 0 });
        out.put_u64(self.generation);
        out.put(&self.id.0);
        out.put_u64(self.ring);
        out.put_u32(self.shard);
        out.put_u32(self.opening);
        out.put_u32(self.incarnation);
        // In blocks from `end` on; 0 where nothing is said.
        out.put_u32(u32::try_from(self.limit.saturating_sub(self.end).div_ceil(BLOCK)).unwrap_or(0));
        out.put_u64(self.tail);
        out.put_u64(self.trimmed.0);
        out.put_u64(self.end);
        out.put_u64(self.last.0);
        out.put(&self.key.nonce);
        out.put(&self.key.sealed);
        out.resize(MAC_AT, 0);
        let mac = keys.mac(&out);
        out.put(&mac);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// Judges a slot. The MAC is judged by [`Header::authentic`], once the key is known.
    pub fn decode(slot: &[u8]) -> Decoded<Header> {
        if slot.len() != SLOT_SIZE {
            return Err(DecodeError::Short);
        }
        let mut take = Take::new(slot);
        if take.take(8)? != HEADER_MAGIC {
            return Err(DecodeError::Range("the magic of a log header"));
        }
        if slot[CRC_AT..] != crc32c(&slot[..CRC_AT]).to_le_bytes() {
            return Err(DecodeError::Range("the checksum of a log header"));
        }
        match take.u32()? {
            VERSION => {}
            newer => return Err(DecodeError::Version(newer)),
        }
        let flags = take.u32()?;
        let generation = take.u64()?;
        let id = Uuid(take.array()?);
        let ring = take.u64()?;
        let (shard, opening, incarnation) = (take.u32()?, take.u32()?, take.u32()?);
        let blocks = take.u32()?;
        let (tail, trimmed) = (take.u64()?, Position(take.u64()?));
        let (end, last) = (take.u64()?, Position(take.u64()?));
        let key = WrappedKey { nonce: take.array()?, sealed: take.array()? };
        if ring > OFFSET_MAX || end > OFFSET_MAX {
            return Err(DecodeError::Range("the extent of a log"));
        }
        if ring == 0 || ring % BLOCK != 0 || tail % BLOCK != 0 || end % BLOCK != 0 || end < tail || end - tail > ring {
            return Err(DecodeError::Range("the extent of a log"));
        }
        let clean = flags & FLAG_CLEAN != 0;
        let limit = end + if blocks == 0 { ring } else { u64::from(blocks) * BLOCK };
        Ok(Header { generation, id, ring, shard, opening, incarnation, clean, tail, trimmed, end, last, limit, key })
    }

    /// Whether the slot was written by somebody with the log key.
    pub fn authentic(slot: &[u8], keys: &LogKeys) -> bool {
        slot.get(MAC_AT..CRC_AT).is_some_and(|mac| {
            // Constant time: the difference of all bytes at once.
            keys.mac(slot).iter().zip(mac).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
        })
    }
}

/// Puts MAC and checksum of a slot right.
pub(crate) fn mend_header(slot: &mut [u8], keys: &LogKeys) {
    let mac = keys.mac(slot);
    slot[MAC_AT..CRC_AT].copy_from_slice(&mac);
    let crc = crc32c(&slot[..CRC_AT]).to_le_bytes();
    slot[CRC_AT..].copy_from_slice(&crc);
}

/// Puts the checksum of a frame's header right.
pub(crate) fn mend_frame(head: &mut [u8; FRAME_HEADER]) {
    let crc = crc32c(&head[..FRAME_HEADER - 4]).to_le_bytes();
    head[FRAME_HEADER - 4..].copy_from_slice(&crc);
}

/// What stands before a frame's sealed body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub id: Uuid,
    pub shard: u32,
    /// Position of the first entry; its incarnation is the frame's.
    pub first: Position,
    pub entries: u32,
    /// Bytes of the body, as long sealed as plain (the tag is in the header).
    pub len: u32,
    /// The frame's own log offset, never wrapping.
    pub offset: u64,
    /// Everything before this log offset was durable when the frame was written.
    pub durable: u64,
    /// The opening that wrote it.
    pub opening: u32,
    pub body_crc: u32,
    pub tag: [u8; TAG_SIZE],
}

impl FrameHeader {
    /// Bytes the frame takes in the ring.
    pub fn extent(&self) -> u64 {
        frame_extent(self.len as usize)
    }

    /// Position of the last entry.
    pub fn last(&self) -> Position {
        Position(self.first.0 + u64::from(self.entries) - 1)
    }

    pub fn nonce(&self) -> [u8; NONCE_SIZE] {
        nonce(self.opening, self.offset)
    }

    /// Encodes `self` into `out`, which has room for it.
    pub fn encode(&self, out: &mut [u8; FRAME_HEADER]) {
        *out = self.bare();
        out[52..56].copy_from_slice(&self.body_crc.to_le_bytes());
        out[56..72].copy_from_slice(&self.tag);
        let crc = crc32c(&out[..FRAME_HEADER - 4]);
        out[FRAME_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    }

    /// What the body's tag covers besides the body: the header with both CRCs and the tag itself zero.
    pub fn bare(&self) -> [u8; FRAME_HEADER] {
        let mut out = [0u8; FRAME_HEADER];
        out[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.shard.to_le_bytes());
        out[12..16].copy_from_slice(&self.first.incarnation().to_le_bytes());
        out[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.entries.to_le_bytes());
        out[28..32].copy_from_slice(&self.len.to_le_bytes());
        out[32..40].copy_from_slice(&self.offset.to_le_bytes());
        out[40..48].copy_from_slice(&self.durable.to_le_bytes());
        out[48..52].copy_from_slice(&self.opening.to_le_bytes());
        out[72..88].copy_from_slice(&self.id.0);
        out
    }

    /// How many of its three marks - magic, log, own offset - a block has that is no whole frame header of `id` at
    /// `offset`. A frame that was begun there has at least two, whichever one bit of it is wrong.
    pub fn marks(block: &[u8; FRAME_HEADER], id: Uuid, offset: u64) -> usize {
        let magic = block[..4] == FRAME_MAGIC.to_le_bytes();
        [magic, block[32..40] == offset.to_le_bytes(), block[72..88] == id.0].into_iter().filter(|mark| *mark).count()
    }

    /// Judges the first bytes of a block; the body is judged by its CRC and its tag.
    pub fn decode(block: &[u8]) -> Decoded<FrameHeader> {
        let bytes = block.get(..FRAME_HEADER).ok_or(DecodeError::Short)?;
        let mut take = Take::new(bytes);
        if take.u32()? != FRAME_MAGIC {
            return Err(DecodeError::Range("the magic of a frame"));
        }
        if bytes[FRAME_HEADER - 4..] != crc32c(&bytes[..FRAME_HEADER - 4]).to_le_bytes() {
            return Err(DecodeError::Range("the checksum of a frame's header"));
        }
        match take.u16()? {
            FRAME_VERSION => {}
            newer => return Err(DecodeError::Version(u32::from(newer))),
        }
        take.u16()?;
        let (shard, incarnation, first) = (take.u32()?, take.u32()?, Position(take.u64()?));
        let (entries, len) = (take.u32()?, take.u32()?);
        let (offset, durable, opening) = (take.u64()?, take.u64()?, take.u32()?);
        let (body_crc, tag) = (take.u32()?, take.array()?);
        let id = Uuid(take.array()?);
        let sequences = first.sequence().checked_add(u64::from(entries));
        if first.incarnation() != incarnation
            || entries == 0
            || sequences.is_none_or(|end| end > Position::SEQUENCE_MAX)
        {
            return Err(DecodeError::Range("a frame's positions"));
        }
        if offset % BLOCK != 0 || offset > OFFSET_MAX || durable > offset || len > BODY_SIZE_MAX {
            return Err(DecodeError::Range("a frame's extent"));
        }
        Ok(FrameHeader { id, shard, first, entries, len, offset, durable, opening, body_crc, tag })
    }
}

/// Bytes that a frame with a body of `len` takes in the ring.
pub fn frame_extent(len: usize) -> u64 {
    ((FRAME_HEADER + len) as u64).next_multiple_of(BLOCK)
}

/// Bytes before each entry's payload: its length, 32 bits.
pub const ENTRY_HEADER: usize = 4;

/// Where the entries of a plain body lie: (start of payload, length), exactly `count` of them to its end.
pub fn entries(body: &[u8], count: u32) -> Decoded<Vec<(u32, u32)>> {
    let mut take = Take::new(body);
    let mut out = Vec::with_capacity((count as usize).min(body.len() / ENTRY_HEADER));
    for _ in 0..count {
        let payload = take.bytes()?;
        let end = body.len() - take.rest().len();
        out.push(((end - payload.len()) as u32, payload.len() as u32));
    }
    take.end()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, LogKeys) {
        let (id, log_key) = (Uuid([3; 16]), Key::new([9; 32]));
        let key = WrappedKey::wrap(&log_key, &Key::new([1; 32]), id, [5; 12]);
        let header = Header {
            generation: 7,
            id,
            ring: 1 << 20,
            shard: 2,
            opening: 4,
            incarnation: 5,
            clean: true,
            tail: 4096,
            trimmed: Position::new(4, 9),
            end: 8192,
            last: Position::new(5, 10),
            limit: 8192 + 5 * BLOCK,
            key,
        };
        (header, LogKeys::new(&log_key, id))
    }

    #[test]
    fn a_header_comes_back_and_any_flipped_bit_is_noticed() {
        let (header, keys) = sample();
        let slot = header.encode(&keys);
        assert_eq!(Header::decode(&slot).unwrap(), header);
        assert!(Header::authentic(&slot, &keys));
        for at in (0..SLOT_SIZE).step_by(7).chain(0..160) {
            let mut bad = slot.clone();
            bad[at] ^= 0x10;
            assert!(Header::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_header_changed_by_somebody_without_the_key_is_not_authentic() {
        let (header, keys) = sample();
        let mut slot = header.encode(&keys);
        slot[52] -= 1;
        let crc = crc32c(&slot[..CRC_AT]);
        slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert!(Header::decode(&slot).is_ok());
        assert!(!Header::authentic(&slot, &keys));
    }

    #[test]
    fn a_newer_header_is_named_as_such() {
        let (header, keys) = sample();
        let mut slot = header.encode(&keys);
        slot[8] = 2;
        let crc = crc32c(&slot[..CRC_AT]);
        slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&slot), Err(DecodeError::Version(2)));
    }

    #[test]
    fn the_wrong_master_key_does_not_unwrap() {
        let (header, _) = sample();
        assert!(header.key.unwrap(&Key::new([1; 32]), header.id).is_ok());
        assert!(header.key.unwrap(&Key::new([2; 32]), header.id).is_err());
        assert!(header.key.unwrap(&Key::new([1; 32]), Uuid([4; 16])).is_err());
    }

    #[test]
    fn a_frame_header_comes_back_and_any_flipped_bit_is_noticed() {
        let frame = FrameHeader {
            id: Uuid([8; 16]),
            shard: 1,
            first: Position::new(3, 77),
            entries: 4,
            len: 5000,
            offset: 40960,
            durable: 8192,
            opening: 6,
            body_crc: 99,
            tag: [4; 16],
        };
        let mut bytes = [0u8; FRAME_HEADER];
        frame.encode(&mut bytes);
        assert_eq!(FrameHeader::decode(&bytes).unwrap(), frame);
        assert_eq!((frame.extent(), frame.last()), (8192, Position::new(3, 80)));
        for bit in 0..FRAME_HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn entries_fill_the_body_exactly() {
        let mut body = Vec::new();
        body.put_bytes(b"one");
        body.put_bytes(b"");
        assert_eq!(entries(&body, 2).unwrap(), vec![(4, 3), (11, 0)]);
        assert!(entries(&body, 1).is_err());
        assert!(entries(&body, 3).is_err());
    }
}
