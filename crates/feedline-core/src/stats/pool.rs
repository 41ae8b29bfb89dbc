//! A source's pool of workers, as its server reports it: numbers and reasons as data, and how the reasons read.
//!
//! The pool writes a [`PoolReport`] when it looks at its workers, some ten times a second; whoever wants the feed's numbers reads
//! it. Neither waits for the other: nobody holds it for longer than it takes to copy a [`PoolStats`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use feedline_shm::Mutex;
use serde::{Deserialize, Serialize};

/// How things stand with a pool of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStats {
    /// Workers that run now.
    pub workers: u64,
    /// How many there should be: the number that was given, or that the pool found (`num_workers="auto"`).
    pub wanted: u64,
    /// How many more there are because some are held up by slow samples (`in_order=False`).
    pub stand_ins: u64,
    /// As many as there may ever be, without those that stand in for others.
    pub most: u64,
    /// Why there should be so many: "fixed", or what the pool has measured.
    pub why: PoolReason,
    /// Workers that ended by themselves, and were replaced, in all.
    pub died: u64,
    /// Workers that took longer than `timeout` for a sample and were replaced, in all.
    pub late: u64,
    /// Samples that workers make, or have made ahead of what was copied into the ring.
    pub ahead_samples: u64,
    /// Samples made, in all.
    pub samples: u64,
    /// How long workers were at samples, all together.
    pub busy_secs: f64,
    /// CPU time that they spent on them.
    pub cpu_secs: f64,
    /// How long the server waited for a batch of the pool.
    pub waited_secs: f64,
    /// The process that the workers are forked from; 0 if it is in another pid namespace.
    pub forker_pid: u32,
}

/// Why a pool has the size that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolReason {
    /// The number was given.
    #[default]
    Fixed,
    /// Nothing was measured yet.
    Starting,
    /// More are tried, or fewer.
    Trying {
        /// How many there were.
        from: usize,
    },
    /// Nobody waits: for this share of the time, at least.
    KeepsUp {
        /// The share of the time in which a job waits.
        waits: f64,
    },
    /// The workers keep so many cores busy, and there are no more.
    UsesQuota {
        /// Cores that are kept busy.
        busy: f64,
        /// Cores that there are.
        of: f64,
    },
    /// More were tried.
    NoGain {
        /// How many.
        tried: usize,
        /// What they brought, as a share of the rate.
        gain: f64,
    },
    /// There may be no more.
    Most,
    /// The system did not start any more.
    Refused,
}

impl PoolReason {
    /// In one word: how it is called where there is no place for its numbers.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Starting => "starting",
            Self::Trying { .. } => "trying",
            Self::KeepsUp { .. } => "keeps_up",
            Self::UsesQuota { .. } => "uses_quota",
            Self::NoGain { .. } => "no_gain",
            Self::Most => "most",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for PoolReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 100.0).round() as i64;
        match *self {
            Self::Fixed => write!(f, "the number was given"),
            Self::Starting => write!(f, "nothing is measured yet"),
            Self::Trying { from } => write!(f, "tried after {from}"),
            Self::KeepsUp { waits } => write!(f, "they keep up: they are waited for {} % of the time", percent(waits)),
            Self::UsesQuota { busy, of } => write!(f, "they keep {busy:.1} of {of:.1} cores busy"),
            Self::NoGain { tried, gain } => write!(f, "{tried} brought {:+} %", percent(gain)),
            Self::Most => write!(f, "no more are allowed"),
            Self::Refused => write!(f, "the system starts no more processes"),
        }
    }
}

/// Where a pool leaves its numbers, for whoever asks, and learns how long it is waited for.
#[derive(Clone, Default)]
pub struct PoolReport(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stats: Mutex<PoolStats>,
    jobs: Mutex<Option<Jobs>>,
}

/// For how long one job or more have waited in all; `None` once that is not known any more.
type Jobs = Box<dyn FnMut() -> Option<Duration> + Send>;

impl fmt::Debug for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolReport").field(&self.stats()).finish()
    }
}

impl PoolReport {
    /// The numbers that it left last.
    pub fn stats(&self) -> PoolStats {
        *self.0.stats.lock()
    }

    /// For how long one job or more have waited for data in all, if a server tells. For one thread at a time.
    pub fn jobs_waited(&self) -> Option<Duration> {
        self.0.jobs.try_lock()?.as_mut()?()
    }

    pub(crate) fn set_jobs(&self, jobs: Jobs) {
        *self.0.jobs.lock() = Some(jobs);
    }

    /// Leaves other numbers; the next look does, if somebody reads them right now. It never waits: in a forked child the lock may
    /// be held by a thread that the child does not have.
    pub fn change(&self, change: impl FnOnce(&mut PoolStats)) {
        if let Some(mut stats) = self.0.stats.try_lock() {
            change(&mut stats);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_called_alike_everywhere() {
        let reasons = [
            PoolReason::Fixed,
            PoolReason::Starting,
            PoolReason::Trying { from: 2 },
            PoolReason::KeepsUp { waits: 0.01 },
            PoolReason::UsesQuota { busy: 1.9, of: 2.0 },
            PoolReason::NoGain { tried: 4, gain: -0.02 },
            PoolReason::Most,
            PoolReason::Refused,
        ];
        for reason in reasons {
            let json = serde_json::to_value(reason).unwrap();
            let kind = json.as_str().or_else(|| json.as_object()?.keys().next().map(String::as_str));
            assert_eq!(kind, Some(reason.kind()));
            let bytes = postcard::to_allocvec(&reason).unwrap();
            assert_eq!(postcard::from_bytes::<PoolReason>(&bytes).unwrap(), reason);
        }
    }

    #[test]
    fn whoever_has_the_report_sees_the_last_numbers() {
        let report = PoolReport::default();
        let seen = report.clone();
        report.change(|stats| (stats.workers, stats.why) = (3, PoolReason::Most));
        assert_eq!((seen.stats().workers, seen.stats().why), (3, PoolReason::Most));
    }
}
