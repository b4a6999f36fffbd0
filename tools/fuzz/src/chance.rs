//! Chance that two numbers decide: the seed of a campaign and the number of an execution.
//!
//! - An input depends on them and its target alone, so any execution is replayed without those before it.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of execution `number` of the campaign `seed`.
    pub fn new(seed: u64, number: u64) -> Chance {
        let mut chance = Chance(seed);
        let mixed = chance.draw() ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Chance(mixed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 if `end` is.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of a product: as even as a remainder, and cheaper.
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }

    pub fn byte(&mut self) -> u8 {
        self.draw() as u8
    }
}
