//! A worker that is a thread of the owner's process.
//!
//! Its loop is Python's (`feedline._thread_worker`), and calls here for each step that needs the board or the arena. So the dataset
//! never runs above a Rust frame: a thread that is in the middle of a sample when the interpreter ends is ended by Python there,
//! before 3.14 by unwinding it, and unwinding our frames would abort the process (see `hang`).
//!
//! What a batch is made of need not be pickled here. A batch that travels whole, and what a dataset raises, stay Python objects;
//! through the board goes a ticket that `feedline._thread_pool` finds them by.

use std::time::Instant;

use feedline_data::pool::Worker;
use feedline_data::pool::task::{Kind, NO_LANES};
use feedline_data::pool::worker::{Assignment, Next};
use feedline_shm::SourceBytes;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::generators::Generators;
use super::sample::{Layout, Unfit};

/// Shorter copies keep the GIL: to get it back may take longer than the copy.
const LEAST_DETACHED_BYTES: usize = 1 << 16;

/// A thread's end of a pool.
#[pyclass(module = "feedline._core")]
pub struct PoolThread {
    worker: Worker,
    task: Option<Task>,
    /// What all samples look like, and where that is described.
    layout: Option<(u64, Layout)>,
}

struct Task {
    at: Assignment,
    began: Instant,
    /// Where the lanes of its batch begin, once they are known.
    starts: Vec<u64>,
}

impl PoolThread {
    pub fn new(worker: Worker) -> Self {
        Self { worker, task: None, layout: None }
    }

    fn task(&mut self) -> PyResult<(&Worker, &mut Task)> {
        let task = self.task.as_mut().ok_or_else(|| PyRuntimeError::new_err("no task is in hand"))?;
        Ok((&self.worker, task))
    }

    fn done(&mut self) -> PyResult<(&Worker, Task)> {
        let task = self.task.take().ok_or_else(|| PyRuntimeError::new_err("no task is in hand"))?;
        Ok((&self.worker, task))
    }
}

/// Keys: numbers, or a pickled list of the whole batch's.
#[derive(IntoPyObject)]
enum TaskKeys<'py> {
    Numbers(Vec<u64>),
    Pickled(Bound<'py, PyBytes>),
}

#[pymethods]
impl PoolThread {
    /// Waits for a task: whether it travels whole, the keys, the number in the batch of its first sample, how many it has, and
    /// the epoch. `None` once the pool was closed, or this worker is to end.
    fn next<'py>(&mut self, py: Python<'py>) -> Option<(bool, TaskKeys<'py>, u64, u64, u64)> {
        let worker = &self.worker;
        let at = py.detach(|| {
            loop {
                match worker.next() {
                    Next::Closed => return None,
                    Next::Nothing => {}
                    Next::Task(at) => return Some(at),
                }
            }
        })?;
        let task = at.task;
        let keys = if task.has_pickled_keys {
            TaskKeys::Pickled(PyBytes::new(py, &at.keys))
        } else {
            TaskKeys::Numbers(at.keys.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
        };
        self.task = Some(Task { at, began: Instant::now(), starts: Vec::new() });
        Some((task.kind == Kind::Whole, keys, task.first, task.samples, task.epoch))
    }

    /// Whether the pool was closed.
    fn is_closed(&self) -> bool {
        self.worker.is_closed()
    }

    /// Begins the sample with this number in the task.
    fn begin(&self, sample: u64) {
        self.worker.begin(sample);
    }

    /// What lanes the task's batch has. `None`: nobody knows yet. False: none. True: those that this thread knows. Bytes: a description of
    /// them, to `learn` from.
    fn lanes<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.layout.as_ref().map(|(offset, _)| *offset);
        let (worker, task) = self.task()?;
        let described = worker.lanes(&mut task.at);
        match described {
            0 => Ok(py.None().into_bound(py)),
            NO_LANES => Ok(false.into_pyobject(py)?.to_owned().into_any()),
            _ if known == Some(described) => {
                self.find_lanes()?;
                Ok(true.into_pyobject(py)?.to_owned().into_any())
            }
            _ => {
                let len = worker.read(described, 8).try_into().map_or(0, u64::from_le_bytes);
                Ok(PyBytes::new(py, &worker.read(described + 8, len as usize)).into_any())
            }
        }
    }

    /// Learns what `feedline._sample` describes.
    fn learn(&mut self, description: &Bound<'_, PyAny>) -> PyResult<()> {
        let layout = Layout::new(description)?;
        let (_, task) = self.task()?;
        self.layout = Some((task.at.task.lanes, layout));
        self.find_lanes()
    }

    /// Describes the first sample to the owner, and waits until it has said what lanes there are. False if the pool was closed.
    fn ask_for_lanes(&mut self, py: Python<'_>, description: &[u8]) -> PyResult<bool> {
        let (worker, task) = self.task()?;
        Ok(py.detach(|| worker.ask_for_lanes(&mut task.at, description, || true)))
    }

    /// Copies a sample into its slots; it has this number in the task. False if it has no place there.
    fn put(&mut self, py: Python<'_>, number: u64, sample: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (Some(task), Some((_, layout))) = (&self.task, &self.layout) else {
            return Err(PyRuntimeError::new_err("no lanes are known"));
        };
        let (worker, slot, strides) = (&self.worker, task.at.task.first + number, layout.lanes.strides());
        let copied = layout.copy(sample, &mut |lane, bytes: SourceBytes<'_>| {
            let offset = task.starts[lane] + slot * strides[lane];
            if bytes.len() < LEAST_DETACHED_BYTES {
                worker.write(offset, bytes);
            } else {
                // The sample is held by this thread. As with torch's own copies, nobody may shorten its memory meanwhile.
                py.detach(|| worker.write(offset, bytes));
            }
        });
        match copied {
            Ok(()) => Ok(true),
            Err(Unfit::Different) => Ok(false),
            Err(Unfit::Raised(error)) => Err(error),
        }
    }

    /// The task's samples are in their slots.
    fn made(&mut self) -> PyResult<()> {
        let (worker, task) = self.done()?;
        // What CPU time it took is part of what the owner's process has spent, and is counted there.
        worker.made(&task.at, task.began.elapsed().as_nanos() as u64, 0, 0);
        Ok(())
    }

    /// The task's batch is made, and found by this ticket. False if the pool was closed.
    fn hand_over(&mut self, py: Python<'_>, ticket: &[u8]) -> PyResult<bool> {
        let (worker, task) = self.task()?;
        let table = [ticket.len() as u64, 0].map(u64::to_le_bytes).concat();
        let total = (table.len() + ticket.len()) as u64;
        if task.at.task.out_len < total {
            if !py.detach(|| worker.ask_for_memory(&mut task.at, total, || true)) {
                return Ok(false);
            }
            if task.at.task.out_len < total {
                return Err(PyMemoryError::new_err("no memory is left for another batch"));
            }
        }
        let (worker, task) = self.done()?;
        worker.write(task.at.task.out, &table);
        worker.write(task.at.task.out + table.len() as u64, ticket);
        worker.made(&task.at, task.began.elapsed().as_nanos() as u64, 0, total);
        Ok(true)
    }

    /// The dataset raised what is found by this ticket.
    fn raised(&mut self, py: Python<'_>, ticket: &[u8]) -> PyResult<()> {
        let (worker, mut task) = self.done()?;
        py.detach(|| worker.raised(&mut task.at, ticket, || true));
        Ok(())
    }

    /// A sample has no place in the lanes.
    fn unfit(&mut self) -> PyResult<()> {
        let (worker, task) = self.done()?;
        worker.unfit(&task.at);
        Ok(())
    }
}

impl PoolThread {
    fn find_lanes(&mut self) -> PyResult<()> {
        let (Some(task), Some((_, layout))) = (&mut self.task, &self.layout) else {
            return Err(PyRuntimeError::new_err("no lanes are known"));
        };
        task.starts = self.worker.starts(&task.at, &layout.lanes);
        Ok(())
    }
}

/// The generators that all threads of a process have in common. Nobody may draw from them while this is made.
#[pyclass(frozen, module = "feedline._core")]
pub struct SharedGenerators(Generators);

#[pymethods]
impl SharedGenerators {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Generators::new(py).map(Self)
    }

    /// What they look like now: Python's, torch's, and NumPy's.
    fn look<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        Ok(self.0.states(py)?.iter().map(|state| PyBytes::new(py, state)).collect())
    }
}
