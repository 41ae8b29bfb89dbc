//! Who waits for whom, and for how long. In virtual time, so that nothing here depends on speed.

use std::time::Duration;

use feedline_protocol::server::{Notice, Phase};

use crate::consumer::ConsumerProcess;
use crate::scenario::Scenario;
use crate::server::ServerProcess;

/// A consumer that rests between two epochs may hold up one that starves for so long.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Sleeps of a tenth of a second, delays of messages, the source's work, a training step of those who are in the way.
const SLACK: Duration = Duration::from_millis(1500);
/// What the server may see late of a consumer's page.
const UNSEEN: Duration = Duration::from_millis(150);
/// For so long a consumer that woke up a moment ago may be taken for one that still starves.
const RECENTLY: Duration = Duration::from_millis(800);

/// If all who live wait, nobody is in the way. So long the source, messages, and waiting for others who resume may take.
const NOBODY_IN_THE_WAY: Duration = Duration::from_millis(1000);

/// When something was last handed to anybody, or written.
#[derive(Default)]
pub struct WaitingJudge {
    progress: Duration,
    /// When the server last waited for those who lost an earlier one.
    returns: Duration,
    /// Since when all who live wait, and nobody is in their way.
    free_since: Option<Duration>,
    /// Since when the server runs: its start, or the end of a stop.
    server: Duration,
    /// When each consumer had last moved when the server decided to detach some of them. Preparing a ring takes a while.
    decided: Option<Vec<Duration>>,
}

impl WaitingJudge {
    /// The server starts, or goes on after a stop, or begins to answer.
    pub fn server_runs_from(&mut self, at: Duration) {
        self.server = self.server.max(at);
    }

    pub fn goes_on(&mut self, now: Duration) {
        self.progress = now;
    }

    /// Whether the server has decided to detach consumers, and prepares a ring for the others.
    pub fn is_about_to_detach(&mut self, is_so: bool, consumers: &[ConsumerProcess], now: Duration) {
        match (is_so, &self.decided) {
            (true, None) => self.decided = Some(consumers.iter().map(|consumer| consumer.moves.seen(now)).collect()),
            (false, Some(_)) => self.decided = None,
            _ => {}
        }
    }

    /// Somebody who waits is served, or waits for no longer than the policy lets others hold it up.
    pub fn judge(
        &mut self,
        scenario: &Scenario,
        server: &ServerProcess,
        consumers: &[ConsumerProcess],
        now: Duration,
    ) -> Result<(), String> {
        let runs = matches!(server.machine.phase(), Phase::Starting | Phase::Running) && now >= server.stopped_until;
        if !server.machine.members().has_begun() {
            Self::judge_begin(scenario, server, consumers, now)?;
            // Those who start together wait for each other.
            self.server_runs_from(now);
        }
        if server.waits_for_returns(now) {
            // Those who come back wait for each other, and then perhaps for somebody else.
            self.returns = now;
        }
        // Without memory nobody can be detached.
        if !runs || scenario.feed.is_short_of_memory {
            return Ok(());
        }
        let is_free = nobody_is_in_the_way(server, consumers, now);
        self.free_since = is_free.then(|| self.free_since.unwrap_or(now));
        let limit = scenario.feed.stall_timeout + SLACK;
        let living = consumers.iter().filter(|one| one.outcome.is_none() && !one.is_connecting());
        let first_waits_since = living.filter_map(|one| one.waits_since).min();
        if let (Some(free_since), Some(waits_since)) = (self.free_since, first_waits_since)
            && now > free_since.max(waits_since).max(self.progress).max(self.server) + NOBODY_IN_THE_WAY
        {
            return Err("all who live wait, and nobody is in their way".into());
        }
        for (number, consumer) in consumers.iter().enumerate() {
            if consumer.outcome.is_some() || now < consumer.stopped_until {
                continue;
            }
            let Some(since) = consumer.waits_since else { continue };
            let runs_from = self.server.max(consumer.stopped_until);
            let (since, asked) = (since.max(runs_from), consumer.moves.last.max(runs_from));
            if consumer.awaits_welcome() && now > since + SLACK {
                return Err(format!("consumer {number} connected {:?} ago, and was not let in", now - since));
            }
            if consumer.awaits_answer() && now > asked + SLACK {
                return Err(format!("consumer {number} asked for a place {:?} ago, and has no answer", now - asked));
            }
            if now > since.max(self.progress).max(self.returns) + limit {
                return Err(format!("nobody gets on, though consumer {number} has waited for {:?}", now - since));
            }
        }
        Ok(())
    }

    /// Those who start together wait only while too few of them have asked.
    fn judge_begin(
        scenario: &Scenario,
        server: &ServerProcess,
        consumers: &[ConsumerProcess],
        now: Duration,
    ) -> Result<(), String> {
        let has_asked = |one: &&ConsumerProcess| {
            let asked = one.moves.last.max(one.stopped_until).max(server.stopped_until) + SLACK;
            one.outcome.is_none() && one.has_met(&server.head) && one.awaits_answer() && now > asked
        };
        let asked = consumers.iter().filter(has_asked).count();
        if asked >= scenario.feed.wait_for as usize {
            return Err(format!("{asked} consumers have asked for a place, and the feed does not begin"));
        }
        Ok(())
    }

    /// Nobody is detached that has moved in time, and nobody for nobody's sake.
    pub fn judge_notice(
        &self,
        scenario: &Scenario,
        notice: &Notice,
        consumers: &[ConsumerProcess],
        now: Duration,
    ) -> Result<(), String> {
        let &Notice::Detached { pid, is_resting } = notice else { return Ok(()) };
        let Some(number) = consumers.iter().position(|one| one.pid.number == pid) else { return Ok(()) };
        let consumer = &consumers[number];
        let stall = scenario.feed.stall_timeout;
        let may_rest = if consumer.job.config.shard.is_some() { stall } else { stall.min(LONGEST_REST) };
        let since = self.decided.as_ref().map_or(consumer.moves.seen(now), |moved| moved[number]);
        let limit = if is_resting { may_rest } else { stall };
        // A server that was stopped may not have heard yet what was said to it meanwhile.
        let has_heard = now > self.server + limit;
        if has_heard && now.saturating_sub(since) + UNSEEN < limit {
            return Err(format!("consumer {pid} was detached after {:?}, not {limit:?}", now.saturating_sub(since)));
        }
        let waits = |one: &ConsumerProcess| {
            one.waits_since.is_some() || one.waited.is_some_and(|waited| now.saturating_sub(waited) < RECENTLY)
        };
        if !consumers.iter().any(|one| one.pid.number != pid && waits(one)) {
            return Err(format!("consumer {pid} was detached, and nobody waits"));
        }
        Ok(())
    }
}

/// Whether all who live wait, and nobody is on the way whose place is held: after a server was lost, or as a rank. A place is held
/// for ranks while one of their job lives, or has read its part.
fn nobody_is_in_the_way(server: &ServerProcess, consumers: &[ConsumerProcess], now: Duration) -> bool {
    let mut living = consumers.iter().filter(|one| one.outcome.is_none() && !one.is_connecting());
    let mut ranks = consumers.iter().filter(|one| one.job.config.shard.is_some());
    let ranks_may_come = ranks.any(|one| !one.pid.is_dead.get() || one.has_read_epoch);
    let all_wait = living.all(|one| one.waits_since.is_some() && now >= one.stopped_until);
    all_wait && !ranks_may_come && !server.waits_for_returns(now)
}
