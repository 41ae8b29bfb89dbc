//! What others may ask of a consumer, also while it is busy waiting: its counts, and how long its epochs are.

use std::sync::Arc;
use std::time::Duration;

use feedline_ring::HeadReader;
use feedline_ring::signal::{EpochLength as HeadLength, UNKNOWN};

use super::Consumer;
use super::shard::{self, Shard, own_step};
use crate::error::Error;
use crate::wire::Told;

/// How things stand, as the consumer sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerStats {
    /// The server's process.
    pub server_pid: u32,
    /// The epoch that is being read, or is next.
    pub epoch: u64,
    /// Samples taken.
    pub samples: u64,
    /// Batches taken.
    pub batches: u64,
    /// Samples that were overwritten before they could be taken.
    pub skipped: u64,
    /// Batches at an epoch's end that could not be shared among the ranks.
    pub left_out: u64,
    /// Time spent waiting for data.
    pub waited: Duration,
    /// How batches are taken now.
    pub mode: &'static str,
    /// Live leases.
    pub leases: u64,
    /// Leases made private because they held up the log.
    pub kept: u64,
    /// Fresh mappings made because pages had become private.
    pub remaps: u64,
}

impl ConsumerStats {
    /// Adds another consumer's counts.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.batches += other.batches;
        self.skipped += other.skipped;
        self.left_out += other.left_out;
        self.waited += other.waited;
        self.kept += other.kept;
        self.remaps += other.remaps;
    }
}

/// How long an epoch is for one consumer. Follows what the server learns.
#[derive(Clone, Debug)]
pub struct EpochLength {
    head: Arc<HeadReader>,
    batch_size: Option<u64>,
    drop_last: bool,
    /// How many samples the source's batches have, where they can be cut.
    source_batch: Option<u64>,
    /// What the source says of its samples, where they can't.
    told: Option<Told>,
    /// How many ranks share it, and how many batches each had in the last epoch.
    shard: Option<(u64, Option<u64>)>,
}

impl EpochLength {
    pub(super) fn new(
        head: &Arc<HeadReader>,
        batch_size: Option<u64>,
        drop_last: bool,
        source_batch: Option<u64>,
        told: Option<Told>,
        shard: Option<(u64, Option<u64>)>,
    ) -> Self {
        Self { head: Arc::clone(head), batch_size, drop_last, source_batch, told, shard }
    }

    /// In samples, of all ranks together, once it is known. Where batches travel whole, what the source says.
    pub fn samples(&self) -> Option<u64> {
        match self.source_batch {
            Some(_) => Some(self.head.length().samples).filter(|&samples| samples != UNKNOWN),
            None => self.told.map(|told| told.samples),
        }
    }

    /// How many samples each batch but an epoch's last has, unless the source's are handed on and their sizes are known to differ.
    pub fn batch_size(&self) -> Option<u64> {
        let own = self.source_batch.filter(|&size| {
            let HeadLength { samples, batches, .. } = self.head.length();
            samples == UNKNOWN || batches == UNKNOWN || samples.div_ceil(size) == batches
        });
        self.batch_size.or(own).or(self.told.map(|told| told.batch_size))
    }

    /// In the source's own batches, once it is known.
    pub fn source_batches(&self) -> Option<u64> {
        Some(self.head.length().batches).filter(|&batches| batches != UNKNOWN)
    }

    /// How many samples the source's first batch had, where batches can be cut.
    pub fn source_batch(&self) -> Option<u64> {
        self.source_batch
    }

    /// In batches, once it is known.
    pub fn batches(&self) -> Option<u64> {
        let HeadLength { samples, batches, tail } = self.head.length();
        let known = |number: u64| (number != UNKNOWN).then_some(number);
        if let Some((world, before)) = self.shard {
            return self.steps(world, before);
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

    /// The same for each of `world` ranks, who had so many batches before.
    fn steps(&self, world: u64, before: Option<u64>) -> Option<u64> {
        let HeadLength { samples, batches, tail } = self.head.length();
        let known = |number: u64| (number != UNKNOWN).then_some(number);
        let steps_of = |samples, full| Some(shard::steps_in(samples, full, world, self.drop_last));
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

impl Consumer {
    /// At an epoch's end: what of it can't be cut and was too little for all ranks.
    pub(super) fn leave_out(&mut self, end: u64) {
        let left_out = end.saturating_sub(self.cursor.unwrap_or(end));
        let Some(shard) = self.config.shard.filter(|_| left_out > 0 && !self.view.is_cut()) else { return };
        self.stats.left_out += left_out;
        if self.stats.left_out == left_out {
            tracing::warn!(
                "feed {:?}: its batches cannot be cut, and the last {left_out} of epoch {} are too few for {} ranks: left out",
                self.config.name,
                self.epoch,
                shard.world,
            );
        }
    }

    /// Of this epoch, or of what is left of it.
    pub(super) fn too_few(&self, samples: u64, shard: Shard) -> Error {
        let what = if self.view.is_cut() { "samples" } else { "batches that cannot be cut" };
        Error::BatchSize(format!(
            "feed {:?}: epoch {} has {samples} {what}, and {} ranks share it: there is not one for each\n  \
             use fewer ranks, or drop_last=True to leave such an epoch out",
            self.config.name, self.epoch, shard.world,
        ))
    }
}
