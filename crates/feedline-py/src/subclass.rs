//! Tensors of subclasses: a plain tensor, and the class and attributes of the instance.
//!
//! `feedline._batch_classes` has the other half, and the rules: which classes can travel, and how a consumer finds them again.

use feedline_core::{Plain, Scalar, Subclass};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::flatten::{Refusal, class, type_name};
use crate::once::{imported, intern};

/// Splits an instance, or says why that would lose something.
pub fn split<'py>(tensor: &Bound<'py, PyAny>) -> Result<(Bound<'py, PyAny>, Subclass), Refusal> {
    let py = tensor.py();
    let refused = |error: PyErr| {
        if error.is_instance_of::<PyTypeError>(py) {
            return Refusal::Unsupported(error.value(py).to_string().into());
        }
        Refusal::Raised(error)
    };
    let split = py.import("feedline._batch_classes")?.call_method1("split_tensor", (tensor,)).map_err(refused)?;
    let (plain, state): (Bound<'py, PyAny>, Bound<'py, PyDict>) = split.extract()?;
    let mut attributes = Vec::with_capacity(state.len());
    for (name, value) in state {
        let name: String = name.extract()?;
        let Some(value) = to_plain(&value)? else {
            let (class, value) = (type_name(tensor), type_name(&value));
            let what = format!(
                "a {class} whose attribute {name} is a {value}; None, bool, int, float, str, members of enumerations, and \
                 tuples or lists of these can travel with it"
            );
            return Err(Refusal::Unsupported(what.into()));
        };
        attributes.push((name, value));
    }
    Ok((plain, Subclass { class: class(tensor)?, attributes }))
}

fn to_plain(value: &Bound<'_, PyAny>) -> PyResult<Option<Plain>> {
    if let Ok(tuple) = value.cast::<PyTuple>() {
        // A torch.Size equals the tuple with the same elements.
        let is_plain = value.is_exact_instance_of::<PyTuple>() || type_name(value) == "torch.Size";
        let parts: PyResult<Option<_>> = tuple.iter().map(|part| to_scalar(&part)).collect();
        return Ok(parts?.filter(|_| is_plain).map(Plain::Tuple));
    }
    if let Ok(list) = value.cast_exact::<PyList>() {
        let parts: PyResult<Option<_>> = list.iter().map(|part| to_scalar(&part)).collect();
        return Ok(parts?.map(Plain::List));
    }
    Ok(to_scalar(value)?.map(Plain::Scalar))
}

fn to_scalar(value: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    static ENUM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    if value.is_none() {
        return Ok(Some(Scalar::Nothing));
    }
    if value.is_instance(imported(&ENUM, py, "enum", "Enum")?)? {
        let name: Option<String> = value.getattr(intern!(py, "name"))?.extract()?;
        let Some(name) = name else { return Ok(None) };
        let members = value.get_type().getattr(intern!(py, "__members__"))?;
        // Some flags are combinations of members.
        let is_member = members.contains(&name)? && members.get_item(&name)?.is(value);
        return Ok(if is_member { Some(Scalar::Member(class(value)?, name)) } else { None });
    }
    Ok(if let Ok(value) = value.cast_exact::<PyBool>() {
        Some(Scalar::Bool(value.is_true()))
    } else if let Ok(value) = value.cast_exact::<PyInt>() {
        value.extract().ok().map(Scalar::Int)
    } else if let Ok(value) = value.cast_exact::<PyFloat>() {
        Some(Scalar::Float(value.value().to_bits()))
    } else if let Ok(value) = value.cast_exact::<PyString>() {
        value.extract().ok().map(Scalar::Str)
    } else {
        None
    })
}
