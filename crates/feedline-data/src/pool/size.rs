//! How many workers a pool should have: measurements in, a number and the reason for it out. No clock, no process.
//!
//! ```text
//!             nobody waits ──▶ as many as are busy, and some in reserve
//!  measured ─┤               ┌─ the workers use all of the CPU's quota ──▶ no more; fewer, if that costs nothing
//!             somebody waits ┴─ they sleep ──▶ try more ── faster ──▶ they stay
//!                                                       └─ not ─────▶ back, and not again for a while
//! ```
//!
//! Each size is judged by the median of some windows. What was tried in vain is tried again after twice as long each time, or as
//! soon as the pool's rate is another. Workers that sleep cost no CPU: what the quota bounds is the CPU that they use, and their
//! number is bounded by [`Limits::most`].

use feedline_core::stats::PoolReason as Reason;

/// A size is judged by so many windows.
const WINDOWS: usize = 3;
/// A pool is waited for if that takes this share of the time.
const WAITED_FOR: f64 = 0.05;
/// Below this share, fewer workers are tried.
const AHEAD: f64 = 0.02;
/// The workers' number, in terms of those that are busy, while nobody waits.
const RESERVE: f64 = 1.15;
/// The quota counts as used up from here on: processes of others and the job itself run, too.
const QUOTA_USED: f64 = 0.9;
/// More workers stay if they bring this much.
const LEAST_GAIN: f64 = 0.05;
/// Fewer workers stay if they cost no more than this.
const MOST_LOSS: f64 = 0.03;
/// A rate that differs by this much from that of the settled pool is that of another one.
const OTHER_RATE: f64 = 0.2;
/// How many judgements pass after a first try in vain, and after many.
const FIRST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 256;

/// How many workers there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How many cores they may keep busy.
    pub cores: f64,
    /// As many workers as there may ever be.
    pub most: usize,
}

/// Workers for each core, at the most: those of datasets that wait for a disk or a network.
const FOR_EACH_CORE: usize = 16;
/// More than this only on machines with more cores.
const MOST: usize = 64;

impl Limits {
    /// For a quota of so many cores.
    pub fn of_cores(cores: f64) -> Self {
        let cores = if cores.is_finite() { cores.max(0.1) } else { 1.0 };
        let whole = cores.ceil() as usize;
        Self { cores, most: (whole * FOR_EACH_CORE).min(MOST).max(whole) }
    }

    fn whole_cores(self) -> usize {
        (self.cores.ceil() as usize).clamp(1, self.most)
    }
}

/// What was measured while so many workers ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// How many.
    pub workers: usize,
    /// How long.
    pub secs: f64,
    /// Samples that were made.
    pub samples: u64,
    /// How long the jobs waited for a batch of the pool.
    pub waited_secs: f64,
    /// How long workers were at samples, all together.
    pub busy_secs: f64,
    /// CPU time that workers and the pool's owner spent.
    pub cpu_secs: f64,
}

/// What the windows of one size say, in the median.
#[derive(Clone, Copy, Debug)]
struct Measured {
    rate: f64,
    waits: f64,
    /// Workers that were busy.
    busy: f64,
    /// Cores that they kept busy.
    cores: f64,
}

impl Measured {
    fn new(windows: &[Window]) -> Self {
        let median = |of: fn(&Window) -> f64| {
            let mut values: Vec<f64> = windows.iter().map(|window| of(window) / window.secs.max(1e-9)).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            rate: median(|window| window.samples as f64),
            waits: median(|window| window.waited_secs),
            busy: median(|window| window.busy_secs),
            cores: median(|window| window.cpu_secs),
        }
    }
}

/// A size that is compared with the one before.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    rate: f64,
    /// The reason for `from`.
    reason: Reason,
}

/// Tries in vain, and when to try again.
#[derive(Clone, Copy, Debug)]
struct Pause {
    left: u32,
    next: u32,
    /// The rate of the size that was gone back to.
    rate: f64,
}

impl Pause {
    const NONE: Self = Self { left: 0, next: FIRST_PAUSE, rate: 0.0 };

    fn begin(&mut self, rate: f64) {
        *self = Self { left: self.next, next: (self.next * 2).min(LONGEST_PAUSE), rate };
    }

    /// Whether it is too early to try again. One judgement has passed.
    fn holds(&mut self, rate: f64) -> bool {
        if self.left > 0 && (rate - self.rate).abs() > OTHER_RATE * self.rate {
            *self = Self::NONE;
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

/// Decides how many workers there should be.
#[derive(Clone, Debug)]
pub struct Controller {
    limits: Limits,
    workers: usize,
    reason: Reason,
    windows: Vec<Window>,
    trial: Option<Trial>,
    /// Of trying more, and of trying fewer.
    more: Pause,
    fewer: Pause,
    /// The limit is what the system started.
    is_refused: bool,
}

impl Controller {
    /// Begins with one worker for each core.
    pub fn new(limits: Limits) -> Self {
        let (more, fewer) = (Pause::NONE, Pause::NONE);
        let (reason, windows) = (Reason::Starting, Vec::new());
        Self { limits, workers: limits.whole_cores(), reason, windows, trial: None, more, fewer, is_refused: false }
    }

    /// How many there may be.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// How many there should be.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Takes one more window into account; how many workers there should be.
    pub fn observe(&mut self, window: Window) -> usize {
        // Workers that were asked for are not there yet, or those that were not have not ended.
        if window.workers != self.workers || window.secs <= 0.0 {
            return self.workers;
        }
        self.windows.push(window);
        if self.windows.len() == WINDOWS {
            let measured = Measured::new(&std::mem::take(&mut self.windows));
            self.judge(measured);
        }
        self.workers
    }

    /// The system started no more than so many: there won't be more again. How many workers there should be.
    pub fn refused(&mut self, started: usize) -> usize {
        (self.limits.most, self.is_refused) = (started.clamp(1, self.limits.most), true);
        if self.workers > self.limits.most {
            self.trial = None;
            self.windows.clear();
            self.settle(self.limits.most, Reason::Refused);
        }
        self.workers
    }

    fn judge(&mut self, now: Measured) {
        match self.trial.take() {
            Some(trial) if self.workers > trial.from => {
                let gain = now.rate / trial.rate.max(1e-9) - 1.0;
                if gain < LEAST_GAIN {
                    let reason = Reason::NoGain { tried: self.workers, gain };
                    self.more.begin(trial.rate);
                    return self.settle(trial.from, reason);
                }
                self.more = Pause::NONE;
                // Where they brought less than they could have, fewer may do as well.
                let enough = (trial.from as f64 * (1.0 + gain) * RESERVE).ceil() as usize;
                if now.waits >= WAITED_FOR && enough < self.workers && !self.fewer.holds(now.rate) {
                    return self.attempt(enough, now, Reason::NoGain { tried: self.workers, gain });
                }
            }
            Some(trial) => {
                // The rate of a pool that keeps up is the jobs', whose steps come in lumps: what counts is whether they wait.
                let is_worse = match trial.reason {
                    Reason::KeepsUp { .. } => now.waits >= WAITED_FOR,
                    _ => now.rate < trial.rate * (1.0 - MOST_LOSS),
                };
                if is_worse {
                    self.fewer.begin(trial.rate);
                    return self.settle(trial.from, trial.reason);
                }
                self.reason = trial.reason;
            }
            None => {}
        }
        self.size_for(now);
    }

    fn size_for(&mut self, now: Measured) {
        if now.waits < WAITED_FOR {
            self.reason = Reason::KeepsUp { waits: now.waits };
            self.more = Pause::NONE;
            let enough = ((now.busy * RESERVE).ceil() as usize).max(1);
            if now.waits < AHEAD && enough < self.workers && !self.fewer.holds(now.rate) {
                self.attempt(enough, now, self.reason);
            }
            return;
        }
        let Limits { cores, most } = self.limits;
        if now.cores >= QUOTA_USED * cores {
            self.reason = Reason::UsesQuota { busy: now.cores, of: cores };
            let least = self.limits.whole_cores();
            if self.workers > least && !self.fewer.holds(now.rate) {
                self.attempt((self.workers + least) / 2, now, self.reason);
            }
        } else if self.workers >= most {
            self.reason = if self.is_refused { Reason::Refused } else { Reason::Most };
        } else if !self.more.holds(now.rate) {
            // As many as would use the quota up, or keep up; no more than twice as many.
            let by_quota = cores / now.cores.max(1e-9);
            let by_wait = RESERVE / (1.0 - now.waits).max(1e-9);
            let wanted = (self.workers as f64 * by_quota.min(by_wait).min(2.0)).ceil() as usize;
            self.attempt(wanted.clamp(self.workers + 1, most), now, self.reason);
        }
    }

    fn attempt(&mut self, workers: usize, now: Measured, reason: Reason) {
        self.trial = Some(Trial { from: self.workers, rate: now.rate, reason });
        self.reason = Reason::Trying { from: self.workers };
        self.workers = workers;
    }

    fn settle(&mut self, workers: usize, reason: Reason) {
        (self.workers, self.reason) = (workers, reason);
    }
}

#[cfg(test)]
mod tests;
