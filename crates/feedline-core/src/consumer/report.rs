//! What other threads may ask a consumer, even while it waits: its counts, and how long its epochs are.

use std::sync::Arc;
use std::time::Duration;

use feedline_protocol::consumer::BatchCount;
use feedline_protocol::{EpochLength as HeadLength, UNKNOWN};
use feedline_shm::HeadReader;

use crate::ring_info::ReportedLength;

/// A consumer's numbers, as it sees them.
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
    count: BatchCount,
    /// What the source reports about its samples, where they can't be counted.
    reported: Option<ReportedLength>,
}

impl EpochLength {
    pub(super) fn new(head: &Arc<HeadReader>, count: BatchCount, reported: Option<ReportedLength>) -> Self {
        Self { head: Arc::clone(head), count, reported }
    }

    /// In samples, of all ranks together, once it is known. Where batches travel whole: what the source reports.
    pub fn samples(&self) -> Option<u64> {
        match self.count.source_batch {
            Some(_) => Some(self.head.length().samples).filter(|&samples| samples != UNKNOWN),
            None => self.reported.map(|reported| reported.samples),
        }
    }

    /// How many samples each batch but an epoch's last has, unless the source's are handed on and their sizes are known to
    /// differ.
    pub fn batch_size(&self) -> Option<u64> {
        let own = self.count.source_batch.filter(|&size| {
            let HeadLength { samples, batches, .. } = self.head.length();
            samples == UNKNOWN || batches == UNKNOWN || samples.div_ceil(size) == batches
        });
        self.count.batch_size.or(own).or(self.reported.map(|reported| reported.batch_size))
    }

    /// In the source's own batches, once it is known.
    pub fn source_batches(&self) -> Option<u64> {
        Some(self.head.length().batches).filter(|&batches| batches != UNKNOWN)
    }

    /// How many samples the source's first batch had, where batches can be cut.
    pub fn source_batch(&self) -> Option<u64> {
        self.count.source_batch
    }

    /// In batches, once it is known.
    pub fn batches(&self) -> Option<u64> {
        self.count.batches(self.head.length())
    }
}
