//! A worker process: takes tasks, calls the dataset, and copies each sample into its slots.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;

use feedline_data::pool::task::{Kind, NO_LANES};
use feedline_data::pool::worker::{Assignment, Next, Places};
use feedline_data::pool::{Lanes, Worker};
use feedline_shm::SourceBytes;
use feedline_shm::board::cpu_nanos;
use pyo3::exceptions::{PyException, PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::filling::PoolRings;
use super::maker::{Keys, Maker};
use super::sample::{Layout, Unfit};
use crate::once::intern;
use crate::tensor::exchange::lend_buffer;

/// A worker's end of a pool.
#[pyclass(frozen, module = "feedline._core")]
pub struct PoolWorker(Worker);

/// Why a task was given up.
enum Ended {
    /// The pool was closed.
    Closed,
    /// A sample has no place in the lanes.
    Unfit,
    Raised(PyErr),
}

impl From<PyErr> for Ended {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Unfit> for Ended {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Different => Self::Unfit,
            Unfit::Raised(error) => Self::Raised(error),
        }
    }
}

#[pymethods]
impl PoolWorker {
    /// Opens a pool by what `PoolOwner.descriptors` gave, in descriptors that are this object's from now on. `rings` are those of a server
    /// that it may write into.
    #[new]
    #[pyo3(signature = (board, workers, slots, arena, arena_bytes, number, rings = None))]
    fn new(
        board: i32,
        workers: usize,
        slots: usize,
        arena: i32,
        arena_bytes: u64,
        number: usize,
        rings: Option<&Bound<'_, PoolRings>>,
    ) -> PyResult<Self> {
        let (board, arena) = (own(board), own(arena));
        let worker = Worker::open((board, workers, slots), (arena, arena_bytes), number);
        let worker = worker.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Self(worker.with_rings(rings.map(|rings| rings.get().rings()))))
    }

    /// Makes samples until the pool is closed.
    fn run(&self, py: Python<'_>, dataset: &Bound<'_, PyAny>, hooks: &Bound<'_, PyAny>, seed: u64) -> PyResult<()> {
        let takes_many = hooks.getattr("takes_many")?.is_truthy()?;
        let maker = Maker::new(dataset, takes_many, seed)?;
        let mut task = Tasks { worker: &self.0, hooks, maker, layout: None };
        let worker = &self.0;
        loop {
            let next = py.detach(|| worker.next());
            py.check_signals()?;
            let mut at = match next {
                Next::Closed => return Ok(()),
                Next::Nothing => continue,
                Next::Task(at) => at,
            };
            let (started, cpu) = (Instant::now(), cpu_nanos());
            let outcome = match at.task.kind {
                Kind::Cut => task.cut(py, &mut at).map(|()| 0),
                Kind::Whole => task.whole(py, &mut at),
            };
            match outcome {
                Ok(len_bytes) => {
                    let nanos = started.elapsed().as_nanos() as u64;
                    worker.made(&at, nanos, cpu_nanos().saturating_sub(cpu), len_bytes);
                }
                Err(Ended::Closed) => return Ok(()),
                Err(Ended::Unfit) => worker.unfit(&at),
                // What ends a process ends this one, and another takes over.
                Err(Ended::Raised(error)) if !error.is_instance_of::<PyException>(py) => return Err(error),
                Err(Ended::Raised(error)) => {
                    let message: Vec<u8> =
                        hooks.call_method1("caught", (error.value(py), error.traceback(py)))?.extract()?;
                    py.detach(|| worker.raised(&mut at, &message, || true));
                }
            }
        }
    }
}

#[expect(unsafe_code, reason = "a number becomes the descriptor that it is")]
pub fn own(fd: i32) -> OwnedFd {
    // SAFETY: `feedline._pool_worker` duplicates the descriptor for us; `feedline._forker` has those of rings for nothing else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What a worker needs for its tasks.
struct Tasks<'a, 'py> {
    worker: &'a Worker,
    /// `feedline._pool_worker.Hooks`.
    hooks: &'a Bound<'py, PyAny>,
    maker: Maker,
    /// What all samples look like, and where that is described.
    layout: Option<(u64, Layout)>,
}

impl<'py> Tasks<'_, 'py> {
    fn keys(&self, py: Python<'py>, at: &Assignment) -> PyResult<Keys<'py>> {
        if at.task.has_pickled_keys {
            let bytes = PyBytes::new(py, &at.keys);
            let part = (bytes, at.task.first, at.task.samples);
            let (objects, numbers) = self.hooks.call_method1(intern!(py, "keys"), part)?.extract()?;
            return Ok(Keys { objects, numbers });
        }
        let numbers: Vec<u64> = at.keys.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let objects = numbers.iter().map(|number| Ok(number.into_pyobject(py)?.into_any()));
        Ok(Keys { objects: objects.collect::<PyResult<_>>()?, numbers })
    }

    fn cut(&mut self, py: Python<'py>, at: &mut Assignment) -> Result<(), Ended> {
        let (worker, keys) = (self.worker, self.keys(py, at)?);
        let mut first = None;
        if self.worker.lanes(at) == 0 {
            self.worker.begin(0);
            let sample = self.maker.first(py, &keys, at.task.epoch)?.ok_or(Ended::Unfit)?;
            let description = self.hooks.call_method1(intern!(py, "describe"), (&sample,))?;
            let description: Vec<u8> = description.extract()?;
            if !py.detach(|| worker.ask_for_lanes(at, &description, || true)) {
                return Err(Ended::Closed);
            }
            first = Some(sample);
        }
        let described = self.worker.lanes(at);
        if described == NO_LANES || described == 0 {
            return Err(Ended::Unfit);
        }
        self.load(py, described)?;
        let (_, layout) = self.layout.as_ref().expect("loaded above");
        let places = self.worker.places(at, &layout.lanes).ok_or(Ended::Unfit)?;
        loop {
            let mut made = first.take();
            let copied = self.maker.each::<Ended>(py, &keys, at.task.epoch, |number, sample| match sample {
                None => {
                    worker.begin(number);
                    Ok(made.take().filter(|_| number == 0))
                }
                Some(_) if number >= at.task.samples => Err(Ended::Unfit),
                Some(sample) => {
                    copy(worker, layout, &places, at.task.first + number, sample)?;
                    Ok(None)
                }
            })?;
            if copied < at.task.samples {
                return Err(Ended::Unfit);
            }
            if !self.maker.has_missed_a_generator(py)? {
                return Ok(());
            }
        }
    }

    /// The layout that is described at an offset of the arena.
    fn load(&mut self, py: Python<'_>, offset: u64) -> PyResult<()> {
        if self.layout.as_ref().is_some_and(|(known, _)| *known == offset) {
            return Ok(());
        }
        let len = self.worker.read(offset, 8).try_into().map_or(0, u64::from_le_bytes);
        let description = PyBytes::new(py, &self.worker.read(offset + 8, len as usize));
        let layout = Layout::new(&self.hooks.call_method1("layout", (description,))?)?;
        self.layout = Some((offset, layout));
        Ok(())
    }

    /// Makes a whole batch; how many bytes it has.
    fn whole(&mut self, py: Python<'py>, at: &mut Assignment) -> Result<u64, Ended> {
        let keys = self.keys(py, at)?;
        loop {
            let worker = self.worker;
            let samples = self.maker.batch(py, &keys, at.task.epoch, |number| worker.begin(number))?;
            self.maker.begin_collating(py, &keys, at.task.epoch)?;
            let packed = self.hooks.call_method1(intern!(py, "pack"), (samples,))?;
            if self.maker.has_missed_a_generator(py)? {
                continue;
            }
            let (head, parts): (Vec<u8>, Vec<Bound<'py, PyAny>>) = packed.extract()?;
            return self.write_whole(py, at, &head, &parts);
        }
    }

    fn write_whole(
        &self,
        py: Python<'_>,
        at: &mut Assignment,
        head: &[u8],
        parts: &[Bound<'_, PyAny>],
    ) -> Result<u64, Ended> {
        let lens = parts.iter().map(|part| {
            lend_buffer(part, |lent| lent.bytes.map_or(0, |bytes| bytes.len() as u64))
                .ok_or_else(|| pyo3::exceptions::PyBufferError::new_err("a part of a batch has no buffer"))
        });
        let lens = lens.collect::<PyResult<Vec<u64>>>()?;
        let table = 16 * (1 + lens.len() as u64);
        let (places, end) = Lanes::new(lens.clone()).places(1);
        let start = (table + head.len() as u64).next_multiple_of(64);
        let total = start + end;
        if at.task.out_len < total {
            let worker = self.worker;
            let is_open = py.detach(|| worker.ask_for_memory(at, total, || true));
            if !is_open {
                return Err(Ended::Closed);
            }
            if at.task.out_len < total {
                return Err(PyMemoryError::new_err(format!("no memory for a batch of {total} bytes")).into());
            }
        }
        let out = at.task.out;
        let mut words = vec![head.len() as u64, lens.len() as u64];
        words.extend(places.iter().zip(&lens).flat_map(|(place, len)| [start + place, *len]));
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.worker.write(out, &words);
        self.worker.write(out + table, head);
        for (part, place) in parts.iter().zip(places) {
            lend_buffer(part, |lent| {
                if let Some(bytes) = lent.bytes {
                    self.worker.write(out + start + place, bytes);
                }
            });
        }
        Ok(total)
    }
}

fn copy(worker: &Worker, layout: &Layout, places: &Places, slot: u64, sample: &Bound<'_, PyAny>) -> Result<(), Unfit> {
    let strides = layout.lanes.strides();
    let mut is_there = true;
    layout.copy(sample, &mut |lane, bytes: SourceBytes<'_>| {
        is_there &= worker.write_slot(places, (lane, strides[lane]), slot, bytes);
    })?;
    if is_there { Ok(()) } else { Err(Unfit::Different) }
}
