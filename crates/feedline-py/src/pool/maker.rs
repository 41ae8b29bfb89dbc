//! Makes samples: calls the dataset, with the generators seeded for each sample.

use feedline_protocol::plan::draw;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::generators::Generators;
use crate::once::intern;

/// The dataset, and how it is asked.
pub struct Maker {
    dataset: Py<PyAny>,
    /// It has `__getitems__`, for many samples at once.
    takes_many: bool,
    seed: u64,
    pub generators: Generators,
}

/// The keys of some samples.
pub struct Keys<'py> {
    pub objects: Vec<Bound<'py, PyAny>>,
    /// What their draws are seeded by.
    pub numbers: Vec<u64>,
}

/// Keeps the draws of a batch apart from those of its samples.
const COLLATING: u64 = u64::MAX;

impl Maker {
    pub fn new(dataset: &Bound<'_, PyAny>, takes_many: bool, seed: u64) -> PyResult<Self> {
        let generators = Generators::new(dataset.py())?;
        Ok(Self { dataset: dataset.clone().unbind(), takes_many, seed, generators })
    }

    fn draw(&self, epoch: u64, number: u64) -> u64 {
        draw(self.seed, epoch, number)
    }

    /// One sample, seeded.
    fn sample<'py>(
        &mut self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        number: u64,
        epoch: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let draw = self.draw(epoch, number);
        self.generators.begin_sample(py, draw)?;
        let sample = if self.takes_many {
            let many = self.dataset.bind(py).call_method1(intern!(py, "__getitems__"), (PyList::new(py, [key])?,))?;
            many.get_item(0)?
        } else {
            self.dataset.bind(py).get_item(key)?
        };
        self.generators.after_first_sample(py, draw)?;
        Ok(sample)
    }

    /// The first sample of a task.
    pub fn first<'py>(&mut self, py: Python<'py>, keys: &Keys<'py>, epoch: u64) -> PyResult<Bound<'py, PyAny>> {
        self.sample(py, &keys.objects[0], keys.numbers[0], epoch)
    }

    /// What a function that collates draws depends on its first sample.
    pub fn begin_collating(&self, py: Python<'_>, keys: &Keys<'_>, epoch: u64) -> PyResult<()> {
        let Some(number) = keys.numbers.first() else { return Ok(()) };
        self.generators.begin_sample(py, draw(self.draw(epoch, *number), epoch, COLLATING))
    }

    pub fn has_missed_a_generator(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.generators.has_missed_one(py)
    }

    /// Makes all samples in turn. `sink` is asked before each one, and may have it already; then it is given each one.
    pub fn each<'py, E: From<PyErr>>(
        &mut self,
        py: Python<'py>,
        keys: &Keys<'py>,
        epoch: u64,
        mut sink: impl FnMut(u64, Option<&Bound<'py, PyAny>>) -> Result<Option<Bound<'py, PyAny>>, E>,
    ) -> Result<(), E> {
        if self.takes_many && !self.generators.is_any_drawn_from() {
            sink(0, None)?;
            let many = PyList::new(py, &keys.objects)?;
            let samples = self.dataset.bind(py).call_method1(intern!(py, "__getitems__"), (many,))?;
            let (given, asked) = (samples.len()?, keys.objects.len());
            if given != asked {
                let message = format!(
                    "Custom dataset's __getitems__ function must return a list of the same length as the batch: asked for {asked}, got {given}"
                );
                return Err(pyo3::exceptions::PyValueError::new_err(message).into());
            }
            for (number, sample) in samples.try_iter()?.enumerate() {
                sink(number as u64, Some(&sample?))?;
            }
            return Ok(());
        }
        for (at, (key, number)) in keys.objects.iter().zip(&keys.numbers).enumerate() {
            let sample = match sink(at as u64, None)? {
                Some(sample) => sample,
                None => self.sample(py, key, *number, epoch)?,
            };
            sink(at as u64, Some(&sample))?;
        }
        Ok(())
    }
}
