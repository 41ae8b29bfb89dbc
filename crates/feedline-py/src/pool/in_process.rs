//! Batches that are made in the training job itself, with the draws that a worker would have.

use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::maker::{Keys, Maker};

/// Makes batches, and leaves the process's generators as they were.
#[pyclass(module = "feedline._core")]
pub struct Draws {
    maker: Maker,
    collate: Py<PyAny>,
    collates: bool,
    /// Numbers keys that are no numbers.
    number: Py<PyAny>,
}

#[pymethods]
impl Draws {
    #[new]
    fn new(
        dataset: &Bound<'_, PyAny>,
        collate: Py<PyAny>,
        auto_collation: bool,
        seed: u64,
        number: Py<PyAny>,
    ) -> PyResult<Self> {
        let many = dataset.getattr_opt("__getitems__")?;
        let takes_many = auto_collation && many.is_some_and(|many| many.is_truthy().unwrap_or(false));
        Ok(Self { maker: Maker::new(dataset, takes_many, seed)?, collate, collates: auto_collation, number })
    }

    /// One batch.
    fn batch<'py>(&mut self, py: Python<'py>, keys: Vec<Bound<'py, PyAny>>, epoch: u64) -> PyResult<Bound<'py, PyAny>> {
        let plain = |key: &Bound<'py, PyAny>| key.cast_exact::<PyInt>().ok()?.extract::<u64>().ok();
        let number = |key| plain(key).map_or_else(|| self.number.bind(py).call1((key,))?.extract(), Ok);
        let numbers = keys.iter().map(number).collect::<PyResult<_>>()?;
        let keys = Keys { objects: keys, numbers };
        loop {
            let saved = self.maker.generators.save(py)?;
            let batch = self.make(py, &keys, epoch);
            let has_missed = self.maker.has_missed_a_generator(py);
            saved.restore(py)?;
            if !has_missed? || batch.is_err() {
                return batch;
            }
        }
    }
}

impl Draws {
    fn make<'py>(&mut self, py: Python<'py>, keys: &Keys<'py>, epoch: u64) -> PyResult<Bound<'py, PyAny>> {
        let samples = self.maker.batch(py, keys, epoch, |_| ())?;
        self.maker.begin_collating(py, keys, epoch)?;
        let collate = self.collate.bind(py);
        if self.collates { collate.call1((samples,)) } else { collate.call1((samples.get_item(0)?,)) }
    }
}
