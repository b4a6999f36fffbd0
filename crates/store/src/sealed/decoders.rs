//! The decoder of sealed objects' headers and sizes, and valid bytes to begin from, for fuzzing.

use super::format::{Header, SALT_SIZE, chunk_count, plain_size, stored_range, stored_size};

/// Judges a header, and takes the salt's first bytes for the size of an object.
pub fn header(bytes: &[u8]) -> bool {
    let Ok(header) = Header::decode(bytes) else { return false };
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again, bytes[..again.len()], "a header does not survive encoding");
    let [a, b, c, d, e, f, ..] = header.salt;
    let stored = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    if let Some(size) = plain_size(stored) {
        assert_eq!(stored_size(size), stored, "two sizes of one object");
        let range = stored_range(0, chunk_count(size) - 1, size);
        assert_eq!(range.end, stored, "the last chunk does not end with its object");
    }
    true
}

/// Valid headers.
pub fn header_samples() -> Vec<Vec<u8>> {
    let salt = |size: u64| {
        let mut salt = [7; SALT_SIZE];
        salt[..8].copy_from_slice(&stored_size(size).to_le_bytes());
        salt
    };
    let header = |size| {
        let mut out = Vec::new();
        Header { salt: salt(size) }.encode(&mut out);
        out
    };
    [0, 1, 65_536, 65_537, 16 << 20].map(header).to_vec()
}
