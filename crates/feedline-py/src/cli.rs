//! The command line, as Python calls it.

use std::ffi::OsString;

use feedline_cli::{Invocation, Outcome};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::to_python;

type Left<'py> = (Option<u8>, String, String, Bound<'py, PyDict>);

/// Runs a command line; `command` is how to start this program again. Returns an exit code, or the name of a command that is left
/// to Python, its options as JSON, and those of its server by keyword.
#[pyfunction]
pub fn cli(py: Python<'_>, args: Vec<OsString>, command: Vec<OsString>) -> PyResult<Left<'_>> {
    let invocation = Invocation { command, is_python: true };
    let by_keyword = PyDict::new(py);
    Ok(match py.detach(|| feedline_cli::main(args, &invocation)) {
        Outcome::Exit(code) => (Some(code), String::new(), String::new(), by_keyword),
        Outcome::Python { command, options, server_options } => {
            for (name, value) in &server_options.0 {
                by_keyword.set_item(name.keyword(), to_python(py, value)?)?;
            }
            (None, command.to_owned(), options.to_string(), by_keyword)
        }
    })
}
