//! What the core logs goes to Python's logger `feedline`. Whether and where it appears is the application's business.

use std::fmt::{Debug, Write};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

struct PythonLogging;

/// Once per process; later calls change nothing.
pub fn install() {
    let _ = tracing::subscriber::set_global_default(PythonLogging);
}

impl Subscriber for PythonLogging {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("feedline")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Message(String::new());
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        // A log that can't be delivered, at the interpreter's end or because a handler raises, must not disturb the feed.
        let _ = Python::try_attach(|py| -> PyResult<()> {
            let logger = py.import("logging")?.call_method1("getLogger", ("feedline",))?;
            logger.call_method1("log", (level, "%s", text.0))?;
            Ok(())
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
