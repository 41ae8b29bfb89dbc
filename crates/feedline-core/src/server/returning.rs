//! Those who come back after an earlier server of the feed died. The first of them must not run away from the others: until all
//! are here, the log holds their place.

use std::time::Duration;

use feedline_ring::log::{Entry, Log};

use super::Since;

/// The cursor of those who are still on their way.
const ON_THE_WAY: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct Returning {
    /// The epoch in which an earlier server stopped.
    resumed: Option<u64>,
    expected: u32,
    came: u32,
    /// When the first one came, and how long the others have.
    since: Option<(Since, Duration)>,
    is_over: bool,
    /// The place that is held: an epoch, and a sample of it.
    held: Option<(u64, u64)>,
}

impl Returning {
    pub fn new(resumed: Option<u64>) -> Self {
        Self { resumed, ..Self::default() }
    }

    /// Whether somebody may come back to this epoch, of whom nothing was heard yet.
    pub fn may_need(&self, epoch: u64) -> bool {
        self.resumed == Some(epoch) && self.since.is_none()
    }

    /// One has come back of so many, of whom the slowest was at this place or after it.
    pub fn came(&mut self, log: &mut Log, of: u32, place: (u64, u64), patience: Duration) {
        if self.is_over {
            return;
        }
        self.expected = self.expected.max(of);
        self.came += 1;
        self.since.get_or_insert_with(|| (Since::now(), patience));
        if self.held.is_none_or(|held| place < held)
            && log.join(ON_THE_WAY, Entry::At { epoch: place.0, index: place.1 }).is_ok()
        {
            self.held = Some(place);
        }
        self.look(log);
    }

    /// Lets go when all are here, or the time is over.
    pub fn look(&mut self, log: &mut Log) {
        let is_late = self.since.is_some_and(|(since, patience)| since.is_over(patience));
        if self.since.is_some() && !self.is_over && (self.came >= self.expected || is_late) {
            self.is_over = true;
            log.leave(ON_THE_WAY);
        }
    }

    /// How many are here or on their way, while some are.
    pub fn expected(&self) -> u32 {
        if self.is_waiting() { self.expected } else { 0 }
    }

    /// Whether some are still on their way.
    pub fn is_waiting(&self) -> bool {
        self.since.is_some() && !self.is_over
    }
}
