//! Choices that a seed repeats: splitmix64, and shares drawn from tables.

use crate::content::mix;

/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(mix(seed ^ 0x7461_726e))
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Picks the index of one of several shares.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Sums of the shares up to and including each.
    sums: Vec<f64>,
}

impl Shares {
    /// Shares need not add up to anything; at least one must be above 0.
    pub fn new(shares: impl IntoIterator<Item = f64>) -> Shares {
        let mut sum = 0.0;
        let sums = shares.into_iter().map(|share| {
            sum += share.max(0.0);
            sum
        });
        Shares { sums: sums.collect() }
    }

    pub fn pick(&self, random: &mut Random) -> usize {
        self.at(random.unit())
    }

    /// The one that stands at `unit`, in [0, 1), of the whole.
    pub fn at(&self, unit: f64) -> usize {
        let at = unit * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum <= at).min(self.sums.len().saturating_sub(1))
    }

    /// The share of `index`, of 1.
    pub fn share(&self, index: usize) -> f64 {
        let before = if index == 0 { 0.0 } else { self.sums[index - 1] };
        (self.sums[index] - before) / self.sums.last().copied().unwrap_or(1.0)
    }
}

/// Numbers in [0, 1) that fill it evenly: one from each of so many equal parts, in random order, again and again. So
/// shares hold over a few hundred operations already.
#[derive(Clone, Debug)]
pub struct Deck {
    random: Random,
    order: Vec<u32>,
    next: usize,
}

const CARDS: u32 = 200;

impl Deck {
    pub fn new(seed: u64) -> Deck {
        Deck { random: Random::new(seed), order: (0..CARDS).collect(), next: CARDS as usize }
    }

    pub fn draw(&mut self) -> f64 {
        if self.next == self.order.len() {
            for index in (1..self.order.len()).rev() {
                self.order.swap(index, self.random.below(index as u64 + 1) as usize);
            }
            self.next = 0;
        }
        self.next += 1;
        (f64::from(self.order[self.next - 1]) + self.random.unit()) / f64::from(CARDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_choices_keep_their_shares_within_a_tenth_of_a_point() {
        let wanted = [24.0, 18.0, 10.0, 26.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 2.0, 11.0];
        let shares = Shares::new(wanted);
        let mut random = Random::new(7);
        let mut counts = [0_u32; 12];
        for _ in 0..1_000_000 {
            counts[shares.pick(&mut random)] += 1;
        }
        for (count, wanted) in counts.iter().zip(wanted) {
            let share = f64::from(*count) / 10_000.0;
            assert!((share - wanted).abs() <= 0.1, "{share} for {wanted}");
        }
    }

    #[test]
    fn a_deck_keeps_shares_within_a_few_hundred_choices() {
        let shares = Shares::new([70.0, 29.0, 1.0]);
        let mut deck = Deck::new(5);
        let mut counts = [0; 3];
        for _ in 0..400 {
            counts[shares.at(deck.draw())] += 1;
        }
        assert!((278..=282).contains(&counts[0]) && (114..=118).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn a_share_of_nothing_is_never_picked() {
        let shares = Shares::new([0.0, 1.0, 0.0]);
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| shares.pick(&mut random) == 1));
        assert!((shares.share(1) - 1.0).abs() < 1e-12);
    }
}
