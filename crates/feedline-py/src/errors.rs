//! From the core's errors to the exceptions of `feedline._errors`.

use feedline_core::{Error, Explanation, Failure, FailureKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::explain::explanation;
use crate::leaf_lock::assert_none_held;
use crate::logging::deliver;
use crate::once::imported;

/// An exception class of ours, by name.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("feedline._errors")?.getattr(name)?.cast_into()?)
}

fn raise(py: Python<'_>, name: &str, what: &Explanation) -> PyErr {
    match class(py, name).and_then(|class| Ok((class, explanation(py, what)?.unbind()))) {
        Ok((class, message)) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    }
}

/// The exception for an invalid argument.
pub fn invalid(py: Python<'_>, what: impl Into<Explanation>) -> PyErr {
    raise(py, "FeedValueError", &what.into())
}

/// The exception for an error of the core.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::NotFound { .. } => "FeedNotFoundError",
        Error::BadName(_) | Error::Invalid(_) => "FeedValueError",
        Error::ServerLost(_) => "ServerLostError",
        Error::Failed(failure) => return failed(py, failure),
        Error::Ended { .. } => "FeedEndedError",
        Error::Stalled(_) => "StalledError",
        Error::Gone(_) => "SamplesGoneError",
        Error::BatchSize(_) => "BatchSizeError",
        Error::Memory(_) => "FeedMemoryError",
        Error::Interrupted => {
            // The hook has stored the real exception; without one there was nothing to report.
            return INTERRUPT
                .with(std::cell::RefCell::take)
                .unwrap_or_else(|| raise(py, "FeedlineError", &error.explanation()));
        }
        Error::NameTaken { .. }
        | Error::Folder { .. }
        | Error::FolderFull { .. }
        | Error::Protocol(_)
        | Error::Ring(_)
        | Error::Io { .. } => "FeedlineError",
    };
    raise(py, name, &error.explanation())
}

/// What to raise for an error that ended a wait: the exception of a signal that came meanwhile, if one did. A terminal's
/// Ctrl-C reaches a server and its consumers at once, and their users asked them to end; they need not hear that a feed was lost.
pub fn after_wait(py: Python<'_>, error: &Error) -> PyErr {
    let signalled = if matches!(error, Error::Interrupted) { None } else { py.check_signals().err() };
    signalled.unwrap_or_else(|| to_python(py, error))
}

/// The exception for a feed that failed.
pub fn failed(py: Python<'_>, failure: &Failure) -> PyErr {
    let name = match failure.kind {
        FailureKind::Loader => {
            let made = py.import("feedline._errors").and_then(|errors| {
                errors.call_method1("loader_error", (failure.message.to_string(), failure.raised.as_deref()))
            });
            return made.map_or_else(|error| error, PyErr::from_value);
        }
        FailureKind::Schema => "SchemaError",
        FailureKind::Memory => "FeedMemoryError",
        FailureKind::Server => "FeedlineError",
        FailureKind::Stopped => "ServerLostError",
        FailureKind::Stuck => "StalledError",
    };
    raise(py, name, &failure.message)
}

thread_local! {
    static INTERRUPT: std::cell::RefCell<Option<PyErr>> = const { std::cell::RefCell::new(None) };
}

/// The hook that lets Ctrl-C end a wait: Python's pending signals are handled on the calling thread.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over Python's lifetime")]
pub fn check_signals() -> Result<(), Error> {
    act(|py| py.check_signals())
}

/// Runs Python code in the middle of a wait. What it raises ends the wait, and is raised in its place.
pub fn act<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<(), Error> {
    assert_none_held();
    let raised = Python::try_attach(|py| {
        deliver(py);
        call(py).err()
    });
    let raised = raised.flatten();
    match raised {
        None => Ok(()),
        Some(error) => {
            INTERRUPT.with(|slot| slot.replace(Some(error)));
            Err(Error::Interrupted)
        }
    }
}

/// What [`act`] stored on this thread.
pub fn take_interrupt() -> Option<PyErr> {
    INTERRUPT.with(std::cell::RefCell::take)
}

/// The traceback as Python prints it.
pub fn traceback(py: Python<'_>, error: &PyErr) -> String {
    static FORMAT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let text = || -> PyResult<String> {
        let format = imported(&FORMAT, py, "traceback", "format_exception")?;
        let lines: Vec<String> = format.call1((error.get_type(py), error.value(py), error.traceback(py)))?.extract()?;
        Ok(lines.concat())
    };
    text().unwrap_or_else(|_| error.to_string())
}
