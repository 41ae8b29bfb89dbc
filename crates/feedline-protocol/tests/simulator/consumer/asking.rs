//! The training loop's calls for batches, and what it does with them.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::consumer::{Available, Consumer, Cut, Next};
use feedline_protocol::page::HeadView;
use feedline_protocol::{FeedState, Time, UNKNOWN};

use super::connecting::Stop;
use super::holding::Held;
use super::{Activity, ConsumerProcess, Effects, Event, Outcome};
use crate::ring::Lease;
use crate::scenario::Feed;
use crate::server::delay;
use crate::wire::ToServer;

const SLICE: Duration = Duration::from_millis(100);

/// A loop that has broken off so many epochs reads whole ones from then on: in the end it must have read some.
const MOST_BROKEN_OFF: u32 = 20;

impl ConsumerProcess {
    /// One call of the state machine, or a look at what it waits for.
    pub(super) fn ask(&mut self, feed: &Feed, is_calm: bool, now: Duration, effects: &mut Effects) -> Result<(), Stop> {
        self.at = now;
        match self.activity {
            Activity::AwaitingAnswer | Activity::AwaitingRing => {
                self.hear(now)?;
                self.at = now + SLICE;
                let (Some(machine), Some(memory)) = (&self.machine, &self.memory) else { return Ok(()) };
                let is_there = memory.generation() == memory.ring.shape.generation || !machine.is_joined();
                let is_answered = match self.activity {
                    Activity::AwaitingAnswer => !machine.is_joining(),
                    _ => is_there,
                };
                // It won't come any more.
                let is_gone =
                    self.wire.as_ref().is_none_or(|wire| !wire.is_server_there.get() && wire.to_consumer.is_empty());
                if !is_answered && is_gone && memory.state() != FeedState::Running {
                    let is_lost = memory.state() == FeedState::Ended && machine.has_more(memory);
                    return Err(if is_lost { Stop::ServerLost } else { Stop::Ended(Outcome::Ended) });
                }
                if !is_answered {
                    self.interrupt_at_times(is_calm, now);
                    return Ok(());
                }
                (self.activity, self.at) = (Activity::Asking, now);
            }
            Activity::FallingAsleep { wakes } => return self.sleep(wakes, now),
            Activity::Sleeping { wakes } => self.wake_up(wakes, now)?,
            _ => {}
        }
        if now.saturating_sub(self.looked) >= SLICE && !self.machine.as_ref().is_some_and(Consumer::is_joining) {
            self.hear(now)?;
        }
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        match machine.next(memory)? {
            Next::Join(join) => {
                self.judge.joins(&join, feed).map_err(Stop::Wrong)?;
                if let Some(wire) = &self.wire {
                    // One that had given its place back does not speak for the others.
                    if join.others[0].is_none() {
                        self.knows = Default::default();
                    }
                    wire.to_server.send(ToServer::Join(join, self.knows[0].and(self.knows[1])), now + delay(&self.rng));
                }
                self.activity = Activity::AwaitingAnswer;
                self.at = now + SLICE;
                self.moves.asks(now);
            }
            Next::AwaitAnswer => self.activity = Activity::AwaitingAnswer,
            Next::AwaitRing => self.activity = Activity::AwaitingRing,
            Next::Take(cut) => self.take(cut, feed, is_calm, now, effects)?,
            Next::EpochOver => self.pass_epoch(feed, now, effects).map_err(Stop::Wrong)?,
            Next::Wait => self.fall_asleep(now),
            Next::Ended => return Err(Stop::Ended(Outcome::Ended)),
        }
        Ok(())
    }

    /// Data has come, or a slice of time is over. It was announced `wakes` times before it slept.
    fn wake_up(&mut self, wakes: u64, now: Duration) -> Result<(), Stop> {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        memory.page.set_waiting(false);
        memory.reader.see_all();
        // It looked before it slept, and said that it would: whatever came since was announced to it.
        if memory.reader.head.wakes() == wakes && machine.available(memory)? != Available::Nothing {
            return Err(Stop::Wrong("what it waited for came, and nobody woke it up".into()));
        }
        self.hear(now)?;
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        machine.check_epoch(memory, Time::new(now))?;
        self.relieve_all();
        self.activity = Activity::Asking;
        Ok(())
    }

    /// Ctrl-C while a join is on its way: the loop asks again later, or gives up for now.
    fn interrupt_at_times(&mut self, is_calm: bool, now: Duration) {
        let is_rank = self.job.config.shard.is_some();
        if is_calm || is_rank || !matches!(self.activity, Activity::AwaitingAnswer) || !self.rng.one_in(8) {
            return;
        }
        if self.rng.one_in(2)
            && let Some(machine) = &mut self.machine
            && machine.leave()
        {
            self.judge.breaks_off();
            self.leave(now);
        }
        self.activity = Activity::Thinking;
        self.at = now + Duration::from_micros(self.rng.below(20_000));
    }

    /// The state machine says that an epoch is over.
    pub(super) fn pass_epoch(&mut self, feed: &Feed, now: Duration, effects: &mut Effects) -> Result<(), String> {
        self.judge.epoch_over(feed)?;
        let passes = self.machine.as_ref().map_or(0, Consumer::epoch);
        if feed.policy.replay && feed.epochs.is_some_and(|epochs| passes > epochs) {
            return Err(format!("it has passed {passes} epochs, and the feed has {:?}", feed.epochs));
        }
        self.finish_epoch(now, effects);
        self.activity = Activity::Thinking;
        Ok(())
    }

    /// What a loop does between two epochs: a validation, a checkpoint, nothing.
    fn finish_epoch(&mut self, now: Duration, effects: &mut Effects) {
        self.epochs_read += 1;
        self.has_read_epoch = true;
        let epoch = self.machine.as_ref().map_or(0, Consumer::wanted_epoch);
        effects.events.push(Event::EpochOver { epoch: epoch.saturating_sub(1) });
        if self.rng.one_in(2) {
            self.let_go_of_epoch();
        }
        let rest = Duration::from_micros(self.rng.within(1000, 10_000));
        let rests = !self.job.rests.is_zero() && self.rng.one_in(3);
        let long = Duration::from_micros(self.rng.below(600_000));
        self.at = now + if rests { self.job.rests + long } else { rest };
    }

    /// Says that it will sleep. Others may run before it looks once more, even for long.
    fn fall_asleep(&mut self, now: Duration) {
        let Some(memory) = &self.memory else { return };
        memory.page.set_waiting(true);
        let pause = if self.rng.one_in(16) { 60_000 } else { 10 };
        self.activity = Activity::FallingAsleep { wakes: memory.reader.head.wakes() };
        self.at = now + Duration::from_micros(self.rng.below(pause));
    }

    fn sleep(&mut self, wakes: u64, now: Duration) -> Result<(), Stop> {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        // Fenced; then everything is looked at once more.
        memory.reader.see_all();
        if memory.wanted() != UNKNOWN {
            memory.rings.set(true);
        }
        let over = memory.state();
        let available = machine.available(memory)?;
        if available == Available::Nothing && over != FeedState::Running {
            memory.page.set_waiting(false);
            let lost = machine.lost_by_stalling();
            return Err(lost.map_or(Stop::Ended(Outcome::Ended), |trouble| Stop::Ended(Outcome::Trouble(trouble))));
        }
        if available == Available::Nothing {
            self.activity = Activity::Sleeping { wakes };
            self.at = now + SLICE;
        } else {
            memory.page.set_waiting(false);
            self.activity = Activity::Asking;
        }
        Ok(())
    }

    fn take(&mut self, cut: Cut, feed: &Feed, is_calm: bool, now: Duration, effects: &mut Effects) -> Result<(), Stop> {
        let is_for_good = self.keeps_for_good();
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        let lead = machine.lead();
        machine.begin_take(cut, memory);
        let samples = memory.ring.read(cut.first..cut.until);
        let is_copied = memory.ring.shape.skips;
        if is_copied && memory.reader.oldest() > cut.first {
            // Overwritten meanwhile: look again.
            return Ok(());
        }
        let samples = samples.ok_or_else(|| Stop::Wrong(format!("{cut:?} was overwritten before it was taken")))?;
        let id = (!is_copied).then(|| memory.cut(cut.until + lead));
        machine.took(cut, memory);
        self.pressure.handed_out(cut.first + lead);
        let saved = machine.position(&memory.reader);
        self.judge.batch(&samples, feed, machine.skipped()).map_err(Stop::Wrong)?;
        if is_copied {
            let (oldest, first_known) = (memory.reader.oldest(), memory.reader.first_known());
            let takes = self.judge.takes(machine.epoch(), (cut.first, cut.until), oldest, first_known);
            takes.map_err(Stop::Wrong)?;
        }
        self.judge.stands(machine.place(), saved, feed).map_err(Stop::Wrong)?;
        if let Some(first) = samples.first() {
            let epoch = if feed.policy.replay { machine.epoch() } else { first.epoch };
            let until = first.index + samples.len() as u64;
            let ring = (!is_copied).then(|| (Rc::clone(&memory.ring), cut.first + lead));
            effects.events.push(Event::Batch { epoch, first: first.index, until, saved, ring });
        }
        let lease = Lease::new(&memory.ring, cut.first, samples);
        let position = cut.first + lead;
        self.held.push(Held { lease, id, position, is_private: is_copied, is_for_good });
        self.recent = [self.recent[1], Some(position)];
        self.saved = Some(saved);
        self.activity = Activity::Thinking;
        let think = if is_calm { self.job.think_micros.min(2000) } else { self.job.think_micros };
        self.at = now + Duration::from_micros(self.rng.below(2 * think + 1));
        self.stop_at_times(feed, now, effects);
        Ok(())
    }

    /// A loop that has had all batches may stop without asking for one more; another breaks off.
    fn stop_at_times(&mut self, feed: &Feed, now: Duration, effects: &mut Effects) {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return };
        let has_all = machine.has_read_all(memory);
        let may_break_off = self.job.breaks_off > 0 && self.broken_off < MOST_BROKEN_OFF;
        let breaks_off = may_break_off && self.rng.one_in(8 * self.job.breaks_off);
        if (has_all && self.rng.one_in(2)) || breaks_off {
            let gives_back = machine.stop(memory);
            if gives_back {
                self.broken_off += 1;
                self.judge.breaks_off();
                self.leave(now);
            } else {
                self.judge.finishes(feed);
                self.finish_epoch(now, effects);
            }
        }
    }
}
