//! A loader's pool, for Python: the owner's end in the training job, a worker's end in each worker.
//!
//! `owner` hands out batches; `worker` does what they are filled by in a process, `thread` in a thread, `in_process` without workers; `maker` calls the dataset; `sample` copies a sample into its slots; `generators` seeds the draws of each
//! sample; `filling` has batches filled where jobs read them, in a server's ring; `packed_samples` is the index of a folder dataset; `size` says how many workers there should be, `report` tells those who watch. What a pool decides is in `feedline_data::pool`.

mod filling;
mod generators;
mod in_process;
mod maker;
mod owner;
mod packed_samples;
mod report;
mod sample;
mod size;
mod thread;
mod worker;

use pyo3::prelude::*;

pub use self::filling::{Filling, PoolRings, Wants};
pub use self::in_process::Draws;
pub use self::owner::{PoolOwner, WholeBatch};
pub use self::packed_samples::PackedSamples;
pub use self::report::PoolReport;
pub use self::size::PoolSize;
pub use self::thread::{PoolThread, SharedGenerators};
pub use self::worker::PoolWorker;

/// Calls a function whose forks never look at a batch of this process: nothing is copied for them.
#[pyfunction]
pub fn without_batches<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    feedline_shm::fork::without_batches(|| function.call0())
}
