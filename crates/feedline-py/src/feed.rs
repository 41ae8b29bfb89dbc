//! A consumer's side: a feed that can be iterated, epoch by epoch.
//!
//! ```text
//! FeedCore ──iterate()──▶ Batches ──first next()──▶ takes the idle consumer, or attaches one
//!     ▲                      │
//!     └── idle consumer ◀────┘ at the epoch's end (cursor kept) or when dropped (cursor given back)
//! ```
//!
//! Two locks. The thread that iterates holds its iteration's lock, also while it waits and checks Python's signals: other threads
//! try it,
//! or wait for it without the GIL. The feed's own is a [`LeafLock`]: any thread may take it with the GIL in hand.

mod batches;
mod whole;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use feedline_core::consumer::{
    Config, Consumer, ConsumerStats, EpochLength, Mode, Shard, WhenMissing, what_another_order_means,
};
use feedline_core::schema::{ArrayKind, Schema};
use feedline_core::source::Mark;
use feedline_core::{Allow, Error};
use feedline_protocol::message::Entry;
use feedline_shm::fork::Origin;
use feedline_shm::{LeaseTable, Mutex};
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub use self::batches::Batches;
use self::batches::{Iteration, let_go};
use self::whole::AsAsked;
use crate::errors::{act, after_wait, check_signals, invalid};
use crate::leaf_lock::LeafLock;
use crate::logging::detached;
use crate::rebuild::{Format, Rebuilder, no_numbers};

/// A feed that this process has attached to.
#[pyclass(frozen, module = "feedline._core")]
pub struct FeedCore {
    config: Config,
    format: Format,
    allow_pickle: bool,
    with_ids: bool,
    yields_torch: bool,
    /// Batches that travel whole are of the size that was asked for.
    whole: Option<AsAsked>,
    /// In a forked child the lock below may be held for ever, by a thread that exists only in the parent.
    origin: Origin,
    state: LeafLock<State>,
    /// Checked before every batch.
    closed: AtomicBool,
}

struct State {
    idle: Option<Consumer>,
    /// Iterations that have a consumer, or had one.
    active: Vec<Weak<Mutex<Iteration>>>,
    length: EpochLength,
    leases: Arc<LeaseTable>,
    stats: ConsumerStats,
    /// The counts of consumers that are gone.
    before: ConsumerStats,
    /// The next sample of the iteration that asked last.
    position: Mark,
    /// Where the next iteration goes on, if a state was loaded.
    resume: Option<Mark>,
    /// What an epoch's order depends on, as the last server said.
    order: Arc<str>,
    /// The order that `resume` refers to, if the state has one and no warning was given yet that the feed's is another.
    saved_order: Option<String>,
    /// How the feed ended, if it did; raised again for a later iteration, unless there is a server again.
    end: Option<Error>,
}

impl FeedCore {
    /// The consumer of an iteration that has had all its batches, and still exists.
    fn finished(&self) -> Option<Consumer> {
        let active: Vec<_> = self.state.with(|state| state.active.iter().filter_map(Weak::upgrade).collect());
        let mut consumer = active.iter().find_map(|iteration| {
            let mut iteration = iteration.try_lock()?;
            let consumer = iteration.consumer.take_if(|consumer| consumer.has_read_all())?;
            iteration.over = true;
            Some(consumer)
        })?;
        consumer.stop();
        Some(consumer)
    }

    /// The idle consumer if it can go on, else a new one.
    fn consumer(&self) -> Result<Consumer, Error> {
        let (idle, mut end) = self.state.with(|state| (state.idle.take(), state.end.clone()));
        if let Some(mut idle) = idle.or_else(|| self.finished()) {
            match idle.check() {
                Ok(()) => return Ok(idle),
                Err(Error::ServerLost(_)) if !self.config.reconnect.is_zero() => return Ok(idle),
                Err(error) => {
                    self.state.with(|state| state.end = Some(error.clone()));
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
                self.state.with(|state| {
                    (state.length, state.order) = (consumer.epoch_length(), consumer.order());
                    let leases = std::mem::replace(&mut state.leases, consumer.leases());
                    state.before.kept += leases.kept();
                    state.end = None;
                });
                Ok(consumer)
            }
            (Err(Error::NotFound { .. } | Error::Stalled(_)), Some(end)) => Err(end),
            (Err(error), _) => Err(error),
        }
    }

    /// What ends a wait: Ctrl-C, and `close()` on another thread.
    fn check(&self) -> Result<(), Error> {
        check_signals()?;
        if self.is_closed() { Err(self.closed_error()) } else { Ok(()) }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn closed_error(&self) -> Error {
        Error::Invalid(format!("feed {:?} is closed", self.config.name).into())
    }

    /// Notes a consumer's numbers, for threads that ask while it is busy.
    fn note(&self, consumer: &Consumer) {
        let (stats, length, position) = (consumer.stats(), consumer.epoch_length(), consumer.position());
        let (leases, order) = (consumer.leases(), consumer.order());
        self.state.with(|state| {
            (state.stats, state.length, state.position) = (stats, length, position);
            // A server that came back has another table.
            if !Arc::ptr_eq(&state.leases, &leases) {
                let old = std::mem::replace(&mut state.leases, leases);
                state.before.kept += old.kept();
                state.order = order;
            }
        });
    }

    /// Warns, once, if the place to go on at refers to another order than the feed's: then nobody can tell which samples are
    /// left.
    fn check_order(&self) {
        let found = self.state.with(|state| {
            let is_other = state.saved_order.as_deref().is_some_and(|saved| saved != &*state.order);
            let saved = state.saved_order.take_if(|_| is_other)?;
            Some((saved, Arc::clone(&state.order), state.resume?.epoch))
        });
        if let Some((saved, own, epoch)) = found {
            tracing::warn!(
                "feed {:?}: the state was saved in another order ({saved:?}) than the feed's ({own:?}): {}",
                self.config.name,
                what_another_order_means(epoch),
            );
        }
    }

    fn retire(&self, stats: &ConsumerStats) {
        self.state.with(|state| {
            // Leases that are kept are counted by the table, which `stats` still reads.
            state.before.add(&ConsumerStats { kept: 0, ..stats.clone() });
            state.stats = ConsumerStats {
                epoch: stats.epoch,
                mode: stats.mode,
                server_pid: stats.server_pid,
                ..ConsumerStats::default()
            };
        });
    }

    fn put_back(&self, consumer: Consumer) {
        let refused = self.state.with(|state| {
            // A thread that closes the feed marks it as closed first, and then takes what is idle.
            if state.idle.is_some() || self.is_closed() {
                return Some(consumer);
            }
            state.stats = consumer.stats();
            state.idle = Some(consumer);
            None
        });
        if let Some(consumer) = refused {
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
        with_ids, takes_whole, when_missing,
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
        with_ids: bool,
        takes_whole: bool,
        when_missing: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let entry = match join {
            "auto" | "next" => Entry::EpochStart,
            "now" => Entry::Newest,
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
        let mut config = Config {
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
        let attached = detached(py, || match takes_whole {
            true => whole::attach(&mut config, &mut check_signals),
            false => Ok((Consumer::attach(config.clone(), &mut check_signals)?, None)),
        });
        let (consumer, whole) = attached.map_err(|error| after_wait(py, &error))?;
        let yields_torch = match consumer.schema() {
            Schema::Cut { structure, .. } if with_ids && !structure.is_numbered() => return Err(no_numbers(py)),
            Schema::Cut { structure, fields } => {
                let own = fields.len() - usize::from(structure.is_numbered());
                fields[..own].iter().any(|field| field.kind == ArrayKind::Torch)
            }
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
            order: consumer.order(),
            saved_order: None,
            end: None,
            idle: Some(consumer),
        };
        let (state, closed) = (LeafLock::new(state), AtomicBool::new(false));
        Ok(Self { config, format, allow_pickle, with_ids, yields_torch, whole, origin: Origin::here(), state, closed })
    }

    /// Whether this is a forked child's copy, which can't be used: attach anew.
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
        let length = self.state.with(|state| state.length.clone());
        self.whole.map_or(length.batches(), |whole| whole.batches(length.batches(), length.samples()))
    }

    /// Whether a batch size was asked for, and batches travel whole.
    #[getter]
    fn is_whole_as_asked(&self) -> bool {
        self.whole.is_some()
    }

    /// How many samples an epoch has, for all ranks together, or None.
    fn samples_per_epoch(&self) -> Option<u64> {
        self.state.with(|state| state.length.samples())
    }

    /// How many samples a batch has, or None where the loader's own batches are handed on and may differ.
    #[getter]
    fn batch_size(&self) -> Option<u64> {
        self.state.with(|state| state.length.batch_size())
    }

    /// One epoch. Nothing happens before the first `next()`. A copy of it is a new epoch of `attachment`, which can be pickled.
    fn iterate(slf: Py<Self>, attachment: Py<PyAny>) -> Batches {
        let core = slf.get();
        let rebuilder = Rebuilder::new(core.format, core.allow_pickle, core.with_ids);
        let inner = Arc::new(Mutex::new(Iteration {
            consumer: None,
            pending: None,
            rebuilder: Some(rebuilder),
            samples: 0,
            over: false,
        }));
        core.state.with(|state| {
            state.active.retain(|active| active.strong_count() > 0);
            state.active.push(Arc::downgrade(&inner));
        });
        Batches { inner, feed: slf, attachment }
    }

    /// Closes the feed, whichever thread iterates it.
    fn close(&self, py: Python<'_>) {
        detached(py, || {
            self.closed.store(true, Ordering::SeqCst);
            let (idle, active) = self.state.with(|state| (state.idle.take(), std::mem::take(&mut state.active)));
            drop(idle);
            // An iteration that is busy lets go itself, when it has its batch or checks for signals while it waits.
            active.iter().filter_map(Weak::upgrade).for_each(|iteration| let_go(&iteration));
        });
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed()
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.state.with(|state| state.stats.epoch)
    }

    /// The epoch and the number in it of the next sample.
    fn position(&self) -> (u64, u64) {
        let Mark { epoch, index } = self.state.with(|state| state.resume.unwrap_or(state.position));
        (epoch, index)
    }

    /// What an epoch's order depends on, besides the epoch's number.
    #[getter]
    fn order(&self) -> String {
        self.state.with(|state| state.order.to_string())
    }

    /// Makes the next iteration go on there: a place in an epoch that has this order, if one was given.
    fn resume_at(&self, py: Python<'_>, epoch: u64, index: u64, order: Option<String>) {
        detached(py, || {
            self.state.with(|state| {
                state.resume = Some(Mark { epoch, index });
                // An epoch's beginning and its end are the same places in any order.
                let is_inside = index > 0 && state.length.samples().is_none_or(|samples| index < samples);
                state.saved_order = order.filter(|_| is_inside && !state.order.is_empty());
            });
            self.check_order();
        });
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, before, leases, length) = self
            .state
            .with(|state| (state.stats.clone(), state.before.clone(), Arc::clone(&state.leases), state.length.clone()));
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
        if let Some(idle) = self.state.get_mut().idle.take() {
            without_gil(move || drop(idle));
        }
    }
}

/// Runs what needs the GIL with it, and the rest without.
fn without_gil(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let ran = Python::try_attach(|py| detached(py, || work.take().map(|work| work())));
    if ran.is_none()
        && let Some(work) = work
    {
        work();
    }
}
