//! Decoders of bytes from the medium, and valid bytes to begin from, for fuzzing.
//!
//! - A judge says whether it takes the bytes for valid; it never panics but when what it took does not survive
//!   encoding.

use tarn_base::codec::Put;
use tarn_base::crypto::Key;
use tarn_base::ids::{Position, Uuid};

use crate::format::{self, FRAME_HEADER, FrameHeader, Header, LogKeys, WrappedKey};

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
