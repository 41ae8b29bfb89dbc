//! A consumer's state machine: a cursor on a feed.
//!
//! ```text
//!                 next()                   Joined
//!   Idle ──────────────────────▶ Joining ─────────▶ Joined ──▶ batch, batch, …, end of epoch ─┐
//!    ▲ ▲                            │                 │ ▲                                     │
//!    │ └──── Gone, leave() ─────────┘                 │ └─────────── the next epoch ◀─────────┘
//!    └──────────── leave(), Detached, server lost ────┘
//! ```
//!
//! In the epoch that it reads, a consumer that is joined makes its own way:
//!
//! ```text
//!   Fresh ──first batch──▶ Begun ──all were handed out, and whoever iterated stopped──▶ Finished ──its end──▶ Fresh
//! ```
//!
//! [`next_batch`](Consumer::next) decides what there is to take, `joining` how a cursor is got and given back, `resume` where to go
//! on, `skip` how to catch up where nobody waits for it, `pressure` which leases to let go of, `liveness` whether the server still
//! answers, `epoch_wait` whether an epoch ever begins, `length` how many batches one has.

mod epoch_wait;
mod joining;
mod length;
mod liveness;
mod next_batch;
mod pressure;
mod resume;
mod skip;

use std::time::Duration;

use self::epoch_wait::EpochWait;
use self::joining::Intent;
pub use self::length::BatchCount;
pub use self::liveness::{Liveness, MIN_TIMEOUT, Silence};
pub use self::next_batch::{Available, Cut, Next};
pub use self::pressure::Pressure;
pub use self::resume::{Lost, WithoutServer};
use self::skip::Skips;
use crate::message::{Entry, Mark, Refusal};
use crate::page::{ConsumerMemory, HeadView};
use crate::shard::Shard;
use crate::time::Time;

/// What a consumer wants, as far as the protocol is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// `None` for the source's own batches. Of one rank, where ranks share the feed.
    pub batch_size: Option<u64>,
    /// With whom it shares each epoch.
    pub shard: Option<Shard>,
    /// Leave out an epoch's last batch if it is smaller.
    pub drop_last: bool,
    /// Where to begin.
    pub entry: Entry,
    /// After breaking off an epoch: go on to the next one, instead of joining by the same rules.
    pub moves_on: bool,
    /// How long an epoch of unknown length may keep a late consumer waiting.
    pub epoch_timeout: Duration,
}

impl Config {
    /// The batch size of all ranks together.
    pub fn step_size(&self) -> Option<u64> {
        let world = self.shard.map_or(1, Shard::world);
        self.batch_size.map(|size| size.saturating_mul(world))
    }
}

/// A feed, as its server describes it with each ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Counts the rings of a feed.
    pub generation: u32,
    /// Whether batches can be cut: a sample is a row, not a batch.
    pub is_cut: bool,
    /// Whether samples may be overwritten before a slow consumer has read them.
    pub skips: bool,
    /// Whether the one epoch that is in the ring is read again and again.
    pub replays: bool,
    /// How often, or how many epochs there are.
    pub epochs: Option<u64>,
    /// How many samples the source's first batch had, at least 1.
    pub source_batch: u64,
}

/// Why a consumer can't go on.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The samples that it was to go on with are no longer there.
    Gone(Lost),
    /// It stood still for too long, was detached, and lost its place.
    Stalled {
        /// How long a consumer may stand still.
        secs: f64,
        /// What it lost; `None` if the feed is over.
        lost: Option<Lost>,
    },
    /// An epoch has so many samples, or batches: not one for each rank.
    TooFew {
        /// Which epoch.
        epoch: u64,
        /// How many it has.
        samples: u64,
    },
    /// Its epoch does not begin, and the one before it has no end in sight.
    NoEndInSight(Waiting),
    /// The server refused.
    Refused(Refusal),
    /// The server gave a place that can't be.
    ImpossiblePlace,
    /// The server claims to be at this sample.
    ImpossibleHead(u64),
    /// The server changes its pages faster than they can be read, without end.
    Unsteady,
}

/// A wait for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The epoch that is waited for.
    pub epoch: u64,
    /// The one that is running.
    pub running: u64,
    /// How far that has come.
    pub at: u64,
    /// How long it is, if that is known.
    pub length: Option<u64>,
}

/// What happened, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// It waits for an epoch that is far off.
    WaitsForLaterEpoch {
        /// Which.
        epoch: u64,
        /// The one that is running.
        running: u64,
    },
    /// It waits for the next epoch.
    WaitsForEpoch(Waiting),
    /// It was to begin with the first epoch, which is gone, and begins with this one.
    FirstEpochGone(u64),
    /// It broke off this epoch, and reads it from its start again.
    ReadsAgain(u64),
    /// It is too slow, and skips samples: the first time, and how many.
    Skips(u64),
    /// So many samples of the epoch that has ended were skipped.
    SkippedInEpoch(u64),
    /// So many batches at the end of this epoch were too few for all ranks.
    LeftOut {
        /// How many.
        batches: u64,
        /// Which epoch.
        epoch: u64,
    },
}

/// The state of one consumer.
#[derive(Debug)]
pub struct Consumer {
    config: Config,
    shape: Shape,
    state: State,
    /// How many joins were sent.
    joins: u64,
    /// How many batches there were in the last epoch that was read from start to end.
    steps: Option<u64>,
    /// It was said that an epoch that was broken off comes again.
    has_told_again: bool,
    epoch_wait: EpochWait,
    skips: Skips,
    left_out: u64,
    notices: Vec<Notice>,
}

/// Whether a consumer has a cursor.
#[derive(Debug)]
enum State {
    /// It has none, and the next call of [`Consumer::next`] asks for one.
    Idle(Intent),
    /// It has asked, and was not answered yet.
    Joining(Intent),
    /// It has one.
    Joined(Cursor),
}

/// Where a consumer that is joined stands.
#[derive(Debug)]
struct Cursor {
    epoch: u64,
    /// `None` until the epoch has begun.
    sample: Option<u64>,
    /// Where the epoch began, as far as that is known.
    start: u64,
    /// How many samples from the cursor on were had before.
    had: u64,
    /// What the positions in the consumer's page are ahead of the log's: one epoch's length for each pass over a log that
    /// replays.
    lead: u64,
    progress: Progress,
    /// How many batches were taken, if it was from the epoch's start on.
    taken: Option<u64>,
}

/// How far a consumer is with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing was handed out. It may have been told to go on at a place that is the epoch's end: then it is the next one's
    /// beginning.
    Fresh { may_be_over: bool },
    /// Something was. A rank may know that it was the last batch.
    Begun { was_last: bool },
    /// All was, and whoever asks next wants the next epoch; the end may not be known yet.
    Finished,
}

impl Cursor {
    fn has_begun(&self) -> bool {
        matches!(self.progress, Progress::Begun { .. })
    }

    fn place(&self) -> Mark {
        Mark { epoch: self.epoch, index: self.sample.map_or(0, |sample| sample - self.start) + self.had }
    }
}

impl Consumer {
    /// A consumer that has the feed's memory and no cursor.
    pub fn new(config: Config, shape: Shape, now: Time) -> Self {
        Self {
            config,
            shape,
            state: State::Idle(Intent::default()),
            joins: 0,
            steps: None,
            has_told_again: false,
            epoch_wait: EpochWait::new(true, now),
            skips: Skips::default(),
            left_out: 0,
            notices: Vec::new(),
        }
    }

    /// What it wants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The feed, as it was described last.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The server has replaced the ring.
    pub fn adopt(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// Whether it has a cursor.
    pub fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined(_))
    }

    /// Whether the answer to a join is on its way.
    pub fn is_joining(&self) -> bool {
        matches!(self.state, State::Joining(_))
    }

    /// How many joins were sent.
    pub fn joins(&self) -> u64 {
        self.joins
    }

    /// The epoch that is being read, or is next.
    pub fn epoch(&self) -> u64 {
        match &self.state {
            State::Idle(intent) | State::Joining(intent) => intent.epoch,
            State::Joined(cursor) => cursor.epoch,
        }
    }

    /// The same; an epoch of which nothing more is wanted counts as read.
    pub fn wanted_epoch(&self) -> u64 {
        self.epoch() + u64::from(self.is_finished())
    }

    /// How many samples the table's count is ahead of the ring's.
    pub fn lead(&self) -> u64 {
        if let State::Joined(cursor) = &self.state { cursor.lead } else { 0 }
    }

    /// Samples that were overwritten before they could be taken.
    pub fn skipped(&self) -> u64 {
        self.skips.total()
    }

    /// Batches at an epoch's end that could not be shared among the ranks.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How many batches a rank had in the last epoch that it read from start to end.
    pub fn last_steps(&self) -> Option<u64> {
        self.steps
    }

    /// What happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether something happened since the last call of [`Self::take_notices`].
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// The number in the log of an epoch that is read.
    fn epoch_in_log(&self, epoch: u64) -> u64 {
        if self.shape.replays { 0 } else { epoch }
    }

    /// How many batches an epoch has for this consumer, if that is known yet.
    pub fn batches_per_epoch(&self, head: &impl HeadView) -> Option<u64> {
        self.batch_count().batches(head.length())
    }

    /// The same, for whoever wants to ask while the consumer is busy.
    pub fn batch_count(&self) -> BatchCount {
        let is_cut = self.shape.is_cut;
        BatchCount {
            batch_size: self.config.batch_size.filter(|_| is_cut),
            drop_last: self.config.drop_last,
            source_batch: is_cut.then_some(self.shape.source_batch),
            ranks: self.config.shard.map(|shard| (shard.world(), self.steps)),
        }
    }

    /// Whether the log has samples that it has not taken, as far as it has a cursor. Of an epoch that it has done with, it wants no
    /// more.
    pub fn has_more(&self, head: &impl HeadView) -> bool {
        let State::Joined(Cursor { sample, .. }) = self.state else { return false };
        if self.shape.replays {
            return head.head() > 0 && self.shape.epochs.is_none_or(|epochs| self.wanted_epoch() < epochs);
        }
        let sample = sample.filter(|_| !self.is_finished());
        // The start of an epoch that has not begun is unknown, and further on than any sample.
        sample.unwrap_or_else(|| head.start_of(self.wanted_epoch())) < head.head()
    }

    /// While it waits: whether it is for an epoch whose beginning is not in sight.
    pub fn check_epoch(&mut self, memory: &impl ConsumerMemory, now: Time) -> Result<(), Trouble> {
        let State::Joined(Cursor { epoch, sample: None, .. }) = self.state else { return Ok(()) };
        let is_cut = self.shape.is_cut;
        match self.epoch_wait.check(epoch, self.config.epoch_timeout, is_cut, memory, now) {
            Some(Ok(waiting)) => self.notices.push(Notice::WaitsForEpoch(waiting)),
            Some(Err(waiting)) => return Err(Trouble::NoEndInSight(waiting)),
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
