//! A machine with one feed on it: its server, its consumers, time, and what befalls them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::consumer::{ConsumerProcess, Outcome};
use crate::rng::Rng;
use crate::scenario::{Fault, Scenario};
use crate::server::ServerProcess;

/// From here on nothing befalls anybody, and everybody must get on.
const CALM: Duration = Duration::from_millis(2500);
/// By then everybody must have.
const PATIENCE: Duration = Duration::from_secs(300);
/// Epochs that everybody must read when it is calm.
const EPOCHS: u64 = 2;
/// More steps than a schedule that gets on can need.
const MOST_STEPS: u64 = 200_000;

pub struct World {
    scenario: Scenario,
    rng: Rc<Rng>,
    now: Duration,
    server: Option<ServerProcess>,
    /// When the next server is started, if one is to be.
    server_at: Option<Duration>,
    consumers: Vec<ConsumerProcess>,
    faults: Vec<(Duration, Fault)>,
    is_calm: bool,
    steps: u64,
    history: Option<Vec<String>>,
}

/// What a schedule came to.
pub struct Verdict {
    pub steps: u64,
    /// What was wrong, if something was.
    pub violation: Option<String>,
    /// What happened, if it was to be told.
    pub history: Vec<String>,
}

/// Who runs next.
#[derive(Clone, Copy)]
enum Actor {
    Producer,
    Control,
    Consumer(usize),
    Fault,
    NewServer,
    Calm,
}

/// Runs a schedule to its end.
pub fn run(scenario: &Scenario, tells: bool) -> Verdict {
    let rng = Rc::new(Rng::new(scenario.seed.wrapping_mul(0x2545_f491_4f6c_dd1d)));
    let consumers = scenario.consumers.iter().enumerate();
    let consumers = consumers.map(|(number, job)| ConsumerProcess::new(number, job, &rng, job.starts, None)).collect();
    let mut faults = scenario.faults.clone();
    faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut world = World {
        scenario: scenario.clone(),
        rng,
        now: Duration::ZERO,
        server: None,
        server_at: Some(Duration::ZERO),
        consumers,
        faults,
        is_calm: false,
        steps: 0,
        history: tells.then(Vec::new),
    };
    let violation = world.run().err();
    Verdict { steps: world.steps, violation, history: world.history.unwrap_or_default() }
}

impl World {
    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            let line = format!("{:>12.6} s  {}", self.now.as_secs_f64(), what());
            history.push(line);
        }
    }

    fn run(&mut self) -> Result<(), String> {
        while !self.is_done() {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(format!("no end after {MOST_STEPS} steps: {}", self.state()));
            }
            if self.now > CALM + PATIENCE {
                return Err(format!("somebody waits for ever: {}", self.state()));
            }
            let (actor, at) = self.next();
            self.now = self.now.max(at);
            self.step(actor)?;
        }
        self.judge_ranks()
    }

    fn state(&self) -> String {
        let consumers = self.consumers.iter().enumerate().map(|(number, consumer)| {
            format!("\n  consumer {number}: {} epochs read since, {:?}", consumer.epochs_read, consumer.outcome)
        });
        let server = self.server.as_ref().map(|server| format!("{:?}", server.machine.phase()));
        format!("server {server:?}{}", consumers.collect::<String>())
    }

    fn is_done(&self) -> bool {
        let is_done = |consumer: &ConsumerProcess| consumer.outcome.is_some() || consumer.epochs_read >= EPOCHS;
        // Those who start together wait for each other, however long that takes.
        let waits_for_more = self.server.as_ref().is_some_and(|server| !server.machine.members().has_begun());
        let waits_for_more = waits_for_more && self.now > CALM + PATIENCE / 2;
        self.is_calm && (waits_for_more || self.consumers.iter().all(is_done))
    }

    /// Whoever can run first; of several, any.
    fn next(&self) -> (Actor, Duration) {
        let mut first = (Actor::Calm, if self.is_calm { Duration::MAX } else { CALM });
        let mut among = 1;
        let mut consider = |actor: Actor, at: Duration| {
            let at = at.max(self.now);
            if at < first.1 {
                (first, among) = ((actor, at), 1);
            } else if at == first.1 {
                among += 1;
                if self.rng.one_in(among) {
                    first.0 = actor;
                }
            }
        };
        if let Some(server) = &self.server {
            consider(Actor::Producer, server.producer_at.max(server.stopped_until));
            let message = server.next_message().unwrap_or(Duration::MAX);
            consider(Actor::Control, server.control_at.min(message).max(server.stopped_until));
        }
        for (number, consumer) in self.consumers.iter().enumerate().filter(|(_, one)| one.outcome.is_none()) {
            consider(Actor::Consumer(number), consumer.wakes_at());
        }
        if let Some((at, _)) = self.faults.last() {
            consider(Actor::Fault, *at);
        }
        if let Some(at) = self.server_at {
            consider(Actor::NewServer, at);
        }
        first
    }

    fn step(&mut self, actor: Actor) -> Result<(), String> {
        let now = self.now;
        match actor {
            Actor::Calm => {
                self.is_calm = true;
                self.tell(|| "calm: from here on nothing befalls anybody".into());
                self.consumers.iter_mut().for_each(|consumer| consumer.epochs_read = 0);
            }
            Actor::NewServer => {
                self.tell(|| "a server starts".into());
                self.server = Some(ServerProcess::new(&self.scenario.feed, &self.rng, now));
                self.server_at = None;
            }
            Actor::Producer => {
                let Some(server) = &mut self.server else { return Ok(()) };
                server.produce(now);
                self.after_server();
            }
            Actor::Control => {
                let Some(server) = &mut self.server else { return Ok(()) };
                let outcome = server.converse(now);
                self.after_server();
                outcome?;
            }
            Actor::Consumer(number) => self.step_consumer(number)?,
            Actor::Fault => {
                if let Some((_, fault)) = self.faults.pop() {
                    self.befall(fault);
                }
            }
        }
        Ok(())
    }

    fn after_server(&mut self) {
        let notices = self.server.as_mut().map(|server| server.machine.take_notices()).unwrap_or_default();
        for notice in notices {
            self.tell(|| format!("server: {notice:?}"));
        }
        if self.server.as_ref().is_some_and(ServerProcess::is_over) {
            self.tell(|| "the server has ended".into());
            if let Some(server) = self.server.take() {
                server.hang_up();
            }
        }
    }

    fn step_consumer(&mut self, number: usize) -> Result<(), String> {
        let is_server_there = self.server.is_some();
        let consumer = &mut self.consumers[number];
        let before = consumer.epochs_read;
        let effects = consumer
            .step(&self.scenario.feed, is_server_there, self.is_calm, self.now)
            .map_err(|why| format!("consumer {number}: {why}"))?;
        let (outcome, epochs) = (consumer.outcome.clone(), consumer.epochs_read);
        // With no server to come, nobody serves it any more.
        if !is_server_there && self.server_at.is_none() && outcome.is_none() && consumer.is_connecting() {
            consumer.outcome = Some(Outcome::ServerLost);
        }
        if epochs != before {
            self.tell(|| format!("consumer {number} has read an epoch"));
        }
        if let Some(outcome) = outcome {
            self.tell(|| format!("consumer {number} ends: {outcome:?}"));
        }
        if let Some(server) = &mut self.server {
            if effects.rings {
                server.producer_at = self.now;
            }
            if let Some((wire, pid)) = effects.connect {
                server.connect(&wire, &pid);
            }
        }
        Ok(())
    }

    fn befall(&mut self, fault: Fault) {
        self.tell(|| format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::KillConsumer(number) => self.consumers[number].kill(),
            Fault::StopConsumer(number, time) => self.consumers[number].stopped_until = now + time,
            Fault::ReloadConsumer(number) => {
                if self.consumers[number].outcome.is_none() && self.scenario.consumers[number].config.shard.is_none() {
                    self.consumers[number].reload(now);
                }
            }
            Fault::RestartConsumer(number, with_place) => {
                let job = &self.scenario.consumers[number];
                // Ranks are restarted together, which the processes' tests do.
                if self.consumers[number].outcome == Some(Outcome::Killed) && job.config.shard.is_none() {
                    let saved = self.consumers[number].saved().filter(|_| with_place);
                    let number = self.consumers.len() + number;
                    self.consumers.push(ConsumerProcess::new(number, job, &self.rng, now, saved));
                }
            }
            Fault::KillServer(back_after) => {
                if let Some(server) = self.server.take() {
                    server.hang_up();
                    self.server_at = Some(now + back_after);
                }
            }
            Fault::StopServer(time) => {
                if let Some(server) = &mut self.server {
                    server.stopped_until = now + time;
                }
            }
        }
    }

    /// The ranks of a job had different samples, and together all of an epoch that each read from start to end.
    fn judge_ranks(&self) -> Result<(), String> {
        if self.scenario.feed.policy.replay {
            return Ok(());
        }
        let ranks: Vec<_> = self.consumers.iter().filter(|one| one.job.config.shard.is_some()).collect();
        let mut by_epoch: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for rank in &ranks {
            for (&epoch, had) in &rank.judge.had {
                for &index in had {
                    let owner = by_epoch.entry(epoch).or_default().insert(index, rank.pid.number);
                    if let Some(other) = owner {
                        let number = rank.pid.number;
                        return Err(format!("ranks {other} and {number} both had sample {index} of epoch {epoch}"));
                    }
                }
            }
        }
        Ok(())
    }
}
