//! A shuffle that can be looked up anywhere, without a list: a Feistel network over as many bits as the length needs.
//!
//! The network permutes the numbers below the next power of two. A result past the length is put through again until one is below
//! it, less than twice on average ("cycle walking"): that is a permutation of the numbers below the length.

use super::random::Key;

/// A permutation of the numbers below `len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    key: Key,
    len: u64,
    /// Of the two halves of a number. They change places after each round; there is an even number of rounds.
    left_bits: u32,
    right_bits: u32,
    rounds: u32,
}

/// Enough for any statistics that a training run could show; short numbers mix more slowly.
const ROUNDS: u32 = 6;
const SHORT_ROUNDS: u32 = 24;
const SHORT_BITS: u32 = 16;

impl Permutation {
    /// One of the permutations of that length, chosen by the key.
    pub fn new(key: Key, len: u64) -> Self {
        let bits = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let rounds = if bits < SHORT_BITS { SHORT_ROUNDS } else { ROUNDS };
        Self { key, len, left_bits: bits / 2, right_bits: bits - bits / 2, rounds }
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no numbers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What stands at `index`.
    ///
    /// # Panics
    /// If the index is not below the length.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "place {index} of {} numbers", self.len);
        let mut number = self.turn(index);
        while number >= self.len {
            number = self.turn(number);
        }
        number
    }

    fn turn(&self, number: u64) -> u64 {
        let (mut left_bits, mut right_bits) = (self.left_bits, self.right_bits);
        let (mut left, mut right) = (number >> right_bits, number & low(right_bits));
        for round in 0..self.rounds {
            // The round's number lies above every half.
            let masked = left ^ (self.key.quick_number(right | u64::from(round) << 56) & low(left_bits));
            (left, right) = (right, masked);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        left << right_bits | right
    }
}

fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}
