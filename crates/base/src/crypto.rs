//! The two primitives everything sealed is made of: HKDF-SHA256 and AES-256-GCM.
//!
//! - Of two libraries that give the same bytes, the one that is faster on this processor seals and opens: aws-lc, or ring where
//!   there are vectors of AES of 256 bits and none of 512.
//! - A [`Key`] never prints and is wiped when dropped; a [`Cipher`] holds what the library has made of it, as the library does.
//! - A (key, nonce) pair is used once; each format says how it makes sure.

use aws_lc_rs::{aead, hkdf};
use ring::aead as narrow;
use zeroize::Zeroize;

/// Bytes that an AEAD tag adds.
pub const TAG_SIZE: usize = 16;
/// Bytes of a nonce.
pub const NONCE_SIZE: usize = 12;
/// Why sealing cannot fail.
const SEALS: &str = "as many bytes come out as go in, less than 64 GiB";

/// What is sealed does not open under this key: the wrong key, or changed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sealed bytes do not open: a wrong key, or damage")]
pub struct OpenError;

/// 256 secret bits.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// The secret itself; for writing it to a key file or wrapping it, nothing else.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key for `purpose`, which is part of a format and never changes, under `salt`.
    pub fn derive(&self, salt: &[u8], purpose: &[&[u8]]) -> Key {
        let mut out = [0u8; 32];
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        prk.expand(purpose, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut out))
            .expect("32 bytes are within what HKDF-SHA256 gives");
        Key(out)
    }

    /// The cipher under this key, its schedule prepared.
    pub fn cipher(&self) -> Cipher {
        if narrow_is_faster() { self.narrow() } else { self.wide() }
    }

    fn wide(&self) -> Cipher {
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, &self.0).expect("a key of 32 bytes");
        Cipher(Library::Wide(aead::LessSafeKey::new(key)))
    }

    fn narrow(&self) -> Cipher {
        let key = narrow::UnboundKey::new(&narrow::AES_256_GCM, &self.0).expect("a key of 32 bytes");
        Cipher(Library::Narrow(narrow::LessSafeKey::new(key)))
    }
}

/// Whether this processor has what ring uses and lacks what aws-lc is faster with.
fn narrow_is_faster() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes");
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        narrow && is_x86_feature_detected!("vpclmulqdq") && !wide
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// AES-256-GCM under one key.
#[derive(Debug)]
pub struct Cipher(Library);

#[derive(Debug)]
enum Library {
    Wide(aead::LessSafeKey),
    Narrow(narrow::LessSafeKey),
}

impl Cipher {
    /// Encrypts in place and gives the tag.
    pub fn seal_in_place(&self, nonce: [u8; NONCE_SIZE], aad: &[u8], data: &mut [u8]) -> [u8; TAG_SIZE] {
        let mut out = [0u8; TAG_SIZE];
        match &self.0 {
            Library::Wide(key) => {
                let (nonce, aad) = (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(aad));
                let tag = key.seal_in_place_separate_tag(nonce, aad, data).expect(SEALS);
                out.copy_from_slice(tag.as_ref());
            }
            Library::Narrow(key) => {
                let (nonce, aad) = (narrow::Nonce::assume_unique_for_key(nonce), narrow::Aad::from(aad));
                let tag = key.seal_in_place_separate_tag(nonce, aad, data).expect(SEALS);
                out.copy_from_slice(tag.as_ref());
            }
        }
        out
    }

    /// Encrypts `data` into `out`, which is as long, and gives the tag.
    pub fn seal_apart(&self, nonce: [u8; NONCE_SIZE], aad: &[u8], data: &[u8], out: &mut [u8]) -> [u8; TAG_SIZE] {
        let Library::Wide(key) = &self.0 else {
            out.copy_from_slice(data);
            return self.seal_in_place(nonce, aad, out);
        };
        let mut tag = [0u8; TAG_SIZE];
        let (nonce, aad) = (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(aad));
        key.seal_out_of_place_scatter(nonce, aad, data, out, &[], &mut tag).expect(SEALS);
        tag
    }

    /// Encrypts `head` and what follows it, `data`, into `out`, which is longer by what a tag takes, and gives the tag; it lies in
    /// those last bytes too.
    pub fn seal_joined(
        &self,
        nonce: [u8; NONCE_SIZE],
        aad: &[u8],
        head: &[u8],
        data: &[u8],
        out: &mut [u8],
    ) -> [u8; TAG_SIZE] {
        let (sealed_head, rest) = out.split_at_mut(head.len());
        if let Library::Wide(key) = &self.0 {
            let (nonce, aad) = (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(aad));
            key.seal_out_of_place_scatter(nonce, aad, head, sealed_head, data, rest).expect(SEALS);
            return *rest.last_chunk().expect(SEALS);
        }
        sealed_head.copy_from_slice(head);
        rest[..data.len()].copy_from_slice(data);
        let (sealed, place) = out.split_last_chunk_mut::<TAG_SIZE>().expect(SEALS);
        *place = self.seal_in_place(nonce, aad, sealed);
        *place
    }

    /// Decrypts `data` into `out`, which is as long; on an error `out` holds nothing of use.
    pub fn open_to(
        &self,
        nonce: [u8; NONCE_SIZE],
        aad: &[u8],
        tag: &[u8; TAG_SIZE],
        data: &[u8],
        out: &mut [u8],
    ) -> Result<(), OpenError> {
        match &self.0 {
            Library::Wide(key) => {
                let (nonce, aad) = (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(aad));
                key.open_separate_gather(nonce, aad, data, tag, out).map_err(|_| OpenError)
            }
            Library::Narrow(key) => {
                let (nonce, aad) = (narrow::Nonce::assume_unique_for_key(nonce), narrow::Aad::from(aad));
                if out.len() != data.len() {
                    return Err(OpenError);
                }
                out.copy_from_slice(data);
                let opened = key.open_in_place_separate_tag(nonce, aad, (*tag).into(), out, 0..);
                opened.map(|_| ()).map_err(|_| OpenError)
            }
        }
    }

    /// Decrypts what [`Cipher::seal_to`] appended where it lies, the tag left behind it; on an error `data` holds nothing
    /// of use.
    pub fn open_in_place(&self, nonce: [u8; NONCE_SIZE], aad: &[u8], data: &mut [u8]) -> Result<(), OpenError> {
        match &self.0 {
            Library::Wide(key) => {
                let (nonce, aad) = (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(aad));
                key.open_in_place(nonce, aad, data).map(|_| ()).map_err(|_| OpenError)
            }
            Library::Narrow(key) => {
                let (nonce, aad) = (narrow::Nonce::assume_unique_for_key(nonce), narrow::Aad::from(aad));
                key.open_in_place(nonce, aad, data).map(|_| ()).map_err(|_| OpenError)
            }
        }
    }

    /// Appends ciphertext and tag of `plain` to `out`.
    pub fn seal_to(&self, nonce: [u8; NONCE_SIZE], aad: &[u8], plain: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(plain);
        let tag = self.seal_in_place(nonce, aad, &mut out[at..]);
        out.extend_from_slice(&tag);
    }

    /// The plaintext of what [`Cipher::seal_to`] appended.
    pub fn open(&self, nonce: [u8; NONCE_SIZE], aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (data, tag) = sealed.split_last_chunk::<TAG_SIZE>().ok_or(OpenError)?;
        let mut out = vec![0; data.len()];
        self.open_to(nonce, aad, tag, data, &mut out)?;
        Ok(out)
    }
}

/// A nonce of a 32-bit and a 64-bit number, little-endian.
pub fn nonce(high: u32, low: u64) -> [u8; NONCE_SIZE] {
    let mut out = [0u8; NONCE_SIZE];
    out[..4].copy_from_slice(&high.to_le_bytes());
    out[4..].copy_from_slice(&low.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_what_is_changed_does_not() {
        let key = Key::new([7; 32]).derive(b"salt", &[b"test"]);
        for cipher in [key.wide(), key.narrow(), key.cipher()] {
            seals_and_opens(&cipher);
        }
    }

    fn seals_and_opens(cipher: &Cipher) {
        let mut sealed = Vec::new();
        cipher.seal_to(nonce(1, 2), b"aad", b"plain", &mut sealed);
        assert_eq!(cipher.open(nonce(1, 2), b"aad", &sealed).unwrap(), b"plain");
        assert_eq!(cipher.open(nonce(1, 3), b"aad", &sealed), Err(OpenError));
        assert_eq!(cipher.open(nonce(1, 2), b"aaD", &sealed), Err(OpenError));
        let mut there = sealed.clone();
        cipher.open_in_place(nonce(1, 2), b"aad", &mut there).unwrap();
        assert_eq!(&there[..5], b"plain");
        assert_eq!(cipher.open_in_place(nonce(1, 2), b"aad", &mut there), Err(OpenError));
        let mut apart = [0; 5];
        let tag = cipher.seal_apart(nonce(1, 2), b"aad", b"plain", &mut apart);
        assert_eq!([&apart[..], &tag].concat(), sealed);
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(cipher.open(nonce(1, 2), b"aad", &bad), Err(OpenError));
        }
    }

    #[test]
    fn both_libraries_seal_alike_and_open_what_the_other_has_sealed() {
        let key = Key::new([9; 32]);
        let (wide, narrow) = (key.wide(), key.narrow());
        for len in (0..300).chain([4095, 4096, 65_536, 65_549, 1 << 20]) {
            let plain: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            let aad = &plain[..len.min(40)];
            let sealed = [&wide, &narrow].map(|cipher| {
                let mut out = vec![1; 3];
                cipher.seal_to(nonce(3, len as u64), aad, &plain, &mut out);
                let mut apart = vec![0; len];
                let tag = cipher.seal_apart(nonce(3, len as u64), aad, &plain, &mut apart);
                assert_eq!([&apart[..], &tag].concat(), out[3..]);
                for head in [0, 1, 21, len] {
                    let Some((head, data)) = plain.split_at_checked(head) else { continue };
                    let mut joined = vec![0; len + TAG_SIZE];
                    let tag = cipher.seal_joined(nonce(3, len as u64), aad, head, data, &mut joined);
                    assert_eq!((&joined[..], tag), (&out[3..], *joined.last_chunk().unwrap()));
                }
                out.split_off(3)
            });
            assert_eq!(sealed[0], sealed[1], "{len}");
            assert_eq!(narrow.open(nonce(3, len as u64), aad, &sealed[0]).unwrap(), plain);
            assert_eq!(wide.open(nonce(3, len as u64), aad, &sealed[1]).unwrap(), plain);
        }
    }
}
