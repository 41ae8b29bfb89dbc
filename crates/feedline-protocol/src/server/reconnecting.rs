//! Consumers that come back after an earlier server of the feed died. The first of them must not run away from the others: until
//! all are here, the log holds their place.

use std::time::Duration;

use crate::log::Log;
use crate::message::{Entry, Others};
use crate::time::{Since, Time};

/// The cursor of those who are still on their way.
const ON_THE_WAY: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct Reconnecting {
    /// The epoch in which an earlier server stopped.
    resumed: Option<u64>,
    wait: Waiting,
}

#[derive(Debug, Default)]
enum Waiting {
    /// Nobody has come back.
    #[default]
    Nobody,
    /// Some have.
    Some {
        lost: Vec<LostServer>,
        /// When the first one came.
        since: Since,
        /// The place that is held: an epoch, and a sample of it.
        held: Option<(u64, u64)>,
    },
    /// All have, or the time was over.
    Over,
}

/// A server that was lost, and how many of its consumers have come back. Those of one server are no substitute for another's.
#[derive(Debug)]
struct LostServer {
    process: u32,
    expected: u32,
    came: u32,
}

/// More servers than this are not lost within one stall time.
const MOST_LOST: usize = 16;

impl Reconnecting {
    pub fn new(resumed: Option<u64>) -> Self {
        Self { resumed, wait: Waiting::Nobody }
    }

    /// Whether somebody may come back to this epoch, of whom nothing was heard yet.
    pub fn may_need(&self, epoch: u64) -> bool {
        self.resumed == Some(epoch) && matches!(self.wait, Waiting::Nobody)
    }

    /// One has come back and tells of the others, of whom the slowest was at this place or after it. Only those count who surely
    /// are among them: to take another for one of them would be not to wait for that one.
    pub fn came(&mut self, log: &mut Log, others: Others, place: (u64, u64), now: Time) {
        if let Waiting::Nobody = self.wait {
            self.wait = Waiting::Some { lost: Vec::new(), since: Since(now), held: None };
        }
        let Waiting::Some { lost, held, .. } = &mut self.wait else { return };
        let index = match lost.iter().position(|one| one.process == others.server) {
            Some(index) => index,
            None if lost.len() == MOST_LOST => return,
            None => {
                lost.push(LostServer { process: others.server, expected: 0, came: 0 });
                lost.len() - 1
            }
        };
        lost[index].expected = lost[index].expected.max(others.count);
        lost[index].came += u32::from(others.is_one);
        if held.is_none_or(|held| place < held)
            && log.join(ON_THE_WAY, Entry::At { epoch: place.0, index: place.1 }).is_ok()
        {
            *held = Some(place);
        }
    }

    /// Lets go when all are here, or `timeout` is over.
    pub fn expire(&mut self, log: &mut Log, timeout: Duration, now: Time) {
        if let Waiting::Some { lost, since, .. } = &self.wait
            && (lost.iter().all(|one| one.came >= one.expected) || since.is_over(timeout, now))
        {
            self.wait = Waiting::Over;
            log.leave(ON_THE_WAY);
        }
    }

    /// How many are here or on their way, while some are.
    pub fn expected(&self) -> u32 {
        self.lost().iter().fold(0, |all, one| all.saturating_add(one.expected))
    }

    /// How many are still on their way.
    pub fn missing(&self) -> u32 {
        self.lost().iter().fold(0, |all, one| all.saturating_add(one.expected.saturating_sub(one.came)))
    }

    fn lost(&self) -> &[LostServer] {
        if let Waiting::Some { lost, .. } = &self.wait { lost } else { &[] }
    }

    /// Whether some are still on their way.
    pub fn is_waiting(&self) -> bool {
        matches!(self.wait, Waiting::Some { .. })
    }
}
