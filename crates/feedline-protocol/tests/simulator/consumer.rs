//! A consumer's process: the state machine, driven as `feedline-core` drives it, and a training loop around it.
//!
//! `connecting` finds, hears and loses its server, `asking` is the loop's calls for batches, `holding` what it has in its hands,
//! `moves` what its server can know of it.

mod asking;
mod connecting;
mod holding;
mod moves;

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::consumer::{Consumer, Pressure, Trouble};

use self::holding::Held;
pub use self::moves::Moves;
use crate::judge::Judge;
use crate::memory::Memory;
use crate::pages::Head;
use crate::ring::Ring;
use crate::rng::Rng;
use crate::scenario::{Feed, Job};
use crate::server::{Servers, delay};
use crate::wire::{Pid, ToServer, Wire};

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
    /// Has said that it will sleep, and is about to look once more. It was announced so often before.
    FallingAsleep {
        wakes: u64,
    },
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
    /// It has read one in all, or has found nothing left of the one that it joined.
    pub has_read_epoch: bool,
    /// The epoch that it was last given a place in.
    joined_epoch: u64,
    pub judge: Judge,
    /// Which start of its job it belongs to, where it is a rank.
    pub run: usize,
    pub moves: Moves,
    /// Since when it waits for its server, if it does.
    pub waits_since: Option<Duration>,
    /// When it was last seen to wait.
    pub waited: Option<Duration>,
    /// It had a place when its server was killed, and has not got it back.
    pub is_owed: bool,
    /// The last server that it had a place at, and lost.
    pub lost: u32,
    /// The servers of whose consumers it can tell the next one: what it heard at the one where it had its place, and at the last.
    pub knows: [Servers; 2],
    /// How many epochs it has broken off.
    broken_off: u32,
    /// It was given a place at least once.
    pub has_joined: bool,
    activity: Activity,
    wire: Option<Rc<Wire>>,
    machine: Option<Consumer>,
    memory: Option<Memory>,
    pressure: Pressure,
    held: Vec<Held>,
    /// Where the last two batches begin.
    recent: [Option<u64>; 2],
    looked: Duration,
    /// The place that it saved last.
    saved: Option<Mark>,
    /// A place to load before it begins.
    to_load: Option<Mark>,
    rng: Rc<Rng>,
}

/// What others have to do after a step, or to judge.
#[derive(Default)]
pub struct Effects {
    /// It rang for the appending thread.
    pub rings: bool,
    /// It wants to connect.
    pub connect: Option<(Rc<Wire>, Pid)>,
    /// What it was handed.
    pub events: Vec<Event>,
}

/// What a consumer was handed.
#[derive(Debug)]
pub enum Event {
    /// Samples of an epoch, by their numbers in it.
    Batch {
        epoch: u64,
        first: u64,
        until: u64,
        /// The place that it would save now.
        saved: Mark,
        /// The memory that they were taken from, and where they begin there, unless they were copied.
        ring: Option<(Rc<Ring>, u64)>,
    },
    /// The end of an epoch.
    EpochOver { epoch: u64 },
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
            has_read_epoch: false,
            joined_epoch: 0,
            judge: Judge::new(job.config),
            run: 0,
            moves: Moves::new(starts),
            waits_since: None,
            waited: None,
            is_owed: false,
            lost: 0,
            knows: [Servers::default(); 2],
            broken_off: 0,
            has_joined: false,
            activity: Activity::Connecting { since: starts },
            wire: None,
            machine: None,
            memory: None,
            pressure: Pressure::default(),
            held: Vec::new(),
            recent: [None; 2],
            looked: Duration::ZERO,
            saved: None,
            to_load,
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

    /// Whether it has found a server, and was not let in yet.
    pub fn awaits_welcome(&self) -> bool {
        matches!(self.activity, Activity::Connecting { .. }) && self.wire.is_some()
    }

    /// The server that let it in last.
    pub fn server(&self) -> Option<u32> {
        self.memory.as_ref().map(|memory| memory.reader.head.server)
    }

    /// Whether it waits for the answer to a join.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.activity, Activity::AwaitingAnswer)
    }

    /// Whether it has a cursor, as far as it knows.
    pub fn is_joined(&self) -> bool {
        self.machine.as_ref().is_some_and(Consumer::is_joined)
    }

    /// Whether it was let in by the server with this head page.
    pub fn has_met(&self, head: &Rc<Head>) -> bool {
        self.memory.as_ref().is_some_and(|memory| Rc::ptr_eq(&memory.reader.head, head))
    }

    /// The oldest sample that it needs.
    pub fn floor(&self) -> Option<u64> {
        self.memory.as_ref().map(Memory::floor)
    }

    /// Its server, which knows of these, was killed.
    pub fn loses_server(&mut self, known: Servers) {
        self.knows = match self.knows {
            [first, _] if !self.is_joined() && !first.is_empty() => [first, known],
            _ => [known, Servers::default()],
        };
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
        // Its process may do something else, or end with it.
        if self.rng.one_in(2) {
            self.pid.is_dead.set(true);
        }
        self.held.clear();
        self.outcome = Some(outcome);
    }

    /// Makes everything private and gives the cursor back.
    fn leave(&mut self, now: Duration) {
        self.is_owed = false;
        while self.keep_oldest() {}
        if let Some(wire) = &self.wire {
            wire.to_server.send(ToServer::Leave, now + delay(&self.rng));
        }
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
        // Others may run between its first call and the next.
        let mut is_interrupted = false;
        if matches!(self.activity, Activity::Thinking) {
            self.let_go(is_calm);
            if let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) {
                machine.wake(memory);
            }
            self.activity = Activity::Asking;
            self.relieve()?;
            is_interrupted = self.rng.one_in(4);
        }
        match self.activity {
            Activity::Connecting { since } => self.connect(since, is_server_there, now, &mut effects)?,
            _ if is_interrupted => {}
            _ => {
                let outcome = self.ask(feed, is_calm, now, &mut effects);
                self.follow(outcome, feed, now, &mut effects)?;
            }
        }
        if let Some(memory) = &self.memory {
            effects.rings = memory.rings.replace(false);
        }
        let is_waiting = matches!(
            self.activity,
            Activity::AwaitingAnswer
                | Activity::AwaitingRing
                | Activity::FallingAsleep { .. }
                | Activity::Sleeping { .. }
        );
        let is_waiting = is_waiting || self.awaits_welcome();
        if is_waiting && effects.events.is_empty() {
            self.waits_since.get_or_insert(now);
            self.waited = Some(now);
        } else {
            self.waits_since = None;
        }
        Ok(effects)
    }
}
