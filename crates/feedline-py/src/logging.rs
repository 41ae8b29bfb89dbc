//! What the core logs goes to Python's logger `feedline`. Whether and where it appears is the application's business.
//!
//! The server's control thread must not wait for a GIL that a hanging loader holds: its lines go through a thread of their own.

use std::cell::LazyCell;
use std::fmt::{Debug, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// As `feedline-core` names it.
const CONTROL_THREAD: &str = "feedline-control";
/// More than this many lines that Python doesn't take are lost.
const MOST_LINES: usize = 100;
const MOMENT: Duration = Duration::from_millis(50);

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
        if std::thread::current().name() == Some(CONTROL_THREAD) {
            let _ = SCRIBE.try_with(|scribe| scribe.note(level, text.0));
        } else {
            log(level, &text.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn log(level: u8, text: &str) {
    // A log that can't be delivered, at the interpreter's end or because a handler raises, must not disturb the feed.
    let _ = Python::try_attach(|py| -> PyResult<()> {
        let logger = py.import("logging")?.call_method1("getLogger", ("feedline",))?;
        logger.call_method1("log", (level, "%s", text))?;
        Ok(())
    });
}

thread_local! {
    /// The control thread's; it ends with it.
    static SCRIBE: LazyCell<Scribe> = LazyCell::new(Scribe::start);
}

/// Hands lines to Python on another thread.
struct Scribe {
    lines: SyncSender<(u8, String)>,
    delivered: Receiver<()>,
}

impl Scribe {
    fn start() -> Self {
        let (lines, to_log) = sync_channel::<(u8, String)>(MOST_LINES);
        let (deliver, delivered) = sync_channel(MOST_LINES + 1);
        let run = move || {
            for (level, text) in to_log {
                log(level, &text);
                let _ = deliver.try_send(());
            }
        };
        // Without a thread lines are lost: there are worse problems then.
        let _ = std::thread::Builder::new().name("feedline-log".into()).spawn(run);
        Self { lines, delivered }
    }

    /// Waits a moment, so that lines usually come before what follows them.
    fn note(&self, level: u8, text: String) {
        while self.delivered.try_recv().is_ok() {}
        if self.lines.try_send((level, text)).is_ok() {
            let _ = self.delivered.recv_timeout(MOMENT);
        }
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
