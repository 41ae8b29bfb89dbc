//! Going on at a later place of an epoch, where all who are here have asked for one: what lies before it need not be made.
//!
//! The numbers of the samples stay what they are. The log just has a gap, which nobody has a cursor in.

use super::{Lag, Log};

impl Log {
    /// How many samples from the head on nobody needs who is here. Under [`Lag::Skip`] and in a log that is replayed, others count
    /// too; and while something is being filled, the head can't pass over it.
    pub fn unneeded(&self) -> u64 {
        if self.is_filling() { 0 } else { self.unneeded_later() }
    }

    /// The same, once what is being filled is published.
    pub fn unneeded_later(&self) -> u64 {
        let start = self.starts.back().copied().flatten().filter(|_| self.writing);
        let Some(start) = start.filter(|_| !self.policy.replay && self.policy.lag != Lag::Skip) else { return 0 };
        let epoch = self.epoch();
        let needed = self.cursors.values().filter_map(|cursor| {
            let released = cursor.released?;
            let asked = cursor.asked.filter(|&(of, _)| of == epoch).map_or(0, |(_, index)| start.saturating_add(index));
            Some(released.max(asked))
        });
        needed.min().map_or(0, |needed| needed.saturating_sub(self.claimed()))
    }

    /// Goes on after so many samples, at most those that are [unneeded](Self::unneeded). What came before them is gone for those
    /// who come later: they would take what there is of the epoch for whole.
    pub fn pass_over(&mut self, samples: u64) {
        debug_assert!(samples <= self.unneeded());
        self.head += samples;
        for released in self.cursors.values_mut().filter_map(|cursor| cursor.released.as_mut()) {
            *released = self.head.max(*released);
        }
        self.forget_before(self.head);
    }
}
