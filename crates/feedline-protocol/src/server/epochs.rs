//! Epochs: when the next one may begin, what ends it, and when all of them were read.

use std::time::Duration;

use super::backpressure::{Stalled, Stalls, Wait};
use super::{Notice, Phase, RESUME_GRACE, Server};
use crate::log::Committed;
use crate::message::{EpochLength, FeedState, Mark, UNKNOWN};
use crate::page::{HeadPage, MemberPage, Process};
use crate::time::{Since, Time};

/// How long consumers that have attached are given to ask for their first batch when the loader has failed.
const FIRST_JOIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Why appending stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Nobody needed the rest of this epoch, and it is over; the next one should begin.
    Abandoned,
    /// The server was stopped, or has failed.
    Stopped,
}

/// Whether the next epoch may begin.
#[derive(Clone, Debug, PartialEq)]
pub enum EpochStart {
    /// It may.
    Now,
    /// Not yet.
    Wait(Wait),
    /// The server is over.
    Halted,
}

/// An epoch that has just begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its number.
    pub epoch: u64,
    /// A consumer asked for it by its number: those before it were had.
    pub is_wanted_by_number: bool,
}

impl<P: MemberPage, Q: Process> Server<P, Q> {
    /// Asks whether the next epoch may begin: a consumer that is too many epochs behind and stands still is detached. To be
    /// called again after each wait.
    pub fn may_begin_epoch(&mut self, head: &impl HeadPage, now: Time) -> EpochStart {
        self.stalls.get_or_insert_with(Stalls::default);
        self.begun.get_or_insert(Since(now));
        let start = self.epoch_start(head, now);
        if !matches!(start, EpochStart::Wait(_)) {
            self.stalls = None;
            head.want_nothing();
        }
        start
    }

    fn epoch_start(&mut self, head: &impl HeadPage, now: Time) -> EpochStart {
        if self.phase.is_broken() {
            return EpochStart::Halted;
        }
        // A consumer that lets go of less, and then waits for this epoch, rings all the same.
        head.want(self.log.wanted_for_epoch());
        self.refresh(now);
        if self.log.is_filling() {
            return EpochStart::Wait(Wait::ForSource);
        }
        let somebody_may_come = self.log.would_jump() && !self.has_settled(now);
        if somebody_may_come {
            return EpochStart::Wait(Wait::Sleep);
        }
        if self.log.can_begin_epoch() {
            return EpochStart::Now;
        }
        let seen = |&(id, position): &(u64, u64)| Stalled { id, position, is_resting: false };
        let behind: Vec<_> = self.log.epochs_behind().iter().map(seen).collect();
        if self.members.anybody_starves(&self.log) {
            self.name_laggards(&behind, true, now);
        }
        let stalled = self.find_stalled(&behind, now);
        EpochStart::Wait(if stalled.is_empty() { Wait::Sleep } else { Wait::Detach(stalled) })
    }

    /// Begins the next epoch, or the one that everybody waits for. `had` samples of it came before this server.
    pub fn begin_epoch(&mut self, had: u64, head: &impl HeadPage) -> Begun {
        let has_jumped = self.log.jump();
        let epoch = self.log.epoch();
        let is_wanted_by_number = self.log.is_wanted_by_number();
        let first = self.log.head() - had;
        if (has_jumped || had > 0)
            && let Some(before) = epoch.checked_sub(1)
        {
            head.end_epoch(before, first);
        }
        self.log.begin_epoch(had);
        self.notices.push(Notice::EpochBegan(epoch));
        head.publish(self.log.head());
        self.announce(head);
        Begun { epoch, is_wanted_by_number }
    }

    /// Whether appending should stop here. An epoch that nobody needs any more is over when this returns: whoever joins from
    /// then on gets the next one.
    pub fn halted(&mut self, head: &impl HeadPage, now: Time) -> Result<(), Halt> {
        if self.phase.is_broken() {
            return Err(Halt::Stopped);
        }
        if !self.log.is_abandoned() {
            self.waited_for = None;
            return Ok(());
        }
        if !self.has_settled(now) {
            return Ok(());
        }
        let epoch = self.log.epoch();
        self.log.abandon_epoch();
        head.abandon_epoch(epoch, self.log.head());
        self.notices.push(Notice::EpochAbandoned(epoch));
        self.announce(head);
        Err(Halt::Abandoned)
    }

    /// Goes on at a later place of the epoch, if all who are here have asked for one: the number of the sample there, of an epoch
    /// of so many. Whoever is attached and has not asked yet may want an earlier one, and is waited for a while: meanwhile the
    /// epoch goes on as it does.
    pub fn pass_over(&mut self, samples: u64, head: &impl HeadPage, now: Time) -> Option<u64> {
        let unneeded = self.log.unneeded();
        if unneeded == 0 || !self.members.has_begun() || self.phase.is_broken() {
            self.passing_since = None;
            return None;
        }
        let since = *self.passing_since.get_or_insert(Since(now));
        if self.members.anybody_is_to_ask() && !since.is_over(self.options.stall_timeout, now) {
            return None;
        }
        // Those who come together are not here at once. Of a server that they have all waited for, they are soon after it began.
        let first = self.begun.filter(|_| !self.has_been_left).unwrap_or(since);
        if !first.is_over(RESUME_GRACE, now) {
            return None;
        }
        let (_, index) = self.log.locate(self.log.head())?;
        let passed = unneeded.min(samples.saturating_sub(index));
        if passed == 0 {
            return None;
        }
        self.passing_since = None;
        self.log.pass_over(passed);
        head.publish(self.log.head());
        self.announce(head);
        Some(index + passed)
    }

    /// The run that begins with `first` is filled. If that published something, follow with [`Self::announce`].
    pub fn commit(&mut self, first: u64, head: &impl HeadPage) -> Committed {
        let committed = self.log.commit(first);
        if committed == Committed::Published {
            head.publish(self.log.head());
            head.set_slowest(self.log.slowest_epoch());
        }
        committed
    }

    /// The run that begins with `first` will not be filled ([`Log::give_back`](crate::log::Log::give_back)).
    pub fn give_back(&mut self, first: u64) {
        self.log.give_back(first);
    }

    /// Ends the epoch that is being written, which was so long.
    pub fn end_epoch(&mut self, epoch: u64, length: EpochLength, head: &impl HeadPage) {
        self.log.end_epoch();
        head.end_epoch(epoch, self.log.head());
        let expected = head.length().samples;
        head.set_length(length);
        if expected != UNKNOWN && expected != length.samples {
            self.notices.push(Notice::EpochLength { epoch, samples: length.samples, expected });
        }
        self.announce(head);
    }

    /// How far the log has come, from where on it is still there for whoever comes late, and from where on somebody needs it.
    pub fn progress(&mut self, now: Time) -> Option<Progress> {
        self.refresh(now);
        let mark = |(epoch, index)| Mark { epoch, index };
        let head = mark(self.log.locate(self.log.head())?);
        let oldest = self.log.locate(self.log.oldest()).map_or(head, mark);
        Some(Progress { head, oldest, needed: self.log.needed().map(mark) })
    }

    /// All epochs are written.
    pub fn drain(&mut self, head: &impl HeadPage) {
        if matches!(self.phase, Phase::Starting | Phase::Running) {
            self.phase = Phase::Draining;
        }
        head.set_state(FeedState::Ended);
        self.announce(head);
    }

    /// All epochs were read, or the feed was broken off.
    pub fn end(&mut self) {
        if !self.phase.is_broken() {
            self.phase = Phase::Ended;
        }
    }

    /// Whether all who are here have read `epochs` epochs. Nobody is detached any more: a slow consumer holds up nobody but us.
    /// Where an epoch is replayed, consumers don't ring for it.
    pub fn is_read(&mut self, epochs: u64, head: &impl HeadPage, now: Time) -> bool {
        if !self.options.policy.replay {
            head.want(0);
        }
        self.refresh(now);
        self.members.are_done(&self.log, epochs, self.options.stall_timeout, now)
            && !self.ranks.keep_it_open(&self.log, self.members.is_empty())
    }

    /// The loader has failed: whether consumers that have attached and not asked yet had a moment to, so that they too see what
    /// came before.
    pub fn have_asked(&mut self, head: &impl HeadPage, now: Time) -> bool {
        head.want(0);
        self.refresh(now);
        self.members.have_asked(FIRST_JOIN_TIMEOUT, now)
    }
}

/// How far a log has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The next sample to be appended.
    pub head: Mark,
    /// The oldest sample that is intact.
    pub oldest: Mark,
    /// The oldest sample that somebody needs, if anybody is there.
    pub needed: Option<Mark>,
}
