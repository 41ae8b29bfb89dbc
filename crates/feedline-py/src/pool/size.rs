//! The size of a pool whose number of workers is "auto", for Python. What it decides is in `feedline_data::pool::size`.

use feedline_core::stats::PoolReason;
use feedline_data::pool::size::{Controller, Limits};
use feedline_data::pool::spent::Windows;
use feedline_shm::Mutex;
use pyo3::prelude::*;

use super::owner::PoolOwner;
use super::report::PoolReport;

/// Decides how many workers a pool should have. A loader keeps it from epoch to epoch.
#[pyclass(frozen, module = "feedline._core")]
pub struct PoolSize(Mutex<State>);

struct State {
    controller: Controller,
    windows: Windows,
}

impl PoolSize {
    /// How many there should be, how many there may be, and why.
    pub(super) fn decided(&self) -> (usize, usize, PoolReason) {
        let controller = &self.0.lock().controller;
        (controller.workers(), controller.limits().most, controller.reason())
    }
}

#[pymethods]
impl PoolSize {
    /// For a quota of so many cores.
    #[new]
    fn new(cores: f64) -> Self {
        let controller = Controller::new(Limits::of_cores(cores));
        Self(State { controller, windows: Windows::default() }.into())
    }

    /// Looks at a pool; how many workers it should have, besides those that stand in for others. Its server, if it has one, tells
    /// by way of the report whether the jobs wait.
    fn look(&self, py: Python<'_>, owner: &PoolOwner, stand_ins: usize, report: &PoolReport) -> usize {
        let mut now = owner.reading();
        now.jobs_waited_nanos = py.detach(|| report.jobs_waited_nanos());
        now.workers = now.workers.saturating_sub(stand_ins);
        let State { controller, windows } = &mut *self.0.lock();
        windows.look(now).map_or(controller.workers(), |window| controller.observe(window))
    }

    /// No more than so many workers could be started; how many the pool should have.
    fn refused(&self, started: usize) -> usize {
        self.0.lock().controller.refused(started)
    }

    /// The pool has nothing to do for a while: that says nothing of its size.
    fn pause(&self) {
        self.0.lock().windows.restart();
    }

    /// How many there should be.
    #[getter]
    fn workers(&self) -> usize {
        self.0.lock().controller.workers()
    }

    /// How many there may be.
    #[getter]
    fn most(&self) -> usize {
        self.0.lock().controller.limits().most
    }

    /// Why there should be so many, in a few words.
    #[getter]
    fn why(&self) -> String {
        self.0.lock().controller.reason().to_string()
    }
}
