//! Explanations between Rust and `feedline._errors`: there, a text is a tuple of strings and mentions of options.
//!
//! A mention is a tuple: the option's keyword, what is said of it ("name", "value", "given", "shown" for a given value that only
//! Python can show, "or_none"), and the value.

use feedline_core::explain::{Mention, Part, Said, Text};
use feedline_core::options::{Name, Value};
use feedline_core::{Explanation, Reader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::options::{from_python, to_python};

/// Words an explanation, with keywords for Python or with flags for a command line.
#[pyfunction]
pub fn worded(what: &Bound<'_, PyTuple>, hint: &Bound<'_, PyTuple>, for_command_line: bool) -> PyResult<String> {
    let explanation = Explanation { what: text(what)?, hint: text(hint)? };
    Ok(explanation.worded(if for_command_line { Reader::CommandLine } else { Reader::Python }))
}

/// The `feedline._errors.Explanation`, a string.
pub fn explanation<'py>(py: Python<'py>, explanation: &Explanation) -> PyResult<Bound<'py, PyAny>> {
    let arguments = (parts(py, &explanation.what)?, parts(py, &explanation.hint)?);
    py.import("feedline._errors")?.getattr("Explanation")?.call1(arguments)
}

fn parts<'py>(py: Python<'py>, text: &Text) -> PyResult<Bound<'py, PyTuple>> {
    let parts = text.0.iter().map(|part| match part {
        Part::Plain(words) => Ok(words.into_pyobject(py)?.into_any()),
        Part::Option(Mention { option, said }) => {
            let (said, value) = match said {
                Said::Name => ("name", &Value::Nothing),
                Said::OrNone => ("or_none", &Value::Nothing),
                Said::Value(value) => ("value", value),
                Said::Given(value @ (Value::Other(_) | Value::Huge(_))) => ("shown", value),
                Said::Given(value) => ("given", value),
            };
            Ok((option.keyword(), said, to_python(py, value)?).into_pyobject(py)?.into_any())
        }
    });
    PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

fn text(parts: &Bound<'_, PyTuple>) -> PyResult<Text> {
    let part = |part: Bound<'_, PyAny>| -> PyResult<Part> {
        if part.is_instance_of::<PyString>() {
            return Ok(Part::Plain(part.extract()?));
        }
        let (keyword, said, object): (String, String, Bound<'_, PyAny>) = part.extract()?;
        let option = Name::of(&keyword).ok_or_else(|| PyValueError::new_err(format!("no option {keyword:?}")))?;
        let said = match said.as_str() {
            "name" => Said::Name,
            "or_none" => Said::OrNone,
            "value" => Said::Value(from_python(&object)),
            "given" => Said::Given(from_python(&object)),
            "shown" => Said::Given(Value::Other(object.extract()?)),
            other => return Err(PyValueError::new_err(format!("nothing is said by {other:?}"))),
        };
        Ok(Part::Option(Mention { option, said }))
    };
    parts.iter().map(part).collect::<PyResult<_>>().map(Text)
}
