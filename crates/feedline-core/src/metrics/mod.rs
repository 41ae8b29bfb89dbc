//! The numbers of [`ServerStats`] for others to keep: as Prometheus text, as lines of JSON.
//!
//! | file | what it owns |
//! |---|---|
//! | `text` | names, units and labels by Prometheus' conventions |
//! | `port` | answering `GET /metrics` on 127.0.0.1 |
//! | `lines` | a line of JSON for each feed, every few seconds |
//!
//! A server does this for itself, the command line for all feeds of a user: `Look` is what differs. Plain threads, no runtime.

mod lines;
mod port;
mod text;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use feedline_shm::Doorbell;
use feedline_shm::fork::Origin;

pub use self::lines::{Lines, Warn};
pub use self::port::Port;
pub use self::port::is_own_host;
pub use self::text::{CONTENT_TYPE, SILENT, text};
use crate::error::Error;
use crate::stats::ServerStats;

/// Asks all feeds that are to be told of how they stand.
pub type Look = Box<dyn FnMut() -> Vec<ServerStats> + Send>;

/// How long an outlet has for its last words. A disk that hangs must not keep a feed from ending.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A thread that hands out numbers. Dropping it lets it say its last ones, and ends it.
#[derive(Debug)]
pub struct Outlet {
    bell: Arc<Doorbell>,
    /// Closed when the thread is done.
    done: Receiver<()>,
    origin: Origin,
}

impl Outlet {
    fn start(name: &str, run: impl FnOnce(&Doorbell) + Send + 'static) -> Result<Self, Error> {
        let bell = Arc::new(Doorbell::new()?);
        let (working, done) = sync_channel(0);
        let theirs = Arc::clone(&bell);
        let body = move || {
            run(&theirs);
            drop(working);
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map_err(|error| Error::Memory(format!("cannot start a thread: {error}")))?;
        Ok(Self { bell, done, origin: Origin::here() })
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // A forked child has the bell, but not the thread.
        if self.origin.is_here() {
            self.bell.ring();
            let _ = self.done.recv_timeout(LAST_WORDS);
        }
    }
}
