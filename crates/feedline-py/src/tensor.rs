//! Tensors in and out, without a copy: DLPack, NumPy's array interface and the buffer protocol.
//!
//! Out: an [`Exported`] or a DLPack capsule owns a [`Window`]; the lease under it ends when the last of them dies, on any
//! thread, with or without the GIL. In: a [`Borrowed`] keeps the Python object alive and points at its bytes.
#![allow(unsafe_code)]

pub mod exchange;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use feedline_core::DimOrder;
use feedline_core::schema::DType;
use feedline_shm::{SourceBytes, Window};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::once::intern;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// What a capsule of ours owns.
struct Managed {
    tensor: DlManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _window: Window,
}

/// A tensor before a capsule owns it. If none ever does, the lease ends here.
struct Unowned(NonNull<DlManagedTensor>);

impl Unowned {
    fn new(managed: Managed) -> Self {
        let managed = Box::into_raw(Box::new(managed));
        // SAFETY: `managed` is a live box that only we know; its vectors don't move any more.
        let owned = unsafe { &mut *managed };
        owned.tensor.tensor.shape = owned.shape.as_mut_ptr();
        if !owned.strides.is_empty() {
            owned.tensor.tensor.strides = owned.strides.as_mut_ptr();
        }
        owned.tensor.context = managed.cast();
        Self(NonNull::from(&mut owned.tensor))
    }

    /// The consumer of the capsule calls the deleter from now on.
    fn give_away(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unowned {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and given to nobody.
        unsafe { delete(self.0.as_ptr()) };
    }
}

const CPU: i32 = 1;
const NAME: &CStr = c"dltensor";

fn to_dlpack(dtype: DType) -> (u8, u8) {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        DType::Bool => 6,
    };
    (code, dtype.len_bytes() as u8 * 8)
}

fn from_dlpack(code: u8, bits: u8, lanes: u16) -> Option<DType> {
    Some(match (code, bits, lanes) {
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::BF16,
        (5, 64, 1) => DType::C64,
        (5, 128, 1) => DType::C128,
        (6, 8, 1) => DType::Bool,
        _ => return None,
    })
}

unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: called once by the library that took the tensor, or by our capsule if nobody did; `context` is the box made in
    // `Unowned::new`.
    let context = unsafe { (*managed).context };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(context.cast::<Managed>()) });
}

unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that is going away; the library that took the tensor has renamed it.
    let is_ours = unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1;
    if is_ours {
        // SAFETY: the name was just checked, so the pointer is the one that `capsule` put there.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        // SAFETY: nobody took it, so it is ours to delete.
        unsafe { delete(managed.cast()) };
    }
}

/// A DLPack capsule over a window.
fn capsule<'py>(
    py: Python<'py>,
    window: Window,
    dtype: DType,
    shape: &[u64],
    order: &DimOrder,
) -> PyResult<Bound<'py, PyAny>> {
    let (code, bits) = to_dlpack(dtype);
    // Without strides it is in C order.
    let strides = if order.is_c() { Vec::new() } else { order.strides(shape, 1) };
    let tensor = DlTensor {
        data: window.as_ptr().cast(),
        device_type: CPU,
        device_id: 0,
        ndim: shape.len() as i32,
        code,
        bits,
        lanes: 1,
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let managed = Managed {
        tensor: DlManagedTensor { tensor, context: null_mut(), deleter: Some(delete) },
        shape: shape.iter().map(|&dim| dim as i64).collect(),
        strides,
        _window: window,
    };
    let managed = Unowned::new(managed);
    // SAFETY: pointer and name are valid, the destructor fits them, and the GIL is held (`py`).
    let capsule = unsafe { ffi::PyCapsule_New(managed.0.as_ptr().cast(), NAME.as_ptr(), Some(drop_capsule)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?;
    managed.give_away();
    Ok(capsule)
}

/// An array over a window, for consumers of the buffer protocol or of DLPack.
#[pyclass(frozen, module = "feedline._core")]
pub struct Exported {
    window: Window,
    dtype: DType,
    shape: Vec<u64>,
    order: DimOrder,
}

impl Exported {
    pub fn new(window: Window, dtype: DType, shape: Vec<u64>, order: DimOrder) -> Self {
        Self { window, dtype, shape, order }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// `None` for C order.
    pub fn strides_bytes(&self) -> Option<Vec<i64>> {
        (!self.order.is_c()).then(|| self.order.strides(&self.shape, self.dtype.len_bytes()))
    }

    /// A DLPack capsule over the window.
    pub fn capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        capsule(py, self.window.clone(), self.dtype, &self.shape, &self.order)
    }
}

#[pymethods]
impl Exported {
    #[pyo3(signature = (**_kwargs))]
    fn __dlpack__<'py>(&self, py: Python<'py>, _kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        self.capsule(py)
    }

    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [CPU, 0])
    }

    /// Bytes, flat, in the order in which they lie in memory. The view holds a reference to `slf`, and with it the lease.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let readonly = c_int::from(!this.window.is_writable());
        if readonly == 1 && flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("this feed was attached with mode=\"readonly\""));
        }
        let (data, len) = (this.window.as_ptr(), this.window.len_bytes());
        let owner = slf.as_ptr();
        // SAFETY: Python hands us a view to fill; the window's bytes live as long as `owner`, which the view then holds.
        let result = unsafe { ffi::PyBuffer_FillInfo(view, owner, data.cast(), len as isize, readonly, flags) };
        if result == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Bytes that a Python object owns, kept alive.
pub struct Borrowed {
    start: NonNull<u8>,
    len_bytes: usize,
    _owner: Py<PyAny>,
}

// SAFETY: the owner is alive and its bytes don't move; they are only read, as by any C extension that released the GIL.
unsafe impl Send for Borrowed {}

impl Borrowed {
    fn new(start: *mut u8, len_bytes: usize, owner: Py<PyAny>) -> Self {
        Self { start: NonNull::new(start).unwrap_or(NonNull::dangling()), len_bytes, _owner: owner }
    }

    /// The bytes of a Python `bytes`.
    pub fn bytes(object: &Bound<'_, pyo3::types::PyBytes>) -> Self {
        use pyo3::types::PyBytesMethods;
        let bytes = object.as_bytes();
        Self::new(bytes.as_ptr().cast_mut(), bytes.len(), object.clone().into_any().unbind())
    }

    /// The bytes, to be copied. A loader whose threads write to what it has yielded spoils its own batch, and nothing else.
    pub fn to_copy(&self) -> SourceBytes<'_> {
        // SAFETY:
        // - Readable, initialised: they are a tensor's, an array's or a `bytes`' own, as `new`'s callers read them there.
        // - For as long as the result lives: it borrows from `self`, and `_owner` keeps the memory and doesn't move it.
        unsafe { SourceBytes::new(self.start.as_ptr(), self.len_bytes) }
    }
}

/// A tensor's description.
pub struct Described {
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub order: DimOrder,
    pub data: Borrowed,
}

/// Why a tensor can't be taken as it is.
pub enum Unfit {
    /// It has gaps, or repeats elements. The caller should ask for a copy without, with its dimensions in this order.
    Strided(DimOrder),
    /// The caller should ask for a copy in host memory.
    Device,
    /// It can't be taken by DLPack.
    DType,
}

/// The order of an array's dimensions, or why it can't be taken as it lies.
fn order_of(shape: &[u64], strides: &[i64], unit: u64) -> Result<DimOrder, Unfit> {
    let order = DimOrder::of_strides(shape, strides);
    if order.is_dense(shape, strides, unit) { Ok(order) } else { Err(Unfit::Strided(order)) }
}

/// Reads a DLPack capsule, which keeps owning the tensor.
pub fn describe_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Result<Described, Unfit>> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(NAME))?;
    // SAFETY: a capsule named "dltensor" holds a DLManagedTensor, which lives as long as the capsule does.
    let tensor = unsafe { &(*pointer.cast::<DlManagedTensor>().as_ptr()).tensor };
    if tensor.device_type != CPU {
        return Ok(Err(Unfit::Device));
    }
    let Some(dtype) = from_dlpack(tensor.code, tensor.bits, tensor.lanes) else { return Ok(Err(Unfit::DType)) };
    let ndim = usize::try_from(tensor.ndim).map_err(|_| PyTypeError::new_err("a tensor of negative rank"))?;
    let dims = |pointer: *mut i64| {
        // SAFETY: shape and strides, where given, have `ndim` entries.
        if ndim == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, ndim) } }
    };
    let shape: Vec<u64> = dims(tensor.shape).iter().map(|&dim| dim.unsigned_abs()).collect();
    let len =
        feedline_core::schema::len_bytes(dtype, &shape).ok_or_else(|| PyTypeError::new_err("a tensor too large"))?;
    let strides = if tensor.strides.is_null() { &[] } else { dims(tensor.strides) };
    let order = match strides {
        [] => DimOrder::default(),
        strides => match order_of(&shape, strides, 1) {
            Ok(order) => order,
            Err(unfit) => return Ok(Err(unfit)),
        },
    };
    let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    let data = Borrowed::new(start, len as usize, capsule.clone().into_any().unbind());
    Ok(Ok(Described { dtype, shape, order, data }))
}

/// Reads a NumPy array of a known dtype through its array interface.
pub fn describe_array(array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Result<Described, Unfit>> {
    let interface = array.getattr(intern!(array.py(), "__array_interface__"))?;
    let shape: Vec<u64> = interface.get_item("shape")?.extract()?;
    let len =
        feedline_core::schema::len_bytes(dtype, &shape).ok_or_else(|| PyTypeError::new_err("an array too large"))?;
    let strides: Option<Vec<i64>> = interface.get_item("strides")?.extract()?;
    let order = match strides.map_or_else(|| Ok(DimOrder::default()), |by| order_of(&shape, &by, dtype.len_bytes())) {
        Ok(order) => order,
        Err(unfit) => return Ok(Err(unfit)),
    };
    let (address, _readonly): (usize, bool) = interface.get_item("data")?.extract()?;
    let start = std::ptr::with_exposed_provenance_mut(address);
    let data = Borrowed::new(start, len as usize, array.clone().unbind());
    Ok(Ok(Described { dtype, shape, order, data }))
}
