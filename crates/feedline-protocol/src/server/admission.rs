//! Consumers come and go: cursors for those who ask, once enough have asked, and room in the ring for their batches.

use super::ranks::{Peer, TooLate};
use super::{Member, MemberState, Notice, Phase, Server};
use crate::log::{Gone, Lag};
use crate::message::{Answer, Join, Rank, Refusal};
use crate::page::{HeadPage, MemberPage, Process};
use crate::shard::own_step;
use crate::time::Time;

/// What a consumer did that no consumer does: its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It asked for a cursor before it had the feed's memory.
    EarlyJoin,
    /// It has a cursor already.
    SecondJoin,
    /// It is a rank that can't be, or one that begins with the newest sample.
    ImpossibleRank,
}

/// What is to be sent to a consumer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// This.
    Answer(Answer),
    /// The ring in use.
    Ring,
}

impl<P: MemberPage, Q: Process> Server<P, Q> {
    /// A consumer has come that waits for the first ring.
    pub fn expect(&mut self, id: u64, process: Q) {
        self.members.expect(id, process);
    }

    /// A consumer was sent a ring of this generation, and a page of its own.
    pub fn attach(&mut self, id: u64, page: P, process: Q, generation: u32, now: Time) {
        let state = self.members.idle(now);
        let member = Member { page, process, state, last_join: None, generation, notice: None, is_refused: false };
        self.members.insert(id, member);
    }

    /// Gives a consumer its cursor; [`Self::admit`] tells it where. If it can't have one, [`Self::deliver`] tells it why.
    pub fn join(
        &mut self,
        id: u64,
        join: Join,
        head: &impl HeadPage,
        free_bytes: impl FnOnce() -> u64,
        now: Time,
    ) -> Result<(), Violation> {
        let Join { number, entry, others, rank, .. } = join;
        if rank.is_some_and(|rank| !rank.is_possible() || entry.may_be_newest()) {
            return Err(Violation::ImpossibleRank);
        }
        let process = match self.members.get(id) {
            None => return Err(Violation::EarlyJoin),
            Some(member) if member.is_joined() => return Err(Violation::SecondJoin),
            Some(member) => member.process.clone(),
        };
        if rank.is_some() && self.options.policy.lag == Lag::Skip {
            return self.answer(id, Answer::Refused(Refusal::RanksWithSkip));
        }
        if let Err(refusal) = self.make_room(join.batch_size, rank, head, free_bytes) {
            return self.answer(id, Answer::Refused(refusal));
        }
        for others in others.into_iter().flatten().filter(|others| others.count > 0) {
            // Whoever comes back has begun before: `wait_for` is for those who start together.
            self.members.has_begun = true;
            if others.count > u32::from(others.is_one) {
                let place = self.options.resume.map_or((others.slowest, 0), |at| (at.epoch, at.index));
                self.reconnecting.came(&mut self.log, others, place, now);
            }
        }
        self.reconnecting.expire(&mut self.log, self.options.stall_timeout, now);
        let placed = match rank.filter(|rank| !rank.is_rejoining) {
            Some(rank) => self.ranks.join(&mut self.log, id, rank, entry, &Peer { connection: id, process }, now),
            None => self.log.join(id, entry).map_err(|Gone { until }| TooLate { epoch: entry.epoch(), until }),
        };
        let place = match placed {
            Ok(place) => place,
            Err(TooLate { epoch, until }) => return self.answer(id, Answer::Gone { number, epoch, until }),
        };
        // Whatever it did with an earlier cursor: this one has just begun to stand where it is.
        if let Some(stalls) = &mut self.stalls {
            stalls.forget(id);
        }
        if let Some(member) = self.members.get_mut(id) {
            member.last_join = Some(join);
            member.state = MemberState::Admitted { place };
            // What it was told, or was to be told, about an earlier cursor is out of date.
            (member.notice, member.is_refused) = (None, false);
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, answer: Answer) -> Result<(), Violation> {
        if let Some(member) = self.members.get_mut(id) {
            member.notice = Some(answer);
        }
        Ok(())
    }

    /// Takes a consumer's cursor back, as it wishes.
    pub fn leave(&mut self, id: u64, head: &impl HeadPage, now: Time) {
        self.refresh(now);
        if let (Some((epoch, _)), Some(member)) = (self.log.cursor(id), self.members.get_mut(id)) {
            self.ranks.leaves(id, epoch);
            (self.has_been_left, self.passing_since) = (true, None);
            self.notices.push(Notice::Left { pid: member.process.pid() });
        }
        self.log.leave(id);
        let idle = self.members.idle(now);
        if let Some(member) = self.members.get_mut(id) {
            member.state = idle;
        }
        self.publish_joined(head);
    }

    /// A consumer's connection is closed, or its process has died. True if it was attached.
    pub fn disconnect(&mut self, id: u64, process: &Q, said_bye: bool, head: &impl HeadPage, now: Time) -> bool {
        self.refresh(now);
        // When a feed has failed, all consumers are disconnected: that is worth no notice.
        if self.phase != Phase::Failed {
            if let Some((epoch, _)) = self.log.cursor(id) {
                self.ranks.leaves(id, epoch);
                (self.has_been_left, self.passing_since) = (true, None);
                // A consumer that has finished an epoch may go without a word.
                let is_well = said_bye || self.members.get(id).is_none_or(|member| member.page.is_resting());
                let pid = process.pid();
                self.notices.push(if is_well { Notice::Left { pid } } else { Notice::Died { pid } });
            }
            self.ranks.disconnected(&mut self.log, &Peer { connection: id, process: process.clone() });
        }
        let was_attached = self.members.remove(id, &self.log, now);
        if was_attached {
            self.log.leave(id);
            self.publish_joined(head);
        }
        was_attached
    }

    /// Forgets ranks that wait for others and have died. True if there were any.
    pub fn reap(&mut self) -> bool {
        self.ranks.reap(&mut self.log)
    }

    /// What consumers have to be sent, in this order: a consumer that was detached must hear of it before it could hear of the
    /// ring that no longer has its samples. One that doesn't read gets the ring when it joins: memory on its way can't be freed.
    /// When all epochs are written, one that rests gets it too: the server may be gone before it wakes up.
    pub fn deliver(&mut self) -> Vec<(u64, Delivery)> {
        let is_replayed = self.options.policy.replay && self.log.epoch() > 0;
        let is_all_written = self.phase == Phase::Draining || is_replayed;
        let ring = self.ring.filter(|_| !self.phase.is_broken());
        let mut deliveries = Vec::new();
        for (id, member) in self.members.iter_mut() {
            deliveries.extend(member.notice.take().map(|answer| (id, Delivery::Answer(answer))));
        }
        for (id, member) in self.members.iter_mut() {
            // One that rests asks for the ring when it wakes up.
            if let Some(ring) = ring
                && member.is_reading()
                && (is_all_written || !member.page.is_resting())
                && member.generation != ring.generation
            {
                member.generation = ring.generation;
                deliveries.push((id, Delivery::Ring));
            }
        }
        deliveries
    }

    /// Answers joins once enough consumers have asked. The flag tells whether they have just now.
    pub fn admit(&mut self, head: &impl HeadPage) -> (Vec<(u64, Delivery)>, bool) {
        let mut deliveries = Vec::new();
        let Some(ring) = self.ring else { return (deliveries, false) };
        let begins = !self.members.has_begun && self.members.joined() >= self.options.wait_for as usize;
        self.members.has_begun |= begins;
        if !self.members.has_begun {
            return (deliveries, false);
        }
        for (id, member) in self.members.iter_mut() {
            let MemberState::Admitted { mut place } = member.state else { continue };
            member.state = MemberState::Reading { still: None };
            let Some((_, sample)) = self.log.cursor(id) else { continue };
            // Its epoch may have begun while it waited.
            if place.sample.is_none() && sample.is_some() {
                (place.sample, place.start) = (sample, sample.unwrap_or(place.start));
            }
            if member.generation != ring.generation {
                member.generation = ring.generation;
                deliveries.push((id, Delivery::Ring));
            }
            let Some(Join { number, batch_size, rank, .. }) = member.last_join else { continue };
            deliveries.push((id, Delivery::Answer(Answer::Joined { number, place })));
            let ranks = rank.map_or(1, |rank| u64::from(rank.world));
            let batch_size = batch_size.map(|size| size / ranks);
            self.notices.push(Notice::Joined { pid: member.process.pid(), epoch: place.epoch, batch_size });
        }
        // Before they are told: should the server die in between, each of them comes back and is counted.
        if !deliveries.is_empty() {
            self.publish_joined(head);
        }
        for (id, delivery) in &deliveries {
            if let (Delivery::Answer(Answer::Joined { number, .. }), Some(member)) = (delivery, self.members.get(*id)) {
                member.page.count(*number);
            }
        }
        (deliveries, begins)
    }

    /// Has the ring grow for a consumer's batches, or says why that can't be.
    fn make_room(
        &mut self,
        batch_size: Option<u64>,
        rank: Option<Rank>,
        head: &impl HeadPage,
        free_bytes: impl FnOnce() -> u64,
    ) -> Result<(), Refusal> {
        let Some(ring) = self.ring else { return Ok(()) };
        if !ring.is_cut {
            return if ring.is_placeholder || batch_size.is_none() { Ok(()) } else { Err(Refusal::Whole) };
        }
        let own_step = rank.map(|rank| own_step(ring.source_batch, rank.world.into()));
        let Some(batch_size) = batch_size.or(own_step) else { return Ok(()) };
        let epoch_samples = head.length().samples;
        // Two batches in the trainer's hands and one on its way; ranks look one further ahead.
        let wanted = batch_size.min(epoch_samples).saturating_mul(3 + u64::from(rank.is_some()));
        if wanted <= ring.size.window {
            return Ok(());
        }
        let (needed_bytes, free_bytes) = (wanted.saturating_mul(ring.sample_bytes), free_bytes());
        if needed_bytes > free_bytes {
            return Err(Refusal::TooLarge { needed_bytes, free_bytes });
        }
        self.grow_to = self.grow_to.max(wanted);
        Ok(())
    }
}
