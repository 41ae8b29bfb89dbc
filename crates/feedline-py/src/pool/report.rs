//! What a pool tells those who watch its feed. Its server reads it without Python, and without waiting for the pool.

use feedline_core::stats::{self, PoolReason, PoolStats};
use feedline_data::pool::spent::Reading;
use feedline_shm::Mutex;
use pyo3::prelude::*;

use super::owner::PoolOwner;
use super::size::PoolSize;

/// A loader keeps it from pool to pool: what is counted in all goes on.
#[pyclass(frozen, module = "feedline._core")]
#[derive(Default)]
pub struct PoolReport {
    shared: stats::PoolReport,
    /// What earlier pools left.
    before: Mutex<PoolStats>,
}

/// A number that was given, or what finds one.
#[derive(FromPyObject)]
enum Size<'py> {
    Found(Bound<'py, PoolSize>),
    Given(usize),
}

#[pymethods]
impl PoolReport {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Another pool begins.
    fn begin(&self) {
        *self.before.lock() = self.shared.stats();
    }

    /// Leaves a pool's numbers: those of its owner, how many workers it should have, besides those that stand in for others, how
    /// many of its workers died and were late, and the process that it forks them from.
    #[pyo3(signature = (owner, size, *, stand_ins, died, late, forker))]
    fn look(&self, owner: &PoolOwner, size: Size<'_>, stand_ins: u64, died: u64, late: u64, forker: u32) {
        let Reading { spent, workers, .. } = owner.reading();
        let ahead_samples = owner.samples_in_flight();
        let (wanted, most, why) = match size {
            Size::Found(size) => size.get().decided(),
            Size::Given(workers) => (workers, workers, PoolReason::Fixed),
        };
        let (before, secs) = (*self.before.lock(), |nanos: u64| nanos as f64 / 1e9);
        self.shared.change(|stats| {
            *stats = PoolStats {
                workers: workers as u64,
                wanted: wanted as u64,
                stand_ins,
                most: most as u64,
                why,
                died: before.died + died,
                late: before.late + late,
                ahead_samples,
                samples: before.samples + spent.samples,
                busy_secs: before.busy_secs + secs(spent.busy_nanos),
                cpu_secs: before.cpu_secs + secs(spent.cpu_nanos),
                waited_secs: before.waited_secs + secs(spent.waited_nanos),
                forker_pid: forker,
            };
        });
    }

    /// The pool was closed.
    fn close(&self) {
        self.shared
            .change(|stats| (stats.workers, stats.stand_ins, stats.ahead_samples, stats.forker_pid) = (0, 0, 0, 0));
    }
}

impl PoolReport {
    /// How long jobs have waited in all, if a server tells.
    pub(super) fn jobs_waited_nanos(&self) -> Option<u64> {
        self.shared.jobs_waited().map(|waited| waited.as_nanos() as u64)
    }

    /// For the server.
    pub fn shared(&self) -> stats::PoolReport {
        self.shared.clone()
    }
}
