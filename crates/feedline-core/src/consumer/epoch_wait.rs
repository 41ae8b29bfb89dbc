//! Waiting for an epoch to begin while others read the one before it: what one waits for is said, once, and an end must be in sight.
//!
//! ```text
//! waits ──5 s──▶ warn ──its length is known──▶ waits on
//!                  └──it isn't, and no epoch ends within the limit──▶ StalledError
//! ```

use std::time::{Duration, Instant};

use feedline_ring::signal::UNKNOWN;

use super::Consumer;
use super::patience::{CALM, LONGEST_STEP};
use crate::error::Error;
use crate::limits::secs_text;

/// Since the last join.
pub(super) struct EpochWait {
    looked: Instant,
    /// How long no epoch has ended.
    waited: Duration,
    ended: u64,
    has_told: bool,
    /// Who goes on after its server was lost waits for the others, who go on where they were.
    has_limit: bool,
}

impl EpochWait {
    pub fn new(has_limit: bool) -> Self {
        Self { looked: Instant::now(), waited: Duration::ZERO, ended: 0, has_told: false, has_limit }
    }

    /// How long it has been, with `ended` epochs over by now.
    fn step(&mut self, ended: u64) -> Duration {
        let step = self.looked.elapsed().min(LONGEST_STEP);
        self.looked = Instant::now();
        if ended == self.ended {
            self.waited += step;
        } else {
            (self.ended, self.waited) = (ended, Duration::ZERO);
        }
        self.waited
    }
}

impl Consumer {
    /// While waiting: whether it is for an epoch whose beginning is not in sight.
    pub(super) fn look_for_epoch(&mut self) -> Result<(), Error> {
        if !self.joined || self.cursor.is_some() {
            return Ok(());
        }
        let ended = self.head.ended();
        let waited = self.epoch_wait.step(ended);
        let limit = self.patience.limit();
        if waited < CALM.min(limit / 4) {
            return Ok(());
        }
        let (name, epoch, pid) = (&self.config.name, self.epoch, std::process::id());
        let (unit, length) = match self.head.length() {
            length if self.view.is_cut() => ("sample", length.samples),
            length => ("batch", length.batches),
        };
        let before = ended.checked_sub(1).map_or(0, |before| self.head.end_of(before));
        let at = self.head.head().saturating_sub(before);
        let now = if self.config.shard.is_none() { "begin with the newest sample (join=\"now\"), or " } else { "" };
        if length == UNKNOWN && waited >= limit && self.epoch_wait.has_limit {
            let secs = secs_text(limit.as_secs_f64());
            return Err(Error::Stalled(format!(
                "feed {name:?}: this consumer waits for epoch {epoch}, and in {secs} s epoch {ended} has come to {unit} {at} \
                 without an end in sight\n  \
                 {now}have the running epoch kept for late jobs with Server(history=\"2GB\"); if it does end, tell the \
                 server its length with samples=, or wait longer with timeout_secs="
            )));
        }
        if !std::mem::replace(&mut self.epoch_wait.has_told, true) {
            let of = if length == UNKNOWN { ", and its length is not known".into() } else { format!(" of {length}") };
            tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) waits for epoch {epoch} to begin; epoch {ended} is at {unit} {at}{of}\n  \
                 if that takes too long, {now}have the running epoch kept for late jobs with Server(history=...)"
            );
        }
        Ok(())
    }
}
