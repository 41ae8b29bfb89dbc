//! Forwards the core's log lines to Python's logger `feedline`. The application decides whether and where they appear.
//!
//! Logging takes neither the GIL nor a lock: the core logs while it holds locks that others wait for with the GIL in hand. Python
//! gets the lines
//!
//! - of a thread that came from Python when it goes back there, or checks for signals while it waits ([`detached`], [`deliver`]);
//! - of a thread of our own at once.
//!
//! Either way another thread calls Python's logging. A thread of ours must not wait for a GIL that a hanging loader holds; and
//! the
//! handler of a signal, which Python runs on its main thread, must not raise inside of it and leave its locks locked.

use std::cell::{Cell, RefCell};
use std::fmt::{Debug, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use feedline_shm::fork::Origin;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::leaf_lock::assert_none_held;

/// Lines beyond this many that Python doesn't take are lost.
const MOST_LINES: usize = 100;
const MOMENT: Duration = Duration::from_millis(50);

type Line = (u8, String);

struct PythonLogging;

/// Once per process; later calls change nothing.
pub fn install() {
    let _ = tracing::subscriber::set_global_default(PythonLogging);
}

impl Subscriber for PythonLogging {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // This crate is `_core` to the compiler.
        let is_ours = ["feedline", "_core"].iter().any(|ours| metadata.target().starts_with(ours));
        metadata.is_event() && *metadata.level() <= Level::INFO && is_ours
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Message(String::new());
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        if CALLS.get() > 0 {
            LINES.with_borrow_mut(|lines| {
                if lines.len() < MOST_LINES {
                    lines.push((level, text.0));
                }
            });
        } else {
            let _ = LOG_THREAD.try_with(|log_thread| {
                LogThread::of_this_process(&mut log_thread.borrow_mut()).note(vec![(level, text.0)]);
            });
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

thread_local! {
    /// How many calls from Python this thread is in.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// What it has logged since its lines were last delivered.
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    /// Delivers lines for this thread, and ends with it.
    static LOG_THREAD: RefCell<Option<LogThread>> = const { RefCell::new(None) };
}

/// Runs what needs no GIL without it, and delivers what that logs before it returns.
pub fn detached<T: Ungil>(py: Python<'_>, work: impl FnOnce() -> T + Ungil) -> T {
    let call = Call::begin();
    let outcome = py.detach(work);
    drop(call);
    deliver(py);
    outcome
}

/// A call from Python, until it is dropped.
struct Call;

impl Call {
    fn begin() -> Self {
        CALLS.set(CALLS.get() + 1);
        Self
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.set(CALLS.get() - 1);
    }
}

/// Delivers what this thread has logged.
pub fn deliver(py: Python<'_>) {
    assert_none_held();
    let lines = LINES.take();
    if lines.is_empty() {
        return;
    }
    // Not borrowed while Python runs: a handler may call us, and log again.
    let mut log_thread = LOG_THREAD.try_with(RefCell::take).ok().flatten();
    py.detach(|| LogThread::of_this_process(&mut log_thread).note(lines));
    let _ = LOG_THREAD.try_with(|place| place.replace(log_thread));
}

fn log(py: Python<'_>, (level, text): &Line) {
    let deliver = || -> PyResult<()> {
        let logger = py.import("logging")?.call_method1("getLogger", ("feedline",))?;
        logger.call_method1("log", (level, "%s", text))?;
        Ok(())
    };
    // A log line that can't be delivered, because a handler raises, must not disturb the feed.
    let _ = deliver();
}

/// Hands lines to Python on another thread.
struct LogThread {
    lines: SyncSender<Line>,
    delivered: Receiver<()>,
    /// A forked child has no such thread.
    origin: Origin,
}

impl LogThread {
    /// The existing thread, or a new one.
    fn of_this_process(log_thread: &mut Option<Self>) -> &Self {
        if log_thread.as_ref().is_some_and(|log_thread| !log_thread.origin.is_here()) {
            // What belongs to the parent's thread is left alone.
            std::mem::forget(log_thread.take());
        }
        log_thread.get_or_insert_with(Self::start)
    }

    fn start() -> Self {
        let (lines, to_log) = sync_channel::<Line>(MOST_LINES);
        let (deliver, delivered) = sync_channel(MOST_LINES + 1);
        let run = move || {
            for line in to_log {
                // At the interpreter's end nobody takes it.
                let _ = Python::try_attach(|py| log(py, &line));
                let _ = deliver.try_send(());
            }
        };
        // Without a thread lines are lost: there are worse problems then.
        let _ = std::thread::Builder::new().name("feedline-log".into()).spawn(run);
        Self { lines, delivered, origin: Origin::here() }
    }

    /// Waits a moment for each line, so that lines usually come before what follows them.
    fn note(&self, lines: Vec<Line>) {
        while self.delivered.try_recv().is_ok() {}
        let sent = lines.into_iter().filter(|line| self.lines.try_send(line.clone()).is_ok()).count();
        for _ in 0..sent {
            if self.delivered.recv_timeout(MOMENT).is_err() {
                return;
            }
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
