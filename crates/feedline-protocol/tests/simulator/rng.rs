//! Random numbers from a seed.

use std::cell::Cell;

/// SplitMix64. Shared by everything in one world, so that a seed decides all of it.
#[derive(Debug)]
pub struct Rng(Cell<u64>);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is at least 1.
    pub fn below(&self, end: u64) -> u64 {
        // The upper half of the product: quicker than a division, and as even.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From `first` to `last`.
    pub fn within(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True once in so many times.
    pub fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
