//! The owner's end of a pool: batches come out as tensors over the memory that workers filled.

use std::os::fd::AsRawFd;
use std::time::Duration;

use feedline_core::DimOrder;
use feedline_core::schema::DType;
use feedline_data::pool::owner::Keys;
use feedline_data::pool::spent::Reading;
use feedline_data::pool::{Ask, Claimed, Made, Owner, Ready, Settings};
use feedline_shm::board::{cpu_nanos, now_nanos};
use feedline_shm::{Mutex, Window};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::filling::{Filling, Room};
use super::sample::Layout;
use super::thread::PoolThread;
use crate::flatten::numpy_dtype;
use crate::rebuild::torch_tensor;
use crate::tensor::Exported;

/// A tick: whoever waits looks at its workers and at Python's signals this often.
const TICK: Duration = Duration::from_millis(100);

/// The owner of a pool of workers.
#[pyclass(frozen, module = "feedline._core")]
pub struct PoolOwner(Mutex<State>);

struct State {
    owner: Owner,
    /// The leaves' types and shapes, in the order of the lanes.
    leaves: Vec<(DType, Vec<u64>)>,
    /// Batches are to be filled in a server's ring.
    filling: Option<Py<Filling>>,
}

#[pymethods]
impl PoolOwner {
    #[new]
    fn new(workers: usize, batches: usize, arena_bytes: u64, tries: u32) -> PyResult<Self> {
        let owner = Owner::new(Settings { workers, batches, arena_bytes, tries });
        let owner = owner.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Self(State { owner, leaves: Vec::new(), filling: None }.into()))
    }

    /// Fills batches in a server's ring where that is possible; the workers have what `filling.lend` gave. So many are in flight.
    fn fill(&self, filling: &Bound<'_, Filling>, batches: u64) {
        filling.get().begin(batches);
        self.0.lock().filling = Some(filling.clone().unbind());
    }

    /// The oldest ring that workers may write to.
    #[getter]
    fn oldest_ring(&self) -> Option<u32> {
        self.0.lock().owner.oldest_ring()
    }

    /// Nobody wants what is in flight. True while somebody may still write to a server's ring; waits for a tick at most.
    fn take_back(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut state = self.0.lock();
            state.owner.abandon();
            state.wait_for_places()
        })
    }

    /// Has all that is in flight made elsewhere than in a server's ring. True while somebody may still write there; waits for a tick at most.
    fn unclaim(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut state = self.0.lock();
            state.owner.unclaim() && state.wait_for_places() && state.owner.unclaim()
        })
    }

    /// What a worker needs to open the pool: the board's descriptor, workers and slots, the arena's descriptor and length.
    fn descriptors(&self) -> (i32, usize, usize, i32, u64) {
        let state = self.0.lock();
        let ((board, workers, slots), (arena, arena_bytes)) = (state.owner.board(), state.owner.arena());
        (board.as_raw_fd(), workers, slots, arena.as_raw_fd(), arena_bytes)
    }

    /// A worker's end for a thread of this process.
    fn thread(&self, worker: usize) -> PoolThread {
        PoolThread::new(self.0.lock().owner.thread(worker))
    }

    fn travel_whole(&self) {
        self.0.lock().owner.travel_whole();
    }

    /// How many batches are in flight.
    fn in_flight(&self) -> usize {
        self.0.lock().owner.in_flight()
    }

    /// What a sample costs a worker, in nanoseconds, as far as is known.
    fn sample_nanos(&self) -> Option<u64> {
        self.0.lock().owner.sample_nanos()
    }

    /// Deals out a batch of samples with these numbers. None if it has to wait for a place in a server's ring (`Filling.asks`).
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn offer(&self, numbers: Vec<u64>, epoch: u64) -> PyResult<Option<u64>> {
        self.0.lock().offer(Keys::Numbers(&numbers), numbers.len() as u64, epoch)
    }

    /// Deals out a batch whose keys are a pickled list of this length.
    fn offer_pickled(&self, keys: &[u8], samples: u64, epoch: u64) -> PyResult<Option<u64>> {
        self.0.lock().offer(Keys::Pickled(keys, samples), samples, epoch)
    }

    /// The next event: `("made", number, tensors)`, `("filled", number)`, `("whole", number, batch, samples of its claim or None)`,
    /// `("raised", number, message)`, `("lost", number, sample, tries)`, `("lanes", description)`; `None` if nothing came for a tick.
    fn next<'py>(&self, py: Python<'py>, in_order: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let event = py.detach(|| self.wait(in_order));
        match event {
            None => Ok(None),
            Some(Event::Ask(Ask::Lanes(description))) => {
                Ok(Some(("lanes", PyBytes::new(py, &description)).into_pyobject(py)?))
            }
            Some(Event::Ready(ready)) => Ok(Some(self.ready(py, ready)?)),
        }
    }

    /// Says what lanes the samples have: `feedline._sample`'s description, and the same as an object. `None`: they have none.
    #[pyo3(signature = (description, layout = None))]
    fn describe(&self, description: &[u8], layout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let layout = layout.map(Layout::new).transpose()?;
        let mut state = self.0.lock();
        match layout {
            None => state.owner.describe(None),
            Some(layout) => {
                let dims = |shape: &[i64]| shape.iter().map(|&dim| dim as u64).collect();
                state.leaves = layout.tensors().map(|(dtype, shape)| (dtype, dims(shape))).collect();
                state.owner.describe(Some((layout.lanes, description)));
            }
        }
        Ok(())
    }

    /// A worker died, and was reaped: the batch, the sample and the number of tries, if it had something.
    fn worker_died(&self, worker: usize) -> Option<(u64, u64, u32)> {
        let died = self.0.lock().owner.worker_died(worker)?;
        Some((died.number, died.sample, died.tries))
    }

    /// Workers that have been at a sample for longer: their numbers, with the batch and the sample.
    fn late(&self, secs: f64) -> Vec<(usize, u64, u64)> {
        self.0.lock().owner.late(Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
    }

    /// Has a worker end before its next run, or no longer.
    fn retire(&self, worker: usize, is_to_end: bool) {
        self.0.lock().owner.retire(worker, is_to_end);
    }

    /// Nobody wants this batch any more, though a thread is still at one of its samples.
    fn give_up(&self, number: u64) -> bool {
        self.0.lock().owner.give_up(number)
    }

    fn abandon(&self) {
        self.0.lock().owner.abandon();
    }

    fn close(&self) {
        self.0.lock().owner.close();
    }
}

enum Event {
    Ask(Ask),
    Ready(Ready),
}

fn no_memory() -> PyErr {
    PyMemoryError::new_err(
        "no memory is left for another batch\n  the batches that are kept fill all of it: keep copies of what is needed, or nothing",
    )
}

impl State {
    fn offer(&mut self, keys: Keys<'_>, samples: u64, epoch: u64) -> PyResult<Option<u64>> {
        let claimed = loop {
            let Some(filling) = &self.filling else { break None };
            let first_unclaimed = self.owner.first_unclaimed();
            match filling.get().room_for(samples, first_unclaimed, self.owner.in_flight() == 0) {
                Room::Arena => break None,
                Room::Granted(claimed) if first_unclaimed.is_some() => self.owner.claim_first(claimed),
                Room::Granted(claimed) => break Some(claimed),
                Room::Refused | Room::Asked => return Ok(None),
            }
        };
        self.owner.offer_claimed(keys, epoch, claimed).map(Some).ok_or_else(no_memory)
    }

    /// Whether somebody may still write to a server's ring, after a tick at most.
    fn wait_for_places(&mut self) -> bool {
        let seen = self.owner.done();
        let _ = self.owner.collect();
        if self.owner.is_filling() {
            self.owner.wait(seen, 1, TICK);
            let _ = self.owner.collect();
        }
        self.owner.is_filling()
    }

    /// Tells the server which claim belongs to the batch that is yielded next.
    fn yields(&self, claimed: Option<Claimed>, is_of_lanes: bool) {
        if let Some(filling) = &self.filling {
            filling.get().yields(claimed, is_of_lanes);
        }
    }
}

impl PoolOwner {
    /// What was spent until now, and how many workers there are.
    pub(super) fn reading(&self) -> Reading {
        let owner = &self.0.lock().owner;
        let (nanos, own_cpu_nanos) = (now_nanos(), cpu_nanos());
        let (spent, workers) = (owner.spent(), owner.workers_up());
        Reading { nanos, spent, own_cpu_nanos, jobs_waited_nanos: None, workers }
    }

    /// How many samples are dealt out, and not taken.
    pub(super) fn samples_in_flight(&self) -> u64 {
        self.0.lock().owner.samples_in_flight()
    }

    fn wait(&self, in_order: bool) -> Option<Event> {
        let mut has_waited = false;
        loop {
            let mut state = self.0.lock();
            let owner = &mut state.owner;
            let seen = owner.done();
            if let Some(ask) = owner.collect() {
                return Some(Event::Ask(ask));
            }
            if let Some(ready) = owner.take(in_order) {
                return Some(Event::Ready(ready));
            }
            if has_waited {
                return None;
            }
            let missing = owner.missing(in_order);
            owner.wait(seen, missing, TICK);
            has_waited = true;
        }
    }

    fn ready<'py>(&self, py: Python<'py>, ready: Ready) -> PyResult<Bound<'py, PyTuple>> {
        match ready {
            Ready::Raised { number, message } => ("raised", number, PyBytes::new(py, &message)).into_pyobject(py),
            Ready::Lost { number, sample, tries } => ("lost", number, sample, tries).into_pyobject(py),
            Ready::NoMemory { .. } => Err(no_memory()),
            Ready::Filled { number, claimed, .. } => {
                self.0.lock().yields(Some(claimed), true);
                ("filled", number).into_pyobject(py)
            }
            Ready::Made(Made { number, samples, bytes, lanes: Some(lanes), claimed }) => {
                let leaves = {
                    let state = self.0.lock();
                    state.yields(claimed, true);
                    state.leaves.clone()
                };
                let (starts, _) = lanes.places(samples);
                let tensors =
                    leaves.iter().zip(lanes.strides()).zip(starts).map(|(((dtype, shape), stride), start)| {
                        let window = bytes.part(start as usize, (stride * samples) as usize);
                        let shape = [&[samples], shape.as_slice()].concat();
                        torch_tensor(py, &Exported::new(window, *dtype, shape, DimOrder::default()))
                    });
                let tensors = PyList::new(py, tensors.collect::<PyResult<Vec<_>>>()?)?;
                ("made", number, tensors).into_pyobject(py)
            }
            Ready::Made(Made { number, bytes, lanes: None, claimed, .. }) => {
                let claimed_samples = claimed.as_ref().map(|claimed| claimed.samples);
                self.0.lock().yields(claimed, false);
                ("whole", number, WholeBatch::new(bytes)?, claimed_samples).into_pyobject(py)
            }
        }
    }
}

/// A batch that travelled whole: a head, and parts that tensors and arrays may lie over.
///
/// ```text
/// head's length │ number of parts │ each part's place and length │ head │ parts
/// ```
#[pyclass(frozen, module = "feedline._core")]
pub struct WholeBatch {
    window: Window,
    head: (usize, usize),
    parts: Vec<(usize, usize)>,
}

impl WholeBatch {
    fn new(window: Window) -> PyResult<Self> {
        let broken = || PyValueError::new_err("a worker's batch does not fit its description");
        let word = |at: usize| -> Option<usize> {
            let bytes = window.copy(at.checked_mul(8)?, 8)?;
            u64::from_le_bytes(bytes.try_into().ok()?).try_into().ok()
        };
        let (head, parts) = word(0).zip(word(1)).ok_or_else(broken)?;
        let table = (0..parts).map(|part| word(2 + 2 * part).zip(word(3 + 2 * part)));
        let table = table.collect::<Option<Vec<_>>>().ok_or_else(broken)?;
        let is_inside =
            |&(start, len): &(usize, usize)| start.checked_add(len).is_some_and(|end| end <= window.len_bytes());
        let head = ((2 + 2 * parts) * 8, head);
        if !is_inside(&head) || !table.iter().all(is_inside) {
            return Err(broken());
        }
        Ok(Self { window, head, parts: table })
    }

    fn exported(&self, part: usize, dtype: DType, shape: Vec<u64>) -> PyResult<Exported> {
        let &(start, len) = self.parts.get(part).ok_or_else(|| PyValueError::new_err("no such part"))?;
        if feedline_core::schema::len_bytes(dtype, &shape) != Some(len as u64) {
            return Err(PyValueError::new_err("a part has another length than its tensor"));
        }
        Ok(Exported::new(self.window.part(start, len), dtype, shape, DimOrder::default()))
    }
}

#[pymethods]
impl WholeBatch {
    #[getter]
    fn head<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let head = self.window.copy(self.head.0, self.head.1).unwrap_or_default();
        PyBytes::new(py, &head)
    }

    /// A part as a tensor over its bytes.
    fn tensor<'py>(&self, py: Python<'py>, part: usize, dtype: &str, shape: Vec<u64>) -> PyResult<Bound<'py, PyAny>> {
        let dtype = numpy_dtype(dtype).ok_or_else(|| PyValueError::new_err("no such dtype"))?;
        torch_tensor(py, &self.exported(part, dtype, shape)?)
    }

    /// A part as a buffer.
    fn buffer(&self, part: usize) -> PyResult<Exported> {
        let len = self.parts.get(part).map_or(0, |&(_, len)| len as u64);
        self.exported(part, DType::U8, vec![len])
    }

    /// How many parts there are.
    fn __len__(&self) -> usize {
        self.parts.len()
    }
}
