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

/// A clock that stands still while this process does not run. Whoever waits reads it again and again, with pauses no longer than
/// `longest`: of a longer one, only that much counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTime {
    longest: Duration,
    /// When it was last read; `None` while nobody waits.
    last: Option<Time>,
    /// For so long this process did not run.
    away: Duration,
}

impl RunningTime {
    pub fn new(longest: Duration) -> Self {
        Self { longest, last: None, away: Duration::ZERO }
    }

    /// What it shows while somebody waits.
    pub fn waiting(&mut self, now: Time) -> Time {
        let pause = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.away += pause.saturating_sub(self.longest);
        self.last = Some(now);
        Time(now.0.saturating_sub(self.away))
    }

    /// What it shows, whether somebody waits or not. While nobody does, it can't tell whether this process runs.
    pub fn at(&mut self, now: Time) -> Time {
        if self.last.is_some() { self.waiting(now) } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::new(Duration::from_millis(millis))
    }

    #[test]
    fn long_pauses_count_in_part_once_somebody_waits() {
        let mut clock = RunningTime::new(Duration::from_millis(100));
        assert_eq!([5, 900].map(|now| clock.at(at(now))), [at(5), at(900)], "nobody waits");
        assert_eq!([900, 1000, 1050].map(|now| clock.waiting(at(now))), [at(900), at(1000), at(1050)]);
        assert_eq!([1250, 1251].map(|now| clock.at(at(now))), [at(1150), at(1151)]);
        assert_eq!([61_251, 61_251].map(|now| clock.waiting(at(now))), [at(1251), at(1251)]);
    }
}
