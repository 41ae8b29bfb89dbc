//! A consumer's process: the state machine, driven as `feedline-core` drives it, and a training loop around it.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::consumer::{Consumer, Cut, Look, Next, Pressure, Trouble};
use feedline_protocol::page::HeadView;
use feedline_protocol::{FeedState, Mark, Time, UNKNOWN};

use crate::judge::Judge;
use crate::memory::Memory;
use crate::pages::HeadReader;
use crate::ring::Lease;
use crate::rng::Rng;
use crate::scenario::{Feed, Job};
use crate::server::delay;
use crate::wire::{Pid, ToConsumer, ToServer, Wire};

const SLICE: Duration = Duration::from_millis(100);
/// How long it waits for another server.
const RECONNECT: Duration = Duration::from_secs(60);

/// How a consumer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Killed,
    /// The feed is over.
    Ended,
    ServerLost,
    Trouble(Trouble),
}

/// What it is at.
#[derive(Clone, Copy, Debug)]
enum Activity {
    /// Looks for a server; since then.
    Connecting {
        since: Duration,
    },
    /// Computes, or does nothing.
    Thinking,
    /// Asked for a batch: to be looked for at once.
    Asking,
    AwaitingAnswer,
    AwaitingRing,
    /// Waits for data. It was announced so often before.
    Sleeping {
        wakes: u64,
    },
}

pub struct ConsumerProcess {
    pub job: Job,
    pub pid: Pid,
    pub outcome: Option<Outcome>,
    pub at: Duration,
    pub stopped_until: Duration,
    /// How many epochs it has read since it was last counted.
    pub epochs_read: u64,
    pub judge: Judge,
    activity: Activity,
    wire: Option<Rc<Wire>>,
    machine: Option<Consumer>,
    memory: Option<Memory>,
    pressure: Pressure,
    held: Vec<Held>,
    looked: Duration,
    /// The place that it saved last.
    saved: Option<Mark>,
    /// A place to load before it begins.
    to_load: Option<Mark>,
    is_in_epoch: bool,
    rng: Rc<Rng>,
}

/// A batch in the hands of the training loop.
struct Held {
    lease: Lease,
    id: Option<u64>,
    is_private: bool,
}

/// What others have to do after a step.
#[derive(Default)]
pub struct Effects {
    /// It rang for the appending thread.
    pub rings: bool,
    /// It wants to connect.
    pub connect: Option<(Rc<Wire>, Pid)>,
}

impl ConsumerProcess {
    pub fn new(number: usize, job: &Job, rng: &Rc<Rng>, starts: Duration, to_load: Option<Mark>) -> Self {
        Self {
            job: job.clone(),
            pid: Pid { number: number as u32, is_dead: Rc::default() },
            outcome: None,
            at: starts,
            stopped_until: Duration::ZERO,
            epochs_read: 0,
            judge: Judge::new(job.config),
            activity: Activity::Connecting { since: starts },
            wire: None,
            machine: None,
            memory: None,
            pressure: Pressure::default(),
            held: Vec::new(),
            looked: Duration::ZERO,
            saved: None,
            to_load,
            is_in_epoch: false,
            rng: Rc::clone(rng),
        }
    }

    /// When it can run next.
    pub fn wakes_at(&self) -> Duration {
        let mut at = self.at;
        if let Some(wire) = &self.wire {
            let is_waiting = matches!(self.activity, Activity::AwaitingAnswer | Activity::AwaitingRing);
            if is_waiting && let Some(next) = wire.to_consumer.next() {
                at = at.min(next);
            }
        }
        if let (Activity::Sleeping { wakes }, Some(memory)) = (self.activity, &self.memory)
            && memory.reader.head.wakes() != wakes
        {
            at = Duration::ZERO;
        }
        at.max(self.stopped_until)
    }

    /// Whether it has no server.
    pub fn is_connecting(&self) -> bool {
        matches!(self.activity, Activity::Connecting { .. }) && self.wire.is_none()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.pid.is_dead.set(true);
        if let Some(wire) = &self.wire {
            wire.is_consumer_there.set(false);
        }
        self.held.clear();
        self.outcome = Some(Outcome::Killed);
    }

    /// The place that it saved last.
    pub fn saved(&self) -> Option<Mark> {
        self.saved
    }

    /// It loads the place that it is at.
    pub fn reload(&mut self, now: Duration) {
        if let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory)
            && matches!(self.activity, Activity::Thinking)
        {
            let mark = machine.position(&memory.reader);
            let gives_back = machine.resume_at(mark);
            self.judge.resumes(mark);
            if gives_back {
                self.leave(now);
            }
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(wire) = &self.wire {
            wire.to_server.send(ToServer::Bye, Duration::ZERO);
            wire.is_consumer_there.set(false);
        }
        self.held.clear();
        self.outcome = Some(outcome);
    }

    /// Makes everything private and gives the cursor back.
    fn leave(&mut self, now: Duration) {
        while self.keep_oldest() {}
        if let Some(wire) = &self.wire {
            wire.to_server.send(ToServer::Leave, now + delay(&self.rng));
        }
    }

    fn keep_oldest(&mut self) -> bool {
        let Some(memory) = &self.memory else { return false };
        let Some((id, _)) = memory.oldest() else { return false };
        if let Some(held) = self.held.iter_mut().find(|held| held.id == Some(id) && !held.is_private) {
            held.is_private = true;
        }
        memory.release(id);
        true
    }

    /// Runs for a moment. Says what it was handed that it should not have been.
    pub fn step(
        &mut self,
        feed: &Feed,
        is_server_there: bool,
        is_calm: bool,
        now: Duration,
    ) -> Result<Effects, String> {
        let mut effects = Effects::default();
        self.check_held()?;
        match self.activity {
            Activity::Connecting { since } => self.connect(since, is_server_there, now, &mut effects)?,
            Activity::Thinking => {
                self.let_go(is_calm);
                if let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) {
                    machine.wake(memory);
                }
                self.activity = Activity::Asking;
                self.relieve();
            }
            _ => {
                let outcome = self.ask(feed, is_calm, now);
                self.follow(outcome, feed, now)?;
            }
        }
        if let Some(memory) = &self.memory {
            effects.rings = memory.rings.replace(false);
        }
        Ok(effects)
    }

    /// No batch in its hands ever changes.
    fn check_held(&self) -> Result<(), String> {
        match self.held.iter().find(|held| !held.is_private && !held.lease.is_intact()) {
            Some(held) => Err(format!("a batch changed while it was held: {:?}", held.lease.samples)),
            None => Ok(()),
        }
    }

    fn connect(
        &mut self,
        since: Duration,
        is_server_there: bool,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<(), String> {
        self.at = now + Duration::from_millis(25);
        if now.saturating_sub(since) > RECONNECT {
            self.end(Outcome::ServerLost);
            return Ok(());
        }
        let wire = match &self.wire {
            Some(wire) => Rc::clone(wire),
            None if !is_server_there => return Ok(()),
            None => {
                let wire = Rc::new(Wire::default());
                wire.is_server_there.set(true);
                wire.is_consumer_there.set(true);
                wire.to_server.send(ToServer::Hello, now + delay(&self.rng));
                effects.connect = Some((Rc::clone(&wire), self.pid.clone()));
                self.wire = Some(Rc::clone(&wire));
                wire
            }
        };
        match wire.to_consumer.receive(now) {
            Some(ToConsumer::Welcome(head, page, ring)) => {
                let reader = HeadReader::new(&head, &self.rng);
                let (shape, lost) = (ring.shape, self.memory.take());
                self.memory = Some(Memory::new(reader, page, ring));
                match (&mut self.machine, lost) {
                    (Some(machine), Some(lost)) => {
                        machine.reconnect(shape, &lost.reader);
                    }
                    _ => {
                        let mut machine = Consumer::new(self.job.config, shape, Time::new(now));
                        if let Some(mark) = self.to_load.take() {
                            let _ = machine.resume_at(mark);
                            self.judge.resumes(mark);
                        }
                        self.machine = Some(machine);
                    }
                }
                // What was handed out keeps the old ring, which nobody writes to any more.
                self.held.iter_mut().for_each(|held| held.id = None);
                self.pressure = Pressure::default();
                self.activity = Activity::Asking;
                self.at = now;
            }
            Some(other) => return Err(format!("a welcome was expected, not {other:?}")),
            None if !wire.is_server_there.get() => self.wire = None,
            None => {}
        }
        Ok(())
    }

    /// Lets go of batches, as a loop does: it holds one while it asks for the next.
    fn let_go(&mut self, is_calm: bool) {
        let keeps = if is_calm { 1 } else { 1 + self.job.keeps };
        while self.held.len() > keeps {
            // Not always the oldest.
            let which = if self.rng.one_in(4) { self.rng.below(self.held.len() as u64) as usize } else { 0 };
            let held = self.held.remove(which);
            if let (Some(id), false, Some(memory)) = (held.id, held.is_private, &self.memory) {
                memory.release(id);
            }
        }
    }

    fn relieve(&mut self) {
        let Some(memory) = &self.memory else { return };
        if let Some(limit) = self.pressure.limit(memory.wanted()) {
            while self.memory.as_ref().and_then(Memory::oldest).is_some_and(|(_, first)| first < limit)
                && self.keep_oldest()
            {}
        }
    }

    /// Lets go of all that the server waits for.
    fn relieve_all(&mut self) {
        loop {
            let Some(memory) = &self.memory else { return };
            let wanted = memory.wanted();
            let is_in_the_way = wanted != UNKNOWN && memory.oldest().is_some_and(|(_, first)| first < wanted);
            if !is_in_the_way || !self.keep_oldest() {
                return;
            }
        }
    }

    /// `Ok(None)`: to be called again when it wakes up.
    fn ask(&mut self, feed: &Feed, is_calm: bool, now: Duration) -> Result<(), Stop> {
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
                // It won't come any more, so there is nothing in it for us.
                let is_gone =
                    self.wire.as_ref().is_none_or(|wire| !wire.is_server_there.get() && wire.to_consumer.is_empty());
                if !is_answered && is_gone && memory.state() != FeedState::Running {
                    return Err(Stop::Ended(Outcome::Ended));
                }
                if !is_answered {
                    self.interrupt_at_times(is_calm, now);
                    return Ok(());
                }
                (self.activity, self.at) = (Activity::Asking, now);
            }
            Activity::Sleeping { .. } => {
                if let Some(memory) = &self.memory {
                    memory.page.set_waiting(false);
                }
                self.hear(now)?;
                let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
                machine.check_epoch(memory, Time::new(now))?;
                self.relieve_all();
                self.activity = Activity::Asking;
            }
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
                    wire.to_server.send(ToServer::Join(join), now + delay(&self.rng));
                }
                self.activity = Activity::AwaitingAnswer;
                self.at = now + SLICE;
            }
            Next::AwaitAnswer => self.activity = Activity::AwaitingAnswer,
            Next::AwaitRing => self.activity = Activity::AwaitingRing,
            Next::Take(cut) => self.take(cut, feed, is_calm, now)?,
            Next::EpochOver => {
                self.judge.epoch_over(feed).map_err(Stop::Wrong)?;
                self.finish_epoch(now);
            }
            Next::Wait => self.sleep(now)?,
            Next::Ended => return Err(Stop::Ended(Outcome::Ended)),
        }
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

    fn finish_epoch(&mut self, now: Duration) {
        self.epochs_read += 1;
        self.is_in_epoch = false;
        self.activity = Activity::Thinking;
        self.at = now + Duration::from_micros(self.rng.within(1000, 10_000));
    }

    fn sleep(&mut self, now: Duration) -> Result<(), Stop> {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        memory.page.set_waiting(true);
        // Fenced; then everything is looked at once more.
        memory.reader.see_all();
        if memory.wanted() != UNKNOWN {
            memory.rings.set(true);
        }
        let wakes = memory.reader.head.wakes();
        let over = memory.state();
        let look = machine.look(memory)?;
        if look == Look::Nothing && over != FeedState::Running {
            memory.page.set_waiting(false);
            let lost = machine.lost_by_stalling();
            return Err(lost.map_or(Stop::Ended(Outcome::Ended), |trouble| Stop::Ended(Outcome::Trouble(trouble))));
        }
        if look == Look::Nothing {
            self.activity = Activity::Sleeping { wakes };
            self.at = now + SLICE;
        } else {
            memory.page.set_waiting(false);
        }
        Ok(())
    }

    fn take(&mut self, cut: Cut, feed: &Feed, is_calm: bool, now: Duration) -> Result<(), Stop> {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return Ok(()) };
        let lead = machine.lead();
        machine.begin_take(cut, memory);
        let samples: Option<Vec<_>> = (cut.first..cut.until).map(|position| memory.ring.get(position)).collect();
        let is_copied = memory.ring.shape.skips;
        if is_copied && memory.reader.oldest() > cut.first {
            // Overwritten meanwhile: look again.
            return Ok(());
        }
        let samples = samples.ok_or_else(|| Stop::Wrong(format!("{cut:?} was overwritten before it was taken")))?;
        let id = (!is_copied).then(|| memory.cut(cut.until + lead));
        machine.took(cut, memory);
        self.pressure.handed_out(cut.first + lead);
        self.judge.batch(&samples, feed).map_err(Stop::Wrong)?;
        let lease = Lease { ring: Rc::clone(&memory.ring), first: cut.first, samples };
        self.held.push(Held { lease, id, is_private: is_copied });
        self.is_in_epoch = true;
        self.saved = Some(machine.position(&memory.reader));
        self.activity = Activity::Thinking;
        let think = if is_calm { self.job.think_micros.min(2000) } else { self.job.think_micros };
        self.at = now + Duration::from_micros(self.rng.below(2 * think + 1));
        self.stop_at_times(feed, now);
        Ok(())
    }

    /// A loop that has had all batches may stop without asking for one more; another breaks off.
    fn stop_at_times(&mut self, feed: &Feed, now: Duration) {
        let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) else { return };
        let has_all = machine.has_read_all(memory);
        let breaks_off = self.job.breaks_off > 0 && self.rng.one_in(8 * self.job.breaks_off);
        if (has_all && self.rng.one_in(2)) || breaks_off {
            let gives_back = machine.stop(memory);
            if gives_back {
                self.judge.breaks_off();
                self.leave(now);
            } else {
                self.judge.finishes(feed);
                self.epochs_read += 1;
            }
            self.is_in_epoch = false;
        }
    }

    /// Takes all messages, and learns whether the server is gone.
    fn hear(&mut self, now: Duration) -> Result<(), Stop> {
        self.looked = now;
        let Some(wire) = self.wire.clone() else { return Ok(()) };
        while let Some(message) = wire.to_consumer.receive(now) {
            let (Some(machine), Some(memory)) = (&mut self.machine, &mut self.memory) else { return Ok(()) };
            // What was written before a message was sent is seen with it.
            memory.reader.see_all();
            match message {
                ToConsumer::Ring(ring) => {
                    machine.adopt(ring.shape);
                    memory.ring = ring;
                }
                ToConsumer::Answer(answer) => {
                    self.judge.answered(&answer);
                    machine.hear(answer, memory, Time::new(now))?;
                }
                ToConsumer::Welcome(..) => return Err(Stop::Wrong("a second welcome".into())),
            }
        }
        if !wire.is_server_there.get() && wire.to_consumer.is_empty() {
            let (Some(machine), Some(memory)) = (&self.machine, &self.memory) else { return Ok(()) };
            memory.reader.see_all();
            return match memory.state() {
                FeedState::Ended | FeedState::Failed if machine.is_joined() => Ok(()),
                FeedState::Running => Err(Stop::ServerLost),
                _ => Err(Stop::Ended(Outcome::Ended)),
            };
        }
        Ok(())
    }

    /// What became of a call.
    fn follow(&mut self, outcome: Result<(), Stop>, feed: &Feed, now: Duration) -> Result<(), String> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Stop::Wrong(why)) => Err(why),
            Err(Stop::Ended(outcome)) => {
                self.judge.ends(&outcome)?;
                self.end(outcome);
                Ok(())
            }
            Err(Stop::Trouble(trouble)) => {
                self.judge.ends(&Outcome::Trouble(trouble.clone()))?;
                self.end(Outcome::Trouble(trouble));
                Ok(())
            }
            Err(Stop::ServerLost) if !self.job.reconnects => {
                self.end(Outcome::ServerLost);
                Ok(())
            }
            Err(Stop::ServerLost) => {
                if let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory)
                    && let Ok(Look::EpochOver(end)) = machine.look(memory)
                {
                    // What is needed to know that the epoch is over is here still.
                    if !machine.pass(end, memory) {
                        self.judge.epoch_over(feed)?;
                        self.finish_epoch(now);
                        return Ok(());
                    }
                }
                self.wire = None;
                self.activity = Activity::Connecting { since: now };
                self.judge.loses_server();
                Ok(())
            }
        }
    }
}

/// Why a call for a batch did not come back with one.
enum Stop {
    ServerLost,
    Ended(Outcome),
    Trouble(Trouble),
    Wrong(String),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}
