//! Numbers that depend on nothing but what they are asked for: the same on every machine, in any order of asking.

/// A source of random numbers, one for each question. Keys that were derived differently give unrelated numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    /// Another key, for this number.
    #[must_use]
    pub fn with(self, number: u64) -> Self {
        Self(self.number(number))
    }

    /// The random number of a question.
    #[inline]
    pub fn number(self, question: u64) -> u64 {
        mix(self.0 ^ mix(question.wrapping_add(0xbf58_476d_1ce4_e5b9)))
    }

    /// The same for questions that all are asked of one key, where time counts: half the work.
    #[inline]
    pub(super) fn quick_number(self, question: u64) -> u64 {
        mix(self.0 ^ question)
    }
}

/// A number in (0, 1), from 53 random bits. Neither end is ever reached.
pub(crate) fn unit(random: u64) -> f64 {
    ((random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Every bit of the result depends on every bit of the word (Stafford's variant 13 of MurmurHash3's finaliser).
#[inline]
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
