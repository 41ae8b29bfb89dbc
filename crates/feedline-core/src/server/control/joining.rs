//! Cursors for those who ask, once enough have asked, and room in the ring for their batches.

use feedline_ring::fault;
use feedline_ring::log::{Gone, Lag};

use super::Control;
use crate::consumer::own_step;
use crate::limits::size_text;
use crate::schema::Schema;
use crate::server::ranks::TooLate;
use crate::server::{Shared, Since, State, shape};
use crate::wire::{Join, JoinAt, Rank, Reply, WireError};

impl Control {
    /// Gives a consumer its cursor; `answer_the_gate` tells it where.
    pub(super) fn join(&mut self, id: u64, join: Join) -> Result<(), WireError> {
        let Join { number, batch_size, entry, returning, slowest, rank } = join;
        if rank.is_some_and(|rank| !rank.is_possible() || entry.may_be_newest()) {
            return Err(WireError::Malformed("a rank that cannot be"));
        }
        let mut state = self.shared.lock();
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        if rank.is_some() && self.shared.options.policy.lag == Lag::Skip {
            let why = "ranks cannot share a feed that is served with lag=\"skip\"".to_owned();
            return link.channel.send(&Reply::Refused { why, batch_size: false }, vec![]);
        }
        if let Err(why) = self.shared.make_room(&mut state, batch_size, rank) {
            return link.channel.send(&Reply::Refused { why, batch_size: true }, vec![]);
        }
        let State { log, members, returning: others, ranks, .. } = &mut *state;
        // Who comes back has started: wait_for is for those who start together.
        members.gate_open |= returning > 0;
        let Some(member) = members.get_mut(id) else { return Err(WireError::Closed) };
        if member.joined {
            return Err(WireError::Malformed("a second join"));
        }
        if returning > 1 && matches!(entry, JoinAt::At { .. }) {
            let resumed = self.shared.options.resume.map(|at| (at.epoch, at.index));
            others.came(log, returning, resumed.unwrap_or((slowest, 0)), self.shared.options.stall_timeout);
        }
        let placed = match rank.filter(|rank| !rank.comes_back) {
            Some(rank) => ranks.join(log, id, rank, entry.into(), &link.peer),
            None => log.join(id, entry.into()).map_err(|Gone { until }| TooLate { epoch: entry.epoch(), until }),
        };
        let place = match placed {
            Ok(place) => place,
            Err(TooLate { epoch, until }) => {
                return link.channel.send(&Reply::Gone { number, epoch, until }, vec![]);
            }
        };
        member.rank = rank;
        member.place = Some(place);
        member.joined = true;
        member.at_gate = true;
        member.join_number = number;
        member.batch_size = batch_size;
        member.news = None;
        fault::point("server:join_registered");
        self.shared.producer_bell.ring();
        Ok(())
    }

    /// Takes it back.
    pub(super) fn leave(&mut self, id: u64) {
        let mut state = self.shared.lock();
        state.refresh();
        let State { log, ranks, events, .. } = &mut *state;
        if let (Some((epoch, _)), Some(link)) = (log.cursor(id), self.links.get(&id)) {
            ranks.leaves(&link.peer, epoch);
            events.note("left", Some(link.peer.pid), "it left");
        }
        log.leave(id);
        fault::point("server:leave_registered");
        if let Some(member) = state.members.get_mut(id) {
            member.joined = false;
            member.at_gate = false;
            member.idle_since = Since::now();
        }
        self.shared.tell_joined(&state);
        self.shared.producer_bell.ring();
    }

    /// Answers joins once enough consumers have asked.
    pub(super) fn answer_the_gate(&mut self) {
        let mut state = self.shared.lock();
        let State { log, members, ring, events, .. } = &mut *state;
        let Some(ring) = ring else { return };
        if !members.gate_open {
            members.gate_open = members.joined() >= self.shared.options.wait_for as usize;
            if !members.gate_open {
                return;
            }
            self.shared.producer_bell.ring();
        }
        for (id, member) in members.iter_mut().filter(|(_, member)| member.at_gate) {
            member.at_gate = false;
            let (Some(mut place), Some((_, sample))) = (member.place.take(), log.cursor(id)) else { continue };
            // Its epoch may have begun while it stood at the gate.
            if place.sample.is_none() && sample.is_some() {
                (place.sample, place.start) = (sample, sample.unwrap_or(place.start));
            }
            if let Some(link) = self.links.get_mut(&id)
                && link.bring(ring).is_ok()
            {
                let batch_size = member.batch_size.map_or_else(String::new, |size| {
                    let ranks = member.rank.map_or(1, |rank| u64::from(rank.world));
                    format!(", batch size {}", size / ranks)
                });
                events.note("joined", Some(member.pid), &format!("epoch {}{batch_size}", place.epoch));
                let _ = link.channel.send(&Reply::joined(member.join_number, place), vec![]);
                fault::point("server:join_answered");
            }
        }
        self.shared.tell_joined(&state);
    }
}

impl Shared {
    /// Has the ring grow for a consumer's batches, or says why that can't be.
    fn make_room(&self, state: &mut State, batch_size: Option<u64>, rank: Option<Rank>) -> Result<(), String> {
        let Some(ring) = &state.ring else { return Ok(()) };
        if let Schema::Whole { why } = &ring.info.schema {
            return if ring.info.is_placeholder() || batch_size.is_none() { Ok(()) } else { Err(why.clone()) };
        }
        let own_step = rank.map(|rank| own_step(ring.info.source_batch, rank.world.into()));
        let Some(batch_size) = batch_size.or(own_step) else { return Ok(()) };
        let epoch_samples = self.head.length().samples;
        // Two batches in the trainer's hands and one on its way; ranks look one further ahead.
        let wanted = batch_size.min(epoch_samples).saturating_mul(3 + u64::from(rank.is_some()));
        if wanted <= ring.info.window {
            return Ok(());
        }
        let per_sample: u64 = shape::strides(&ring.info.schema).iter().sum();
        let bytes = wanted.saturating_mul(per_sample);
        let free = crate::limits::available_bytes();
        if bytes > free {
            return Err(format!("it needs a ring of {}, and {} of memory are left", size_text(bytes), size_text(free)));
        }
        state.grow_to = state.grow_to.max(wanted);
        Ok(())
    }
}
