//! Python objects that are looked up once and then remembered.
//!
//! `PyOnceLock::get_or_init` and similar methods hold a lock while they look something up, and that may run Python code and let
//! another
//! thread fork: in the child the lock would stay taken for ever. Here nothing is locked meanwhile. Two threads may look the same
//! thing up at once; the first one to finish counts. What is remembered is stored with the GIL held, as it is during `os.fork`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMapping, PyString};

/// What is in the cell; made and put there if it is empty.
pub fn remember<'a, T>(cell: &'a PyOnceLock<T>, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'a T> {
    if cell.get(py).is_none() {
        let made = make()?;
        // Another thread may have been faster.
        let _ = cell.set(py, made);
    }
    Ok(cell.get(py).expect("it was filled just now, and is never emptied"))
}

/// A module's attribute.
pub fn imported<'py>(
    cell: &'static PyOnceLock<Py<PyAny>>,
    py: Python<'py>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    Ok(remember(cell, py, || Ok(py.import(module)?.getattr(name)?.unbind()))?.bind(py))
}

/// A Python string that is made once: for `intern!`.
pub fn word<'py>(cell: &'static PyOnceLock<Py<PyString>>, py: Python<'py>, text: &str) -> &'py Bound<'py, PyString> {
    let made = remember(cell, py, || Ok(PyString::intern(py, text).unbind()));
    made.expect("making a string does not raise").bind(py)
}

/// As PyO3's, without its lock.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static WORD: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::types::PyString>> = pyo3::sync::PyOnceLock::new();
        $crate::once::word(&WORD, $py, $text)
    }};
}
pub(crate) use intern;

/// Makes PyO3 look up, while the module is imported, what it remembers behind a lock of its own.
pub fn warm_up(py: Python<'_>) {
    let _ = py.NotImplemented().bind(py).cast::<PyMapping>();
}
