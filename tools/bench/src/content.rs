//! What files hold: bytes that do not compress and that tell their offset.
//!
//! - The content repeats after [`PERIOD`] bytes, the same in every file, so the null server can serve it too.

use std::sync::OnceLock;

/// Bytes after which the content begins anew.
pub const PERIOD: usize = 1 << 20;

/// Two periods: any range of at most one is a slice that starts at its offset modulo the period.
pub fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let once: Vec<u8> = (0..PERIOD as u64 / 8).flat_map(|word| mix(word).to_le_bytes()).collect();
        once.repeat(2)
    })
}

/// `size` bytes as they stand at `offset`.
pub fn at(offset: u64, size: usize) -> &'static [u8] {
    let from = (offset % PERIOD as u64) as usize;
    &content()[from..from + size.min(PERIOD)]
}

/// Splitmix64: neighbours have nothing in common.
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// One number for bytes: others give another.
pub fn fold(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    words.fold(bytes.len() as u64, |hash, word| mix(hash ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_repeats_and_differs_within() {
        assert_eq!(at(0, 4096), at(PERIOD as u64 * 7, 4096));
        assert_ne!(at(0, 4096), at(4096, 4096));
        assert_eq!(at(PERIOD as u64 - 4096, PERIOD).len(), PERIOD);
    }
}
