//! Decoders of bytes from the medium, and valid bytes to begin from, for fuzzing.
//!
//! - A judge says whether it takes the bytes for valid; it never panics but when what it took does not survive
//!   encoding.

use std::io;
use std::sync::Arc;

use tarn_base::codec::Put;
use tarn_base::crypto::Key;
use tarn_base::ids::{Position, Uuid};

use crate::contract::LogError;
use crate::device::{LogDevice, range_within};
use crate::format::{
    self, BLOCK, FRAME_HEADER, FrameHeader, HEADER_MAGIC, Header, LogKeys, RING_START, SLOT_SIZE, WrappedKey,
};
use crate::log::Log;

const ID: Uuid = Uuid([3; 16]);

/// Judges the bytes of a header slot.
pub fn header(bytes: &[u8]) -> bool {
    Header::decode(bytes).is_ok()
}

/// Valid slots.
pub fn header_samples() -> Vec<Vec<u8>> {
    let (log_key, master) = (Key::new([9; 32]), Key::new([1; 32]));
    let header = Header {
        generation: 7,
        id: ID,
        ring: 1 << 20,
        shard: 2,
        opening: 4,
        incarnation: 5,
        clean: true,
        tail: 4096,
        trimmed: Position::new(4, 9),
        end: 8192,
        last: Position::new(5, 10),
        limit: 8192 + BLOCK,
        key: WrappedKey::wrap(&log_key, &master, ID, [5; 12]),
    };
    vec![header.encode(&LogKeys::new(&log_key, ID))]
}

/// Judges the bytes at the start of a frame.
pub fn frame(bytes: &[u8]) -> bool {
    let Ok(frame) = FrameHeader::decode(bytes) else { return false };
    let mut again = [0; FRAME_HEADER];
    frame.encode(&mut again);
    assert_eq!(FrameHeader::decode(&again).as_ref(), Ok(&frame), "a frame's header does not survive encoding");
    assert!(frame.last() >= frame.first && frame.extent() > 0);
    true
}

/// Valid headers of frames.
pub fn frame_samples() -> Vec<Vec<u8>> {
    let frame = FrameHeader {
        id: ID,
        shard: 1,
        first: Position::new(3, 77),
        entries: 4,
        len: 5000,
        offset: 40960,
        durable: 4096,
        opening: 9,
        body_crc: 1,
        tag: [6; 16],
    };
    let mut out = [0; FRAME_HEADER];
    frame.encode(&mut out);
    vec![out.to_vec()]
}

/// Under what the frame that begins with `bytes` is sealed: log, opening, offset. `None` if none begins so.
pub fn frame_seal(bytes: &[u8]) -> Option<(Uuid, u32, u64)> {
    FrameHeader::decode(bytes).ok().map(|frame| (frame.id, frame.opening, frame.offset))
}

/// The sealed bytes of the frame that `bytes` begin with: what fills its last block is not sealed.
pub fn frame_sealed(bytes: &[u8]) -> Option<&[u8]> {
    let frame = FrameHeader::decode(bytes).ok()?;
    bytes.get(..format::FRAME_HEADER + frame.len as usize)
}

/// Judges a count of entries in 32 bits, and the body of a frame that has so many.
pub fn entries(bytes: &[u8]) -> bool {
    let Some((count, body)) = bytes.split_first_chunk::<4>() else { return false };
    let Ok(places) = format::entries(body, u32::from_le_bytes(*count)) else { return false };
    places.iter().all(|&(start, len)| body.get(start as usize..start as usize + len as usize).is_some())
}

/// Valid counts and bodies.
pub fn entries_samples() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    out.put_u32(3);
    for payload in [&b"one"[..], b"", &[7; 300]] {
        out.put_bytes(payload);
    }
    vec![out]
}

const MASTER: [u8; 32] = [1; 32];
const LOG_KEY: [u8; 32] = [9; 32];
/// Bytes of the ring of a judged device.
const RING: u64 = 64 << 10;

/// A device whose first bytes are these, the rest zeros. It cannot be written.
struct Image(Vec<u8>);

impl LogDevice for Image {
    fn size(&self) -> u64 {
        RING_START + RING
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = range_within(at, buf.len(), self.size())?;
        buf.fill(0);
        let there = self.0.get(range.start..range.end.min(self.0.len())).unwrap_or_default();
        buf[..there.len()].copy_from_slice(there);
        Ok(())
    }

    fn write(&self, _at: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "image".to_owned()
    }
}

/// Judges a whole device, its bodies in plaintext: they are sealed first and every checksum is put right, so that damage
/// gets as far as that of somebody who has the key.
pub fn device(bytes: &[u8]) -> bool {
    let mut image = bytes[..bytes.len().min((RING_START + RING) as usize)].to_vec();
    seal_image(&mut image);
    let Ok(mut log) = Log::open(Arc::new(Image(image)), &Key::new(MASTER)) else { return false };
    let mut last = Position::ZERO;
    let replayed = log.replay(|entry| {
        assert!(entry.position >= last, "positions go down: {} after {last}", entry.position);
        last = entry.position;
        Ok::<(), LogError>(())
    });
    replayed.is_ok()
}

fn seal_image(image: &mut [u8]) {
    let (slots, ring) = image.split_at_mut(image.len().min(RING_START as usize));
    for slot in slots.chunks_exact_mut(SLOT_SIZE).filter(|slot| slot.starts_with(&HEADER_MAGIC)) {
        let id = slot[24..].first_chunk().copied().unwrap_or_default();
        format::mend_header(slot, &LogKeys::new(&Key::new(LOG_KEY), Uuid(id)));
    }
    let keys = LogKeys::new(&Key::new(LOG_KEY), ID);
    for at in (0..ring.len()).step_by(BLOCK as usize) {
        let Some((head, body)) = ring[at..].split_first_chunk_mut::<FRAME_HEADER>() else { continue };
        format::mend_frame(head);
        let Ok(mut frame) = FrameHeader::decode(head) else { continue };
        let Some(body) = body.get_mut(..frame.len as usize) else { continue };
        frame.tag = keys.frames.seal_in_place(frame.nonce(), &frame.bare(), body);
        frame.body_crc = tarn_base::crc32c(body);
        frame.encode(head);
    }
}

/// A log at work, with and without frames, and one that was closed.
pub fn device_samples() -> Vec<Vec<u8>> {
    let header = |clean: bool, end: u64| Header {
        generation: 3,
        id: ID,
        ring: RING,
        shard: 0,
        opening: 2,
        incarnation: 1,
        clean,
        tail: 0,
        trimmed: Position::ZERO,
        end,
        last: Position::ZERO,
        limit: RING,
        key: WrappedKey::wrap(&Key::new(LOG_KEY), &Key::new(MASTER), ID, [5; 12]),
    };
    let body = entries_samples()[0][4..].to_vec();
    let frame = |number: u64| {
        let mut out = [0; FRAME_HEADER];
        let first = Position::new(1, 1 + 3 * number);
        let (offset, len) = (number * BLOCK, body.len() as u32);
        let tag = Default::default();
        let (shard, opening, body_crc) = (0, 2, 0);
        FrameHeader { id: ID, shard, first, entries: 3, len, offset, durable: offset, opening, body_crc, tag }
            .encode(&mut out);
        let mut frame = [&out[..], &body].concat();
        frame.resize(BLOCK as usize, 0);
        frame
    };
    let image = |header: Header, frames: u64| {
        let mut image = header.encode(&LogKeys::new(&Key::new(LOG_KEY), ID));
        image.resize(RING_START as usize, 0);
        (0..frames).for_each(|number| image.extend(frame(number)));
        image
    };
    vec![
        image(header(false, 0), 3),
        image(header(false, BLOCK), 2),
        image(header(true, 2 * BLOCK), 2),
        image(header(false, 0), 0),
    ]
}
