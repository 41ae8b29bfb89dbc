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
    kept: u64,
    streak: u32,
}

impl Pressure {
    pub fn handed_out(&mut self, first: u64) {
        self.recent = [self.recent[1], first];
        self.streak = self.streak.saturating_sub(1);
    }

    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Before a batch is asked for: lets go of what is older than a loop holds, if the server waits for it.
    /// True if copying is better from now on.
    pub fn relieve(&mut self, head: &HeadReader, table: &LeaseTable) -> bool {
        let recent = self.recent[0];
        self.keep_while(head, table, |first, wanted| first < wanted && first < recent)
    }

    /// When we starve while the server waits for room: lets go of everything that it waits for.
    pub fn relieve_all(&mut self, head: &HeadReader, table: &LeaseTable) -> bool {
        self.keep_while(head, table, |first, wanted| first < wanted)
    }

    fn keep_while(&mut self, head: &HeadReader, table: &LeaseTable, in_the_way: impl Fn(u64, u64) -> bool) -> bool {
        let wanted = head.wanted();
        if wanted == UNKNOWN {
            return false;
        }
        while table.oldest().is_some_and(|(first, _)| in_the_way(first, wanted)) && table.keep_oldest() {
            self.kept += 1;
            self.streak += 2;
        }
        self.streak >= HOARDER
    }
}
