//! What the run itself says, on a thread of its own: whoever reads it may be slow, and must not keep signals from the jobs.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::output::say;

/// The thread. It goes on until all is said.
pub(super) struct Voice {
    texts: Option<Sender<String>>,
    thread: JoinHandle<()>,
}

impl Voice {
    pub fn start() -> std::io::Result<Self> {
        let (texts, heard) = channel::<String>();
        let thread = std::thread::Builder::new().name("voice".into()).spawn(move || {
            for text in heard {
                say(&text);
            }
        })?;
        Ok(Self { texts: Some(texts), thread })
    }

    /// Says a line, as soon as somebody takes it.
    pub fn say(&self, text: String) {
        if let Some(texts) = &self.texts {
            let _ = texts.send(text);
        }
    }

    /// That was all.
    pub fn rest(&mut self) {
        self.texts = None;
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }
}
