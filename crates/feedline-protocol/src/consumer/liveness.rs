//! Waiting for a server that may not answer: when to ask, when to warn, when to give up.
//!
//! ```text
//! waits ──5 s──▶ asks ──answer──▶ waits on
//!                  └──5 s──▶ warns ──limit──▶ gives up
//! ```

use std::time::Duration;

use crate::time::{Stepwise, Time};

/// How long to wait for data before asking, between two questions, and for an answer before warning.
pub(super) const PING_AFTER: Duration = Duration::from_secs(5);
/// No timeout is shorter: a busy machine is not a stopped server.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which this process did not run does not count against the server: both may have been stopped.
pub(super) const LONGEST_STEP: Duration = Duration::from_millis(500);

/// What to do about a server that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing.
    Fine,
    /// Ask it whether it is there.
    Ask,
    /// Say that it has not answered for so long.
    Warn(Duration),
    /// Give up: it has not answered for so long.
    GiveUp(Duration),
}

/// Whether a server that lives still answers.
#[derive(Debug)]
pub struct Liveness {
    /// How long it may leave a question unanswered.
    limit: Duration,
    clock: Stepwise,
    /// What the consumer had got when it began to wait.
    progress: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// For so long nothing has come, since something did, or since the last answer.
    Quiet(Duration),
    /// For so long a question has been unanswered.
    Asking { silence: Duration, has_warned: bool },
}

impl Liveness {
    /// Of a server that has just answered.
    pub fn new(limit: Duration, now: Time) -> Self {
        let clock = Stepwise::new(LONGEST_STEP, now);
        Self { limit: limit.max(MIN_TIMEOUT), clock, progress: 0, state: State::Quiet(Duration::ZERO) }
    }

    /// Whether a question is unanswered.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking { .. })
    }

    /// The server has answered. True if it was warned of.
    pub fn answered(&mut self) -> bool {
        let before = std::mem::replace(&mut self.state, State::Quiet(Duration::ZERO));
        matches!(before, State::Asking { has_warned: true, .. })
    }

    /// To be called while waiting, each time that all messages were handled. `progress` changes with all that arrives.
    pub fn check(&mut self, progress: u64, now: Time) -> Silence {
        let step = self.clock.step(now);
        let ping_after = PING_AFTER.min(self.limit / 4);
        let has_progressed = std::mem::replace(&mut self.progress, progress) != progress;
        match &mut self.state {
            State::Quiet(waited) => {
                *waited = if has_progressed { step } else { *waited + step };
                if *waited >= ping_after {
                    self.state = State::Asking { silence: Duration::ZERO, has_warned: false };
                    return Silence::Ask;
                }
            }
            State::Asking { silence, has_warned } => {
                *silence += step;
                if *silence >= self.limit {
                    return Silence::GiveUp(*silence);
                }
                if *silence >= ping_after && !std::mem::replace(has_warned, true) {
                    return Silence::Warn(*silence);
                }
            }
        }
        Silence::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every half a second, and gives what was to be done, and when.
    fn checks(liveness: &mut Liveness, from: u64, until: u64) -> Vec<(u64, Silence)> {
        let check = |half: u64| (half, liveness.check(7, Time::new(Duration::from_millis(500 * half))));
        (from..until).map(check).filter(|(_, silence)| *silence != Silence::Fine).collect()
    }

    #[test]
    fn a_silent_server_is_asked_warned_of_and_given_up() {
        let mut liveness = Liveness::new(Duration::from_secs(40), Time::default());
        assert!(!liveness.is_asking());
        // Something had arrived before the first look.
        assert_eq!(checks(&mut liveness, 1, 12), [(10, Silence::Ask)]);
        assert!(liveness.is_asking());
        let warned = (20, Silence::Warn(Duration::from_secs(5)));
        let given_up = (90, Silence::GiveUp(Duration::from_secs(40)));
        assert_eq!(checks(&mut liveness, 12, 91), [warned, given_up]);
    }

    #[test]
    fn an_answer_ends_the_question() {
        let mut liveness = Liveness::new(Duration::from_secs(40), Time::default());
        checks(&mut liveness, 1, 12);
        assert!(!liveness.answered(), "nobody was warned");
        assert!(!liveness.is_asking());
        checks(&mut liveness, 12, 40);
        assert!(liveness.answered());
    }

    #[test]
    fn whatever_arrives_is_a_sign_of_life() {
        let mut liveness = Liveness::new(Duration::from_secs(40), Time::default());
        let silence = |half: u64| liveness.check(half, Time::new(Duration::from_millis(500 * half)));
        assert!((1..100).map(silence).all(|silence| silence == Silence::Fine));
    }

    #[test]
    fn a_short_limit_asks_sooner_and_time_away_does_not_count() {
        let mut liveness = Liveness::new(Duration::ZERO, Time::default());
        let at = |millis: u64| Time::new(Duration::from_millis(millis));
        assert_eq!(liveness.check(0, at(200)), Silence::Fine);
        assert_eq!(liveness.check(0, at(250)), Silence::Ask);
        // This process did not run for an hour: half a second of it counts.
        assert_eq!(liveness.check(0, at(3_600_250)), Silence::Warn(Duration::from_millis(500)));
        assert_eq!(liveness.check(0, at(3_600_750)), Silence::GiveUp(Duration::from_secs(1)));
    }
}
