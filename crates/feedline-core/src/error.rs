//! What callers see, by what they can do about it.

use std::path::PathBuf;

use feedline_shm::RingError;
use serde::{Deserialize, Serialize};

use crate::explain::Explanation;
use crate::options::{Name, Value};
use crate::text;

/// Why a feed ended early. It is sent to every consumer, and worded there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault.
    pub kind: FailureKind,
    /// What happened, for a person; a loader's traceback included.
    pub message: Explanation,
    /// The class of the exception that the loader raised, as `module:qualified.name`.
    pub raised: Option<String>,
}

/// The class of error that a failure becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The loader raised.
    Loader,
    /// The loader yielded what can't be served.
    Schema,
    /// There was no room for what was asked for.
    Memory,
    /// The server couldn't go on.
    Server,
    /// Somebody stopped the server.
    Stopped,
    /// The loader did not come back in time.
    Stuck,
}

/// Everything that a call into this crate can fail with.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Nobody serves this name.
    #[error(
        "no feed named {name:?} (waited {waited_secs} s)\n  running now: {running}\n  start it with: feedline.serve(loader, {name:?})"
    )]
    NotFound {
        /// The name asked for.
        name: String,
        /// How long.
        waited_secs: f64,
        /// What does run.
        running: String,
    },
    /// The name can't be one.
    #[error("{0}")]
    BadName(String),
    /// The name is in use.
    #[error(
        "a feed named {name:?} is running already (pid {pid})\n  attach to it with: feedline.attach({name:?}); end it with: feedline stop {name}; or choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Who serves it.
        pid: u32,
    },
    /// The folder for sockets is unusable.
    #[error("cannot use {path} for sockets: {why}\n  set FEEDLINE_DIR to a folder of your own")]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no space left in it.
    #[error("cannot write to {path}: {why}\n  free some space there, or set FEEDLINE_DIR to a folder on another disk")]
    FolderFull {
        /// Which folder.
        path: PathBuf,
        /// The kernel's words.
        why: String,
    },
    /// The server is gone.
    #[error("{0}")]
    ServerLost(Explanation),
    /// The loader or the server failed.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// All epochs are over.
    #[error("{}", ended(name))]
    Ended {
        /// Which feed.
        name: String,
    },
    /// This consumer was cut off because it stood still.
    #[error("{0}")]
    Stalled(Explanation),
    /// Samples that a consumer asked for are no longer there.
    #[error("{0}")]
    Gone(Explanation),
    /// A batch size that can't be.
    #[error("{0}")]
    BatchSize(Explanation),
    /// Memory.
    #[error("{0}")]
    Memory(Explanation),
    /// An argument that can't be.
    #[error("{0}")]
    Invalid(Explanation),
    /// The peer doesn't speak our protocol.
    #[error("{0}")]
    Protocol(String),
    /// The caller's hook asked to stop waiting.
    #[error("interrupted")]
    Interrupted,
    /// The kernel refused.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// Its answer.
        source: rustix::io::Errno,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::Io { what, source }
    }

    /// As data, to be worded for its reader.
    pub fn explanation(&self) -> Explanation {
        match self {
            Self::ServerLost(what)
            | Self::Stalled(what)
            | Self::Gone(what)
            | Self::BatchSize(what)
            | Self::Memory(what)
            | Self::Invalid(what) => what.clone(),
            Self::Failed(failure) => failure.message.clone(),
            Self::Ended { name } => ended(name),
            _ => self.to_string().into(),
        }
    }
}

impl Failure {
    /// With a message that fits on the wire, whatever an exception has to say.
    pub fn new(kind: FailureKind, message: impl Into<Explanation>) -> Self {
        const LONGEST: usize = 64 << 10;
        Self { kind, message: message.into().shortened(LONGEST), raised: None }
    }

    /// The same, with the class that the loader raised.
    #[must_use]
    pub fn raised(self, class: String) -> Self {
        const LONGEST: usize = 256;
        Self { raised: Some(class).filter(|class| class.len() <= LONGEST), ..self }
    }

    /// A failure of the server's own.
    pub fn server(error: &Error) -> Self {
        let kind = if matches!(error, Error::Memory(_)) { FailureKind::Memory } else { FailureKind::Server };
        Self::new(kind, error.explanation())
    }
}

fn ended(name: &str) -> Explanation {
    Explanation::new(format!("feed {name:?} has ended: all its epochs are over")).hint(text![
        "serve it with ",
        Name::epochs.of_value(Value::Nothing),
        ", from a loader that can be iterated again, to go on without end",
    ])
}
