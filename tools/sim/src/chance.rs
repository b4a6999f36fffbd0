//! Chance that a seed decides.
//!
//! - The same seed gives the same numbers, whatever else happens; streams with different labels are independent.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream `label` of `seed`.
    pub fn new(seed: u64, label: &str) -> Chance {
        let mut chance = Chance(seed ^ 0x7461_726e_2073_696d);
        for byte in label.bytes() {
            chance.0 = chance.next() ^ u64::from(byte);
        }
        chance
    }

    #[expect(clippy::should_implement_trait, reason = "it has no end, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From `from` to `to`, both included.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, chance: u32) -> bool {
        self.below(1000) < u64::from(chance)
    }

    pub fn percent(&mut self, chance: u32) -> bool {
        self.permille(chance * 10)
    }

    /// One of `of`, which is not empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// An index, chosen as often as its weight says; the sum is not 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().map(|weight| u64::from(*weight)).sum());
        for (index, weight) in weights.iter().enumerate() {
            if at < u64::from(*weight) {
                return index;
            }
            at -= u64::from(*weight);
        }
        0
    }
}
