//! What others may ask of a consumer, also while it is busy waiting: its counts, and how long its epochs are.

use std::sync::Arc;
use std::time::Duration;

use feedline_ring::HeadReader;
use feedline_ring::signal::{EpochLength as HeadLength, UNKNOWN};

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
}

impl EpochLength {
    pub(super) fn new(
        head: &Arc<HeadReader>,
        batch_size: Option<u64>,
        drop_last: bool,
        source_batch: Option<u64>,
    ) -> Self {
        Self { head: Arc::clone(head), batch_size, drop_last, source_batch }
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
}
