//! A kept batch never stalls the others: when a lease of ours holds up the log, its pages are made private.

use feedline_ring::signal::UNKNOWN;
use feedline_ring::{HeadReader, LeaseTable};

/// A consumer that keeps this many batches nearly in a row is better served by copies.
const HOARDER: u32 = 8;

/// What a consumer remembers of its own leases.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// The first samples of the last two batches: a loop holds one while it asks for the next.
    recent: [u64; 2],
    /// What the table had kept when we last looked.
    seen: u64,
    streak: u32,
}

impl Pressure {
    pub fn handed_out(&mut self, first: u64) {
        self.recent = [self.recent[1], first];
        self.streak = self.streak.saturating_sub(1);
    }

    /// Before a batch is asked for: lets go of what is older than a loop holds, if the server waits for it.
    pub fn relieve(&mut self, head: &HeadReader, table: &LeaseTable) {
        let wanted = head.wanted();
        if wanted == UNKNOWN {
            return;
        }
        let limit = wanted.min(self.recent[0]);
        while table.oldest().is_some_and(|first| first < limit) && table.keep_oldest() {}
    }

    /// When we starve while a server waits for room: lets go of everything in this process that it waits for. That may be
    /// another iterator's, which nobody asks for a batch while this thread waits here.
    pub fn relieve_all(&self) {
        LeaseTable::relieve_process();
    }

    /// Whether copies are better from now on.
    pub fn is_hoarder(&mut self, table: &LeaseTable) -> bool {
        let kept = table.kept();
        let new = u32::try_from(kept - self.seen).unwrap_or(u32::MAX);
        self.seen = kept;
        self.streak = self.streak.saturating_add(new.saturating_mul(2));
        self.streak >= HOARDER
    }
}
