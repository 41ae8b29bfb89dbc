//! The server's state machine: who is attached, who reads where, and when the log may go on.
//!
//! ```text
//!            first ring                all epochs written            all read
//! Starting ─────────────▶ Running ───────────────────▶ Draining ──────────────▶ Ended
//!     └──────────┬───────────┴──────────────┬──────────────┘
//!                └── stop ──▶ Stopped       └── failure ──▶ Failed
//! ```
//!
//! Two drivers share it, under one lock that neither holds while it copies or sleeps: one appends what the source yields, and
//! asks when it may (`backpressure`, `epochs`); the other talks to consumers (`members`, `admission`). `ranks` has the
//! ranks of a job begin together, `reconnecting` those who lost an earlier server.

mod admission;
mod backpressure;
mod epochs;
mod members;
mod ranks;
mod reconnecting;

use std::time::Duration;

pub use self::admission::{Delivery, Violation};
pub use self::backpressure::{Claim, Stalled, Wait};
use self::backpressure::{Laggards, Stalls};
pub use self::epochs::{Begun, EpochStart, Halt, Progress};
pub use self::members::{Member, MemberState, Members};
use self::ranks::Ranks;
use self::reconnecting::Reconnecting;
use crate::log::{Log, Policy, Size};
use crate::message::{FeedState, Mark};
use crate::page::{HeadPage, MemberPage, Process};
use crate::time::{Since, Time};

/// How to serve, as far as the protocol is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What happens to samples that some have not read yet.
    pub policy: Policy,
    /// How many consumers must have asked before the first sample is handed out.
    pub wait_for: u32,
    /// How long a consumer that stands still may hold up the others.
    pub stall_timeout: Duration,
    /// Where an earlier server of this feed stopped; the source goes on from there.
    pub resume: Option<Mark>,
}

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is nothing to read yet.
    Starting,
    /// Samples are appended.
    Running,
    /// All epochs are produced; consumers are finishing.
    Draining,
    /// Over, as planned.
    Ended,
    /// Over: the loader or the server failed.
    Failed,
    /// Over: somebody stopped it.
    Stopped,
}

impl Phase {
    /// Over before its time.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }
}

/// A ring as the protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Counts the rings of a feed.
    pub generation: u32,
    /// How much fits.
    pub size: Size,
    /// How many samples the source's first batch had.
    pub source_batch: u64,
    /// Whether batches can be cut: a sample is a row, not a batch.
    pub is_cut: bool,
    /// Whether it only stands for a feed that has nothing in it yet.
    pub is_placeholder: bool,
    /// Bytes of one sample over all lanes of fixed stride.
    pub sample_bytes: u64,
}

/// What happened, for people: the log, `feedline top`, the dashboard.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A consumer got its cursor.
    Joined {
        /// Its process.
        pid: u32,
        /// The epoch that it begins with.
        epoch: u64,
        /// Its own batch size, if it asked for one.
        batch_size: Option<u64>,
    },
    /// A consumer gave its cursor back, or went between two epochs.
    Left {
        /// Its process.
        pid: u32,
    },
    /// A consumer was gone in the middle of an epoch.
    Died {
        /// Its process.
        pid: u32,
    },
    /// A consumer was detached.
    Detached {
        /// Its process.
        pid: u32,
        /// It had read an epoch and not asked for the next, so it loses nothing.
        is_resting: bool,
    },
    /// An epoch began.
    EpochBegan(u64),
    /// An epoch was broken off: nobody reads it any more.
    EpochAbandoned(u64),
    /// An epoch was longer or shorter than announced.
    EpochLength {
        /// Which.
        epoch: u64,
        /// How long it was, in samples.
        samples: u64,
        /// How long it was to be.
        expected: u64,
    },
    /// A consumer is slow, and others wait for it.
    Lagging {
        /// Its process.
        pid: u32,
        /// How many samples it is behind.
        behind: u64,
        /// It is too many epochs behind, and not only a ring's worth of samples.
        by_epochs: bool,
    },
    /// Some ranks of a job did not come in time.
    RanksMissing {
        /// The epoch that the others began with.
        epoch: u64,
        /// How many came.
        came: usize,
        /// How many there are.
        world: u32,
        /// How long the place was kept for the others.
        waited: Duration,
    },
}

/// The state of one server. `P` is a consumer's page, `Q` its process.
pub struct Server<P, Q> {
    options: Options,
    phase: Phase,
    log: Log,
    ring: Option<RingShape>,
    members: Members<P, Q>,
    /// Those who reconnect after an earlier server died.
    reconnecting: Reconnecting,
    /// Those who share epochs and are not all here yet.
    ranks: Ranks<Q>,
    /// Since when all who are here wait for a later epoch.
    waited_for: Option<Since>,
    /// Since when all who read have asked for a later place of the epoch.
    passing_since: Option<Since>,
    /// Since when it has been asked for epochs.
    begun: Option<Since>,
    /// Somebody had a cursor and has it no more.
    has_been_left: bool,
    /// A window in samples that a consumer needs.
    grow_to: u64,
    /// Set while the appending side waits.
    stalls: Option<Stalls>,
    laggards: Laggards,
    notices: Vec<Notice>,
}

/// How long those who resume at a saved place have to come together.
const RESUME_GRACE: Duration = Duration::from_millis(500);

impl<P: MemberPage, Q: Process> Server<P, Q> {
    /// A server without a ring and without consumers.
    pub fn new(options: Options) -> Self {
        let mut log = Log::new(options.policy);
        if let Some(Mark { epoch, index }) = options.resume {
            log.resume(epoch, index);
        }
        Self {
            options,
            phase: Phase::Starting,
            log,
            ring: None,
            members: Members::default(),
            reconnecting: Reconnecting::new(options.resume.map(|at| at.epoch)),
            ranks: Ranks::default(),
            waited_for: None,
            passing_since: None,
            begun: None,
            has_been_left: false,
            grow_to: 0,
            stalls: None,
            laggards: Laggards::default(),
            notices: Vec::new(),
        }
    }

    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The ring in use.
    pub fn ring(&self) -> Option<&RingShape> {
        self.ring.as_ref()
    }

    /// Who is attached.
    pub fn members(&self) -> &Members<P, Q> {
        &self.members
    }

    /// A window that consumers asked for before there was a ring.
    pub fn wanted_window(&self) -> u64 {
        self.grow_to
    }

    /// What happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether something happened since the last call of [`Self::take_notices`].
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes over what consumers report in their pages, and what time has brought.
    pub fn refresh(&mut self, now: Time) {
        self.members.refresh(&mut self.log);
        self.reconnecting.expire(&mut self.log, self.options.stall_timeout, now);
        self.ranks.expire(&mut self.log, self.options.stall_timeout, now, &mut self.notices);
    }

    /// Ends the feed before its time; the first reason counts. False if it was over already.
    pub fn break_off(&mut self, is_failure: bool, head: &impl HeadPage) -> bool {
        if matches!(self.phase, Phase::Ended | Phase::Failed | Phase::Stopped) {
            return false;
        }
        let (phase, state) =
            if is_failure { (Phase::Failed, FeedState::Failed) } else { (Phase::Stopped, FeedState::Stopped) };
        self.phase = phase;
        head.set_state(state);
        self.announce(head);
        true
    }

    /// Makes a ring known that holds every intact sample.
    pub fn install(&mut self, ring: RingShape, head: &impl HeadPage) {
        // A placeholder never had a sample in it.
        match self.ring.replace(ring).filter(|before| !before.is_placeholder) {
            Some(_) => self.log.grow(ring.size),
            None => self.log.shape(ring.size),
        }
        self.members.source_batch = ring.source_batch;
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
        }
        head.set_generation(ring.generation);
        self.announce(head);
    }

    /// Tells consumers that something in the head page changed.
    pub fn announce(&self, head: &impl HeadPage) {
        head.announce(|| self.members.values().any(|member| member.page.is_waiting()));
    }

    /// Lets consumers know how many they are, and which epoch the slowest is in: should this server die, the next one waits there
    /// for that many. A consumer that is still waiting for others to begin has no place to come back to, and is not waited for.
    fn publish_joined(&self, head: &impl HeadPage) {
        let joined = u32::try_from(self.members.reading()).unwrap_or(u32::MAX);
        head.set_slowest(self.log.slowest_epoch());
        // Others than those who come back may have joined meanwhile.
        let in_all = joined.saturating_add(self.reconnecting.missing());
        head.set_joined(in_all.max(self.reconnecting.expected()));
    }

    /// All who are here wait for a later epoch: whether it may be begun. A consumer that resumes may be the first of several, and
    /// another may need an earlier epoch.
    fn has_settled(&mut self, now: Time) -> bool {
        let since = *self.waited_for.get_or_insert(Since(now));
        let may_be_needed = self.log.is_wanted_by_number() || self.reconnecting.may_need(self.log.epoch());
        self.reconnecting.is_waiting() || !may_be_needed || since.is_over(RESUME_GRACE, now)
    }
}

#[cfg(test)]
mod tests;
