//! A kept batch never stalls the others: when a lease of ours holds up the log, its pages are made private.

use crate::message::UNKNOWN;

/// A consumer that keeps this many batches nearly in a row is better served by copies.
const HOARDER: u32 = 8;

/// What a consumer remembers of its own leases.
#[derive(Debug, Default)]
pub struct Pressure {
    /// The first samples of the last two batches: a loop holds one while it asks for the next.
    recent: [u64; 2],
    /// How many leases were made private when we last looked.
    seen: u64,
    streak: u32,
}

impl Pressure {
    /// A batch that begins with this sample was handed out.
    pub fn handed_out(&mut self, first: u64) {
        self.recent = [self.recent[1], first];
        self.streak = self.streak.saturating_sub(1);
    }

    /// Before a batch is asked for: leases that begin before this sample are to be let go of. The server waits until samples
    /// before `wanted` are released; what a loop holds stays.
    pub fn limit(&self, wanted: u64) -> Option<u64> {
        (wanted != UNKNOWN).then(|| wanted.min(self.recent[0]))
    }

    /// Whether copies are better from now on. `kept` leases were made private so far.
    pub fn is_hoarder(&mut self, kept: u64) -> bool {
        let new = u32::try_from(kept.saturating_sub(self.seen)).unwrap_or(u32::MAX);
        self.seen = kept;
        self.streak = self.streak.saturating_add(new.saturating_mul(2));
        self.streak >= HOARDER
    }
}
