//! The bits of a sealed object.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "TARNSEAL"
//!      8      4  version, 1
//!     12      4  bytes of plaintext in a chunk, 65536
//!     16     16  salt, drawn at random for this object
//!     32         chunks: ciphertext and 16 bytes of tag each
//! ```
//!
//! - Every chunk but the last has 65536 bytes of plaintext; the last has 1 to 65536, or 0 if the object is empty.
//! - Key: HKDF-SHA256 of the store's key under the salt, for [`PURPOSE`]. Cipher: AES-256-GCM.
//! - Nonce: 32 bits that are 1 for the last chunk and 0 for others, 64 bits chunk number, little-endian.
//! - Associated data: the header, the object's name with its length in 16 bits before it, chunk number in 64 bits, one byte
//!   that is 1 for the last chunk.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crypto::{NONCE_SIZE, TAG_SIZE};

pub const MAGIC: &[u8; 8] = b"TARNSEAL";
pub const VERSION: u32 = 1;
/// Plaintext of a chunk, bytes.
pub const CHUNK_SIZE: u64 = 65_536;
pub const SALT_SIZE: usize = 16;
pub const HEADER_SIZE: u64 = 32;
/// What the object's key is derived for.
pub const PURPOSE: &[u8] = b"tarn sealed object 1";

/// A whole chunk as stored, bytes.
const STORED_CHUNK_SIZE: u64 = CHUNK_SIZE + TAG_SIZE as u64;

const _: () = assert!(HEADER_SIZE as usize == 8 + 4 + 4 + SALT_SIZE);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub salt: [u8; SALT_SIZE],
}

impl Header {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(CHUNK_SIZE as u32);
        out.put(&self.salt);
    }

    /// The header in the first [`HEADER_SIZE`] bytes of an object.
    pub fn decode(bytes: &[u8]) -> Decoded<Header> {
        let mut take = Take::new(bytes);
        if take.array::<8>()? != *MAGIC {
            return Err(DecodeError::Range("the magic of a sealed object"));
        }
        match take.u32()? {
            VERSION => {}
            newer => return Err(DecodeError::Version(newer)),
        }
        if u64::from(take.u32()?) != CHUNK_SIZE {
            return Err(DecodeError::Range("the chunk size of a sealed object"));
        }
        Ok(Header { salt: take.array()? })
    }

    /// What the tag of a chunk covers besides its bytes.
    pub fn associated_data(&self, name: &str, number: u64, last: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_SIZE as usize + name.len() + 11);
        self.encode(&mut out);
        out.put_u16(name.len() as u16);
        out.put(name.as_bytes());
        out.put_u64(number);
        out.put_bool(last);
        out
    }
}

pub fn nonce(number: u64, last: bool) -> [u8; NONCE_SIZE] {
    tarn_base::crypto::nonce(u32::from(last), number)
}

/// Chunks of an object of `size` bytes of plaintext.
pub fn chunk_count(size: u64) -> u64 {
    size.div_ceil(CHUNK_SIZE).max(1)
}

/// Bytes of the sealed object for `size` bytes of plaintext.
pub fn stored_size(size: u64) -> u64 {
    HEADER_SIZE + size + chunk_count(size) * TAG_SIZE as u64
}

/// Bytes of plaintext in a sealed object of `stored` bytes; `None` if no plaintext gives that size.
pub fn plain_size(stored: u64) -> Option<u64> {
    let chunks = stored.checked_sub(HEADER_SIZE)?;
    let size = chunks.checked_sub(chunks.div_ceil(STORED_CHUNK_SIZE) * TAG_SIZE as u64)?;
    (stored_size(size) == stored).then_some(size)
}

/// Where the chunks `first` to `last` lie in the sealed object of `size` bytes of plaintext.
pub fn stored_range(first: u64, last: u64, size: u64) -> std::ops::Range<u64> {
    let to = HEADER_SIZE + (last + 1) * STORED_CHUNK_SIZE;
    HEADER_SIZE + first * STORED_CHUNK_SIZE..to.min(stored_size(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lead_back() {
        for size in (0..200_000).step_by(997).chain([0, 1, 65_535, 65_536, 65_537, 131_072]) {
            assert_eq!(plain_size(stored_size(size)), Some(size));
        }
        for stored in [0, 31, 32, 47, 32 + STORED_CHUNK_SIZE + 1, 32 + STORED_CHUNK_SIZE + 16] {
            assert_eq!(plain_size(stored), None, "{stored}");
        }
    }

    #[test]
    fn a_foreign_header_is_refused() {
        let mut good = Vec::new();
        Header { salt: [7; SALT_SIZE] }.encode(&mut good);
        assert_eq!(good.len() as u64, HEADER_SIZE);
        assert_eq!(Header::decode(&good), Ok(Header { salt: [7; SALT_SIZE] }));
        assert_eq!(Header::decode(&good[..31]), Err(DecodeError::Short));
        for at in 0..16 {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(Header::decode(&bad).is_err());
        }
    }
}
