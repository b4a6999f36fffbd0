//! What files hold, and whether what came back is it.
//!
//! - The unit is a sector of 512 bytes. It begins with a stamp - file, sector, version - and goes on with bytes that
//!   do not compress; so a byte of another file, another place or an earlier write is found out.
//! - Versions are kept by the generator: a server that forgets an acknowledged write is found out when it is read.
//! - Where a workload wants it, a share of blocks is drawn from few (so they can be stored once), and the second half
//!   of each sector is one byte repeated (so it compresses to about a half).

use crate::content::mix;

/// Bytes of a sector; all offsets and sizes are multiples of it.
pub const SECTOR: u64 = 512;
const STAMP: usize = 16;
const BASE: usize = 1 << 21;
/// Blocks that duplicates are drawn from.
const POOL: u64 = 64;
/// The stamp's file of a block that is drawn from the pool.
const POOLED: u32 = u32::MAX;

/// How content may be reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reducible {
    /// Share of blocks that stand elsewhere too, of 1.
    pub duplicates: f64,
    /// Bytes of a block that is there twice or not at all; a multiple of [`SECTOR`].
    pub block: u64,
    /// Half of each sector is one byte.
    pub compressible: bool,
}

pub struct Pattern {
    base: Vec<u8>,
    reducible: Reducible,
    /// Bytes are neither made nor compared.
    blind: bool,
}

/// What came back instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub file: u32,
    pub offset: u64,
    pub found: String,
}

impl Pattern {
    pub fn new(reducible: Reducible) -> Pattern {
        let base = (0..BASE as u64 / 8).flat_map(|word| mix(word ^ 0x7061_7474).to_le_bytes()).collect();
        Pattern { base, reducible, blind: false }
    }

    /// One that takes any bytes for right and leaves those that are there: for a comparison with a generator that does
    /// neither. No workload's figure may come of it.
    pub fn blind() -> Pattern {
        Pattern { base: Vec::new(), reducible: Reducible::default(), blind: true }
    }

    /// Fills `out` with sectors from `offset` on, whose versions are the first of `versions`.
    pub fn fill(&self, out: &mut [u8], file: u32, offset: u64, versions: &[u8]) {
        if self.blind {
            return;
        }
        for (index, (out, version)) in out.chunks_mut(SECTOR as usize).zip(versions).enumerate() {
            let (stamp, body, repeated) = self.sector(file, offset / SECTOR + index as u64, *version);
            let end = out.len();
            out[STAMP..].copy_from_slice(&body[STAMP..end]);
            out[..STAMP].copy_from_slice(&stamp);
            if let Some(repeated) = repeated {
                out[SECTOR as usize / 2..].fill(repeated);
            }
        }
    }

    /// Whether `data`, read at `offset`, is what the versions say. The last sector may be cut short.
    pub fn check(&self, data: &[u8], file: u32, offset: u64, versions: &[u8]) -> Result<(), Mismatch> {
        if self.blind {
            return Ok(());
        }
        for (index, (found, version)) in data.chunks(SECTOR as usize).zip(versions).enumerate() {
            let sector = offset / SECTOR + index as u64;
            let (stamp, body, repeated) = self.sector(file, sector, *version);
            let (begin, end) = (STAMP.min(found.len()), found.len());
            // What is random, and what is one byte again and again.
            let half = if repeated.is_some() { (SECTOR as usize / 2).clamp(begin, end) } else { end };
            let right = found[..begin] == stamp[..begin]
                && found[begin..half] == body[begin..half]
                && found[half..].iter().all(|byte| Some(*byte) == repeated);
            if !right {
                let mut expected = [0; SECTOR as usize];
                self.fill(&mut expected, file, sector * SECTOR, &[*version]);
                return Err(Mismatch { file, offset: sector * SECTOR, found: describe(found, &expected) });
            }
        }
        Ok(())
    }

    fn pooled(&self, file: u32, sector: u64) -> Option<u64> {
        if self.reducible.duplicates <= 0.0 {
            return None;
        }
        let block = sector * SECTOR / self.reducible.block.max(SECTOR);
        let drawn = mix(u64::from(file) << 40 ^ block);
        let share = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
        (share < self.reducible.duplicates).then_some(drawn % POOL)
    }

    /// What identifies a sector: (file, place, version).
    fn identity(&self, file: u32, sector: u64, version: u8) -> (u32, u64, u8) {
        match self.pooled(file, sector) {
            Some(of) => {
                let sectors = self.reducible.block.max(SECTOR) / SECTOR;
                (POOLED, of * sectors + sector % sectors, 0)
            }
            None => (file, sector, version),
        }
    }

    /// Of a sector: its stamp, the bytes that it is filled with, and the byte that its second half repeats instead.
    fn sector(&self, file: u32, sector: u64, version: u8) -> ([u8; STAMP], &[u8], Option<u8>) {
        let (file, sector, version) = self.identity(file, sector, version);
        let drawn = mix(mix(u64::from(file) << 8 | u64::from(version)) ^ sector);
        let from = (drawn % (BASE as u64 - SECTOR)) as usize;
        let mut stamp = [0; STAMP];
        stamp[..4].copy_from_slice(&file.to_le_bytes());
        stamp[4..12].copy_from_slice(&sector.to_le_bytes());
        stamp[12..].copy_from_slice(&u32::from(version).to_le_bytes());
        (stamp, &self.base[from..from + SECTOR as usize], self.reducible.compressible.then_some(file as u8))
    }
}

fn describe(found: &[u8], expected: &[u8]) -> String {
    let stamp = |bytes: &[u8]| -> Option<String> {
        let file = u32::from_le_bytes(*bytes.first_chunk()?);
        let sector = u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        let version = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
        Some(format!("file {file}, sector {sector}, version {version}"))
    };
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected).unwrap_or(0);
    let text = |bytes| stamp(bytes).unwrap_or_else(|| "too few bytes".to_owned());
    format!("expected [{}], found [{}], first difference at byte {differs}", text(expected), text(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_accepted_and_nothing_else() {
        let pattern = Pattern::new(Reducible::default());
        let mut data = vec![0; 1536];
        pattern.fill(&mut data, 3, 1024, &[1, 2, 1]);
        assert_eq!(pattern.check(&data, 3, 1024, &[1, 2, 1]), Ok(()));
        assert_eq!(pattern.check(&data[..700], 3, 1024, &[1, 2, 1]), Ok(()));
        assert!(pattern.check(&data, 4, 1024, &[1, 2, 1]).is_err(), "another file's");
        assert!(pattern.check(&data, 3, 0, &[1, 2, 1]).is_err(), "another place's");
        let old = pattern.check(&data, 3, 1024, &[1, 3, 1]).unwrap_err();
        assert_eq!(old.offset, 1536);
        assert!(old.found.contains("version 2"), "{}", old.found);
        for byte in [0, 20, 511, 512, 1535] {
            data[byte] ^= 1;
            assert!(pattern.check(&data, 3, 1024, &[1, 2, 1]).is_err(), "byte {byte}");
            data[byte] ^= 1;
        }
    }

    #[test]
    fn a_blind_one_touches_nothing_and_takes_anything() {
        let mut data = [7; 512];
        Pattern::blind().fill(&mut data, 1, 0, &[1]);
        assert_eq!(data, [7; 512]);
        assert_eq!(Pattern::blind().check(&data, 1, 0, &[1]), Ok(()));
    }

    #[test]
    fn duplicates_and_repetition_have_their_share() {
        let pattern = Pattern::new(Reducible { duplicates: 0.4, block: 4096, compressible: true });
        let mut blocks = std::collections::BTreeMap::new();
        for block in 0..5000_u64 {
            let mut data = vec![0; 4096];
            pattern.fill(&mut data, 1, block * 4096, &[1; 8]);
            assert_eq!(pattern.check(&data, 1, block * 4096, &[1; 8]), Ok(()));
            assert!(data.chunks(512).all(|sector| sector[256..].iter().all(|byte| *byte == sector[256])));
            *blocks.entry(data).or_insert(0_u32) += 1;
        }
        let repeated = 1.0 - blocks.len() as f64 / 5000.0;
        assert!((repeated - 0.4).abs() < 0.04, "{repeated}");
    }
}
