//! A machine with one feed on it: its server, its consumers, time, and the faults that are injected.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::consumer::Trouble;
use feedline_protocol::log::Lag;
use feedline_protocol::server::Notice;

use crate::consumer::{ConsumerProcess, Effects, Event, Outcome};
use crate::judge::memory;
use crate::judge::ranks::RankJudge;
use crate::judge::waiting::WaitingJudge;
use crate::rng::Rng;
use crate::scenario::{Fault, Scenario};
use crate::server::ServerProcess;

/// So long after the last fault, everybody must have read these epochs.
const DEADLINE: Duration = Duration::from_secs(300);
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
    /// How many servers were started.
    servers: u32,
    /// Those that were killed.
    killed: Vec<u32>,
    /// What the last server left behind.
    state: Option<Mark>,
    /// How often the ranks were started.
    runs: usize,
    rank_judge: RankJudge,
    waiting_judge: WaitingJudge,
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
    Filler,
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
    let consumers =
        consumers.map(|(number, job)| ConsumerProcess::new(number, job, &rng, job.starts, job.loads)).collect();
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
        servers: 0,
        killed: Vec::new(),
        state: None,
        runs: 0,
        rank_judge: RankJudge::new(scenario),
        waiting_judge: WaitingJudge::default(),
        steps: 0,
        history: tells.then(Vec::new),
    };
    let violation = world.run().err();
    Verdict { steps: world.steps, violation, history: world.history.unwrap_or_default() }
}

impl World {
    fn record(&mut self, what: impl FnOnce() -> String) {
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
            if self.now > self.scenario.calm + DEADLINE {
                return Err(format!("somebody waits for ever: {}", self.state()));
            }
            let (actor, at) = self.next();
            self.now = self.now.max(at);
            self.step(actor)?;
        }
        Ok(())
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
        let waits_for_more = self.server.as_ref().is_some_and(|server| {
            let is_here = |one: &&ConsumerProcess| one.outcome.is_none() && one.has_met(&server.head);
            let here = self.consumers.iter().filter(is_here).count();
            !server.machine.members().has_begun() && here < self.scenario.feed.wait_for as usize
        });
        let waits_for_more = waits_for_more && self.now > self.scenario.calm + DEADLINE / 2;
        self.is_calm && (waits_for_more || self.consumers.iter().all(is_done))
    }

    /// Whoever can run first; of several, any.
    fn next(&self) -> (Actor, Duration) {
        let mut first = (Actor::Calm, if self.is_calm { Duration::MAX } else { self.scenario.calm });
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
            consider(Actor::Filler, server.next_filled().unwrap_or(Duration::MAX).max(server.stopped_until));
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
                self.record(|| "calm: from here on no fault is injected".into());
                self.consumers.iter_mut().for_each(|consumer| consumer.epochs_read = 0);
            }
            Actor::NewServer => {
                self.record(|| "a server starts".into());
                self.server = Some(ServerProcess::new(self.servers, &self.scenario.feed, &self.rng, now, self.state));
                self.servers += 1;
                self.server_at = None;
                self.waiting_judge.server_runs_from(now);
            }
            Actor::Producer | Actor::Filler => {
                let Some(server) = &mut self.server else { return Ok(()) };
                let came_to = |server: &ServerProcess| (server.machine.log().head(), server.machine.log().epoch());
                let before = came_to(server);
                // A source that gives a claim back has not stopped: it begins again.
                let gave_back = if matches!(actor, Actor::Filler) {
                    server.fill(now)
                } else {
                    server.produce(now);
                    false
                };
                if gave_back || came_to(server) != before {
                    self.waiting_judge.goes_on(now);
                }
                self.after_server()?;
            }
            Actor::Control => {
                let Some(server) = &mut self.server else { return Ok(()) };
                server.converse(now)?;
                self.waiting_judge.judge(&self.scenario, server, &self.consumers, now)?;
                self.after_server()?;
            }
            Actor::Consumer(number) => self.step_consumer(number)?,
            Actor::Fault => {
                if let Some((_, fault)) = self.faults.pop() {
                    self.inject(fault);
                }
            }
        }
        Ok(())
    }

    fn after_server(&mut self) -> Result<(), String> {
        let notices = self.server.as_mut().map(|server| server.machine.take_notices()).unwrap_or_default();
        for notice in notices {
            self.record(|| format!("server: {notice:?}"));
            self.waiting_judge.judge_notice(&self.scenario, &notice, &self.consumers, self.now)?;
            if matches!(notice, Notice::Joined { .. } | Notice::Detached { .. } | Notice::RanksMissing { .. }) {
                // Others may have to wait for this one, or for another one from now on.
                self.waiting_judge.goes_on(self.now);
            }
        }
        let is_about_to_detach = self.server.as_ref().is_some_and(ServerProcess::is_about_to_detach);
        self.waiting_judge.is_about_to_detach(is_about_to_detach, &self.consumers, self.now);
        if self.server.as_ref().is_some_and(ServerProcess::is_over) {
            self.record(|| "the server has ended".into());
            self.judge_end()?;
            if let Some(server) = self.server.take() {
                server.hang_up();
            }
        }
        Ok(())
    }

    /// A server ends when all epochs are written, and whoever is there has read them, or has stood still for too long.
    fn judge_end(&self) -> Result<(), String> {
        let Some(server) = &self.server else { return Ok(()) };
        if self.scenario.feed.epochs.is_none() {
            return Err("the server of an endless feed has ended".into());
        }
        let reads = |one: &&ConsumerProcess| one.outcome.is_none() && one.has_met(&server.head);
        match self
            .consumers
            .iter()
            .filter(reads)
            .find(|one| !server.is_done_with(&one.pid, one.moves.seen(self.now), self.now))
        {
            Some(one) => Err(format!("the server has ended while consumer {} reads", one.pid.number)),
            None => Ok(()),
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
        self.judge(number, &effects).map_err(|why| format!("consumer {number}: {why}"))?;
        let consumer = &mut self.consumers[number];
        // With no server to come, nobody serves it any more.
        if !is_server_there && self.server_at.is_none() && outcome.is_none() && consumer.is_connecting() {
            consumer.outcome = Some(Outcome::ServerLost);
        }
        let was_killed = consumer.server().is_none_or(|server| self.killed.contains(&server));
        if consumer.outcome == Some(Outcome::ServerLost) && !was_killed {
            return Err(format!("consumer {number} lost a server that nobody killed"));
        }
        if epochs != before {
            self.record(|| format!("consumer {number} has read an epoch"));
        }
        if let Some(outcome) = outcome {
            self.record(|| format!("consumer {number} ends: {outcome:?}"));
            self.rank_goes(number);
        }
        if let Some(server) = &mut self.server {
            let consumer = &mut self.consumers[number];
            let known = server.cursor_of(&consumer.pid).and_then(|(_, released)| released);
            if known.is_some_and(|known| consumer.floor().is_some_and(|floor| floor > known)) {
                consumer.moves.at(self.now);
            }
            if effects.rings {
                server.producer_at = self.now;
            }
            if let Some((wire, pid)) = effects.connect {
                server.connect(&wire, &pid);
            }
        }
        Ok(())
    }

    /// What a consumer was handed, beside what the others were and what the server knows.
    fn judge(&mut self, number: usize, effects: &Effects) -> Result<(), String> {
        let (consumer, feed) = (&self.consumers[number], &self.scenario.feed);
        let (run, config) = (consumer.run, &consumer.job.config);
        for event in &effects.events {
            self.waiting_judge.goes_on(self.now);
            if let Some(server) = &self.server {
                memory::is_held(server, consumer, event)?;
            }
            match *event {
                Event::Batch { epoch, first, until, saved, .. } => {
                    self.rank_judge.batch(run, epoch, (first, until), saved, config, feed)?;
                }
                Event::EpochOver { epoch } => self.rank_judge.epoch_over(run, epoch, config, feed)?,
            }
        }
        let (Some(Outcome::Trouble(Trouble::Gone(lost))), Some(server)) = (&consumer.outcome, &self.server) else {
            return Ok(());
        };
        // Whoever lost its server, and came back in time, finds its place: the first one back waits for the others.
        let is_owed = consumer.is_owed && feed.policy.lag != Lag::Skip;
        if is_owed && server.was_in_time(&consumer.pid, consumer.lost, lost.mark) {
            return Err(format!("it came back in time, and its place is gone: {lost:?}"));
        }
        if server.has_hurried_past(&consumer.pid, lost.mark) {
            return Err(format!("it asked soon after others had, and its place was passed over: {lost:?}"));
        }
        Ok(())
    }

    /// A consumer is gone. Ranks that have not all had a place by then may begin apart.
    fn rank_goes(&mut self, number: usize) {
        let run = self.consumers[number].run;
        if self.consumers[number].job.config.shard.is_some() && !self.have_all_joined(run) {
            self.rank_judge.may_begin_apart(run);
        }
    }

    fn have_all_joined(&self, run: usize) -> bool {
        let ranks = self.consumers.iter().filter(|one| one.job.config.shard.is_some() && one.run == run);
        ranks.into_iter().all(|one| one.has_joined)
    }

    fn inject(&mut self, fault: Fault) {
        self.record(|| format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::KillConsumer(number) => self.kill_consumer(number),
            Fault::StopConsumer(number, time) => self.consumers[number].stopped_until = now + time,
            Fault::ReloadConsumer(number) => {
                if self.consumers[number].outcome.is_none() && self.scenario.consumers[number].config.shard.is_none() {
                    self.consumers[number].reload(now);
                }
            }
            Fault::RestartConsumer(number, with_place) => {
                let job = &self.scenario.consumers[number];
                // Ranks are restarted together.
                if self.consumers[number].outcome == Some(Outcome::Killed) && job.config.shard.is_none() {
                    let saved = self.consumers[number].saved().filter(|_| with_place);
                    let number = self.consumers.len();
                    self.consumers.push(ConsumerProcess::new(number, job, &self.rng, now, saved));
                }
            }
            Fault::KillServer(back_after) => {
                if let Some(server) = self.server.take() {
                    server.hang_up();
                    self.killed.push(server.number);
                    self.state = server.state();
                    self.server_at = Some(now + back_after);
                    let met = |one: &&mut ConsumerProcess| one.outcome.is_none() && one.has_met(&server.head);
                    for consumer in self.consumers.iter_mut().filter(met) {
                        consumer.loses_server(server.known(now));
                        if consumer.is_joined() {
                            consumer.lost = server.number;
                            consumer.is_owed = server.cursor_of(&consumer.pid).is_some();
                        }
                    }
                    if !self.have_all_joined(self.runs) {
                        self.rank_judge.may_begin_apart(self.runs);
                    }
                }
            }
            Fault::StopServer(time) => {
                if let Some(server) = &mut self.server {
                    server.stopped_until = now + time;
                    self.waiting_judge.server_runs_from(now + time);
                }
            }
            Fault::RestartRanks(within, with_place) => self.restart_ranks(within, with_place),
        }
    }

    fn kill_consumer(&mut self, number: usize) {
        if self.consumers[number].outcome.is_none() {
            self.consumers[number].kill();
            self.rank_goes(number);
        }
    }

    /// All ranks go on from the checkpoint of the first, or begin anew.
    fn restart_ranks(&mut self, within: Duration, with_place: bool) {
        let is_current = |one: &ConsumerProcess| one.job.config.shard.is_some() && one.run == self.runs;
        let ranks: Vec<usize> =
            (0..self.consumers.len()).filter(|&number| is_current(&self.consumers[number])).collect();
        let Some(&first) = ranks.first() else { return };
        let saved = self.consumers[first].saved().filter(|_| with_place);
        self.runs += 1;
        if let Some(mark) = saved {
            self.rank_judge.loads(self.runs, mark);
        }
        for number in ranks {
            self.consumers[number].kill();
            let starts = self.now + Duration::from_micros(self.rng.below(within.as_micros() as u64));
            let job = self.consumers[number].job.clone();
            let mut rank = ConsumerProcess::new(self.consumers.len(), &job, &self.rng, starts, saved);
            rank.run = self.runs;
            self.consumers.push(rank);
        }
    }
}
