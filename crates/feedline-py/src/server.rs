//! A server's side: a Python iterable as the source of a feed.

use std::path::PathBuf;
use std::time::Duration;

use feedline_core::control_client::ControlClient;
use feedline_core::server::{Claim, Launch, Server};
use feedline_core::source::{BatchSource, Item, Length, Mark};
use feedline_core::stats::{self, PoolReason};
use feedline_core::{Error, Failure, FailureKind, Reader, names};
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

use crate::errors::{check_signals, failed, take_interrupt, to_python, traceback};
use crate::explain::explanation;
use crate::flatten::{Flat, Refusal, failure, flatten};
use crate::hang;
use crate::logging::{deliver, detached};
use crate::options::ServerOptions;
use crate::pool::{Filling, PoolReport, Wants};
use crate::stack_request::ask_for_stack;

/// The reason that consumers get after a Ctrl-C.
const INTERRUPTED: &str = "it was interrupted (Ctrl-C)";

/// A name that is held, a socket that listens, and a log to fill.
#[pyclass(frozen, module = "feedline._core")]
pub struct ServerCore {
    server: Server,
}

/// Raises for a name that can't be a feed's.
#[pyfunction]
pub fn check_name(py: Python<'_>, name: &str) -> PyResult<()> {
    names::socket_path(name).map(drop).map_err(|error| to_python(py, &error))
}

/// Name, pid and socket of each feed that runs.
#[pyfunction]
pub fn feeds(py: Python<'_>) -> Vec<(String, u32, String)> {
    let info = |feed: names::FeedInfo| (feed.name, feed.pid, feed.path.display().to_string());
    py.detach(names::feeds).into_iter().map(info).collect()
}

/// How long a server may take to tell of its pool.
const ANSWER: Duration = Duration::from_secs(2);

/// The pool of workers of a feed that runs, by way of JSON; with the reason for its size in words, as `words`. `None`: it has none.
#[pyfunction]
pub fn pool_of_feed<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let stats = detached(py, || ControlClient::connect(name)?.stats(ANSWER));
    let Some(pool) = stats.map_err(|error| to_python(py, &error))?.pool else { return Ok(None) };
    let words = match pool.why {
        PoolReason::Fixed => format!("num_workers={}", pool.wanted),
        why => why.to_string(),
    };
    let text = serde_json::to_string(&pool).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let pool = py.import("json")?.call_method1("loads", (text,))?;
    pool.set_item("words", words)?;
    Ok(Some(pool))
}

/// The folder of this user's feeds, made if need be.
#[pyfunction]
pub fn folder(py: Python<'_>) -> PyResult<PathBuf> {
    names::prepare_folder().map_err(|error| to_python(py, &error))
}

/// The same, as a path: it may not be there, or be another user's.
#[pyfunction]
pub fn folder_path() -> PathBuf {
    names::folder()
}

/// The run of a shared feed that a new server belongs to: the previous one, if a consumer may still come back to it, or a new
/// one. With it, the reason why no consumer will be able to come back to it, if there is one.
#[pyfunction]
pub fn begin_run(py: Python<'_>, name: &str, before: Option<u64>) -> (u64, Option<String>) {
    let (run, error) = py.detach(|| names::runs::begin(&names::folder(), name, before));
    (run, error.map(|error| error.to_string()))
}

/// Removes what is left of a shared feed's runs, unless somebody may come back to one.
#[pyfunction]
pub fn end_run(py: Python<'_>, name: &str) {
    py.detach(|| names::runs::end(&names::folder(), name));
}

#[pymethods]
impl ServerCore {
    /// Takes the name and listens. Ends for want of consumers together with the feed `beside` it.
    #[new]
    #[pyo3(signature = (
        name, options, *, resume, run, order, first_consumer_secs, metrics_interval_secs, for_command_line, beside=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        name: &str,
        options: &ServerOptions,
        resume: Option<(u64, u64)>,
        run: Option<u64>,
        order: String,
        first_consumer_secs: Option<f64>,
        metrics_interval_secs: f64,
        for_command_line: bool,
        beside: Option<Py<Self>>,
    ) -> PyResult<Self> {
        let launch = Launch {
            resume: resume.map(|(epoch, index)| Mark { epoch, index }),
            run,
            order,
            first_consumer: first_consumer_secs.map(Duration::from_secs_f64),
            idle_shutdown: beside.map(|other| other.get().server.idle_shutdown()).unwrap_or_default(),
            metrics_interval: Duration::from_secs_f64(metrics_interval_secs),
            reader: if for_command_line { Reader::CommandLine } else { Reader::Python },
        };
        let options = options.options.clone();
        let server = detached(py, || Server::launch(name, options, launch)).map_err(|error| to_python(py, &error))?;
        Ok(Self { server })
    }

    /// Serves `loader` on this thread until it is done or stopped; raises what it raised.
    ///
    /// `begin(epoch)` is called before each epoch, and `mark`, if there is one, after each batch: with the epoch and the number
    /// of its samples published so far, and the same of the oldest that somebody needs, or None. `seek(epoch, index,
    /// counts_batches)`, if there is one, has the loader's next `iter()` begin there.
    ///
    /// A loader with a pool of workers leaves the pool's numbers in `pool`.
    #[pyo3(signature = (loader, begin, mark, seek, *, samples, batches, batch_size, allow_pickle, pool=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn run(
        &self,
        py: Python<'_>,
        loader: Py<PyAny>,
        begin: Py<PyAny>,
        mark: Option<Py<PyAny>>,
        seek: Option<Py<PyAny>>,
        samples: Option<u64>,
        batches: Option<u64>,
        batch_size: Option<u64>,
        allow_pickle: bool,
        pool: Option<&PoolReport>,
    ) -> PyResult<()> {
        let length = Length { samples, batches, batch_size };
        let filling = self.lend_rings(loader.bind(py))?;
        let mut source = PySource {
            loader,
            filling,
            begin,
            mark,
            seek,
            length,
            pool: pool.map(PoolReport::shared),
            allow_pickle,
            batches: None,
            epoch: 0,
            is_fresh: true,
            is_exhausted: false,
            flat: Flat::default(),
            raised: None,
        };
        self.server.set_ask(ask_for_stack(py)?);
        let outcome = detached(py, || {
            self.server.run_batches(&mut source, &mut || {
                check_signals().map_err(|_| Failure::new(FailureKind::Stopped, INTERRUPTED))
            })
        });
        let Err(broken) = outcome else { return Ok(()) };
        if let Some(interrupt) = take_interrupt() {
            return Err(interrupt);
        }
        match source.raised.take() {
            Some(raised) if broken.kind == FailureKind::Stopped => Err(raised),
            raised => {
                let error = failed(py, &broken);
                error.set_cause(py, raised);
                Err(error)
            }
        }
    }

    /// How long an epoch is, once known.
    #[getter]
    fn samples_per_epoch(&self) -> Option<u64> {
        self.server.samples_per_epoch()
    }

    /// Ends the feed because the loader raised this outside of `run`. Raises what consumers get until `stop`.
    fn fail(&self, py: Python<'_>, message: String, raised: Bound<'_, PyAny>) -> PyResult<()> {
        let raised = PyErr::from_value(raised);
        let failure = Failure::new(FailureKind::Loader, message).raised(class_name(py, &raised));
        detached(py, || self.server.fail(failure.clone()));
        let error = failed(py, &failure);
        error.set_cause(py, Some(raised));
        Err(error)
    }

    /// Why the feed has given up on its loader, which may still be in its call; None if it has not.
    fn gave_up<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let failure = detached(py, || self.server.gave_up());
        failure.map(|failure| explanation(py, &failure.message)).transpose()
    }

    /// Tells consumers why, and frees the name.
    fn stop(&self, py: Python<'_>, why: &str) {
        detached(py, || self.server.stop(why));
    }

    /// By way of JSON: the keys are the field names of `ServerStats`, as everywhere.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !self.server.is_here() {
            let error = Error::Invalid(
                "this server runs in the parent process; ask there, or see `feedline top --json`".into(),
            );
            return Err(to_python(py, &error));
        }
        let stats = detached(py, || serde_json::to_string(&self.server.stats()));
        let text = stats.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }
}

impl ServerCore {
    /// Has a loader whose workers can do that write into the feed's rings.
    fn lend_rings(&self, loader: &Bound<'_, PyAny>) -> PyResult<Option<Py<Filling>>> {
        // Of its class: a wrapper that hands on what it doesn't have itself makes other batches of them.
        if loader.get_type().getattr_opt("feedline_fills")?.is_none() || self.server.has_its_rings_in_files() {
            return Ok(None);
        }
        if !loader.getattr("feedline_fills")?.extract::<bool>()? {
            return Ok(None);
        }
        let Some((filling, reserve)) = Filling::new() else { return Ok(None) };
        self.server.use_reserve(reserve);
        Ok(Some(Py::new(loader.py(), filling)?))
    }
}

impl Drop for ServerCore {
    fn drop(&mut self) {
        // Python drops us with the GIL in hand, which the control thread may need for a last log line.
        let _ = Python::try_attach(|py| detached(py, || self.server.stop("the server was closed")));
    }
}

/// A Python iterable. Each call takes the GIL; the copy that follows doesn't have it.
struct PySource {
    loader: Py<PyAny>,
    /// The loader's workers write into the feed's rings; it yields this where it has something to say of that.
    filling: Option<Py<Filling>>,
    begin: Py<PyAny>,
    mark: Option<Py<PyAny>>,
    seek: Option<Py<PyAny>>,
    length: Length,
    pool: Option<stats::PoolReport>,
    allow_pickle: bool,
    batches: Option<Py<PyIterator>>,
    epoch: u64,
    /// Nothing was yielded in this epoch yet.
    is_fresh: bool,
    is_exhausted: bool,
    flat: Flat,
    raised: Option<PyErr>,
}

impl PySource {
    fn iter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let loader = self.loader.bind(py);
        match &self.filling {
            None => hang::iter(loader),
            Some(filling) => {
                let iter = loader.getattr("feedline_iter")?;
                Ok(hang::call(&iter, &(filling,).into_pyobject(py)?)?.cast_into()?)
            }
        }
    }

    fn fail(&mut self, py: Python<'_>, error: PyErr) -> Failure {
        let failure = if error.is_instance_of::<PyException>(py) {
            let message = format!("the loader raised {}\n\n{}", summary(py, &error), traceback(py, &error).trim_end());
            Failure::new(FailureKind::Loader, message).raised(class_name(py, &error))
        } else if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            Failure::new(FailureKind::Stopped, INTERRUPTED)
        } else {
            Failure::new(FailureKind::Stopped, format!("it was ended by {}", error.get_type(py)))
        };
        self.raised = Some(error);
        self.end_workers(py);
        failure
    }

    /// Ends a torch loader's workers now: a traceback may keep its iterator alive for as long as somebody likes.
    fn end_workers(&mut self, py: Python<'_>) {
        if let Some(batches) = self.batches.take()
            && let Ok(Some(shut_down)) = batches.bind(py).getattr_opt("_shutdown_workers")
        {
            let _ = shut_down.call0();
        }
    }
}

/// A loader that learns only in the end how many epochs it has says so in this attribute.
fn says_whether_over(loader: &Bound<'_, PyAny>) -> Option<bool> {
    loader.getattr_opt("feedline_is_over").ok()??.is_truthy().ok()
}

/// The exception's class, by the place that it can be imported from.
fn class_name(py: Python<'_>, error: &PyErr) -> String {
    let class = error.get_type(py);
    let name = class.module().and_then(|module| Ok(format!("{module}:{}", class.qualname()?)));
    name.unwrap_or_default()
}

fn summary(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).qualname().map_or_else(|_| "an exception".into(), |name| name.to_string());
    format!("{name}: {}", error.value(py))
}

/// What the loader has yielded; a batch is in `flat`.
enum Yielded {
    Batch(Option<Claim>),
    Filled(Claim),
    Wants { samples: u64, waits: bool },
}

impl BatchSource for PySource {
    fn begin(&mut self, epoch: u64) -> Result<(), Failure> {
        Python::attach(|py| {
            deliver(py);
            self.flat = Flat::default();
            self.batches = None;
            (self.epoch, self.is_fresh) = (epoch, true);
            let begun = (epoch,)
                .into_pyobject(py)
                .and_then(|epoch| hang::call(self.begin.bind(py), &epoch))
                .and_then(|_| self.iter(py));
            match begun {
                Ok(batches) => self.batches = Some(batches.unbind()),
                Err(error) => return Err(self.fail(py, error)),
            }
            Ok(())
        })
    }

    fn next(&mut self) -> Result<Option<Item<'_>>, Failure> {
        let item = Python::attach(|py| {
            deliver(py);
            // The last batch was copied; its memory goes before the next one is made.
            self.flat = Flat::default();
            let Some(batches) = &self.batches else { return Ok(None) };
            let item = match hang::next(batches.bind(py)) {
                Some(Ok(item)) => item,
                Some(Err(error)) => return Err(self.fail(py, error)),
                None => {
                    let is_its_own = batches.is(&self.loader);
                    self.batches = None;
                    let word = says_whether_over(self.loader.bind(py));
                    self.is_exhausted = self.is_fresh && word.unwrap_or(is_its_own && self.epoch > 0);
                    if self.is_exhausted && word.is_none() {
                        tracing::warn!(
                            "the loader is an iterator that can be gone through only once: the feed ends after one epoch; \
                             serve an object whose iter() starts anew for more"
                        );
                    }
                    return Ok(None);
                }
            };
            if let Some(filling) = self.filling.as_ref().filter(|filling| item.is(*filling)).map(Py::get) {
                if let Some(Wants { samples, waits }) = filling.wants() {
                    return Ok(Some(Yielded::Wants { samples, waits }));
                }
                self.is_fresh = false;
                return match filling.ready() {
                    Some(claim) => Ok(Some(Yielded::Filled(claim))),
                    None => Err(Failure::new(FailureKind::Server, "a batch was filled without a claim")),
                };
            }
            self.is_fresh = false;
            match flatten(&item, self.allow_pickle) {
                Ok(flat) => self.flat = flat,
                // Ctrl-C is Ctrl-C, wherever it comes.
                Err(Refusal::Raised(error)) if !error.is_instance_of::<PyException>(py) => {
                    return Err(self.fail(py, error));
                }
                Err(refusal) => return Err(failure(py, &refusal)),
            }
            Ok(Some(Yielded::Batch(self.filling.as_ref().and_then(|filling| filling.get().ready()))))
        })?;
        Ok(item.map(|item| match item {
            Yielded::Batch(claim) => Item::Batch(self.flat.as_batch(), claim),
            Yielded::Filled(claim) => Item::Filled(claim),
            Yielded::Wants { samples, waits } => Item::Wants { samples, waits },
        }))
    }

    fn give(&mut self, claim: Option<Claim>) {
        if let Some(filling) = &self.filling {
            filling.get().give(claim);
        }
    }

    fn fits(&mut self) {
        if let Some(filling) = &self.filling {
            filling.get().fits();
        }
    }

    fn filling(&self) -> u64 {
        self.filling.as_ref().map_or(0, |filling| filling.get().batches())
    }

    fn take_back(&mut self) -> Result<bool, Failure> {
        let Some(filling) = &self.filling else { return Ok(false) };
        filling.get().take_back();
        Python::attach(|py| {
            deliver(py);
            let Some(batches) = &self.batches else { return Ok(false) };
            let taken = batches.bind(py).getattr("feedline_take_back").and_then(|method| {
                let is_filling: bool = hang::call(&method, &PyTuple::empty(py))?.extract()?;
                Ok(is_filling)
            });
            taken.map_err(|error| self.fail(py, error))
        })
    }

    fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    fn keeps_state(&self) -> bool {
        self.mark.is_some()
    }

    fn mark(&mut self, head: Mark, oldest: Mark, needed: Option<Mark>) -> Result<(), Failure> {
        Python::attach(|py| {
            deliver(py);
            let Some(mark) = &self.mark else { return Ok(()) };
            let plain = |Mark { epoch, index }| (epoch, index);
            let places = (plain(head), plain(oldest), needed.map(plain)).into_pyobject(py);
            match places.and_then(|places| hang::call(mark.bind(py), &places)) {
                Ok(_) => Ok(()),
                Err(error) => Err(self.fail(py, error)),
            }
        })
    }

    fn can_seek(&self) -> bool {
        self.seek.is_some()
    }

    fn seek(&mut self, index: u64, counts_batches: bool) -> Result<(), Failure> {
        Python::attach(|py| {
            deliver(py);
            let Some(seek) = &self.seek else { return Ok(()) };
            if let Some(filling) = &self.filling {
                filling.get().take_back();
            }
            self.flat = Flat::default();
            self.batches = None;
            let sought = (self.epoch, index, counts_batches)
                .into_pyobject(py)
                .and_then(|place| hang::call(seek.bind(py), &place))
                .and_then(|_| self.iter(py));
            match sought {
                Ok(batches) => self.batches = Some(batches.unbind()),
                Err(error) => return Err(self.fail(py, error)),
            }
            Ok(())
        })
    }

    fn finish(&mut self) {
        Python::attach(|py| {
            self.end_workers(py);
            // Persistent workers stay with the loader otherwise.
            if let Ok(Some(kept)) = self.loader.bind(py).getattr_opt("_iterator")
                && let Ok(Some(shut_down)) = kept.getattr_opt("_shutdown_workers")
            {
                let _ = shut_down.call0();
                let _ = self.loader.bind(py).setattr("_iterator", py.None());
            }
        });
    }

    fn length(&self) -> Length {
        self.length
    }

    fn pool(&self) -> Option<stats::PoolReport> {
        self.pool.clone()
    }
}

impl Drop for PySource {
    fn drop(&mut self) {
        if let Some(filling) = &self.filling {
            filling.get().end();
        }
        let _ = Python::try_attach(|py| {
            self.end_workers(py);
            self.flat = Flat::default();
        });
    }
}
