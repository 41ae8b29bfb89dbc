//! Readings of a clock. Whoever drives a state machine passes them in; nothing here looks at a clock.

use std::time::Duration;

/// A reading of a monotonic clock: the time since a moment that all readings of it share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

impl Time {
    /// The reading of a clock that shows `elapsed`.
    pub const fn new(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How much later this is than `earlier`; zero if it isn't.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A moment from which on something is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(pub Time);

impl Since {
    pub fn is_over(self, limit: Duration, now: Time) -> bool {
        now.since(self.0) >= limit
    }
}

/// Counts time in steps, each up to a limit. Time in which this process did not run does not count against its peer: both may
/// have been stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepwise {
    last: Time,
    longest: Duration,
}

impl Stepwise {
    pub fn new(longest: Duration, now: Time) -> Self {
        Self { last: now, longest }
    }

    /// How much time counts since the last step.
    pub fn step(&mut self, now: Time) -> Duration {
        let step = now.since(self.last).min(self.longest);
        self.last = now;
        step
    }
}
