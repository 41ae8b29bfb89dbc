//! Where the producer's time goes, and when samples were published: two looks at the clock for a batch.
//!
//! Written by the producer alone, read by whoever asks for statistics; a reader never makes it wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the producer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Nothing that counts: it has not begun, or it is over.
    Nothing = 0,
    /// The source has the say.
    Loading = 1,
    /// A batch is on its way into the ring.
    Copying = 2,
    /// There is no room, or no need for more.
    Waiting = 3,
}

/// A clock for each of them.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    doing: AtomicU32,
    /// Since when, in nanoseconds after `began`.
    since: AtomicU64,
    nanos: [AtomicU64; 4],
}

/// What the clocks show, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub loading: f64,
    pub copying: f64,
    pub waiting: f64,
    /// How long the call of the source that is under way has lasted.
    pub in_call: f64,
}

impl Meter {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            doing: AtomicU32::new(Doing::Nothing as u32),
            since: AtomicU64::new(0),
            nanos: Default::default(),
        }
    }

    /// The producer does this from now on. Tells what it did before.
    pub fn turn(&self, doing: Doing) -> Doing {
        let before = self.doing.load(Ordering::Relaxed);
        let now = self.began.elapsed().as_nanos() as u64;
        let clock = &self.nanos[before as usize];
        let spent = now.saturating_sub(self.since.load(Ordering::Relaxed));
        clock.store(clock.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
        self.doing.store(doing as u32, Ordering::Relaxed);
        // Last, and with what came before it: a reader that sees the same moment twice has seen one state.
        self.since.store(now, Ordering::Release);
        Doing::from(before)
    }

    /// When the producer last turned to something else.
    pub fn last_turn(&self) -> Duration {
        Duration::from_nanos(self.since.load(Ordering::Relaxed))
    }

    /// How long ago the server began.
    pub fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// What was spent on what, up to now.
    pub fn spent(&self) -> Spent {
        loop {
            let since = self.since.load(Ordering::Acquire);
            let doing = Doing::from(self.doing.load(Ordering::Acquire));
            let nanos = std::array::from_fn::<_, 4, _>(|index| self.nanos[index].load(Ordering::Acquire));
            if self.since.load(Ordering::Acquire) != since {
                continue;
            }
            let under_way = (self.began.elapsed().as_nanos() as u64).saturating_sub(since) as f64 / 1e9;
            let secs = |what: Doing| nanos[what as usize] as f64 / 1e9 + if what == doing { under_way } else { 0.0 };
            return Spent {
                loading: secs(Doing::Loading),
                copying: secs(Doing::Copying),
                waiting: secs(Doing::Waiting),
                in_call: if doing == Doing::Loading { under_way } else { 0.0 },
            };
        }
    }
}

impl From<u32> for Doing {
    fn from(number: u32) -> Self {
        match number {
            1 => Self::Loading,
            2 => Self::Copying,
            3 => Self::Waiting,
            _ => Self::Nothing,
        }
    }
}

/// When samples were published, to a tenth of a second.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// What the head came to within a tenth of a second from then, since the server began.
    marks: VecDeque<(u64, Duration)>,
}

const APART: Duration = Duration::from_millis(100);
/// Then every other one goes.
const MOST: usize = 4096;

impl Stamps {
    /// The head has come this far.
    pub fn note(&mut self, head: u64, now: Duration) {
        if let Some((last, at)) = self.marks.back_mut()
            && now.saturating_sub(*at) < APART
        {
            *last = head;
            return;
        }
        if self.marks.len() == MOST {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.marks.push_back((head, now));
    }

    /// Nobody will ask about samples before this one.
    pub fn forget_before(&mut self, oldest: u64) {
        while self.marks.front().is_some_and(|&(head, _)| head <= oldest) {
            self.marks.pop_front();
        }
    }

    /// How old a sample is; zero if it was published just now, or not yet.
    pub fn age(&self, sample: u64, now: Duration) -> Duration {
        let after = self.marks.partition_point(|&(head, _)| head <= sample);
        self.marks.get(after).map_or(Duration::ZERO, |&(_, at)| now.saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_what_is_being_done() {
        let meter = Meter::new();
        assert_eq!(meter.turn(Doing::Loading), Doing::Nothing);
        std::thread::sleep(Duration::from_millis(20));
        assert!(meter.spent().in_call >= 0.02);
        assert_eq!(meter.turn(Doing::Copying), Doing::Loading);
        let spent = meter.spent();
        assert!(spent.loading >= 0.02 && spent.in_call == 0.0 && spent.waiting == 0.0);
        assert!(spent.loading + spent.copying <= meter.uptime().as_secs_f64());
    }

    #[test]
    fn a_sample_is_as_old_as_its_mark() {
        let secs = Duration::from_secs;
        let mut stamps = Stamps::default();
        assert_eq!(stamps.age(0, secs(5)), Duration::ZERO);
        stamps.note(10, secs(1));
        stamps.note(12, secs(1) + Duration::from_millis(50)); // counts as published with the ten
        stamps.note(20, secs(3));
        assert_eq!(stamps.age(0, secs(5)), secs(4));
        assert_eq!(stamps.age(9, secs(5)), secs(4));
        assert_eq!(stamps.age(11, secs(5)), secs(4));
        assert_eq!(stamps.age(12, secs(5)), secs(2));
        assert_eq!(stamps.age(20, secs(5)), Duration::ZERO);
        stamps.forget_before(12);
        assert_eq!(stamps.age(0, secs(5)), secs(2));
    }

    #[test]
    fn marks_stay_few() {
        let mut stamps = Stamps::default();
        for second in 0..20_000 {
            stamps.note(second + 1, Duration::from_secs(second));
        }
        assert!(stamps.marks.len() <= MOST);
        let age = stamps.age(10, Duration::from_secs(20_000)).as_secs();
        assert!((19_000..20_000).contains(&age), "{age}");
    }
}
