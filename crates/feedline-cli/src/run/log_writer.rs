//! Writes the run's own messages on a thread of its own: a slow reader must not delay signals to the
//! jobs.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::output::say;

/// The thread. It ends when all messages are written.
pub(super) struct LogWriter {
    texts: Option<Sender<String>>,
    thread: JoinHandle<()>,
}

impl LogWriter {
    pub fn start() -> std::io::Result<Self> {
        let (sender, receiver) = channel::<String>();
        let thread = std::thread::Builder::new().name("log-writer".into()).spawn(move || {
            for text in receiver {
                say(&text);
            }
        })?;
        Ok(Self { texts: Some(sender), thread })
    }

    /// Queues a message.
    pub fn say(&self, text: String) {
        if let Some(texts) = &self.texts {
            let _ = texts.send(text);
        }
    }

    /// There will be no more messages.
    pub fn close(&mut self) {
        self.texts = None;
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }
}
