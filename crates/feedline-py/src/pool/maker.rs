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

    /// What the dataset gives for one key, seeded: a sample, or as many as `__getitems__` makes of it.
    fn samples<'py>(
        &mut self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        number: u64,
        epoch: u64,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        if !self.takes_many {
            return Ok(vec![self.sample(py, key, number, epoch)?]);
        }
        self.generators.begin_sample(py, self.draw(epoch, number))?;
        self.many(py, std::slice::from_ref(key))?.try_iter()?.collect()
    }

    /// One sample of a dataset that makes one at a time, seeded.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        number: u64,
        epoch: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.generators.begin_sample(py, self.draw(epoch, number))?;
        self.dataset.bind(py).get_item(key)
    }

    fn many<'py>(&self, py: Python<'py>, keys: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
        self.dataset.bind(py).call_method1(intern!(py, "__getitems__"), (PyList::new(py, keys)?,))
    }

    /// The first sample of a task.
    pub fn first<'py>(&mut self, py: Python<'py>, keys: &Keys<'py>, epoch: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.samples(py, &keys.objects[0], keys.numbers[0], epoch)?.into_iter().next())
    }

    /// All samples of a batch, as a function that collates gets them.
    pub fn batch<'py>(
        &mut self,
        py: Python<'py>,
        keys: &Keys<'py>,
        epoch: u64,
        mut begin: impl FnMut(u64),
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.takes_many && !self.generators.is_any_drawn_from() {
            begin(0);
            return self.many(py, &keys.objects);
        }
        let mut samples = Vec::with_capacity(keys.objects.len());
        for (at, (key, number)) in keys.objects.iter().zip(&keys.numbers).enumerate() {
            begin(at as u64);
            if self.takes_many {
                samples.extend(self.samples(py, key, *number, epoch)?);
            } else {
                samples.push(self.sample(py, key, *number, epoch)?);
            }
        }
        Ok(PyList::new(py, samples)?.into_any())
    }

    /// What a function that collates draws depends on its first sample.
    pub fn begin_collating(&self, py: Python<'_>, keys: &Keys<'_>, epoch: u64) -> PyResult<()> {
        let Some(number) = keys.numbers.first() else { return Ok(()) };
        self.generators.begin_sample(py, draw(self.draw(epoch, *number), epoch, COLLATING))
    }

    pub fn has_missed_a_generator(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.generators.has_missed_one(py)
    }

    /// Makes all samples in turn; how many is returned. `sink` is asked before each one, and may have it already; then it is given
    /// each one, with its number.
    pub fn each<'py, E: From<PyErr>>(
        &mut self,
        py: Python<'py>,
        keys: &Keys<'py>,
        epoch: u64,
        mut sink: impl FnMut(u64, Option<&Bound<'py, PyAny>>) -> Result<Option<Bound<'py, PyAny>>, E>,
    ) -> Result<u64, E> {
        let mut made = 0;
        if self.takes_many && !self.generators.is_any_drawn_from() {
            sink(0, None)?;
            for sample in self.many(py, &keys.objects)?.try_iter()? {
                sink(made, Some(&sample?))?;
                made += 1;
            }
            return Ok(made);
        }
        for (at, (key, number)) in keys.objects.iter().zip(&keys.numbers).enumerate() {
            let samples = match sink(at as u64, None)? {
                Some(sample) => vec![sample],
                None => self.samples(py, key, *number, epoch)?,
            };
            for sample in &samples {
                sink(made, Some(sample))?;
                made += 1;
            }
        }
        Ok(made)
    }
}
