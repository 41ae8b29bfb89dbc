//! What the server knows of its consumers. Their own pages are read here, and believed only as far as the log allows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backpressure::LONGEST_STEP;
use crate::log::Log;
use crate::message::{Answer, Join, Place};
use crate::page::{MemberPage, Process};
use crate::shard::own_step;
use crate::time::{RunningTime, Since, Time};

/// One consumer that has the feed's memory.
pub struct Member<P, Q> {
    /// Its page.
    pub page: P,
    /// Its process.
    pub process: Q,
    /// Whether it has a cursor.
    pub state: MemberState,
    /// Its last join.
    pub last_join: Option<Join>,
    /// Which ring it was sent.
    pub(super) generation: u32,
    /// What is still to be said to it.
    pub(super) notice: Option<Answer>,
    /// The ring could not grow for it, and it was told.
    pub(super) is_refused: bool,
}

/// Whether a consumer has a cursor.
#[derive(Clone, Copy, Debug)]
pub enum MemberState {
    /// It has none.
    Attached {
        /// Since when.
        since: Idle,
    },
    /// It has one and has not been told yet: not enough consumers have asked.
    Admitted {
        /// Where it was placed.
        place: Place,
    },
    /// It reads.
    Reading {
        /// Where it was last seen, and since when it has been there, while the server waits for the last epoch to be read.
        still: Option<Still>,
    },
}

/// Since when a consumer has no cursor.
#[derive(Clone, Copy, Debug)]
pub struct Idle(Since);

/// What a consumer reports of its place, and since when it has been that. The log doesn't know all of it: what is taken and
/// kept, and how often an epoch was read that is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Still {
    report: (Option<(u64, u64)>, u64),
    since: Since,
}

impl<P, Q> Member<P, Q> {
    /// Whether it has a cursor.
    pub fn is_joined(&self) -> bool {
        !matches!(self.state, MemberState::Attached { .. })
    }

    /// Whether it has a cursor, and was told so.
    pub fn is_reading(&self) -> bool {
        matches!(self.state, MemberState::Reading { .. })
    }

    /// The number of its last join.
    pub(super) fn join_number(&self) -> u64 {
        self.last_join.map_or(0, |join| join.number)
    }

    /// How many samples it must see before it can take a batch.
    pub(super) fn needs(&self, source_batch: u64) -> u64 {
        let Some(Join { batch_size, rank, .. }) = self.last_join else { return 1 };
        match rank {
            // The source's own batch. With `drop_last`, one that is smaller waits until another follows it.
            None => batch_size.unwrap_or(source_batch.max(1)),
            // One step, and what shows whether another follows it.
            Some(rank) => batch_size.unwrap_or_else(|| own_step(source_batch, rank.world.into())).saturating_mul(2),
        }
    }
}

impl<P, Q> Member<P, Q> {
    /// The window in which it certainly sees so many: the log grows by whole batches of the source, and the last one may not fit.
    pub(super) fn window(&self, source_batch: u64) -> u64 {
        self.needs(source_batch).saturating_add(source_batch.saturating_sub(1))
    }
}

/// All consumers.
pub struct Members<P, Q> {
    map: BTreeMap<u64, Member<P, Q>>,
    /// Those who wait for the first ring.
    expected: BTreeMap<u64, Q>,
    /// Enough have asked once: from then on everybody is answered at once.
    pub(super) has_begun: bool,
    /// The furthest epoch, and the furthest sample, that a consumer that is gone had reached.
    reached: u64,
    reached_sample: Option<u64>,
    /// Since when nobody is attached.
    alone_since: Option<Since>,
    /// All moments here are of this clock: what consumers said while this process was stopped is not heard yet when it goes on.
    clock: RunningTime,
    /// How many samples the source's batches have.
    pub(super) source_batch: u64,
}

impl<P, Q> Default for Members<P, Q> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            expected: BTreeMap::new(),
            has_begun: false,
            reached: 0,
            reached_sample: None,
            alone_since: None,
            clock: RunningTime::new(LONGEST_STEP),
            source_batch: 0,
        }
    }
}

impl<P: MemberPage, Q: Process> Members<P, Q> {
    /// Whether as many consumers as the server waits for have asked.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Those who wait for the first ring.
    pub fn expected(&self) -> impl Iterator<Item = (u64, &Q)> {
        self.expected.iter().map(|(&id, process)| (id, process))
    }

    pub(super) fn expect(&mut self, id: u64, process: Q) {
        self.expected.insert(id, process);
    }

    pub(super) fn insert(&mut self, id: u64, member: Member<P, Q>) {
        self.expected.remove(&id);
        self.map.insert(id, member);
        self.alone_since = None;
    }

    /// Forgets a consumer, but not how far it came. Tells whether it was attached.
    pub(super) fn remove(&mut self, id: u64, log: &Log, now: Time) -> bool {
        if let Some((epoch, released)) = log.cursor(id) {
            self.reached = self.reached.max(epoch);
            self.reached_sample = self.reached_sample.max(released);
        }
        self.expected.remove(&id);
        let was_attached = self.map.remove(&id).is_some();
        if self.map.is_empty() {
            self.alone_since = Some(Since(self.clock.at(now)));
        }
        was_attached
    }

    /// The state of a consumer that has no cursor from now on.
    pub(super) fn idle(&mut self, now: Time) -> MemberState {
        MemberState::Attached { since: Idle(Since(self.clock.at(now))) }
    }

    /// A consumer.
    pub fn get(&self, id: u64) -> Option<&Member<P, Q>> {
        self.map.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Member<P, Q>> {
        self.map.get_mut(&id)
    }

    /// Whether nobody has the feed's memory.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Those who have the feed's memory.
    pub fn values(&self) -> impl Iterator<Item = &Member<P, Q>> {
        self.map.values()
    }

    /// The same with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Member<P, Q>)> {
        self.map.iter().map(|(&id, member)| (id, member))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Member<P, Q>)> {
        self.map.iter_mut().map(|(&id, member)| (id, member))
    }

    /// Takes a consumer's cursor away and has it told.
    pub(super) fn detach(&mut self, id: u64, log: &mut Log, answer: Answer, now: Time) {
        log.leave(id);
        let idle = self.idle(now);
        if let Some(member) = self.map.get_mut(&id) {
            member.state = idle;
            member.notice = Some(answer);
        }
    }

    /// How many have a cursor.
    pub(super) fn joined(&self) -> usize {
        self.map.values().filter(|member| member.is_joined()).count()
    }

    /// Whether somebody who is here, or just coming, has never asked for a cursor.
    pub(super) fn anybody_is_to_ask(&self) -> bool {
        !self.expected.is_empty() || self.map.values().any(|member| member.last_join.is_none())
    }

    /// How many have a cursor, and were told so.
    pub(super) fn reading(&self) -> usize {
        self.map.values().filter(|member| member.is_reading()).count()
    }

    /// Takes over what consumers report.
    pub(super) fn refresh(&self, log: &mut Log) {
        for (&id, member) in self.map.iter().filter(|(_, member)| member.is_joined()) {
            if let Some((epoch, released)) = member.page.position(member.join_number()) {
                log.advance(id, epoch, released);
            }
        }
    }

    /// Whether a consumer sleeps, and really for want of data: one that was stopped in its sleep still says so.
    pub(super) fn starves(&self, id: u64, log: &Log) -> bool {
        let Some(member) = self.map.get(&id).filter(|member| member.is_joined() && member.page.is_waiting()) else {
            return false;
        };
        let is_writing_its_epoch = log.cursor(id).is_some_and(|(epoch, _)| epoch >= log.epoch());
        let there = log.head().saturating_sub(member.page.cursor());
        is_writing_its_epoch && there < member.needs(self.source_batch)
    }

    /// Whether anybody else does.
    pub(super) fn another_starves(&self, id: u64, log: &Log) -> bool {
        self.map.keys().any(|&other| other != id && self.starves(other, log))
    }

    /// Whether anybody sleeps until its epoch begins: the log must go on for its sake, though it needs nothing of what comes first.
    pub(super) fn anybody_awaits_epoch(&self, log: &Log) -> bool {
        let awaits = |id: u64| log.cursor(id).is_some_and(|(_, sample)| sample.is_none());
        self.map.iter().any(|(&id, member)| member.page.is_waiting() && awaits(id))
    }

    /// Whether anybody does.
    pub(super) fn anybody_starves(&self, log: &Log) -> bool {
        self.map.keys().any(|&id| self.starves(id, log))
    }

    /// Whether everybody who is here has read `epochs` epochs, or has not moved for long enough. If nobody is here,
    /// whether somebody had; a job that crashed finds its feed again for as long as `timeout` lasts. To be called again and again.
    pub(super) fn are_done(&mut self, log: &Log, epochs: u64, timeout: Duration, now: Time) -> bool {
        let now = self.clock.waiting(now);
        // A consumer that has had everything may never ask for more.
        let is_all = |released: Option<u64>| !log.policy().replay && released == Some(log.head());
        if self.map.is_empty() {
            let given_up = self.alone_since.is_some_and(|since| since.is_over(timeout, now));
            return self.has_begun && (self.reached >= epochs || is_all(self.reached_sample) || given_up);
        }
        let mut all = self.has_begun;
        for (&id, member) in &mut self.map {
            let report = (member.page.position(member.join_number()), member.page.cursor());
            all &= match (&mut member.state, log.cursor(id)) {
                (MemberState::Attached { since: Idle(since) }, _) => since.is_over(timeout, now),
                (MemberState::Reading { still }, Some((epoch, released))) => {
                    let since = still.filter(|still| still.report == report).map_or(Since(now), |still| still.since);
                    *still = Some(Still { report, since });
                    epoch >= epochs || is_all(released) || since.is_over(timeout, now)
                }
                (_, cursor) => cursor.is_some_and(|(epoch, released)| epoch >= epochs || is_all(released)),
            };
        }
        all
    }

    /// Whether everybody who is attached has asked for a batch, or has had until `timeout` to. To be called again and again.
    pub(super) fn have_asked(&mut self, timeout: Duration, now: Time) -> bool {
        let now = self.clock.waiting(now);
        self.map.values().all(|member| match member.state {
            MemberState::Attached { since: Idle(since) } => member.last_join.is_some() || since.is_over(timeout, now),
            _ => true,
        })
    }
}
