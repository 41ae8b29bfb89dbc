//! Batches' places in a log: which have one, and when they are given back.

use feedline_shm::arena::Extent;

use super::batch::Batch;
use super::{Known, Owner};
use crate::pool::claimed::{Claimed, Slots};
use crate::pool::task::Kind;

impl Owner {
    /// What tells workers where a batch stands in a ring; `None` if it can't stand there.
    pub(super) fn tell_place(&self, kind: Kind, slots: &Slots) -> Option<Extent> {
        let Known::Lanes(lanes, _) = &self.known else { return None };
        if kind != Kind::Cut || lanes.strides().len() != slots.lanes.len() {
            return None;
        }
        let bytes = slots.to_bytes(self.oldest_ring().unwrap_or(slots.ring));
        let mut extent = self.arena.allocate(bytes.len() as u64)?;
        extent.write(0, &bytes);
        Some(extent)
    }

    /// How many samples the first batch has that has no place in the log.
    pub fn first_unclaimed(&self) -> Option<u64> {
        self.batches.iter().find(|batch| !batch.is_claimed()).map(Batch::samples)
    }

    /// Gives the first batch without a place in the log this one, to be copied to.
    pub fn claim_first(&mut self, claimed: Claimed) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| !batch.is_claimed()) {
            batch.claim(claimed, None);
        }
    }

    /// The oldest ring that workers may write to.
    pub fn oldest_ring(&self) -> Option<u32> {
        self.batches.iter().chain(&self.abandoned).filter_map(Batch::ring).min()
    }

    /// Gives all places in the log back that no worker writes to. True if there are others. Batches are made again without one.
    pub fn unclaim(&mut self) -> bool {
        for batch in &mut self.batches {
            batch.unclaim(&self.board);
        }
        self.collect();
        self.is_filling()
    }

    /// Whether a batch has a place in the log, one that nobody wants any more included.
    pub fn is_filling(&self) -> bool {
        self.batches.iter().chain(&self.abandoned).any(Batch::is_claimed)
    }
}
