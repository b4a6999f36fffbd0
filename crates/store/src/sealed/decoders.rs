//! The decoders of sealed objects, and valid bytes to begin from, for fuzzing.

use tarn_base::crypto::Key;

use super::format::{
    CHUNK_SIZE, HEADER_SIZE, Header, SALT_SIZE, chunk_count, nonce, plain_size, stored_range, stored_size,
};
use super::{Seal, open};

/// Under what the samples are sealed.
const KEY: [u8; 32] = [5; 32];
const NAME: &str = "meta/object";

fn seal(header: Header, size: u64) -> Seal {
    let cipher = std::sync::Arc::new(Key::new(KEY).derive(&header.salt, &[super::format::PURPOSE]).cipher());
    Seal { header, cipher, size }
}

/// Judges a whole sealed object.
pub fn object(bytes: &[u8]) -> bool {
    let Some(size) = plain_size(bytes.len() as u64) else { return false };
    let Some((head, chunks)) = bytes.split_at_checked(HEADER_SIZE as usize) else { return false };
    let Ok(header) = Header::decode(head) else { return false };
    let Ok(plain) = open(NAME, &seal(header, size), 0, chunks) else { return false };
    assert_eq!(plain.len() as u64, size, "what was opened has another size than was said");
    true
}

/// An empty object, a small one, one of a chunk exactly, and one of two.
pub fn object_samples() -> Vec<Vec<u8>> {
    let sealed = |size: u64| {
        let seal = seal(Header { salt: [3; SALT_SIZE] }, size);
        let (plain, mut out) = (vec![7; size as usize], Vec::new());
        seal.header.encode(&mut out);
        let count = chunk_count(size);
        for number in 0..count {
            let last = number + 1 == count;
            let part = number * CHUNK_SIZE..size.min((number + 1) * CHUNK_SIZE);
            let part = &plain[part.start as usize..part.end as usize];
            let covered = seal.header.associated_data(NAME, number, last);
            seal.cipher.seal_to(nonce(number, last), &covered, part, &mut out);
        }
        out
    };
    [0, 100, CHUNK_SIZE, CHUNK_SIZE + 1].map(sealed).to_vec()
}

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
