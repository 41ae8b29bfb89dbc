//! How many batches an epoch has for one consumer.

use crate::message::{EpochLength, UNKNOWN};
use crate::shard::{own_step, steps_in};

/// What the number of batches depends on, besides the epoch's length.
#[derive(Clone, Copy, Debug)]
pub struct BatchCount {
    /// What the consumer asked for, where batches can be cut; `None` for the source's own.
    pub batch_size: Option<u64>,
    /// Leave out an epoch's last batch if it is smaller.
    pub drop_last: bool,
    /// How many samples the source's batches have, where they can be cut.
    pub source_batch: Option<u64>,
    /// How many ranks share it, and how many batches each had in the last epoch.
    pub ranks: Option<(u64, Option<u64>)>,
}

fn known(number: u64) -> Option<u64> {
    (number != UNKNOWN).then_some(number)
}

impl BatchCount {
    /// In batches, once it is known.
    pub fn batches(&self, length: EpochLength) -> Option<u64> {
        let EpochLength { samples, batches, tail } = length;
        if let Some((world, before)) = self.ranks {
            return self.steps(length, world, before);
        }
        match (self.batch_size, self.source_batch) {
            (Some(size), _) if self.drop_last => known(samples).map(|samples| samples / size),
            (Some(size), _) => known(samples).map(|samples| samples.div_ceil(size)),
            (None, Some(size)) if self.drop_last => {
                // Before the first epoch has ended: a loader that tells both numbers has batches of one size.
                let tail = known(tail).or_else(|| Some((known(samples)?.saturating_add(size - 1)) % size + 1))?;
                known(batches).map(|batches| if tail < size { batches.saturating_sub(1) } else { batches })
            }
            (None, _) => known(batches),
        }
    }

    /// The same for each of `world` ranks, which had `before` batches in the last epoch.
    fn steps(&self, length: EpochLength, world: u64, before: Option<u64>) -> Option<u64> {
        let EpochLength { samples, batches, tail } = length;
        let steps_of = |samples, full| Some(steps_in(samples, full, world, self.drop_last));
        match (self.batch_size, self.source_batch) {
            (Some(size), _) => steps_of(known(samples)?, size.saturating_mul(world)),
            (None, Some(size)) => {
                let (samples, batches) = (known(samples)?, known(batches)?);
                let Some(full) = batches.checked_sub(1) else { return Some(0) };
                let tail = known(tail).unwrap_or_else(|| (samples.saturating_add(size - 1)) % size + 1);
                // Where batches have many sizes, how they go together shows only when they come.
                let is_even = full.checked_mul(size).and_then(|all| all.checked_add(tail)) == Some(samples);
                if is_even { steps_of(samples, own_step(size, world)) } else { before }
            }
            (None, None) => known(batches).map(|batches| batches / world),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: EpochLength = EpochLength { samples: 26, batches: 7, tail: 2 };
    const NO_TAIL: EpochLength = EpochLength { tail: UNKNOWN, ..LENGTH };

    fn count(batch_size: Option<u64>, drop_last: bool) -> BatchCount {
        BatchCount { batch_size, drop_last, source_batch: Some(4), ranks: None }
    }

    #[test]
    fn batches_of_ones_own_size() {
        assert_eq!(count(Some(8), false).batches(LENGTH), Some(4));
        assert_eq!(count(Some(8), true).batches(LENGTH), Some(3));
        assert_eq!(count(Some(8), false).batches(EpochLength::UNKNOWN), None);
        assert_eq!(count(Some(8), true).batches(EpochLength::UNKNOWN), None);
    }

    #[test]
    fn the_sources_own_batches() {
        assert_eq!(count(None, false).batches(LENGTH), Some(7));
        assert_eq!(count(None, true).batches(LENGTH), Some(6));
        assert_eq!(count(None, true).batches(NO_TAIL), Some(6), "26 samples leave two for the last batch of four");
        assert_eq!(count(None, true).batches(EpochLength { samples: 28, ..NO_TAIL }), Some(7));
        assert_eq!(count(None, true).batches(EpochLength { tail: 4, ..LENGTH }), Some(7));
        assert_eq!(count(None, true).batches(EpochLength { samples: UNKNOWN, ..NO_TAIL }), None);
        let whole = BatchCount { source_batch: None, ..count(None, true) };
        assert_eq!(whole.batches(LENGTH), Some(7), "batches that can't be cut have no tail");
    }

    #[test]
    fn steps_of_ranks() {
        let ranks = |batch_size, drop_last| BatchCount { ranks: Some((3, Some(99))), ..count(batch_size, drop_last) };
        assert_eq!(ranks(Some(4), false).batches(LENGTH), Some(2), "two are left, fewer than ranks");
        assert_eq!(ranks(Some(4), false).batches(EpochLength { samples: 27, ..LENGTH }), Some(3));
        assert_eq!(ranks(Some(4), true).batches(EpochLength { samples: 27, ..LENGTH }), Some(2));
        assert_eq!(ranks(None, false).batches(LENGTH), Some(6));
        assert_eq!(ranks(None, false).batches(NO_TAIL), Some(6));
        assert_eq!(ranks(None, true).batches(LENGTH), Some(6));
        assert_eq!(ranks(None, false).batches(EpochLength { samples: 27, ..LENGTH }), Some(99), "of many sizes");
        assert_eq!(ranks(None, false).batches(EpochLength { samples: 0, batches: 0, tail: 0 }), Some(0));
        assert_eq!(ranks(None, false).batches(EpochLength::UNKNOWN), None);
        let whole = BatchCount { source_batch: None, ..ranks(None, false) };
        assert_eq!(whole.batches(LENGTH), Some(2));
    }
}
