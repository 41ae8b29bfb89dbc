//! A kept batch never stalls the others: when a lease of ours holds up the log, its pages are made private.

use crate::message::UNKNOWN;

/// A consumer that keeps this many batches nearly in a row is better served by copies.
const TOO_MANY_KEPT: u32 = 8;

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
    pub fn keeps_too_many(&mut self, kept: u64) -> bool {
        let new = u32::try_from(kept.saturating_sub(self.seen)).unwrap_or(u32::MAX);
        self.seen = kept;
        self.streak = self.streak.saturating_add(new.saturating_mul(2));
        self.streak >= TOO_MANY_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_holds_stays() {
        let mut pressure = Pressure::default();
        [10, 20, 30].iter().for_each(|&first| pressure.handed_out(first));
        assert_eq!(pressure.limit(UNKNOWN), None);
        assert_eq!(pressure.limit(15), Some(15));
        assert_eq!(pressure.limit(100), Some(20), "the last two batches are in its hands");
    }

    #[test]
    fn one_that_keeps_nearly_all_is_better_served_by_copies() {
        let mut pressure = Pressure::default();
        for kept in 1..7 {
            pressure.handed_out(kept);
            assert!(!pressure.keeps_too_many(kept), "{kept} kept");
        }
        pressure.handed_out(7);
        assert!(pressure.keeps_too_many(7));
        let mut pressure = Pressure::default();
        assert!(!pressure.keeps_too_many(3));
        (0..6).for_each(|first| pressure.handed_out(first));
        assert!(!pressure.keeps_too_many(6), "it let go of some in between");
        assert!(pressure.keeps_too_many(7));
    }
}
