//! The batches in the hands of a training loop: what it keeps, what it lets go of, and what it makes private because the server
//! waits for it.

use feedline_protocol::UNKNOWN;
use feedline_protocol::page::HeadView;

use super::ConsumerProcess;
use crate::memory::Memory;
use crate::ring::Lease;

/// A loop keeps no more batches than this for good.
const MOST_FOR_GOOD: usize = 3;

/// A batch in the hands of the training loop.
pub(super) struct Held {
    pub lease: Lease,
    /// The lease in the consumer's table; `None` once the memory that it was of is another server's past.
    pub id: Option<u64>,
    /// Where it begins, as the consumer's page counts.
    pub position: u64,
    pub is_private: bool,
    pub is_for_good: bool,
}

impl ConsumerProcess {
    /// No batch in its hands ever changes.
    pub(super) fn check_held(&self) -> Result<(), String> {
        match self.held.iter().find(|held| !held.is_private && !held.lease.is_intact()) {
            Some(held) => Err(format!("a batch changed while it was held: {:?}", held.lease.samples)),
            None => Ok(()),
        }
    }

    /// Whether the batch that is about to be held stays for good.
    pub(super) fn keeps_for_good(&self) -> bool {
        self.job.keeps_for_good > 0
            && self.rng.one_in(self.job.keeps_for_good)
            && self.held.iter().filter(|held| held.is_for_good).count() < MOST_FOR_GOOD
    }

    /// Lets go of batches, as a loop does: it holds one while it asks for the next.
    pub(super) fn let_go(&mut self, is_calm: bool) {
        let keeps = if is_calm { 1 } else { 1 + self.job.keeps };
        if is_calm {
            self.held.iter_mut().for_each(|held| held.is_for_good = false);
        }
        while self.held.iter().filter(|held| !held.is_for_good).count() > keeps {
            // Not always the oldest.
            let loose: Vec<usize> = (0..self.held.len()).filter(|&index| !self.held[index].is_for_good).collect();
            let which = if self.rng.one_in(4) { self.rng.pick(&loose) } else { loose[0] };
            self.drop_held(which);
        }
    }

    /// An epoch is over: the loop's last batch goes with it.
    pub(super) fn let_go_of_epoch(&mut self) {
        while let Some(which) = self.held.iter().position(|held| !held.is_for_good) {
            self.drop_held(which);
        }
    }

    fn drop_held(&mut self, which: usize) {
        let held = self.held.remove(which);
        if let (Some(id), false, Some(memory)) = (held.id, held.is_private, &self.memory) {
            memory.release(id);
        }
    }

    /// Before it asks for a batch: makes private what the server waits for, but for the last two batches.
    pub(super) fn relieve(&mut self) -> Result<(), String> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let wanted = memory.wanted();
        if let Some(limit) = self.pressure.limit(wanted) {
            while self.memory.as_ref().and_then(Memory::oldest).is_some_and(|(_, first)| first < limit)
                && self.keep_oldest()
            {}
        }
        self.judge_leases(wanted)
    }

    /// A batch that the loop keeps holds up nobody once the loop has asked for another; what a loop is at work with is not
    /// copied for that.
    fn judge_leases(&self, wanted: u64) -> Result<(), String> {
        let is_recent = |position: u64| self.recent.contains(&Some(position));
        let holds_up = |position: u64| wanted != UNKNOWN && position < wanted && !is_recent(position);
        let older_than_recent = |position: u64| self.recent.iter().flatten().all(|&recent| position < recent);
        for held in self.held.iter().filter(|held| held.id.is_some() && !held.is_private) {
            if holds_up(held.position) && older_than_recent(held.position) {
                return Err(format!("a kept batch holds up the others: {}, {wanted} is waited for", held.position));
            }
        }
        Ok(())
    }

    /// Lets go of all that the server waits for: it is about to sleep, so that nobody else could.
    pub(super) fn relieve_all(&mut self) {
        loop {
            let Some(memory) = &self.memory else { return };
            let wanted = memory.wanted();
            let is_in_the_way = wanted != UNKNOWN && memory.oldest().is_some_and(|(_, first)| first < wanted);
            if !is_in_the_way || !self.keep_oldest() {
                return;
            }
        }
    }

    pub(super) fn keep_oldest(&mut self) -> bool {
        let Some(memory) = &self.memory else { return false };
        let Some((id, _)) = memory.oldest() else { return false };
        if let Some(held) = self.held.iter_mut().find(|held| held.id == Some(id) && !held.is_private) {
            held.is_private = true;
        }
        memory.release(id);
        true
    }
}
