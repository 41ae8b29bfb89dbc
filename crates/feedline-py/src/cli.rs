//! The command line, as Python calls it.

use std::ffi::OsString;

use feedline_cli::{Invocation, Outcome};
use pyo3::prelude::*;

/// Runs a command line; `command` is how to start this program again. Returns an exit code, or the name of a command that is left
/// to Python and its options as JSON.
#[pyfunction]
pub fn cli(py: Python<'_>, args: Vec<OsString>, command: Vec<OsString>) -> (Option<u8>, String, String) {
    let invocation = Invocation { command, is_python: true };
    match py.detach(|| feedline_cli::main(args, &invocation)) {
        Outcome::Exit(code) => (Some(code), String::new(), String::new()),
        Outcome::Python { command, options } => (None, command.to_owned(), options.to_string()),
    }
}
