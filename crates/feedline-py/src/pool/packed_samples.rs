//! The paths and labels of a folder dataset, packed.
//!
//! A list of millions of tuples is millions of objects, and each has a reference count that is written when it is read. So every
//! worker that reads the list comes to own a copy of it, page by page. Here all paths are one block of bytes: reading writes nothing.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PySlice, PyString, PyTuple, PyType};

/// A sequence of `(path, label)`, to read like the list that it was made of.
#[pyclass(frozen, sequence, module = "feedline._core")]
pub struct PackedSamples {
    paths: Vec<u8>,
    /// Where each path ends; it begins where the one before it ends.
    ends: Vec<u64>,
    labels: Vec<i64>,
}

#[pymethods]
impl PackedSamples {
    /// Packs a list; None if there is anything else in it than tuples of a string and a number.
    #[staticmethod]
    fn pack(samples: &Bound<'_, PyList>) -> Option<Self> {
        let (mut ends, mut labels) = (Vec::with_capacity(samples.len()), Vec::with_capacity(samples.len()));
        let mut paths = Vec::new();
        for sample in samples {
            let sample = sample.cast_exact::<PyTuple>().ok().filter(|sample| sample.len() == 2)?;
            let (path, label) = (sample.get_item(0).ok()?, sample.get_item(1).ok()?);
            // Names of files that are no UTF-8 are strings that have none.
            let path = path.cast_exact::<PyString>().ok()?.encode_utf8().ok()?;
            paths.extend_from_slice(path.as_bytes());
            ends.push(paths.len() as u64);
            labels.push(label.cast_exact::<PyInt>().ok()?.extract().ok()?);
        }
        paths.shrink_to_fit();
        Some(Self { paths, ends, labels })
    }

    fn __len__(&self) -> usize {
        self.ends.len()
    }

    fn __getitem__<'py>(&self, at: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = at.py();
        if let Ok(slice) = at.cast::<PySlice>() {
            let range = slice.indices(self.ends.len() as isize)?;
            let places = (0..range.slicelength as isize).map(|step| range.start + step * range.step);
            let samples = places.map(|place| self.sample(py, place as usize)).collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, samples)?.into_any());
        }
        let Ok(place) = at.extract::<isize>() else {
            let kind = at.get_type().name()?;
            return Err(PyTypeError::new_err(format!("list indices must be integers or slices, not {kind}")));
        };
        let place = if place < 0 { place + self.ends.len() as isize } else { place };
        if !(0..self.ends.len() as isize).contains(&place) {
            return Err(PyIndexError::new_err("list index out of range"));
        }
        Ok(self.sample(py, place as usize)?.into_any())
    }

    /// A copy of it is the list again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyList>,))> {
        let samples = (0..self.ends.len()).map(|place| self.sample(py, place)).collect::<PyResult<Vec<_>>>()?;
        Ok((py.get_type::<PyList>(), (PyList::new(py, samples)?,)))
    }
}

impl PackedSamples {
    fn sample<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyTuple>> {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let path = PyString::from_bytes(py, &self.paths[start as usize..self.ends[place] as usize])?;
        PyTuple::new(py, [path.into_any(), self.labels[place].into_pyobject(py)?.into_any()])
    }
}
