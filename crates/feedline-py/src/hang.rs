//! Calls into a loader, which may never return.
//!
//! When the interpreter ends, Python before 3.14 ends every other thread that wakes up in Python code, by unwinding it. Our
//! frames are below that code, and unwinding Rust frames aborts the process. So the frame next to Python's has a guard, which
//! is dropped only in that case, and then holds the thread where it is: Python itself does so from 3.14 on.

#![allow(unsafe_code)]

use std::hint::black_box;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

type Unary = unsafe extern "C-unwind" fn(*mut PyObject) -> *mut PyObject;
type Binary = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

struct Hang;

impl Drop for Hang {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// `next(batches)`; `None` at the end.
pub fn next<'py>(batches: &Bound<'py, PyIterator>) -> Option<PyResult<Bound<'py, PyAny>>> {
    let item = unary(ffi::PyIter_Next, batches);
    // SAFETY: a new reference, or null with or without an exception.
    match unsafe { Bound::from_owned_ptr_or_opt(batches.py(), item) } {
        Some(item) => Some(Ok(item)),
        None => PyErr::take(batches.py()).map(Err),
    }
}

/// `iter(loader)`.
pub fn iter<'py>(loader: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let batches = unary(ffi::PyObject_GetIter, loader);
    // SAFETY: a new reference, or null with an exception.
    let batches = unsafe { Bound::from_owned_ptr_or_err(loader.py(), batches) }?;
    Ok(batches.cast_into()?)
}

/// `callable(*arguments)`.
pub fn call<'py>(callable: &Bound<'py, PyAny>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the same function; that it may unwind is all that the type adds.
    let function: Binary = unsafe { std::mem::transmute(ffi::PyObject_CallObject as *const ()) };
    let hang = Hang;
    // SAFETY: the GIL is held, and both objects are borrowed for the call. `black_box` hides which function it is: the compiler
    // takes those of `ffi` for ones that never unwind.
    let result = unsafe { black_box(function)(callable.as_ptr(), arguments.as_ptr()) };
    std::mem::forget(hang);
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

fn unary(function: unsafe extern "C" fn(*mut PyObject) -> *mut PyObject, argument: &Bound<'_, PyAny>) -> *mut PyObject {
    // SAFETY: as in `call`.
    let function: Unary = unsafe { std::mem::transmute(function) };
    let hang = Hang;
    // SAFETY: as in `call`.
    let result = unsafe { black_box(function)(argument.as_ptr()) };
    std::mem::forget(hang);
    result
}
