//! A consumer's side: a feed that can be iterated, epoch by epoch.
//!
//! ```text
//! FeedCore ──iterate()──▶ Batches ──first next()──▶ takes the idle consumer, or attaches one
//!     ▲                      │
//!     └── idle consumer ◀────┘ at the epoch's end (cursor kept) or when dropped (cursor given back)
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use feedline_core::consumer::{Config, Consumer, ConsumerStats, EpochLength, Mode};
use feedline_core::schema::{ArrayKind, Schema};
use feedline_core::wire::JoinAt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{check_signals, to_python};
use crate::rebuild::{Format, Rebuilder};

/// A feed that this process has attached to.
#[pyclass(frozen, module = "feedline._core")]
pub struct FeedCore {
    config: Config,
    format: Format,
    allow_pickle: bool,
    yields_torch: bool,
    state: Mutex<State>,
}

struct State {
    idle: Option<Consumer>,
    length: EpochLength,
    stats: ConsumerStats,
    /// What consumers that are gone had counted.
    before: ConsumerStats,
    closed: bool,
}

impl FeedCore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The idle consumer if it can go on, else a new one.
    fn consumer(&self) -> Result<Consumer, feedline_core::Error> {
        let idle = self.lock().idle.take();
        if let Some(mut idle) = idle {
            if idle.is_usable() {
                return Ok(idle);
            }
            // In a forked child it is the parent's: forget it without a word to the server.
            self.retire(&idle.stats());
        }
        let consumer = Consumer::attach(self.config.clone(), &mut check_signals)?;
        self.lock().length = consumer.epoch_length();
        Ok(consumer)
    }

    fn retire(&self, stats: &ConsumerStats) {
        let mut state = self.lock();
        state.before.add(stats);
        state.stats = ConsumerStats {
            epoch: stats.epoch,
            mode: stats.mode,
            server_pid: stats.server_pid,
            ..ConsumerStats::default()
        };
    }

    fn put_back(&self, consumer: Consumer) {
        let mut state = self.lock();
        if state.idle.is_none() && !state.closed {
            state.idle = Some(consumer);
        } else {
            drop(state);
            self.retire(&consumer.stats());
        }
    }
}

#[pymethods]
impl FeedCore {
    /// Attaches: waits for the feed and its first batch.
    #[new]
    #[pyo3(signature = (name, *, batch_size, drop_last, join, timeout_secs, format, mode, allow_pickle))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        name: String,
        batch_size: Option<u64>,
        drop_last: bool,
        join: &str,
        timeout_secs: f64,
        format: Option<&str>,
        mode: &str,
        allow_pickle: bool,
    ) -> PyResult<Self> {
        let entry = match join {
            "auto" => JoinAt::EpochStart,
            "now" => JoinAt::Newest,
            other => return Err(PyValueError::new_err(format!("join={other:?} is not one of \"auto\", \"now\""))),
        };
        let mode = match mode {
            "cow" => Mode::Cow,
            "copy" => Mode::Copy,
            "readonly" => Mode::ReadOnly,
            other => {
                return Err(PyValueError::new_err(format!(
                    "mode={other:?} is not one of \"cow\", \"readonly\", \"copy\""
                )));
            }
        };
        let timeout = Duration::try_from_secs_f64(timeout_secs)
            .map_err(|_| PyValueError::new_err(format!("timeout_secs={timeout_secs} is not a time to wait")))?;
        let format = Format::parse(format)?;
        let config = Config { name, batch_size, drop_last, entry, timeout, mode };
        let attached = py.detach(|| Consumer::attach(config.clone(), &mut check_signals));
        let consumer = attached.map_err(|error| to_python(py, &error))?;
        let yields_torch = match consumer.schema() {
            Schema::Cut { fields, .. } => fields.iter().any(|field| field.kind == ArrayKind::Torch),
            Schema::Whole { .. } => false,
        };
        let state = State {
            length: consumer.epoch_length(),
            stats: consumer.stats(),
            before: ConsumerStats::default(),
            idle: Some(consumer),
            closed: false,
        };
        Ok(Self { config, format, allow_pickle, yields_torch, state: Mutex::new(state) })
    }

    /// Whether a batch holds torch tensors, as far as the schema tells.
    #[getter]
    fn yields_torch(&self) -> bool {
        self.yields_torch
    }

    /// How many batches an epoch has, or None.
    fn batches_per_epoch(&self) -> Option<u64> {
        self.lock().length.batches()
    }

    /// One epoch. Nothing happens before the first `next()`.
    fn iterate(slf: Py<Self>) -> Batches {
        let core = slf.get();
        let rebuilder = Rebuilder::new(core.format, core.allow_pickle);
        Batches { inner: Mutex::new(Iteration { consumer: None, rebuilder: Some(rebuilder), over: false }), feed: slf }
    }

    /// Lets go of the feed.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.lock();
            state.closed = true;
            let idle = state.idle.take();
            drop(state);
            drop(idle);
        });
    }

    #[getter]
    fn closed(&self) -> bool {
        self.lock().closed
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.lock().stats.epoch
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, before) = {
            let state = self.lock();
            (state.idle.as_ref().map_or_else(|| state.stats.clone(), Consumer::stats), state.before.clone())
        };
        let dict = PyDict::new(py);
        dict.set_item("name", &self.config.name)?;
        dict.set_item("server_pid", stats.server_pid)?;
        dict.set_item("epoch", stats.epoch)?;
        dict.set_item("samples", stats.samples + before.samples)?;
        dict.set_item("batches", stats.batches + before.batches)?;
        dict.set_item("waited_secs", (stats.waited + before.waited).as_secs_f64())?;
        dict.set_item("mode", stats.mode)?;
        dict.set_item("leases", stats.leases)?;
        dict.set_item("kept", stats.kept + before.kept)?;
        dict.set_item("remaps", stats.remaps + before.remaps)?;
        Ok(dict)
    }
}

/// One epoch of a feed.
#[pyclass(frozen, module = "feedline._core")]
pub struct Batches {
    feed: Py<FeedCore>,
    inner: Mutex<Iteration>,
}

struct Iteration {
    consumer: Option<Consumer>,
    rebuilder: Option<Rebuilder>,
    over: bool,
}

impl Batches {
    fn lock(&self) -> MutexGuard<'_, Iteration> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let feed = self.feed.get();
        // Without the GIL from the first lock on: whoever waits for one of the two locks must not hold the other.
        let taken = py.detach(|| {
            let mut inner = self.lock();
            if inner.over {
                return Ok(None);
            }
            // A forked child leaves its parent's place alone and takes one of its own.
            let inherited = inner.consumer.take_if(|consumer| !consumer.is_here());
            std::mem::forget(inherited);
            if inner.consumer.is_none() {
                if feed.lock().closed {
                    return Err(feedline_core::Error::Invalid(format!("feed {:?} is closed", feed.config.name)));
                }
                inner.consumer = Some(feed.consumer()?);
            }
            let consumer = inner.consumer.as_mut().expect("set just above");
            let taken = consumer.next(&mut check_signals);
            feed.lock().stats = consumer.stats();
            match &taken {
                Ok(Some(_)) => {}
                Ok(None) => {
                    inner.over = true;
                    inner.consumer.take().into_iter().for_each(|consumer| feed.put_back(consumer));
                }
                // Ctrl-C leaves everything as it was.
                Err(feedline_core::Error::Interrupted) => {}
                Err(_) => {
                    inner.over = true;
                    inner.consumer.take().into_iter().for_each(|consumer| feed.retire(&consumer.stats()));
                }
            }
            let rebuilder = inner.rebuilder.take();
            Ok(taken?.map(|batch| (batch, rebuilder)))
        });
        let Some((batch, rebuilder)) = taken.map_err(|error| to_python(py, &error))? else { return Ok(None) };
        let mut rebuilder = rebuilder.unwrap_or_else(|| Rebuilder::new(feed.format, feed.allow_pickle));
        let rebuilt = rebuilder.batch(py, batch);
        // Nobody waits while holding this lock and the GIL: the wait above is without the GIL.
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.rebuilder = Some(rebuilder);
        }
        rebuilt.map(Some)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut consumer) = inner.consumer.take()
            && consumer.is_here()
        {
            consumer.leave();
            self.feed.get().put_back(consumer);
        }
    }
}
