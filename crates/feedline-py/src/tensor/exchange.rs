//! A tensor's or an array's bytes, for as long as a call lasts: nothing is allocated and nobody's count changes.
//!
//! torch offers a table of C functions (`__dlpack_c_exchange_api__`, DLPack 1.2) that fills a description in place, in a fraction
//! of the time of a capsule. Versions of torch without it go by capsules. Arrays go by the buffer protocol.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use feedline_core::schema::DType;
use feedline_shm::SourceBytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

use super::{CPU, DlTensor, describe_capsule, from_dlpack};
use crate::once::intern;

const NAME: &CStr = c"dlpack_exchange_api";
const MAJOR_VERSION: u32 = 1;

#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    _previous: *mut c_void,
    _allocate: *mut c_void,
    _from_object: *mut c_void,
    _to_object: *mut c_void,
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
}

/// How to get at the bytes of instances of one tensor class.
pub struct TensorReader {
    class: Py<PyType>,
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
}

/// What a tensor or array looks like while it is lent.
pub struct Lent<'a> {
    /// `None` for bytes that have no such type here.
    pub dtype: Option<DType>,
    pub shape: &'a [i64],
    /// `None` if they are not in C order without gaps.
    pub bytes: Option<SourceBytes<'a>>,
}

impl TensorReader {
    /// For exact instances of this class.
    pub fn new(class: &Bound<'_, PyType>) -> Self {
        let capsule = class.getattr_opt(intern!(class.py(), "__dlpack_c_exchange_api__")).ok().flatten();
        let pointer = capsule
            .as_ref()
            .and_then(|capsule| capsule.cast::<PyCapsule>().ok())
            .and_then(|capsule| capsule.pointer_checked(Some(NAME)).ok());
        let describe = pointer.and_then(|pointer| {
            // SAFETY: a capsule of this name holds the table, which lives as long as the class does: for ever.
            let api = unsafe { pointer.cast::<ExchangeApi>().as_ref() };
            api.describe.filter(|_| api.major == MAJOR_VERSION)
        });
        Self { class: class.clone().unbind(), describe }
    }

    /// Whether an object is an instance of exactly that class.
    pub fn reads(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type().is(self.class.bind(object.py()))
    }

    /// Lends a tensor of that class. `None` if it is of another, not in host memory, or can't be described.
    pub fn lend<T>(&self, tensor: &Bound<'_, PyAny>, look: impl FnOnce(Lent<'_>) -> T) -> Option<T> {
        if !self.reads(tensor) {
            return None;
        }
        let Some(describe) = self.describe else { return lend_by_capsule(tensor, look) };
        let mut out = MaybeUninit::<DlTensor>::uninit();
        // SAFETY: the object is an instance of the class that the table belongs to (just checked), the GIL is held, and `out` has room
        // for a description.
        let status = unsafe { describe(tensor.as_ptr().cast(), out.as_mut_ptr()) };
        if status != 0 {
            drop(PyErr::take(tensor.py()));
            return None;
        }
        // SAFETY: 0 says that it was filled in.
        let tensor = unsafe { out.assume_init() };
        if tensor.device_type != CPU {
            return None;
        }
        let rank = usize::try_from(tensor.ndim).ok()?;
        let dims = |pointer: *mut i64| {
            // SAFETY: shape and strides, where given, have `ndim` entries, which live until we return.
            if rank == 0 || pointer.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(pointer, rank) } }
        };
        let (shape, strides) = (dims(tensor.shape), dims(tensor.strides));
        let dtype = from_dlpack(tensor.code, tensor.bits, tensor.lanes);
        let elements = shape.iter().product::<i64>() as usize;
        let len_bytes = elements * usize::from(tensor.bits).div_ceil(8) * usize::from(tensor.lanes);
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        let is_dense = tensor.strides.is_null() || elements <= 1 || is_c_order(shape, strides);
        // SAFETY: dense, so all elements are within the tensor's own memory, which it keeps until we return.
        let bytes = is_dense.then(|| unsafe { SourceBytes::new(start, len_bytes) });
        Some(look(Lent { dtype, shape, bytes }))
    }
}

fn is_c_order(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&dim, &stride)| {
        let fits = dim == 1 || stride == expected;
        expected *= dim;
        fits
    })
}

fn lend_by_capsule<T>(tensor: &Bound<'_, PyAny>, look: impl FnOnce(Lent<'_>) -> T) -> Option<T> {
    let capsule = tensor.call_method0(intern!(tensor.py(), "__dlpack__")).ok()?;
    let described = describe_capsule(&capsule).ok()?.ok()?;
    let shape: Vec<i64> = described.shape.iter().map(|&dim| dim as i64).collect();
    let bytes = described.order.is_c().then(|| described.data.to_copy());
    Some(look(Lent { dtype: Some(described.dtype), shape: &shape, bytes }))
}

/// Lends what has the buffer protocol. `None` if it has not, or has gaps.
pub fn lend_buffer<T>(object: &Bound<'_, PyAny>, look: impl FnOnce(Lent<'_>) -> T) -> Option<T> {
    struct Release(ffi::Py_buffer);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: filled by `PyObject_GetBuffer`, released once, with the GIL held as by whoever made it.
            unsafe { ffi::PyBuffer_Release(&raw mut self.0) };
        }
    }
    let mut view = MaybeUninit::<ffi::Py_buffer>::uninit();
    let flags = ffi::PyBUF_C_CONTIGUOUS;
    // SAFETY: the object is alive, the GIL is held, and `view` has room.
    let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
    if status != 0 {
        drop(PyErr::take(object.py()));
        return None;
    }
    // SAFETY: 0 says that it was filled in.
    let view = Release(unsafe { view.assume_init() });
    let rank = view.0.ndim as usize;
    let shape: Vec<i64> = if rank == 0 || view.0.shape.is_null() {
        Vec::new()
    } else {
        // SAFETY: a shape, where given, has `ndim` entries, which live as long as the view.
        let shape = unsafe { std::slice::from_raw_parts(view.0.shape, rank) };
        shape.iter().map(|&dim| dim as i64).collect()
    };
    // SAFETY: contiguous (asked for), so these are `len` readable bytes, until the view is released.
    let bytes = unsafe { SourceBytes::new(view.0.buf.cast(), view.0.len as usize) };
    Some(look(Lent { dtype: None, shape: &shape, bytes: Some(bytes) }))
}

/// A part of what a Python object keeps in its own memory, behind its head: the state of a generator, for example. `None` if it isn't
/// all inside the object.
pub fn inner_bytes<'a>(object: &'a Bound<'_, PyAny>, offset: usize, len_bytes: usize) -> Option<SourceBytes<'a>> {
    let size: usize = object.get_type().getattr(intern!(object.py(), "__basicsize__")).ok()?.extract().ok()?;
    if offset < size_of::<ffi::PyObject>() || offset.checked_add(len_bytes)? > size {
        return None;
    }
    let start = object.as_ptr().cast::<u8>().wrapping_add(offset);
    // SAFETY: an object has `__basicsize__` bytes, zeroed or written when it was made, for as long as it is borrowed.
    Some(unsafe { SourceBytes::new(start, len_bytes) })
}
