//! `feedline._core`: the extension module behind the Python package.
//!
//! No decisions are made here: each call unwraps its arguments, releases the GIL, calls `feedline-core`, and converts what
//! comes back. `flatten` goes from Python to a batch, `rebuild` back; `tensor` is the one file that speaks DLPack and the
//! buffer protocol, `hang` the one that calls a loader.

mod cli;
mod errors;
mod explain;
mod feed;
mod flatten;
mod hang;
mod leaf_lock;
mod logging;
mod once;
mod options;
mod plan;
mod pool;
mod rebuild;
mod server;
mod stack_request;
mod subclass;
mod tensor;

use pyo3::prelude::*;

/// The private core of feedline.
#[pymodule(gil_used = true)]
mod _core {
    use super::{Bound, PyModule, PyResult};
    use pyo3::types::PyModuleMethods;

    #[pymodule_export]
    use super::cli::cli;
    #[pymodule_export]
    use super::explain::worded;
    #[pymodule_export]
    use super::feed::{Batches, FeedCore};
    #[pymodule_export]
    use super::options::{ServerOptions, server_options};
    #[pymodule_export]
    use super::plan::{Plan, count_steps, draw, next_step};
    #[pymodule_export]
    use super::pool::{
        Draws, Filling, PackedSamples, PoolOwner, PoolReport, PoolRings, PoolSize, PoolThread, PoolWorker,
        SharedGenerators, WholeBatch, without_batches,
    };
    #[pymodule_export]
    use super::server::{ServerCore, begin_run, check_name, end_run, feeds, folder, folder_path, pool_of_feed};
    #[pymodule_export]
    use super::tensor::Exported;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        feedline_shm::fork::install();
        super::once::warm_up(module.py());
        super::logging::install();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
