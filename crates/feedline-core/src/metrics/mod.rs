//! Exports the numbers of [`ServerStats`]: as Prometheus text, and as lines of JSON.
//!
//! | file | what it owns |
//! |---|---|
//! | `text` | names, units and labels by Prometheus' conventions |
//! | `http` | answering `GET /metrics` on 127.0.0.1 |
//! | `json_lines` | a line of JSON for each feed, every few seconds |
//!
//! A server does this for itself, the command line for all feeds of a user: only `ReadStats` differs. Plain threads, no runtime.

mod http;
mod json_lines;
mod text;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use feedline_shm::Doorbell;
use feedline_shm::fork::Origin;

pub use self::http::HttpExporter;
pub use self::http::is_own_host;
pub use self::json_lines::{JsonLinesExporter, Warn};
pub use self::text::{CONTENT_TYPE, SILENT, text};
use crate::error::Error;
use crate::stats::ServerStats;

/// Reads the numbers of all feeds that are exported.
pub type ReadStats = Box<dyn FnMut() -> Vec<ServerStats> + Send>;

/// How long an exporter has for its last write. A disk that hangs must not keep a feed from ending.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// A thread that exports numbers. Dropping it lets it write a last time, and ends it.
#[derive(Debug)]
pub struct Exporter {
    bell: Arc<Doorbell>,
    /// Closed when the thread is done.
    done: Receiver<()>,
    origin: Origin,
}

impl Exporter {
    fn start(name: &str, run: impl FnOnce(&Doorbell) + Send + 'static) -> Result<Self, Error> {
        let bell = Arc::new(Doorbell::new()?);
        let (working, done) = sync_channel(0);
        let theirs = Arc::clone(&bell);
        let body = move || {
            run(&theirs);
            drop(working);
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map_err(|error| Error::Memory(format!("cannot start a thread: {error}").into()))?;
        Ok(Self { bell, done, origin: Origin::here() })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // A forked child has the bell, but not the thread.
        if self.origin.is_here() {
            self.bell.ring();
            let _ = self.done.recv_timeout(LAST_WRITE);
        }
    }
}
