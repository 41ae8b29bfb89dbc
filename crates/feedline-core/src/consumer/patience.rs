//! Waiting for a server that may not answer, or whose loader hangs: when to ask, when to warn, when to give up.
//!
//! ```text
//! waits ──5 s──▶ ping ──pong──▶ waits on
//!                  └──5 s──▶ warn ──limit──▶ StalledError
//! ```
//!
//! A loader that hangs is the server's to notice; it is reported here, once for each word of the server, and waited for.

use std::time::{Duration, Instant};

use super::link::Link;
use crate::error::Error;
use crate::limits::secs_text;
use crate::proc;
use crate::wire::{Request, Stuck};

/// How long to wait for data before asking, between two questions, and for an answer before warning.
pub(super) const CALM: Duration = Duration::from_secs(5);
/// A busy machine is not a stopped server.
pub(super) const LEAST: Duration = Duration::from_secs(1);
/// Time in which we did not run ourselves isn't the server's: both may have been stopped.
pub(super) const LONGEST_STEP: Duration = Duration::from_millis(500);

pub(super) struct Patience {
    /// How long a server may leave a question unanswered.
    limit: Duration,
    looked: Instant,
    /// What the consumer had got when it began to wait.
    progress: u64,
    /// How long it has waited since then, or since the last answer.
    calm: Duration,
    /// How long a question has been unanswered.
    silence: Option<Duration>,
    has_warned: bool,
    /// What the server said of its loader, not reported yet.
    stuck: Option<Stuck>,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self {
            limit: limit.max(LEAST),
            looked: Instant::now(),
            progress: 0,
            calm: Duration::ZERO,
            silence: None,
            has_warned: false,
            stuck: None,
        }
    }

    /// How long a server, or an epoch, may be waited for.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a question is unanswered.
    pub fn is_asking(&self) -> bool {
        self.silence.is_some()
    }

    /// The server lives.
    pub fn pong(&mut self, name: &str, pid: u32) {
        self.silence = None;
        self.calm = Duration::ZERO;
        if std::mem::take(&mut self.has_warned) {
            tracing::info!("feed {name:?}: its server (pid {pid}) answers again");
        }
    }

    /// The server says that its loader hangs. Reported if it comes to waiting before the loader goes on.
    pub fn stuck(&mut self, stuck: Stuck) {
        self.stuck = Some(stuck);
    }

    /// While waiting, each time that all news have been heard. `progress` changes with all that arrives, `head` with what is published.
    pub fn look(&mut self, link: &mut Link, name: &str, progress: u64, head: u64) -> Result<(), Error> {
        let step = self.looked.elapsed().min(LONGEST_STEP);
        self.looked = Instant::now();
        if self.progress != progress {
            self.progress = progress;
            self.calm = Duration::ZERO;
        }
        let pid = link.server_pid();
        if let Some(stuck) = self.stuck.take().filter(|stuck| stuck.samples >= head) {
            warn_of_loader(name, pid, &stuck);
        }
        let calm = CALM.min(self.limit / 4);
        match &mut self.silence {
            None => {
                self.calm += step;
                if self.calm >= calm {
                    link.send(&Request::Ping)?;
                    self.silence = Some(Duration::ZERO);
                }
            }
            Some(silence) => {
                *silence += step;
                if *silence >= self.limit {
                    return Err(silent_error(name, pid, *silence));
                }
                if *silence >= calm && !std::mem::replace(&mut self.has_warned, true) {
                    let secs = secs_text(silence.as_secs_f64());
                    let state = state_clause(pid);
                    tracing::warn!("feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}");
                }
            }
        }
        Ok(())
    }
}

/// Says where a loader hangs.
pub(super) fn warn_of_loader(name: &str, pid: u32, stuck: &Stuck) {
    let (secs, place) = (secs_text(stuck.secs), &stuck.place);
    tracing::warn!(
        "feed {name:?} waits for its loader (server pid {pid}), which has not yielded a batch for {secs} s\n{place}"
    );
}

/// The server lives and says nothing.
pub(super) fn silent_error(name: &str, pid: u32, silence: Duration) -> Error {
    let way_out = if proc::is_stopped(pid) {
        format!("let it go on with: kill -CONT {pid}")
    } else {
        format!("look at what it does, with: py-spy dump --pid {pid}")
    };
    let (secs, state) = (secs_text(silence.as_secs_f64()), state_clause(pid));
    Error::Stalled(format!(
        "feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}\n  \
         {way_out}; then attach again, or wait longer with timeout_secs="
    ))
}

fn state_clause(pid: u32) -> String {
    proc::state_text(pid).map_or_else(String::new, |state| format!("; {state}"))
}
