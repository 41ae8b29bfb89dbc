//! A consumer's server: finding one, hearing it, losing it.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::consumer::{Consumer, Pressure, Trouble, WithoutServer};
use feedline_protocol::message::Answer;
use feedline_protocol::page::HeadView;
use feedline_protocol::{FeedState, Time};

use super::{Activity, ConsumerProcess, Effects, Outcome};
use crate::judge::outcomes::Ending;
use crate::memory::Memory;
use crate::pages::HeadReader;
use crate::scenario::Feed;
use crate::server::delay;
use crate::wire::{ToConsumer, ToServer, Wire};

/// How long it waits for another server.
const RECONNECT: Duration = Duration::from_secs(60);

/// Why a call for a batch did not come back with one.
pub(super) enum Stop {
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

impl ConsumerProcess {
    pub(super) fn connect(
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
                        machine.reconnect(shape, lost.reader.head.server, &lost.reader, lost.page.counted.get());
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
                self.forget_leases();
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

    /// The table of leases is another one: those that are still held are of no server's concern.
    fn forget_leases(&mut self) {
        self.held.iter_mut().for_each(|held| held.id = None);
        self.recent = [None; 2];
    }

    /// Takes all messages, and learns whether the server is gone.
    pub(super) fn hear(&mut self, now: Duration) -> Result<(), Stop> {
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
                    let was_joining = machine.is_joining();
                    if matches!(answer, Answer::Detached { .. }) {
                        self.is_owed = false;
                    }
                    machine.handle_answer(answer, memory, Time::new(now))?;
                    if was_joining && machine.is_joined() {
                        self.is_owed = false;
                        self.has_joined = true;
                        self.joined_epoch = machine.epoch();
                        self.knows = Default::default();
                        self.forget_leases();
                    }
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
    pub(super) fn follow(
        &mut self,
        outcome: Result<(), Stop>,
        feed: &Feed,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<(), String> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Stop::Wrong(why)) => Err(why),
            Err(Stop::Ended(outcome)) => self.end_with(outcome, feed, now),
            Err(Stop::Trouble(trouble)) => self.end_with(Outcome::Trouble(trouble), feed, now),
            Err(Stop::ServerLost) if !self.job.reconnects => {
                self.end(Outcome::ServerLost);
                Ok(())
            }
            Err(Stop::ServerLost) => {
                if let (Some(machine), Some(memory)) = (&mut self.machine, &self.memory) {
                    match machine.without_server(memory) {
                        WithoutServer::EpochOver => return self.pass_epoch(feed, now, effects),
                        WithoutServer::Passed => {
                            (self.activity, self.at) = (Activity::Asking, now);
                            return Ok(());
                        }
                        WithoutServer::Reconnect => {}
                    }
                }
                self.wire = None;
                self.activity = Activity::Connecting { since: now };
                Ok(())
            }
        }
    }

    fn end_with(&mut self, outcome: Outcome, feed: &Feed, now: Duration) -> Result<(), String> {
        let wants = self.machine.as_ref().filter(|machine| machine.is_joined()).map(Consumer::wanted_epoch);
        let waited = self.waits_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.judge.ends(&outcome, &Ending { wants, waited }, feed)?;
        // A place at an epoch's end has nothing after it: the next epoch begins without a word.
        self.has_read_epoch |= self.machine.as_ref().is_some_and(|machine| machine.epoch() > self.joined_epoch);
        self.end(outcome);
        Ok(())
    }
}
