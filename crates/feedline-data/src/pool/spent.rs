//! What a pool's workers spent, and windows of that for whoever decides on their number.

use super::size::Window;

/// What went into samples so far, and how long they were waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Samples that were made.
    pub samples: u64,
    /// Runs of them.
    pub runs: u64,
    /// How long workers were at them, all together.
    pub busy_nanos: u64,
    /// CPU time that they spent.
    pub cpu_nanos: u64,
    /// How long the owner slept because no batch was ready.
    pub waited_nanos: u64,
}

impl Spent {
    /// One more run.
    pub fn note(&mut self, samples: u64, nanos: u64, cpu_nanos: u64) {
        self.samples += samples;
        self.runs += 1;
        self.busy_nanos += nanos;
        self.cpu_nanos += cpu_nanos;
    }
}

/// A window is this long at least.
const LEAST_NANOS: u64 = 300_000_000;
/// And has this many runs of each worker, unless it is longer than the last constant: a run that takes seconds comes to its end.
const LEAST_RUNS: u64 = 2;
const LONG_NANOS: u64 = 20_000_000_000;

/// A pool's state at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// When, on any clock.
    pub nanos: u64,
    /// What was spent until then.
    pub spent: Spent,
    /// CPU time of the owner's own process until then.
    pub own_cpu_nanos: u64,
    /// How long jobs have waited until then, if somebody else reads what the owner takes: the owner also waits while it fills a
    /// ring ahead of them.
    pub jobs_waited_nanos: Option<u64>,
    /// How many workers there are.
    pub workers: usize,
}

/// Cuts time into windows in which the number of workers stays the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    began: Option<Reading>,
}

impl Windows {
    /// What was measured so far is no part of a window: the pool had nothing to do.
    pub fn restart(&mut self) {
        self.began = None;
    }

    /// Looks at the pool; a window, if one is complete.
    pub fn look(&mut self, now: Reading) -> Option<Window> {
        let Some(began) = self.began.filter(|began| began.workers == now.workers) else {
            self.began = Some(now);
            return None;
        };
        let (nanos, runs) = (now.nanos.saturating_sub(began.nanos), now.spent.runs - began.spent.runs);
        let has_runs = runs >= LEAST_RUNS * now.workers as u64;
        if nanos < LEAST_NANOS || (!has_runs && nanos < LONG_NANOS) {
            return None;
        }
        self.began = Some(now);
        let secs = |nanos: u64| nanos as f64 / 1e9;
        let own_cpu = now.own_cpu_nanos.saturating_sub(began.own_cpu_nanos);
        let waited = now.spent.waited_nanos - began.spent.waited_nanos;
        let jobs_waited = now.jobs_waited_nanos.zip(began.jobs_waited_nanos);
        let waited = jobs_waited.map_or(waited, |(now, began)| waited.min(now.saturating_sub(began)));
        Some(Window {
            workers: now.workers,
            secs: secs(nanos),
            samples: now.spent.samples - began.spent.samples,
            waited_secs: secs(waited),
            busy_secs: secs(now.spent.busy_nanos - began.spent.busy_nanos),
            cpu_secs: secs(now.spent.cpu_nanos - began.spent.cpu_nanos + own_cpu),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(millis: u64, runs: u64, workers: usize) -> Reading {
        let spent = Spent { samples: 4 * runs, runs, busy_nanos: runs * 1_000, cpu_nanos: 0, waited_nanos: 0 };
        Reading { nanos: millis * 1_000_000, spent, own_cpu_nanos: 0, jobs_waited_nanos: None, workers }
    }

    #[test]
    fn a_window_is_long_enough_and_has_runs_of_all_workers() {
        let mut windows = Windows::default();
        assert_eq!(windows.look(reading(0, 0, 2)), None);
        assert_eq!(windows.look(reading(200, 9, 2)), None, "too short");
        let window = windows.look(reading(400, 10, 2)).unwrap();
        assert_eq!((window.workers, window.samples, window.secs), (2, 40, 0.4));
        assert_eq!(windows.look(reading(800, 13, 2)), None, "too few runs");
        assert_eq!(windows.look(reading(1_000, 14, 2)).unwrap().samples, 16);
        assert_eq!(windows.look(reading(22_000, 15, 2)).unwrap().samples, 4, "long enough for whatever it is");
    }

    #[test]
    fn a_pool_is_waited_for_if_its_owner_and_a_job_wait() {
        let waited = |owner_secs: u64, jobs_secs: Option<u64>| {
            let mut windows = Windows::default();
            let nanos = |secs: u64| secs * 1_000_000_000;
            let began = Reading { jobs_waited_nanos: jobs_secs.map(|_| nanos(7)), ..reading(0, 0, 2) };
            let mut ended = reading(10_000, 100, 2);
            ended.spent.waited_nanos = nanos(owner_secs);
            ended.jobs_waited_nanos = jobs_secs.map(|secs| nanos(7 + secs));
            assert_eq!(windows.look(began), None);
            windows.look(ended).unwrap().waited_secs
        };
        assert_eq!(waited(9, None), 9.0);
        assert_eq!(waited(9, Some(0)), 0.0, "it fills a ring, and the jobs have enough");
        assert_eq!(waited(9, Some(8)), 8.0);
        assert_eq!(waited(1, Some(8)), 1.0, "the jobs wait for something else");
    }

    #[test]
    fn a_window_has_one_number_of_workers_and_no_pause() {
        let mut windows = Windows::default();
        windows.look(reading(0, 0, 2));
        assert_eq!(windows.look(reading(1_000, 100, 3)), None);
        assert_eq!(windows.look(reading(1_400, 140, 3)).unwrap().samples, 160);
        windows.restart();
        assert_eq!(windows.look(reading(9_000, 200, 3)), None);
        assert_eq!(windows.look(reading(9_500, 210, 3)).unwrap().samples, 40);
    }
}
