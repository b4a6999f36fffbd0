//! Compression of single records.
//!
//! - What does not shrink by at least a sixteenth is kept plain: reading it then costs nothing.
//! - A sample decides first, so that what cannot shrink costs microseconds, not milliseconds.
//! - Expanding never makes more than the plain length the pointer knows.

use tarn_base::codec::{DecodeError, Decoded};

use crate::error::DamageError;

/// How a record's plaintext became what is sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    #[default]
    Plain,
    /// LZ4 block, no length before it.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

impl Codec {
    pub fn code(self) -> u8 {
        match self {
            Codec::Plain => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    pub fn from_code(code: u8) -> Decoded<Codec> {
        match code {
            0 => Ok(Codec::Plain),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            _ => Err(DecodeError::Range("a codec")),
        }
    }

    /// Fills `plain` with what `packed` stands for.
    pub(crate) fn expand(self, packed: &[u8], plain: &mut [u8]) -> Result<(), DamageError> {
        let expanded = match self {
            Codec::Plain => {
                if packed.len() == plain.len() {
                    plain.copy_from_slice(packed);
                }
                packed.len()
            }
            Codec::Lz4 => lz4_flex::block::decompress_into(packed, plain).map_err(|_| DamageError::Expand)?,
            Codec::Zstd => zstd::bulk::decompress_to_buffer(packed, plain).map_err(|_| DamageError::Expand)?,
        };
        if expanded == plain.len() { Ok(()) } else { Err(DamageError::Expand) }
    }
}

/// A volume's setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    None,
    /// The default: fast enough that compressing never bounds a checkpoint.
    #[default]
    Lz4,
    /// Zstandard at a level from 1 to 19.
    Zstd(i32),
}

const SAMPLE: usize = 4096;
const PIECES: usize = 4;
/// Where no sample of so many records before gave hope, only one of four is looked at, a smaller sample first: what a sample
/// costs is mostly the wait for bytes that no cache holds.
const HOPELESS: u64 = 16;
const LOOKED_AT: u64 = 4;
const SMALL_SAMPLE: usize = 1024;

/// Compresses records one after another, its buffers kept.
#[derive(Default)]
pub struct Compressor {
    packed: Vec<u8>,
    sample: Vec<u8>,
    /// Records since the last that a sample gave hope for.
    hopeless: u64,
    zstd: Option<(i32, zstd::bulk::Compressor<'static>)>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

impl Compressor {
    /// What to store for `plain`: the smaller form and its codec.
    pub fn compress<'a>(&'a mut self, plain: &'a [u8], setting: Compression) -> (Codec, &'a [u8]) {
        // Fewer bytes than this would not repay the frame around them.
        if plain.len() < 64 || setting == Compression::None || !self.promising(plain) {
            return (Codec::Plain, plain);
        }
        let limit = plain.len() - plain.len() / 16;
        let (codec, len) = match setting {
            Compression::None => return (Codec::Plain, plain),
            Compression::Lz4 => (Codec::Lz4, self.lz4(plain)),
            Compression::Zstd(level) => (Codec::Zstd, self.zstd(plain, level)),
        };
        match len {
            Some(len) if len <= limit => (codec, &self.packed[..len]),
            _ => (Codec::Plain, plain),
        }
    }

    fn lz4(&mut self, plain: &[u8]) -> Option<usize> {
        self.packed.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
        lz4_flex::block::compress_into(plain, &mut self.packed).ok()
    }

    fn zstd(&mut self, plain: &[u8], level: i32) -> Option<usize> {
        let level = level.clamp(1, 19);
        if self.zstd.as_ref().is_none_or(|(made, _)| *made != level) {
            self.zstd = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        self.packed.resize(zstd::zstd_safe::compress_bound(plain.len()), 0);
        let (_, compressor) = self.zstd.as_mut()?;
        compressor.compress_to_buffer(plain, &mut self.packed[..]).ok()
    }

    /// False if a sample says that `plain` is random, or compressed already: its bytes are equally frequent and do
    /// not repeat.
    fn promising(&mut self, plain: &[u8]) -> bool {
        if plain.len() <= 2 * SAMPLE {
            return true;
        }
        let before = self.hopeless;
        self.hopeless += 1;
        let small = before >= HOPELESS;
        if small && !before.is_multiple_of(LOOKED_AT) {
            return false;
        }
        let promising = (!small || self.sample_promises(plain, SMALL_SAMPLE)) && self.sample_promises(plain, SAMPLE);
        if promising {
            self.hopeless = 0;
        }
        promising
    }

    fn sample_promises(&mut self, plain: &[u8], size: usize) -> bool {
        self.sample.clear();
        for piece in 0..PIECES {
            self.sample.extend_from_slice(&plain[piece * (plain.len() / PIECES)..][..size / PIECES]);
        }
        let mut counts = [0u32; 256];
        self.sample.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        let squares: u64 = counts.iter().map(|&count| u64::from(count) * u64::from(count)).sum();
        // Equally frequent bytes give N + N(N-1)/256 on average, with a spread of one or two in a hundred.
        let even = (size + size * (size - 1) / 256) as u64;
        if squares > even + even / 16 {
            return true;
        }
        self.packed.resize(lz4_flex::block::get_maximum_output_size(size), 0);
        let packed = lz4_flex::block::compress_into(&self.sample, &mut self.packed);
        packed.is_ok_and(|len| len < size - size / 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let step = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(step).collect()
    }

    #[test]
    fn what_is_compressed_expands_to_itself() {
        let text = b"the quick brown fox ".repeat(500);
        let mut compressor = Compressor::default();
        for setting in [Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3), Compression::Zstd(99)] {
            let (codec, packed) = compressor.compress(&text, setting);
            assert_ne!(codec, Codec::Plain);
            assert!(packed.len() < text.len() / 4);
            let expand = |len: usize| {
                let mut plain = vec![0; len];
                codec.expand(packed, &mut plain).map(|()| plain)
            };
            assert_eq!(expand(text.len()).unwrap(), text);
            assert_eq!([expand(text.len() - 1), expand(text.len() + 1)], [const { Err(DamageError::Expand) }; 2]);
        }
        assert_eq!(compressor.compress(&text, Compression::None).0, Codec::Plain);
    }

    #[test]
    fn noise_is_kept_plain_on_the_word_of_a_sample() {
        let mut compressor = Compressor::default();
        let noise = noise(65536);
        assert!(!compressor.promising(&noise));
        assert_eq!(compressor.compress(&noise, Compression::Zstd(3)), (Codec::Plain, &noise[..]));
        assert!(compressor.promising(&b"abcdefgh".repeat(8192)));
        assert_eq!(compressor.compress(&noise[..4096], Compression::Lz4).0, Codec::Plain);
        // However much noise came before.
        (0..100).for_each(|_| assert!(!compressor.promising(&noise)));
        assert_eq!(compressor.sample.len(), SMALL_SAMPLE);
        let letters: Vec<u8> = noise.iter().map(|byte| b'a' + byte % 16).collect();
        for some in [&letters[..], &noise[..512].repeat(128)] {
            let missed =
                (0..).take_while(|_| compressor.compress(some, Compression::Zstd(3)).0 == Codec::Plain).count();
            assert!(missed < LOOKED_AT as usize, "what comes after noise is noticed: {missed} were not");
            assert_eq!(compressor.compress(some, Compression::Zstd(3)).0, Codec::Zstd);
            (0..100).for_each(|_| assert!(!compressor.promising(&noise)));
        }
    }
}
