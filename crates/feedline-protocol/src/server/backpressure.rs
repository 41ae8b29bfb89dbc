//! Appending when there is room, and what happens while there is none: consumers that stand still are detached, slow ones are
//! named, and the ring grows for those who need more at once than it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Halt, Members, Notice, Server};
use crate::log::{InTheWay, Lag, Run, Size};
use crate::message::{Answer, Refusal, UNKNOWN};
use crate::page::{HeadPage, MemberPage, Process};
use crate::time::{Since, Time};

/// How long a consumer that has read an epoch and not asked for the next may hold up one that starves. It has nothing in hand
/// and loses nothing: it joins again when it asks.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// A consumer that starves wakes up now and then: for so long, on a busy machine, it may not be seen to starve.
const STARVES_FOR: Duration = Duration::from_millis(500);

/// How long, in all, a slow consumer may hold up those who starve before it is named.
const LAGGING: Duration = Duration::from_secs(1);
/// Time between two checks counts up to this: in a longer pause the server did not run.
pub(super) const LONGEST_STEP: Duration = Duration::from_millis(100);

/// A consumer that stands still, and where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// Which consumer.
    pub id: u64,
    /// The oldest sample that it needs.
    pub position: u64,
    /// It had read an epoch and not asked for the next.
    pub is_resting: bool,
}

/// What the appending side does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Fills these, and commits them or gives them back.
    Granted(Run),
    /// Waits.
    Wait(Wait),
    /// Stops in the middle of the epoch.
    Halted(Halt),
}

/// How to wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// Sleeps until a consumer's bell rings, or for a tenth of a second.
    Sleep,
    /// The same, until the source has filled what it has claimed: nothing else is to be waited for.
    ForSource,
    /// Makes a ring with a window of so many samples, or says that it can't ([`Server::refuse_larger`]).
    GrowFor(u64),
    /// Makes a ring twice as large for these ranks, each of which needs more at once than fits, or says that it can't
    /// ([`Server::refuse`]).
    GrowForRanks(Vec<u64>),
    /// Detaches these consumers ([`Server::detach`]), if need be with another ring for all others, and sleeps if it can't.
    Detach(Vec<Stalled>),
}

impl<P: MemberPage, Q: Process> Server<P, Q> {
    /// Asks for the next samples. To be called again after each wait.
    pub fn claim(&mut self, samples: u64, bytes: u64, head: &impl HeadPage, now: Time) -> Claim {
        if self.stalls.is_none() {
            self.refresh(now);
            if let Some(run) = self.log.claim(samples, bytes) {
                self.publish_forgotten(head);
                return Claim::Granted(run);
            }
        }
        let claim = self.claim_slowly(samples, bytes, head, now);
        if !matches!(claim, Claim::Wait(_)) {
            self.stalls = None;
            head.want_nothing();
            self.publish_forgotten(head);
        }
        claim
    }

    /// The ring is full. Waits until a quarter of it is free, or somebody starves and there is just enough.
    fn claim_slowly(&mut self, samples: u64, bytes: u64, head: &impl HeadPage, now: Time) -> Claim {
        if let Some(window) = self.wanted_growth(samples) {
            return Claim::Wait(Wait::GrowFor(window));
        }
        if let Err(halt) = self.halted(head, now) {
            return Claim::Halted(halt);
        }
        let Size { window, byte_window, .. } = self.log.size();
        let comfort = (samples.max(window / 4), bytes.max(byte_window / 4));
        head.want(self.wanted_release((samples, bytes), comfort));
        self.refresh(now);
        let is_comfortable = self.log.in_the_way(comfort.0, comfort.1).is_empty();
        let somebody_starves = self.members.anybody_starves(&self.log);
        if (is_comfortable || self.somebody_waits() || self.members.is_empty())
            && let Some(run) = self.log.claim(samples, bytes)
        {
            return Claim::Granted(run);
        }
        // A consumer that starves waits for what is being filled, and nobody is in the way of that: nothing is asked of consumers.
        if self.log.is_filling() {
            head.want_nothing();
            return Claim::Wait(Wait::ForSource);
        }
        let in_the_way: Vec<_> = self.log.in_the_way(samples, bytes).iter().map(Stalled::from).collect();
        if somebody_starves {
            self.name_laggards(&in_the_way, false, now);
        }
        let stalled = self.find_stalled(&in_the_way, now);
        let starved = self.starved_ranks(&in_the_way);
        Claim::Wait(match (starved.is_empty(), stalled.is_empty()) {
            (false, _) => Wait::GrowForRanks(starved),
            (true, false) => Wait::Detach(stalled),
            (true, true) => Wait::Sleep,
        })
    }

    /// The sample whose release is waited for: enough for comfort. If somebody waits, it is just enough, since a consumer that
    /// sleeps lets go of its own batches only up to here.
    fn wanted_release(&self, enough: (u64, u64), comfort: (u64, u64)) -> u64 {
        let wanted = |(samples, bytes)| self.log.in_the_way(samples, bytes).iter().map(|one| one.wanted).min();
        let just_enough = self.somebody_waits().then(|| wanted(enough)).flatten();
        just_enough.or_else(|| wanted(comfort)).unwrap_or(UNKNOWN)
    }

    /// Whether the log must go on for somebody's sake.
    fn somebody_waits(&self) -> bool {
        self.members.anybody_starves(&self.log) || self.members.anybody_awaits_epoch(&self.log)
    }

    /// Before what was claimed is written: tells those whom nobody waits for what is no longer there.
    fn publish_forgotten(&self, head: &impl HeadPage) {
        if self.log.policy().lag == Lag::Skip {
            head.forget_before(self.log.oldest(), self.log.fastest());
        }
    }

    /// A window that consumers need, if it is larger than the ring's; `samples` are to be appended next. Asked once for each wish.
    pub fn wanted_growth(&mut self, samples: u64) -> Option<u64> {
        let ring = self.ring?;
        let wanted = std::mem::take(&mut self.grow_to).max(self.starved_of(ring.size.window, samples));
        (wanted > ring.size.window && ring.is_cut).then_some(wanted)
    }

    /// What the ring must hold for consumers that starve in front of a full one: the epoch turned out longer than announced.
    fn starved_of(&self, window: u64, samples: u64) -> u64 {
        let waiting = self.members.values().filter(|member| member.is_joined() && !member.is_refused);
        let waiting = waiting.filter(|member| member.page.is_waiting());
        let largest = waiting.map(|member| member.window(self.members.source_batch)).max().unwrap_or(0);
        if largest <= window {
            return 0;
        }
        let needed = self.log.floor().map_or(0, |floor| self.log.head() - floor);
        let is_full = needed + samples.max(window / 4) >= window;
        if is_full { window.saturating_mul(2).min(largest.saturating_mul(2)) } else { 0 }
    }

    /// Of those in the way, ranks that hold nothing and wait for more: a step of batches that vary may be larger than the ring.
    fn starved_ranks(&self, in_the_way: &[Stalled]) -> Vec<u64> {
        let is_starved = |&&Stalled { id, position, .. }: &&Stalled| {
            let Some(member) = self.members.get(id).filter(|member| !member.is_refused) else { return false };
            let takes_own_batches =
                member.last_join.is_some_and(|join| join.rank.is_some() && join.batch_size.is_none());
            takes_own_batches && position == member.page.cursor() && self.members.starves(id, &self.log)
        };
        in_the_way.iter().filter(is_starved).map(|one| one.id).collect()
    }

    /// The ring can't grow: tells those who can't do with it. They leave by themselves, when their batches are safe.
    pub fn refuse_larger(&mut self, why: &str) {
        let (window, source_batch) = (self.log.size().window, self.members.source_batch);
        for (_, member) in self.members.iter_mut() {
            let is_too_large = member.window(source_batch) > window;
            if member.is_joined() && is_too_large && !std::mem::replace(&mut member.is_refused, true) {
                member.notice = Some(Answer::Refused(Refusal::NoRing(why.to_owned())));
            }
        }
    }

    /// The ring can't grow for these consumers: tells them.
    pub fn refuse(&mut self, ids: &[u64], why: &str) {
        for (_, member) in self.members.iter_mut().filter(|(id, _)| ids.contains(id)) {
            member.is_refused = true;
            member.notice = Some(Answer::Refused(Refusal::NoRing(why.to_owned())));
        }
    }

    /// Whether detaching these takes another ring for all others: a consumer that holds leases, or may be cutting a batch right
    /// now, keeps the ring that it has.
    pub fn needs_ring_to_detach(&self, stalled: &[Stalled]) -> bool {
        self.ring.is_some_and(|ring| !ring.is_placeholder) && stalled.iter().any(|one| self.keeps_ring(one.id))
    }

    fn keeps_ring(&self, id: u64) -> bool {
        self.members.get(id).is_some_and(|member| !member.page.is_resting() || member.page.leases() > 0)
    }

    /// Detaches consumers that still stand where they were seen; under the same lock as the installation of another ring, if one
    /// was needed (`has_ring`). True if any was.
    pub fn detach(&mut self, stalled: &[Stalled], has_ring: bool, head: &impl HeadPage, now: Time) -> bool {
        self.refresh(now);
        let stalled_secs = self.options.stall_timeout.as_secs_f64();
        let mut any = false;
        for &Stalled { id, position, is_resting } in stalled {
            let has_moved = self.log.cursor(id).is_none_or(|(_, released)| released != Some(position));
            if has_moved || (!has_ring && self.keeps_ring(id)) {
                continue;
            }
            let Some(member) = self.members.get(id) else { continue };
            let pid = member.process.pid();
            // It has finished an epoch, or asked for the next, since it was seen: preparing a ring takes a while.
            if member.page.is_resting() != is_resting {
                continue;
            }
            // Between two epochs it may be asking for the next right now: one of us comes first.
            if is_resting && !member.page.cut_off() {
                continue;
            }
            self.members.detach(id, &mut self.log, Answer::Detached { stalled_secs }, now);
            self.notices.push(Notice::Detached { pid, is_resting });
            any = true;
        }
        self.publish_joined(head);
        any
    }

    /// Names those who are slow, and not stuck: once each.
    pub(super) fn name_laggards(&mut self, in_the_way: &[Stalled], by_epochs: bool, now: Time) {
        self.laggards.see(&self.members, in_the_way, now, |id, position| {
            let pid = self.members.get(id).map_or(0, |member| member.process.pid());
            let behind = self.log.head().saturating_sub(position);
            self.notices.push(Notice::Lagging { pid, behind, by_epochs });
        });
    }

    /// Which of those in the way should be detached now.
    pub(super) fn find_stalled(&mut self, in_the_way: &[Stalled], now: Time) -> Vec<Stalled> {
        let mut stalls = self.stalls.take().unwrap_or_default();
        let stalled = stalls.check(self, in_the_way, now);
        self.stalls = Some(stalls);
        stalled
    }
}

impl From<&InTheWay> for Stalled {
    fn from(one: &InTheWay) -> Self {
        Self { id: one.id, position: one.released, is_resting: false }
    }
}

/// Those who are slow, and how long others have starved because of each.
#[derive(Debug, Default)]
pub(super) struct Laggards(BTreeMap<u64, Seen>);

#[derive(Debug)]
struct Seen {
    last: Time,
    held_up: Duration,
}

impl Laggards {
    /// Somebody starves, and these are in the way.
    fn see<P: MemberPage, Q: Process>(
        &mut self,
        members: &Members<P, Q>,
        in_the_way: &[Stalled],
        now: Time,
        mut tell: impl FnMut(u64, u64),
    ) {
        self.0.retain(|&id, _| members.get(id).is_some());
        let rests = |id: u64| members.get(id).is_none_or(|member| member.page.is_resting());
        for &Stalled { id, position, .. } in in_the_way.iter().filter(|one| !rests(one.id)) {
            let seen = self.0.entry(id).or_insert(Seen { last: now, held_up: Duration::ZERO });
            let before = seen.held_up;
            seen.held_up += now.since(seen.last).min(LONGEST_STEP);
            seen.last = now;
            if before < LAGGING && seen.held_up >= LAGGING {
                tell(id, position);
            }
        }
    }
}

/// Notices who doesn't move, during one wait.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    seen: BTreeMap<u64, Standing>,
    /// When somebody was last seen to starve.
    starved: Option<Since>,
}

/// Where a consumer stands, and since when.
#[derive(Debug)]
struct Standing {
    position: u64,
    since: Since,
    /// Since when it rests while another starves.
    resting: Option<Since>,
}

impl Stalls {
    /// A consumer has another cursor than the one that was seen.
    pub(super) fn forget(&mut self, id: u64) {
        self.seen.remove(&id);
    }

    fn check<P: MemberPage, Q: Process>(
        &mut self,
        server: &Server<P, Q>,
        in_the_way: &[Stalled],
        now: Time,
    ) -> Vec<Stalled> {
        let (members, log, limit) = (&server.members, &server.log, server.options.stall_timeout);
        // A consumer that waits for others to begin stands still because it must.
        if !members.has_begun {
            self.seen.clear();
            return Vec::new();
        }
        self.seen
            .retain(|&id, standing| in_the_way.iter().any(|one| (one.id, one.position) == (id, standing.position)));
        if members.anybody_starves(log) {
            self.starved = Some(Since(now));
        }
        let somebody_starves = self.starved.is_some_and(|since| !since.is_over(STARVES_FOR, now));
        let somebody_waits = somebody_starves || members.anybody_awaits_epoch(log);
        let is_over = |&&Stalled { id, position, .. }: &&Stalled| {
            let since = Since(now);
            let standing = self.seen.entry(id).or_insert(Standing { position, since, resting: None });
            let Some(member) = members.get(id) else { return false };
            // It may say that it starves, and is detached all the same: one that really does lets go of what is in the way at once.
            let rests = member.page.is_resting() && somebody_waits;
            standing.resting = rests.then(|| standing.resting.unwrap_or(since));
            // It moves when it wakes up, at the same sample: its rest is another matter.
            if member.page.is_resting() {
                standing.since = since;
            }
            match standing.resting {
                Some(since) => {
                    // A rank can't join again elsewhere: the others of its job go on where they are.
                    let is_rank = member.last_join.is_some_and(|join| join.rank.is_some());
                    since.is_over(if is_rank { limit } else { LONGEST_REST.min(limit) }, now)
                }
                None => {
                    let is_over = !member.page.is_resting() && standing.since.is_over(limit, now);
                    is_over && (members.another_starves(id, log) || log.another_waits(id))
                }
            }
        };
        let rests = |id: u64| members.get(id).is_some_and(|member| member.page.is_resting());
        in_the_way.iter().filter(is_over).map(|one| Stalled { is_resting: rests(one.id), ..*one }).collect()
    }
}
