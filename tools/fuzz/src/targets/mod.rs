//! The decoders, a row each: what judges, what valid bytes look like, and what guards them.
//!
//! - A judge says whether it takes the bytes for valid, and panics when what it took does not survive encoding.
//! - Seeds are made by the encoders, so that they are valid in every version.

mod calls;
#[cfg(feature = "whole")]
mod filer;
mod files;
mod locking;
mod locks;
mod log;
#[cfg(feature = "whole")]
mod metadata;
mod segment;
#[cfg(feature = "whole")]
mod store;

use tarn_base::crc32c;

/// A decoder under test.
pub struct Target {
    pub name: &'static str,
    /// Whether the bytes are valid. Must not panic, hang or hold much, whatever they are.
    pub judge: fn(&[u8]) -> bool,
    /// Valid bytes to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Puts checksums right.
    pub mend: Option<fn(&mut Vec<u8>)>,
    /// Words of a text format.
    pub words: &'static [&'static str],
}

impl Target {
    const fn new(name: &'static str, judge: fn(&[u8]) -> bool, seeds: fn() -> Vec<Vec<u8>>) -> Target {
        Target { name, judge, seeds, mend: None, words: &[] }
    }

    const fn mended(self, mend: fn(&mut Vec<u8>)) -> Target {
        Target { mend: Some(mend), ..self }
    }

    const fn words(self, words: &'static [&'static str]) -> Target {
        Target { words, ..self }
    }
}

/// All of them.
pub fn all() -> Vec<Target> {
    let mut all = Vec::new();
    all.extend(calls::targets());
    all.extend(files::targets());
    all.extend(locking::targets());
    all.extend(locks::targets());
    all.extend(log::targets());
    all.extend(segment::targets());
    #[cfg(feature = "whole")]
    {
        all.extend(metadata::targets());
        all.extend(store::targets());
        all.extend(filer::targets());
    }
    all
}

/// Makes the last four bytes the CRC-32C of the rest, little-endian.
#[expect(clippy::ptr_arg, reason = "a mender may also lengthen its input; all have one type")]
fn mend_last_four(bytes: &mut Vec<u8>) {
    if let Some(body) = bytes.len().checked_sub(4) {
        let crc = crc32c(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&crc);
    }
}

/// As [`mend_last_four`], of the first `N` bytes only.
#[expect(clippy::ptr_arg, reason = "a mender may also lengthen its input; all have one type")]
fn mend_front<const N: usize>(bytes: &mut Vec<u8>) {
    if bytes.len() >= N {
        let crc = crc32c(&bytes[..N - 4]).to_le_bytes();
        bytes[N - 4..N].copy_from_slice(&crc);
    }
}
