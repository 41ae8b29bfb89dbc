//! An epoch of a plan cut into steps: what all ranks of a job take together, and each rank's slice of it.
//!
//! A step follows from how many samples were consumed before it, by all ranks together. So a place in an epoch is that number alone: it
//! holds at any batch size and for any number of ranks.

use std::ops::Range;

use crate::shard::{self, Ahead, Shard};

/// How a job cuts its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How many samples an epoch has.
    pub samples: u64,
    /// How many a rank takes in a step; at least 1.
    pub batch_size: u64,
    /// How many ranks there are; at least 1.
    pub world: u64,
    /// Leave out a last step that is smaller.
    pub drop_last: bool,
}

/// There is not one sample for each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    /// So many are left.
    pub samples: u64,
}

impl Steps {
    fn full(self) -> u64 {
        self.batch_size.saturating_mul(self.world)
    }

    /// The places of the step after so many samples; `None` when the epoch is over.
    pub fn next(self, consumed: u64) -> Result<Option<Range<u64>>, TooFew> {
        let ahead = Ahead { there: self.samples.saturating_sub(consumed), is_all: true };
        match shard::cut(ahead, self.full(), self.world, self.drop_last) {
            shard::Step::Take(samples) => Ok(Some(consumed..consumed + samples)),
            shard::Step::TooFew(samples) => Err(TooFew { samples }),
            shard::Step::Over(_) | shard::Step::Wait => Ok(None),
        }
    }

    /// How many steps an epoch has from its beginning.
    pub fn count(self) -> u64 {
        shard::steps_in(self.samples, self.full(), self.world, self.drop_last)
    }
}

/// A rank's slice of a step. The first ranks get what can't be divided.
pub fn slice(step: Range<u64>, rank: u32, world: u32) -> Range<u64> {
    let (begin, end) = Shard { group: 0, world, rank }.slice(step.end - step.start);
    step.start + begin..step.start + end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(steps: Steps, mut consumed: u64) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        while let Some(step) = steps.next(consumed).unwrap() {
            consumed = step.end;
            found.push(step);
        }
        found
    }

    #[test]
    fn one_rank_has_batches() {
        let steps = Steps { samples: 10, batch_size: 4, world: 1, drop_last: false };
        assert_eq!(all(steps, 0), [0..4, 4..8, 8..10]);
        assert_eq!(all(steps, 3), [3..7, 7..10]);
        assert_eq!(all(Steps { drop_last: true, ..steps }, 0), [0..4, 4..8]);
    }

    #[test]
    fn every_step_has_something_for_every_rank() {
        let steps = Steps { samples: 26, batch_size: 4, world: 3, drop_last: false };
        assert_eq!(all(steps, 0), [0..12, 12..26], "a tail that is too small joins the step before");
        assert_eq!(steps.count(), 2);
        let slices: Vec<_> = (0..3).map(|rank| slice(12..26, rank, 3)).collect();
        assert_eq!(slices, [12..17, 17..22, 22..26]);
        assert_eq!(steps.next(24), Err(TooFew { samples: 2 }));
        assert_eq!(all(Steps { drop_last: true, ..steps }, 0), [0..12, 12..24]);
    }
}
