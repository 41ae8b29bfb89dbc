//! A server's options as Python gives them. What they are is in `feedline_core::options`.

use std::ffi::OsString;
use std::path::PathBuf;

use feedline_core::Explanation;
use feedline_core::options::{Declared, Name, Options, TABLE, Value};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::invalid;

/// What was given, once it was found to be possible; the defaults of the others.
#[pyclass(frozen, module = "feedline._core")]
pub struct ServerOptions {
    pub options: Options,
    /// In the order of the table.
    values: Vec<Value>,
}

#[pymethods]
impl ServerOptions {
    /// Checks the keywords that a function was called with.
    #[new]
    fn new(given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let values = TABLE.iter().map(Declared::default).collect();
        let mut own = Self { options: Options::default(), values };
        for (keyword, object) in given {
            own.set(&keyword.extract::<String>()?, &object)?;
        }
        Ok(own)
    }

    /// An option's value, as plain as it can be.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let name = Name::of(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        to_python(py, &self.values[name as usize])
    }

    /// The same but for one of them.
    fn but(&self, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut own = Self { options: self.options.clone(), values: self.values.clone() };
        own.set(name, object)?;
        Ok(own)
    }
}

impl ServerOptions {
    fn set(&mut self, keyword: &str, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(name) = Name::of(keyword) else {
            let message = format!("unexpected keyword argument '{keyword}': a server has no such option");
            return Err(PyTypeError::new_err(message));
        };
        let value = from_python(object);
        match self.options.set(name, &value) {
            Ok(()) => self.values[name as usize] = value,
            Err(refused) => return Err(invalid(object.py(), Explanation::refused(name, value, &refused))),
        }
        Ok(())
    }
}

type Row<'py> = (&'static str, String, Bound<'py, PyAny>, &'static str);

/// Every option of a server: its keyword, its type as Python writes it, its default, and what it is for.
#[pyfunction]
pub fn server_options(py: Python<'_>) -> PyResult<Vec<Row<'_>>> {
    let row = |option: &'static Declared| {
        let default = to_python(py, &option.default())?;
        Ok((option.name.keyword(), option.form.annotation(), default, option.help))
    };
    TABLE.iter().map(row).collect()
}

/// What a Python object is, as far as an option can be that; how it is shown, where it isn't what it seems to be: `float()` of an
/// array raises.
pub fn from_python(object: &Bound<'_, PyAny>) -> Value {
    converted(object).unwrap_or_else(|_| shown(object))
}

fn converted(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = object.py();
    if object.is_none() {
        return Ok(Value::Nothing);
    }
    if object.is_instance_of::<PyBool>() || is_numpys_bool(object) {
        return Ok(Value::Bool(object.is_truthy()?));
    }
    if object.is_instance_of::<PyString>() {
        return Ok(match object.extract() {
            Ok(text) => Value::Text(text),
            Err(_) => Value::Path(object.extract::<OsString>()?.into()),
        });
    }
    if object.hasattr("__fspath__")? {
        return Ok(Value::Path(object.extract::<PathBuf>()?));
    }
    // Numbers of NumPy and torch as well.
    if let Ok(number) = py.import("operator")?.call_method1("index", (object,)) {
        return Ok(number.extract().map_or_else(|_| huge(&number), Value::Int));
    }
    if object.hasattr("__float__")? {
        return Ok(Value::Float(py.get_type::<PyFloat>().call1((object,))?.extract()?));
    }
    if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
        return Ok(Value::List(object.try_iter()?.map(|one| Ok(from_python(&one?))).collect::<PyResult<_>>()?));
    }
    Ok(shown(object))
}

fn shown(object: &Bound<'_, PyAny>) -> Value {
    let class = || object.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    Value::Other(object.repr().map_or_else(|_| format!("<{}>", class()), |shown| shown.to_string()))
}

/// In decimal as far as Python writes that: it refuses to for thousands of digits.
fn huge(number: &Bound<'_, PyAny>) -> Value {
    let written = number.repr().map(|text| text.to_string());
    Value::Huge(written.or_else(|_| number.call_method1("__format__", ("#x",))?.extract()).unwrap_or_default())
}

fn is_numpys_bool(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type();
    class.name().is_ok_and(|name| name == "bool" || name == "bool_") && !object.is_instance_of::<PyInt>()
}

/// A value as a Python object.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nothing => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Text(text) | Value::Other(text) | Value::Huge(text) => text.into_pyobject(py)?.into_any(),
        Value::Path(path) => path.as_os_str().into_pyobject(py)?.into_any(),
        Value::List(values) => {
            let values = values.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, values)?.into_any()
        }
    })
}
