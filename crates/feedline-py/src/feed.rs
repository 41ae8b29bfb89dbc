//! A consumer's side: a feed that can be iterated, epoch by epoch.
//!
//! ```text
//! FeedCore ──iterate()──▶ Batches ──first next()──▶ takes the idle consumer, or attaches one
//!     ▲                      │
//!     └── idle consumer ◀────┘ at the epoch's end (cursor kept) or when dropped (cursor given back)
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use feedline_core::batch::Received;
use feedline_core::consumer::{Config, Consumer, ConsumerStats, EpochLength, Mode, Shard, WhenMissing};
use feedline_core::schema::{ArrayKind, Schema};
use feedline_core::source::Mark;
use feedline_core::wire::JoinAt;
use feedline_core::{Allow, Error};
use feedline_ring::fork::Origin;
use feedline_ring::{LeaseTable, fault};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{act, after_wait, check_signals, invalid, to_python};
use crate::rebuild::{Format, Rebuilder};

/// A feed that this process has attached to.
#[pyclass(frozen, module = "feedline._core")]
pub struct FeedCore {
    config: Config,
    format: Format,
    allow_pickle: bool,
    yields_torch: bool,
    /// In a forked child the lock below may be held for ever, by a thread that exists only in the parent.
    origin: Origin,
    state: Mutex<State>,
}

struct State {
    idle: Option<Consumer>,
    /// Iterations that have a consumer, or had one.
    active: Vec<Weak<Mutex<Iteration>>>,
    length: EpochLength,
    leases: Arc<LeaseTable>,
    stats: ConsumerStats,
    /// What consumers that are gone had counted.
    before: ConsumerStats,
    /// The next sample of whoever asked last.
    position: Mark,
    /// Where the next iteration goes on, if it was told.
    resume: Option<Mark>,
    /// How the feed ended, if it did; said again to whoever iterates again, unless there is a server again.
    end: Option<Error>,
    closed: bool,
}

impl State {
    /// The consumer of an iteration that has had all its batches, and is still held by somebody.
    fn finished(&mut self) -> Option<Consumer> {
        self.active.iter().filter_map(Weak::upgrade).find_map(|iteration| {
            let mut iteration = iteration.try_lock().ok()?;
            let mut consumer = iteration.consumer.take_if(|consumer| consumer.has_read_all())?;
            iteration.over = true;
            consumer.stop();
            Some(consumer)
        })
    }
}

impl FeedCore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The idle consumer if it can go on, else a new one.
    fn consumer(&self) -> Result<Consumer, Error> {
        let (idle, mut end) = {
            let mut state = self.lock();
            (state.idle.take().or_else(|| state.finished()), state.end.clone())
        };
        if let Some(mut idle) = idle {
            match idle.check() {
                Ok(()) => return Ok(idle),
                Err(Error::ServerLost(_)) if !self.config.reconnect.is_zero() => return Ok(idle),
                Err(error) => {
                    self.lock().end = Some(error.clone());
                    end = Some(error);
                }
            }
            self.retire(&idle.stats());
        }
        let mut config = self.config.clone();
        if end.is_some() {
            config.timeout = Duration::ZERO;
        }
        match (Consumer::attach(config, &mut || self.check()), end) {
            (Ok(consumer), _) => {
                let mut state = self.lock();
                state.length = consumer.epoch_length();
                let leases = std::mem::replace(&mut state.leases, consumer.leases());
                state.before.kept += leases.kept();
                state.end = None;
                Ok(consumer)
            }
            (Err(Error::NotFound { .. } | Error::Stalled(_)), Some(end)) => Err(end),
            (Err(error), _) => Err(error),
        }
    }

    /// What ends a wait: Ctrl-C, and `close()` on another thread.
    fn check(&self) -> Result<(), Error> {
        check_signals()?;
        if self.lock().closed { Err(self.closed_error()) } else { Ok(()) }
    }

    fn closed_error(&self) -> Error {
        Error::Invalid(format!("feed {:?} is closed", self.config.name))
    }

    fn retire(&self, stats: &ConsumerStats) {
        let mut state = self.lock();
        // What was kept is counted by the table, which `stats` still asks.
        state.before.add(&ConsumerStats { kept: 0, ..stats.clone() });
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
            state.stats = consumer.stats();
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
    #[pyo3(signature = (
        name, *, batch_size, drop_last, join, timeout_secs, format, mode, reconnect_secs, allow_pickle, allow, shard,
        when_missing,
    ))]
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
        reconnect_secs: f64,
        allow_pickle: bool,
        allow: (Vec<u32>, Vec<u32>),
        shard: Option<(u32, u32, u64)>,
        when_missing: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let entry = match join {
            "auto" | "next" => JoinAt::EpochStart,
            "now" => JoinAt::Newest,
            other => return Err(invalid(py, format!("join={other:?} is not one of \"auto\", \"now\", \"next\""))),
        };
        let mode = match mode {
            "cow" => Mode::Cow,
            "copy" => Mode::Copy,
            "readonly" => Mode::ReadOnly,
            other => {
                return Err(invalid(py, format!("mode={other:?} is not one of \"cow\", \"readonly\", \"copy\"")));
            }
        };
        let secs = |what: &str, secs: f64| {
            Duration::try_from_secs_f64(secs).map_err(|_| invalid(py, format!("{what}={secs} is not a time to wait")))
        };
        let timeout = secs("timeout_secs", timeout_secs)?;
        let reconnect = secs("reconnect_secs", reconnect_secs)?;
        let format = Format::parse(format).map_err(|message| invalid(py, message))?;
        let allow = Allow { uids: allow.0, gids: allow.1 };
        let config = Config {
            batch_size,
            shard: shard.map(|(rank, world, group)| Shard { group, world, rank }),
            drop_last,
            entry,
            moves_on: join == "next",
            timeout,
            answer_timeout: timeout,
            mode,
            reconnect,
            allow,
            when_missing: when_missing.map(|call| WhenMissing(Arc::new(move || act(|py| call.call0(py))))),
            ..Config::new(name)
        };
        let attached = py.detach(|| Consumer::attach(config.clone(), &mut check_signals));
        let consumer = attached.map_err(|error| after_wait(py, &error))?;
        let yields_torch = match consumer.schema() {
            Schema::Cut { fields, .. } => fields.iter().any(|field| field.kind == ArrayKind::Torch),
            Schema::Whole { .. } => false,
        };
        let state = State {
            active: Vec::new(),
            length: consumer.epoch_length(),
            leases: consumer.leases(),
            stats: consumer.stats(),
            before: ConsumerStats::default(),
            position: consumer.position(),
            resume: None,
            end: None,
            idle: Some(consumer),
            closed: false,
        };
        Ok(Self { config, format, allow_pickle, yields_torch, origin: Origin::here(), state: Mutex::new(state) })
    }

    /// Whether this is a forked child's copy, which is good for nothing: attach anew.
    #[getter]
    fn is_inherited(&self) -> bool {
        !self.origin.is_here()
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
        let inner =
            Arc::new(Mutex::new(Iteration { consumer: None, pending: None, rebuilder: Some(rebuilder), over: false }));
        let mut state = core.lock();
        state.active.retain(|active| active.strong_count() > 0);
        state.active.push(Arc::downgrade(&inner));
        drop(state);
        Batches { inner, feed: slf }
    }

    /// Lets go of the feed, whoever iterates it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let (idle, active) = {
                let mut state = self.lock();
                state.closed = true;
                (state.idle.take(), std::mem::take(&mut state.active))
            };
            drop(idle);
            for iteration in active.iter().filter_map(Weak::upgrade) {
                // One that is locked waits for a batch, and sees that we are closed before it sleeps again.
                if let Ok(mut iteration) = iteration.try_lock() {
                    iteration.consumer = None;
                }
            }
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

    /// The epoch and the number in it of the next sample.
    fn position(&self) -> (u64, u64) {
        let state = self.lock();
        let Mark { epoch, index } = state.resume.unwrap_or(state.position);
        (epoch, index)
    }

    /// Has the next iteration go on there.
    fn resume_at(&self, epoch: u64, index: u64) {
        self.lock().resume = Some(Mark { epoch, index });
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, before, leases, length) = {
            let state = self.lock();
            (state.stats.clone(), state.before.clone(), Arc::clone(&state.leases), state.length.clone())
        };
        let dict = PyDict::new(py);
        dict.set_item("name", &self.config.name)?;
        dict.set_item("server_pid", stats.server_pid)?;
        dict.set_item("epoch", stats.epoch)?;
        dict.set_item("samples", stats.samples + before.samples)?;
        dict.set_item("batches", stats.batches + before.batches)?;
        dict.set_item("skipped", stats.skipped + before.skipped)?;
        dict.set_item("left_out", stats.left_out + before.left_out)?;
        dict.set_item("waited_secs", (stats.waited + before.waited).as_secs_f64())?;
        dict.set_item("mode", stats.mode)?;
        dict.set_item("leases", leases.live())?;
        dict.set_item("kept", leases.kept() + before.kept)?;
        dict.set_item("remaps", stats.remaps + before.remaps)?;
        dict.set_item("loader_batches", length.source_batches())?;
        dict.set_item("loader_batch_size", length.source_batch())?;
        Ok(dict)
    }
}

impl Drop for FeedCore {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(idle) = state.idle.take() {
            without_gil(move || drop(idle));
        }
    }
}

/// Runs what Python asks for with the GIL in hand and what doesn't need it.
fn without_gil(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let ran = Python::try_attach(|py| py.detach(|| work.take().map(|work| work())));
    if ran.is_none()
        && let Some(work) = work
    {
        work();
    }
}

/// One epoch of a feed.
#[pyclass(frozen, module = "feedline._core")]
pub struct Batches {
    feed: Py<FeedCore>,
    inner: Arc<Mutex<Iteration>>,
}

struct Iteration {
    consumer: Option<Consumer>,
    /// A batch that was taken and could not be rebuilt: Ctrl-C came in between.
    pending: Option<Received>,
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
        if feed.is_inherited() {
            let error = Error::Invalid(
                "this iterator belongs to the parent process; iterate the feed anew in the child".into(),
            );
            return Err(to_python(py, &error));
        }
        // Without the GIL from the first lock on: whoever waits for one of the two locks must not hold the other.
        let mut before = None;
        let taken = py.detach(|| {
            let mut inner = self.lock();
            if let Some(pending) = inner.pending.take() {
                if let Some(consumer) = &inner.consumer {
                    let mut state = feed.lock();
                    before = Some(std::mem::replace(&mut state.position, consumer.position()));
                }
                return Ok(Some((pending, inner.rebuilder.take())));
            }
            if inner.over {
                return Ok(None);
            }
            if inner.consumer.is_none() {
                if feed.lock().closed {
                    return Err(feed.closed_error());
                }
                let mut consumer = feed.consumer()?;
                if let Some(mark) = feed.lock().resume.take() {
                    consumer.resume_at(mark);
                }
                inner.consumer = Some(consumer);
            }
            let consumer = inner.consumer.as_mut().expect("set just above");
            before = Some(consumer.position());
            let taken = consumer.next(&mut || feed.check());
            {
                let mut state = feed.lock();
                state.stats = consumer.stats();
                state.length = consumer.epoch_length();
                state.position = consumer.position();
                // A server that came back brought another table.
                if !Arc::ptr_eq(&state.leases, &consumer.leases()) {
                    let old = std::mem::replace(&mut state.leases, consumer.leases());
                    state.before.kept += old.kept();
                }
            }
            match &taken {
                Ok(Some(_)) => {}
                Ok(None) => {
                    inner.over = true;
                    inner.consumer.take().into_iter().for_each(|consumer| feed.put_back(consumer));
                }
                // Ctrl-C leaves everything as it was.
                Err(Error::Interrupted) => {}
                Err(error) => {
                    inner.over = true;
                    let consumer = inner.consumer.take().expect("it was just asked");
                    match error {
                        // It stands at the end, and says so again to whoever iterates again.
                        Error::Ended { .. } | Error::Failed(_) => feed.put_back(consumer),
                        Error::ServerLost(_) => {
                            feed.retire(&consumer.stats());
                            feed.lock().end = Some(error.clone());
                        }
                        _ => feed.retire(&consumer.stats()),
                    }
                }
            }
            let rebuilder = inner.rebuilder.take();
            Ok(taken?.map(|batch| (batch, rebuilder)))
        });
        let Some((batch, rebuilder)) = taken.map_err(|error| after_wait(py, &error))? else { return Ok(None) };
        let mut rebuilder = rebuilder.unwrap_or_else(|| Rebuilder::new(feed.format, feed.allow_pickle));
        let rebuilt = rebuilder.batch(py, &batch);
        fault::point("consumer:handed_out");
        // Nobody waits while holding this lock and the GIL: the wait above is without the GIL.
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.rebuilder = Some(rebuilder);
            if matches!(&rebuilt, Err(error) if !error.is_instance_of::<PyException>(py)) {
                inner.pending = Some(batch);
                // Nobody has had it yet.
                if let Some(before) = before {
                    feed.lock().position = before;
                }
            }
        }
        rebuilt.map(Some)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // A child's copy of the parent's place: not ours to give back, and perhaps locked.
        if self.feed.get().is_inherited() {
            return;
        }
        let Some(mut consumer) = self.lock().consumer.take() else { return };
        let feed = self.feed.get();
        // Batches that are still alive are made private: not while everybody waits for the GIL.
        without_gil(move || {
            consumer.stop();
            feed.put_back(consumer);
        });
    }
}
