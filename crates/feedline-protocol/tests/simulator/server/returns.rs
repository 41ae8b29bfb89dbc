//! For the judge: who came back to a server after another was lost, who asked for a place by its number, and which epochs the
//! server passed over.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::message::{Entry, Join};

use super::ServerProcess;
use crate::wire::Pid;

/// A consumer that resumes may be the first of several: for so long the server waits for others that need an earlier epoch.
const RESUME_GRACE: Duration = Duration::from_millis(500);

/// Some of the servers of a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Servers(u64);

impl Servers {
    pub fn one(number: u32) -> Self {
        Self(1 << number)
    }

    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn has(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// Epochs that a server passed over because everybody waited for a later one, and somebody asked for that by its number.
pub(super) struct Jump {
    pub over: Range<u64>,
    pub at: Duration,
    /// When the first one had asked for a place by its number.
    pub first_asked: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Returns {
    /// When the first one came that knew of others, and of whose.
    first: Option<(Duration, Servers)>,
    /// A consumer that knew of no others had come before.
    was_preceded: bool,
    /// The servers of whose consumers it has heard.
    heard: Servers,
    /// When each process asked for its place.
    asked: BTreeMap<u32, Duration>,
    /// When the first one asked for a place by its number.
    first_by_number: Option<Duration>,
    pub jumps: Vec<Jump>,
    /// Some who asked are the ranks of a job.
    pub has_ranks: bool,
}

impl Returns {
    pub fn note(&mut self, pid: &Pid, join: &Join, knows: Servers, now: Duration) {
        if join.others.iter().flatten().any(|others| others.count > u32::from(others.is_one)) {
            self.first.get_or_insert((now, knows));
            self.heard = self.heard.and(knows);
        } else {
            self.was_preceded |= self.first.is_none();
        }
        self.has_ranks |= join.rank.is_some();
        self.asked.insert(pid.number, now);
        if matches!(join.entry, Entry::At { .. }) {
            self.first_by_number.get_or_insert(now);
        }
    }
}

impl Returns {
    /// Whether anybody came that knew of others.
    pub fn has_any(&self) -> bool {
        self.first.is_some()
    }
}

impl ServerProcess {
    /// Whether it may hold the place of consumers of a server that was lost.
    pub fn waits_for_returns(&self, now: Duration) -> bool {
        self.returns.first.is_some_and(|(first, _)| now < first + self.feed.stall_timeout)
    }

    /// The servers of whose consumers its own can tell the next one. Of others it has heard, while it holds their place: unless
    /// the log had gone on before.
    pub fn known(&self, now: Duration) -> Servers {
        let own = Servers::one(self.number);
        if self.waits_for_returns(now) && !self.returns.was_preceded { own.and(self.returns.heard) } else { own }
    }

    /// Whether a consumer that had a place at the server `lost` came back in time for the others to wait for it. The first one
    /// back must have known of it.
    pub fn was_in_time(&self, pid: &Pid, lost: u32, place: Mark) -> bool {
        let Returns { first: Some((first, knows)), was_preceded: false, asked, .. } = &self.returns else {
            return false;
        };
        // The source can't go back behind what was kept of its state.
        let has_state = self.resume.is_none_or(|at| at <= place);
        let is_in_time = asked.get(&pid.number).is_some_and(|&asked| asked < *first + self.feed.stall_timeout);
        knows.has(lost) && has_state && is_in_time
    }

    /// When the first one asked for a place by its number, be it still here or not.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        self.returns.first_by_number
    }

    /// Whether a consumer asked for a place soon after others had asked for a later one, and the server had passed over it.
    pub fn has_hurried_past(&self, pid: &Pid, place: Mark) -> bool {
        let Some(&asked) = self.returns.asked.get(&pid.number) else { return false };
        let is_too_soon = |jump: &Jump| {
            jump.over.contains(&place.epoch)
                && jump.at <= asked
                && jump.first_asked.is_some_and(|first| asked < first + RESUME_GRACE)
        };
        // Those who come back after a server was lost say which epoch they need.
        self.returns.first.is_none() && self.returns.jumps.iter().any(is_too_soon)
    }
}
