//! Randomness from a seed: the same everywhere.

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// One round of SplitMix64's output function: mixes all bits.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// From a seed and what it is for, so that one use does not shift another.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose)))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Less than `bound` (0 for a bound of 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(bound)) >> 64) as u64
    }

    /// From `low` to `high`, both possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `count` times in `of`.
    pub fn chance(&mut self, count: u64, of: u64) -> bool {
        self.below(of) < count
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Between 1 and about `most`, small ones as likely as large ones.
    pub fn scale_free(&mut self, most: u64) -> u64 {
        let bits = u64::from(most.max(2).ilog2());
        let high = 1 << self.between(0, bits);
        self.between(high / 2 + 1, high.max(2)).min(most)
    }
}
