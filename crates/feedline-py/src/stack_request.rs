//! Where the loader hangs: the Python stack of its thread, if the GIL can be had.

use std::sync::Arc;

use feedline_core::server::Ask;
use pyo3::prelude::*;

/// A way to ask for the stack of the calling thread, from another one.
pub fn ask_for_stack(py: Python<'_>) -> PyResult<Arc<Ask>> {
    let thread: u64 = py.import("threading")?.call_method0("get_ident")?.extract()?;
    Ok(Arc::new(move |say| {
        // The answer for as long as we wait for the GIL.
        let pid = std::process::id();
        say(format!("it is in native code that holds the GIL; see where with: py-spy dump --native --pid {pid}"));
        let _ = Python::try_attach(|py| -> PyResult<()> {
            let stack_of = py.import("feedline._stack")?.getattr("stack_of")?;
            // Source lines come from files, which may be on the disk that the loader hangs on.
            for with_source in [false, true] {
                say(stack_of.call1((thread, with_source))?.extract()?);
            }
            Ok(())
        });
    }))
}
