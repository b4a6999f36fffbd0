//! Hashes: of names, for directories; of keys, for caches.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use siphasher::sip::SipHasher24;
use unicode_normalization::UnicodeNormalization;

/// Unicode version of the folding below; part of a volume's record.
pub const UNICODE: (u8, u8) = (16, 0);

/// The hash of a name under a volume's secret, the same for names that differ in case only.
///
/// UTF-8 is folded (NFC, simple case folding), other bytes are taken as they are (engine rule 19).
pub fn name_hash(secret: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    if name.is_ascii() {
        let mut folded = [0u8; 255];
        let folded = &mut folded[..name.len().min(255)];
        folded.copy_from_slice(&name[..folded.len()]);
        folded.make_ascii_lowercase();
        hasher.write(folded);
    } else if let Ok(text) = std::str::from_utf8(name) {
        let mut utf8 = [0u8; 4];
        for c in text.nfc().map(fold) {
            hasher.write(c.encode_utf8(&mut utf8).as_bytes());
        }
    } else {
        hasher.write(name);
    }
    hasher.finish()
}

/// Simple case folding of one character.
fn fold(c: char) -> char {
    unicode_case_mapping::case_folded(c).and_then(|folded| char::from_u32(folded.get())).unwrap_or(c)
}

/// SipHash of `bytes` without a secret, for numbers that only we choose.
pub fn plain_hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(b"tarn plain hash.");
    hasher.write(bytes);
    hasher.finish()
}

/// A fast hasher for keys of caches that nobody outside chooses; the same in every run, so simulation replays.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher(u64);

pub type FastBuild = BuildHasherDefault<FastHasher>;

/// The same from a secret on, for what are hashes already, but of what clients choose.
#[derive(Clone, Copy, Debug)]
pub struct SecretBuild(FastHasher);

impl SecretBuild {
    /// `secret`: nobody outside knows it.
    pub fn new(secret: u64) -> SecretBuild {
        SecretBuild(FastHasher(secret))
    }
}

impl BuildHasher for SecretBuild {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        self.0
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(u64::from(v));
    }
    fn write_u16(&mut self, v: u16) {
        self.write_u64(u64::from(v));
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        let mixed = u128::from(self.0 ^ v ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(0x8bb8_4b93_962e_acc9_u64);
        self.0 = (mixed as u64) ^ ((mixed >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        let mixed = u128::from(self.0) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        (mixed as u64) ^ ((mixed >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_or_composition_share_a_hash() {
        let hash = |name: &str| name_hash(&[1; 16], name.as_bytes());
        assert_eq!(hash("Makefile"), hash("MAKEFILE"));
        assert_eq!(hash("Ärger"), hash("a\u{308}RGER"));
        assert_ne!(hash("a"), hash("b"));
        assert_ne!(name_hash(&[1; 16], b"\xff"), name_hash(&[1; 16], b"\xfe"));
        assert_ne!(name_hash(&[1; 16], b"a"), name_hash(&[2; 16], b"a"));
    }
}
