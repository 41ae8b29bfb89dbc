//! Waiting for an epoch to begin while others read the one before it: what is waited for is said, once, and an end must be in
//! sight.
//!
//! ```text
//! waits ──5 s──▶ says so ──its length is known──▶ waits on
//!                   └──it isn't, and no epoch ends within the limit──▶ gives up
//! ```

use std::time::Duration;

use super::Waiting;
use super::liveness::{CALM, LEAST_PATIENCE, LONGEST_STEP};
use crate::message::UNKNOWN;
use crate::page::HeadView;
use crate::time::{Stepwise, Time};

/// Since the last join.
#[derive(Debug)]
pub(super) struct EpochWait {
    clock: Stepwise,
    /// How long no epoch has ended.
    waited: Duration,
    ended: u64,
    has_told: bool,
    /// A consumer that goes on after its server was lost waits for the others, who go on where they were.
    has_limit: bool,
}

impl EpochWait {
    pub fn new(has_limit: bool, now: Time) -> Self {
        let clock = Stepwise::new(LONGEST_STEP, now);
        Self { clock, waited: Duration::ZERO, ended: 0, has_told: false, has_limit }
    }

    /// Something to say, or why to give up.
    pub fn look(
        &mut self,
        epoch: u64,
        limit: Duration,
        is_cut: bool,
        head: &impl HeadView,
        now: Time,
    ) -> Option<Result<Waiting, Waiting>> {
        let limit = limit.max(LEAST_PATIENCE);
        let running = head.ended();
        let step = self.clock.step(now);
        if running == self.ended {
            self.waited += step;
        } else {
            (self.ended, self.waited) = (running, Duration::ZERO);
        }
        if self.waited < CALM.min(limit / 4) {
            return None;
        }
        let length = head.length();
        let length = if is_cut { length.samples } else { length.batches };
        let length = (length != UNKNOWN).then_some(length);
        let before = running.checked_sub(1).map_or(0, |before| head.end_of(before));
        let waiting = Waiting { epoch, running, at: head.head().saturating_sub(before), length };
        if length.is_none() && self.waited >= limit && self.has_limit {
            return Some(Err(waiting));
        }
        (!std::mem::replace(&mut self.has_told, true)).then_some(Ok(waiting))
    }
}
