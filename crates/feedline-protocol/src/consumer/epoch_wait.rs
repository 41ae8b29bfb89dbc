//! Waiting for an epoch to begin while others read the one before it: what is waited for is said, once, and an end must be in
//! sight.
//!
//! ```text
//! waits ──5 s──▶ says so ──its length is known──▶ waits on
//!                   └──it isn't, and no epoch ends within the limit──▶ gives up
//! ```

use std::time::Duration;

use super::Waiting;
use super::liveness::{LONGEST_STEP, MIN_TIMEOUT, PING_AFTER};
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
    pub fn check(
        &mut self,
        epoch: u64,
        limit: Duration,
        is_cut: bool,
        head: &impl HeadView,
        now: Time,
    ) -> Option<Result<Waiting, Waiting>> {
        let limit = limit.max(MIN_TIMEOUT);
        let running = head.ended();
        let step = self.clock.step(now);
        if running == self.ended {
            self.waited += step;
        } else {
            (self.ended, self.waited) = (running, Duration::ZERO);
        }
        if self.waited < PING_AFTER.min(limit / 4) {
            return None;
        }
        let length = head.length();
        let length = if is_cut { length.samples } else { length.batches };
        let length = (length != UNKNOWN).then_some(length);
        let before = head.start_of(running);
        let waiting = Waiting { epoch, running, at: head.head().saturating_sub(before), length };
        if length.is_none() && self.waited >= limit && self.has_limit {
            return Some(Err(waiting));
        }
        (!std::mem::replace(&mut self.has_told, true)).then_some(Ok(waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Head;
    use crate::message::EpochLength;
    use crate::page::HeadPage;

    fn check(wait: &mut EpochWait, head: &Head, half: u64) -> Option<Result<Waiting, Waiting>> {
        wait.check(3, Duration::from_secs(30), true, head, Time::new(Duration::from_millis(500 * half)))
    }

    /// An epoch that has come to this sample.
    fn running() -> Head {
        let head = Head::default();
        head.end_epoch(0, 10);
        head.publish(14);
        head
    }

    const WAITING: Waiting = Waiting { epoch: 3, running: 1, at: 4, length: None };

    #[test]
    fn it_says_once_what_it_waits_for_and_gives_up_without_an_end_in_sight() {
        let (mut wait, head) = (EpochWait::new(true, Time::default()), running());
        let mut told: Vec<_> = (0..=60).map(|half| (half, check(&mut wait, &head, half))).collect();
        told.retain(|(_, what)| what.is_some());
        // The first look sees that an epoch has ended.
        assert_eq!(told, [(10, Some(Ok(WAITING))), (60, Some(Err(WAITING)))]);
    }

    #[test]
    fn a_known_length_or_others_who_come_back_are_worth_the_wait() {
        let (mut wait, head) = (EpochWait::new(true, Time::default()), running());
        head.set_length(EpochLength { samples: 20, batches: 5, tail: 4 });
        let told: Vec<_> = (0..200).filter_map(|half| check(&mut wait, &head, half)).collect();
        assert_eq!(told, [Ok(Waiting { length: Some(20), ..WAITING })]);
        let (mut wait, head) = (EpochWait::new(false, Time::default()), running());
        assert_eq!((0..200).filter_map(|half| check(&mut wait, &head, half)).count(), 1);
    }

    #[test]
    fn an_epoch_that_ends_begins_the_time_anew() {
        let (mut wait, head) = (EpochWait::new(true, Time::default()), running());
        assert_eq!((0..55).filter_map(|half| check(&mut wait, &head, half)).count(), 1);
        head.end_epoch(1, 20);
        assert!((55..115).all(|half| check(&mut wait, &head, half).is_none()));
        let end = check(&mut wait, &head, 115);
        assert_eq!(end, Some(Err(Waiting { running: 2, at: 0, ..WAITING })));
    }

    #[test]
    fn whole_batches_have_their_own_length_and_short_limits_speak_sooner() {
        let (mut wait, head) = (EpochWait::new(true, Time::default()), running());
        head.set_length(EpochLength { samples: UNKNOWN, batches: 5, tail: UNKNOWN });
        let mut check = |half: u64, is_cut| {
            wait.check(3, Duration::ZERO, is_cut, &head, Time::new(Duration::from_millis(125 * half)))
        };
        assert_eq!((check(0, false), check(1, false)), (None, None));
        assert_eq!(check(2, false), Some(Ok(Waiting { length: Some(5), ..WAITING })));
        assert!(check(5, false).is_none());
        assert_eq!(check(8, true), Some(Err(WAITING)), "a second is the least that is waited");
    }
}
