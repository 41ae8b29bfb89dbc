//! One epoch of a feed, as Python iterates it.

use std::sync::Arc;

use feedline_core::Error;
use feedline_core::batch::Received;
use feedline_core::consumer::Consumer;
use feedline_core::source::Mark;
use feedline_shm::fault;
use feedline_shm::{Mutex, MutexGuard};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::{FeedCore, without_gil};
use crate::errors::{after_wait, to_python};
use crate::logging::detached;
use crate::rebuild::Rebuilder;

/// One epoch of a feed.
#[pyclass(frozen, module = "feedline._core")]
pub struct Batches {
    pub(super) feed: Py<FeedCore>,
    pub(super) attachment: Py<PyAny>,
    pub(super) inner: Arc<Mutex<Iteration>>,
}

pub(super) struct Iteration {
    pub consumer: Option<Consumer>,
    /// A batch that was taken and could not be rebuilt, because Ctrl-C came in between; and where the consumer was before.
    pub pending: Option<(Received, Mark)>,
    pub rebuilder: Option<Rebuilder>,
    /// Samples in the batch that was taken last.
    pub samples: u64,
    pub over: bool,
}

/// Takes an iteration's consumer away from it, unless it is busy.
pub(super) fn let_go(iteration: &Mutex<Iteration>) {
    let consumer = iteration.try_lock().and_then(|mut iteration| iteration.consumer.take());
    drop(consumer);
}

/// A batch that was taken, what to rebuild it with, and where the consumer was before.
type Taken = (Received, Option<Rebuilder>, Mark);

impl Batches {
    /// Never with the GIL in hand: a thread that iterates holds this lock while it waits for the GIL.
    fn lock(&self) -> MutexGuard<'_, Iteration> {
        self.inner.lock()
    }

    /// The next batch, or `None` if there is no more.
    fn take(&self) -> Result<Option<Taken>, Error> {
        let feed = self.feed.get();
        let mut inner = self.lock();
        if inner.over && inner.pending.is_none() {
            return Ok(None);
        }
        if feed.is_closed() {
            inner.pending = None;
            return Err(feed.closed_error());
        }
        if let Some((pending, before)) = inner.pending.take() {
            if let Some(consumer) = &inner.consumer {
                let position = consumer.position();
                feed.state.with(|state| state.position = position);
            }
            return Ok(Some((pending, inner.rebuilder.take(), before)));
        }
        if inner.consumer.is_none() {
            let mut consumer = feed.consumer()?;
            // The server may be another one than when the state was loaded.
            feed.check_order();
            if let Some(mark) = feed.state.with(|state| state.resume.take()) {
                consumer.resume_at(mark);
            }
            inner.consumer = Some(consumer);
        }
        let consumer = inner.consumer.as_mut().expect("set just above");
        let before = consumer.position();
        let samples_before = consumer.samples_taken();
        let mut taken = consumer.next(&mut || feed.check());
        while matches!((&taken, feed.whole), (Ok(Some(batch)), Some(whole)) if whole.leaves_out(batch)) {
            taken = consumer.next(&mut || feed.check());
        }
        let samples = consumer.samples_taken() - samples_before;
        feed.note(consumer);
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
                    // The consumer is at the end, and reports it again to a later iteration.
                    Error::Ended { .. } | Error::Failed(_) => feed.put_back(consumer),
                    Error::ServerLost(_) => {
                        feed.retire(&consumer.stats());
                        feed.state.with(|state| state.end = Some(error.clone()));
                    }
                    _ => feed.retire(&consumer.stats()),
                }
            }
        }
        inner.samples = samples;
        let rebuilder = inner.rebuilder.take();
        Ok(taken?.map(|batch| (batch, rebuilder, before)))
    }
}

#[pymethods]
impl Batches {
    /// How many samples the last batch had; a batch that travels whole counts as one.
    #[getter]
    fn samples(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().samples)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Its place belongs to this process: a copy begins an epoch of its own, when it is first used.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Py<PyAny>,))> {
        Ok((py.import("feedline._attachment")?.getattr("Epoch")?, (self.attachment.clone_ref(py),)))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let feed = self.feed.get();
        if feed.is_inherited() {
            let error = Error::Invalid(
                "this iterator belongs to the parent process; iterate the feed anew in the child".into(),
            );
            return Err(to_python(py, &error));
        }
        // Without the GIL from the first lock on: a thread that waits for one of the two locks must not hold the other.
        let taken = detached(py, || {
            let taken = self.take();
            // A thread that closed the feed meanwhile could not let go for us.
            if feed.is_closed() {
                let_go(&self.inner);
            }
            taken
        });
        let Some((batch, rebuilder, before)) = taken.map_err(|error| after_wait(py, &error))? else { return Ok(None) };
        let mut rebuilder = rebuilder.unwrap_or_else(|| Rebuilder::new(feed.format, feed.allow_pickle, feed.with_ids));
        let rebuilt = rebuilder.batch(py, &batch);
        fault::point("consumer:handed_out");
        // No thread waits while it holds this lock and the GIL: the wait above is without the GIL.
        if let Some(mut inner) = self.inner.try_lock() {
            inner.rebuilder = Some(rebuilder);
            if matches!(&rebuilt, Err(error) if !error.is_instance_of::<PyException>(py)) {
                inner.pending = Some((batch, before));
                // Nobody has received it yet.
                feed.state.with(|state| state.position = before);
            }
        }
        rebuilt.map(Some)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // A forked child's copy of the parent's place: not ours to give back, and perhaps locked.
        if self.feed.get().is_inherited() {
            return;
        }
        let feed = self.feed.get();
        // Batches that are still alive are made private: not while other threads wait for the GIL.
        without_gil(|| {
            let Some(mut consumer) = self.lock().consumer.take() else { return };
            consumer.stop();
            feed.put_back(consumer);
        });
    }
}
