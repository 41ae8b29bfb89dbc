//! What the producer spends its time on, and when samples were published: two readings of the clock for a batch.
//!
//! Only the producer writes it, and threads that want statistics read it; a reader never makes the producer wait. The clock
//! advances in ticks
//! of the kernel (1 to 10 ms), because reading the exact one costs 5 % of a tiny batch. What is shorter than a tick gets all
//! of one or nothing, in proportion to its length: right on average, and the sum is always right.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use feedline_protocol::Time;
use feedline_shm::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// What the producer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Nothing that counts: it has not begun, or it has ended.
    Nothing = 0,
    /// It waits for the source.
    Loading = 1,
    /// It copies a batch into the ring.
    Copying = 2,
    /// It waits: the ring is full, or nobody needs more.
    Waiting = 3,
}

/// A clock for each activity.
#[derive(Debug)]
pub(super) struct Meter {
    /// In nanoseconds of the coarse clock.
    began: u64,
    /// Odd while what follows changes.
    turns: AtomicU64,
    doing: AtomicU32,
    /// Since when, in nanoseconds after `began`.
    since: AtomicU64,
    nanos: [AtomicU64; 4],
    /// What readers got last. The producer doesn't use it.
    shown: Mutex<[f64; 4]>,
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

/// The kernel's clock as of its last tick: a seventh of the cost of the exact one.
fn coarse_nanos() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Meter {
    pub fn new() -> Self {
        Self {
            began: coarse_nanos(),
            turns: AtomicU64::new(0),
            doing: AtomicU32::new(Doing::Nothing as u32),
            since: AtomicU64::new(0),
            nanos: Default::default(),
            shown: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        coarse_nanos().saturating_sub(self.began)
    }

    /// For policies that count time.
    pub fn time(&self) -> Time {
        Time::new(Duration::from_nanos(self.now()))
    }

    /// The producer does this from now on. Returns what it did before.
    pub fn turn(&self, doing: Doing) -> Doing {
        let before = self.doing.load(Ordering::Relaxed);
        let (since, now) = (self.since.load(Ordering::Relaxed), self.now());
        if now == since {
            self.doing.store(doing as u32, Ordering::Relaxed);
            return Doing::from(before);
        }
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
        // Pairs with the reader's fence: a reader that sees any of the stores below sees the odd number.
        fence(Ordering::Release);
        let clock = &self.nanos[before as usize];
        clock.store(clock.load(Ordering::Relaxed) + (now - since), Ordering::Relaxed);
        self.doing.store(doing as u32, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.turns.store(turns + 2, Ordering::Release);
        Doing::from(before)
    }

    /// What the producer does.
    pub fn doing(&self) -> Doing {
        Doing::from(self.doing.load(Ordering::Relaxed))
    }

    /// When the producer last changed its activity.
    pub fn last_turn(&self) -> Duration {
        Duration::from_nanos(self.since.load(Ordering::Relaxed))
    }

    /// How long ago the server began.
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    /// The time spent on each activity, up to now. No clock is ever behind an earlier reading, and together they show the time
    /// that passed.
    pub fn spent(&self) -> Spent {
        let mut shown = self.shown.lock();
        let (nanos, in_call) = self.read();
        // A producer that has read the clock and is delayed before it stores the new activity gives that time to another clock
        // than was shown.
        // What passed since the last reading then goes to the clocks that are ahead of what was shown, in proportion.
        let ahead: [u64; 4] = std::array::from_fn(|index| nanos[index].saturating_sub(shown[index] as u64));
        let passed = nanos.iter().sum::<u64>() as f64 - shown.iter().sum::<f64>();
        let part = (passed / ahead.iter().sum::<u64>().max(1) as f64).clamp(0.0, 1.0);
        for (shown, ahead) in shown.iter_mut().zip(ahead) {
            *shown += ahead as f64 * part;
        }
        let secs = |what: Doing| shown[what as usize] / 1e9;
        Spent {
            loading: secs(Doing::Loading),
            copying: secs(Doing::Copying),
            waiting: secs(Doing::Waiting),
            in_call: in_call as f64 / 1e9,
        }
    }

    /// All clocks, including the current activity, and the length of the source's call.
    fn read(&self) -> ([u64; 4], u64) {
        loop {
            // First: what was done by then is known by what is read next.
            let now = self.now();
            let turns = self.turns.load(Ordering::Acquire);
            let since = self.since.load(Ordering::Relaxed);
            let doing = Doing::from(self.doing.load(Ordering::Relaxed));
            let mut nanos = std::array::from_fn::<_, 4, _>(|index| self.nanos[index].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if turns % 2 == 1 || self.turns.load(Ordering::Relaxed) != turns {
                std::thread::yield_now();
                continue;
            }
            let under_way = now.saturating_sub(since);
            nanos[doing as usize] += under_way;
            return (nanos, if doing == Doing::Loading { under_way } else { 0 });
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
    /// How far the head had come within a tenth of a second from then, since the server began.
    marks: VecDeque<(u64, Duration)>,
}

const APART: Duration = Duration::from_millis(100);
/// Beyond this, every other one is dropped.
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

    /// The longest that the coarse clock may lag behind.
    const TICK_SECS: f64 = 0.01;

    #[test]
    fn time_goes_to_what_is_being_done() {
        let meter = Meter::new();
        assert_eq!(meter.turn(Doing::Loading), Doing::Nothing);
        std::thread::sleep(Duration::from_millis(50));
        assert!(meter.spent().in_call >= 0.05 - TICK_SECS);
        assert_eq!(meter.turn(Doing::Copying), Doing::Loading);
        let spent = meter.spent();
        assert!(spent.loading >= 0.05 - TICK_SECS && spent.in_call == 0.0 && spent.waiting == 0.0);
        assert!(spent.loading + spent.copying <= meter.uptime().as_secs_f64());
    }

    #[test]
    fn what_is_shorter_than_a_tick_is_right_on_average() {
        let meter = Meter::new();
        let spin = |micros| {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_micros(micros) {}
        };
        let mut all = (0.0, 0.0);
        while all.0 + all.1 < 0.5 {
            for (doing, micros) in [(Doing::Loading, 30), (Doing::Copying, 10)] {
                let began = std::time::Instant::now();
                meter.turn(doing);
                spin(micros);
                let secs = began.elapsed().as_secs_f64();
                if doing == Doing::Loading { all.0 += secs } else { all.1 += secs }
            }
        }
        let spent = meter.spent();
        // A hundred ticks or more; the true share is what it took, however busy the machine.
        let (share, truth) = (spent.loading / (spent.loading + spent.copying), all.0 / (all.0 + all.1));
        assert!((share - truth).abs() < 0.25, "{share} for {truth}");
    }

    #[test]
    fn a_reader_never_sees_time_run_backwards_or_counted_twice() {
        let meter = Meter::new();
        let end = std::sync::atomic::AtomicBool::new(false);
        let turn = || {
            while !end.load(Ordering::Relaxed) {
                for doing in [Doing::Loading, Doing::Copying, Doing::Waiting] {
                    meter.turn(doing);
                }
            }
        };
        let read = || {
            let mut last = Spent::default();
            for _ in 0..100_000 {
                let spent = meter.spent();
                let sum = spent.loading + spent.copying + spent.waiting;
                let is_later = spent.loading >= last.loading && spent.copying >= last.copying;
                if !is_later || spent.waiting < last.waiting || sum > meter.uptime().as_secs_f64() + 1e-6 {
                    return Err((last, spent));
                }
                last = spent;
            }
            Ok(())
        };
        let outcome = std::thread::scope(|scope| {
            scope.spawn(turn);
            let outcome = read();
            end.store(true, Ordering::Relaxed);
            outcome
        });
        assert!(outcome.is_ok(), "{outcome:?}");
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
