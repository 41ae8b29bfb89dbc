//! Waiting: for room in the ring, for an epoch to be allowed to begin, for the last one to be read. And cutting off those
//! who make everybody wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_ring::Doorbell;
use feedline_ring::log::{Lag, Log, Size};
use feedline_ring::signal::UNKNOWN;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::meter::Doing;
use super::producer::{Halt, Producer, halted};
use super::{Phase, State};
use crate::wire::Reply;

/// The longest sleep without a call of the caller's hook.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a consumer that has read an epoch and not asked for the next may hold up one that starves. It has nothing in hand
/// and loses nothing: it joins again when it asks.
const REST: Duration = Duration::from_secs(2);

/// Who starves looks up now and then: for so long, on a busy machine, it may not be seen to.
const BREATH: Duration = Duration::from_millis(500);

/// How long, in all, a slow consumer may hold up those who starve before it is named.
const LAGGARD: Duration = Duration::from_secs(1);

/// For waits that any release at all may end.
const ANY_RELEASE: fn(&Log) -> u64 = |_| 0;

/// How they need not wait for it, if the ring has no room, or if it is too many epochs behind.
const RING_IS_FULL: &str =
    "lag=\"history\" lets them run ahead as far as history= reaches, lag=\"skip\" lets it lose samples";
const EPOCHS_ARE_FULL: &str =
    "epochs_ahead= lets them run more epochs ahead, where they fit the ring, lag=\"skip\" lets it lose samples";

/// How long those who have attached are given to ask for their first batch when the loader has failed.
const MOMENT: Duration = Duration::from_secs(1);

impl Producer<'_> {
    /// Claims room for the next samples, waiting for it if need be.
    pub fn claim(&mut self, samples: u64, bytes: u64) -> Result<u64, Halt> {
        {
            let mut state = self.shared.lock();
            state.refresh();
            if let Some(start) = state.log.claim(samples, bytes) {
                self.forget(&state);
                return Ok(start);
            }
        }
        let claimed = self.claim_slowly(samples, bytes);
        self.shared.head.want_nothing();
        self.forget(&self.shared.lock());
        claimed
    }

    /// Before what was claimed is written: tells those whom nobody waits for what is no longer there.
    fn forget(&self, state: &State) {
        if state.log.policy().lag == Lag::Skip {
            self.shared.head.forget_before(state.log.oldest(), state.log.fastest());
        }
    }

    /// The ring is full. Sleeps until a quarter of it is free, or somebody starves and there is just enough.
    fn claim_slowly(&mut self, samples: u64, bytes: u64) -> Result<u64, Halt> {
        let mut stall = Stall::default();
        loop {
            self.grow_for_consumers()?;
            let mut state = self.shared.lock();
            halted(&mut state)?;
            let Size { window, byte_window, .. } = state.log.size();
            let comfort = (samples.max(window / 4), bytes.max(byte_window / 4));
            let in_the_way = state.log.in_the_way(comfort.0, comfort.1);
            self.shared.head.want(in_the_way.iter().map(|one| one.wanted).min().unwrap_or(UNKNOWN));
            state.refresh();
            let is_comfortable = state.log.in_the_way(comfort.0, comfort.1).is_empty();
            let somebody_starves = state.members.anybody_starves(&state.log);
            if (is_comfortable || somebody_starves || state.members.is_empty())
                && let Some(start) = state.log.claim(samples, bytes)
            {
                return Ok(start);
            }
            let in_the_way = state.log.in_the_way(samples, bytes);
            let in_the_way: Vec<_> = in_the_way.iter().map(|one| (one.id, one.released)).collect();
            if somebody_starves {
                self.laggards.see(&state, &in_the_way, &self.shared.name, RING_IS_FULL);
            }
            let stalled = stall.look(&state, &in_the_way, self.shared.options.stall_timeout);
            let bells = state.bells();
            let starved = state.starved_ranks(&in_the_way);
            drop(state);
            if !self.grow_for_ranks(&starved) && !self.cut_off(&stalled) {
                self.sleep(&bells)?;
            }
        }
    }

    /// Waits until the log may begin its next epoch: who is too many epochs behind and stands still is cut off.
    pub fn wait_for_epoch(&mut self) -> Result<(), Halt> {
        let mut stall = Stall::default();
        // One that lets go of less, and then waits for this epoch, rings all the same.
        self.wait_until(Log::wanted_for_epoch, |producer, state| {
            if state.log.would_jump() && !state.has_settled() {
                return Ok(false);
            }
            if state.log.can_begin_epoch() {
                return Ok(true);
            }
            let behind = state.log.epochs_behind();
            if state.members.anybody_starves(&state.log) {
                producer.laggards.see(state, &behind, &producer.shared.name, EPOCHS_ARE_FULL);
            }
            Err(stall.look(state, &behind, producer.shared.options.stall_timeout))
        })
    }

    /// Waits until all epochs are read. Nobody is cut off any more: who is slow holds up nobody but us.
    pub fn wait_for_readers(&mut self, epochs: u64) -> Result<(), Halt> {
        let patience = self.shared.options.stall_timeout;
        self.wait_until(ANY_RELEASE, |_, state| {
            let State { members, log, ranks, .. } = state;
            Ok(members.are_done(log, epochs, patience) && !ranks.keep_it_open(log, members.is_empty()))
        })
    }

    /// The loader has failed. Those who have attached and not asked yet get a moment to, so that they too see what came before.
    pub fn let_in(&mut self) {
        let _ = self.wait_until(ANY_RELEASE, |_, state| {
            Ok(state.members.values().all(|member| member.join_number > 0 || member.idle_since.is_over(MOMENT)))
        });
    }

    /// Waits for something that nobody is in a hurry for: consumers don't ring for it.
    pub fn wait_quietly(&mut self, mut ready: impl FnMut(&mut State) -> bool) -> Result<(), Halt> {
        loop {
            let mut state = self.shared.lock();
            if let Phase::Broken(_) = state.phase {
                return Err(Halt::Stopped);
            }
            state.refresh();
            if ready(&mut state) {
                return Ok(());
            }
            let bells = state.bells();
            drop(state);
            self.sleep(&bells)?;
        }
    }

    /// Waits for something that consumers bring about by reading on, as far as `wanted`. `ready` may name some to be cut off
    /// instead.
    fn wait_until(
        &mut self,
        wanted: fn(&Log) -> u64,
        mut ready: impl FnMut(&mut Self, &mut State) -> Result<bool, Vec<(u64, u64)>>,
    ) -> Result<(), Halt> {
        loop {
            let shared = self.shared;
            let mut state = shared.lock();
            if let Phase::Broken(_) = state.phase {
                shared.head.want_nothing();
                return Err(Halt::Stopped);
            }
            shared.head.want(wanted(&state.log));
            state.refresh();
            let answer = ready(self, &mut state);
            let bells = state.bells();
            drop(state);
            match answer {
                Ok(true) => {
                    shared.head.want_nothing();
                    return Ok(());
                }
                Err(stalled) if self.cut_off(&stalled) => {}
                _ => self.sleep(&bells)?,
            }
        }
    }

    /// Cuts off consumers that stand still, each with the position at which it was seen to. True if it did.
    ///
    /// One that holds leases, or may be cutting one right now, keeps the old ring, and the others move on to another; so
    /// that ring must be there first. If there is no memory for it, everybody goes on waiting.
    fn cut_off(&mut self, stalled: &[(u64, u64)]) -> bool {
        if stalled.is_empty() {
            return false;
        }
        let needs_ring = |state: &State, id: u64| {
            let holds_leases =
                |member: &super::members::Member| member.page.leases.load(std::sync::atomic::Ordering::Relaxed) > 0;
            state.members.get(id).is_some_and(|member| !member.page.is_resting() || holds_leases(member))
        };
        let any_needs_ring = {
            let state = self.shared.lock();
            self.ring.is_some() && stalled.iter().any(|&(id, _)| needs_ring(&state, id))
        };
        let prepared = match any_needs_ring.then(|| self.prepare(self.ring().info.size())).transpose() {
            Ok(prepared) => prepared,
            Err(error) => {
                if !std::mem::replace(&mut self.is_short_of_memory, true) {
                    let name = &self.shared.name;
                    tracing::warn!("feed {name:?} waits for a consumer that stands still: without it, {error}");
                }
                return false;
            }
        };
        let secs = self.shared.options.stall_timeout.as_secs_f64();
        let has_ring = prepared.is_some() || self.ring.is_none();
        let mut gone = Vec::new();
        let mut cut = |state: &mut State| {
            state.refresh();
            for &(id, position) in stalled {
                let moved = state.log.cursor(id).is_none_or(|(_, released)| released != Some(position));
                if moved || (!has_ring && needs_ring(state, id)) {
                    continue;
                }
                let Some(member) = state.members.get(id) else { continue };
                let (pid, rests) = (member.pid, member.page.is_resting());
                // Between two epochs it may be asking for the next right now: one of us comes first.
                if rests && !member.page.cut_off() {
                    continue;
                }
                let State { members, log, .. } = state;
                members.cut_off(id, log, Reply::Detached { stalled_secs: secs });
                let text =
                    if rests { "it has not asked for its next epoch" } else { "it stood still and held up the others" };
                state.events.note("detached", Some(pid), text);
                gone.push((pid, rests));
            }
        };
        match prepared {
            Some(prepared) => self.install(prepared, cut),
            None => cut(&mut self.shared.lock()),
        }
        self.shared.tell_joined(&self.shared.lock());
        self.shared.control_bell.ring();
        let name = &self.shared.name;
        for (pid, rests) in &gone {
            if *rests {
                tracing::info!("feed {name:?}: goes on without pid {pid}, which has not asked for its next epoch yet");
            } else {
                tracing::warn!("feed {name:?}: detached pid {pid}, which held up the others for {secs} s");
            }
        }
        !gone.is_empty()
    }

    fn sleep(&mut self, bells: &[Arc<Doorbell>]) -> Result<(), Halt> {
        let mut fds = vec![PollFd::new(&self.shared.producer_bell, PollFlags::IN)];
        fds.extend(bells.iter().map(|bell| PollFd::new(&**bell, PollFlags::IN)));
        let before = self.shared.meter.turn(Doing::Waiting);
        let _ = poll(&mut fds, Some(&SLICE));
        self.shared.meter.turn(before);
        self.shared.producer_bell.clear();
        bells.iter().for_each(|bell| bell.clear());
        (self.poll)().map_err(Halt::from)
    }
}

impl State {
    fn bells(&self) -> Vec<Arc<Doorbell>> {
        self.members.values().map(|member| Arc::clone(&member.bell)).collect()
    }
}

/// Names those who are slow, and not stuck: once each.
#[derive(Default)]
pub(super) struct Laggards {
    seen: BTreeMap<u64, Seen>,
}

struct Seen {
    last: Instant,
    held_up: Duration,
}

impl Laggards {
    /// Somebody starves, and these are in the way.
    fn see(&mut self, state: &State, in_the_way: &[(u64, u64)], name: &str, way_out: &str) {
        self.seen.retain(|&id, _| state.members.get(id).is_some());
        let rests = |id: u64| state.members.get(id).is_none_or(|member| member.page.is_resting());
        for &(id, position) in in_the_way.iter().filter(|(id, _)| !rests(*id)) {
            let now = Instant::now();
            let seen = self.seen.entry(id).or_insert(Seen { last: now, held_up: Duration::ZERO });
            let before = seen.held_up;
            // What lies between two looks that are further apart was somebody else's doing.
            seen.held_up += now.duration_since(seen.last).min(Duration::from_millis(100));
            seen.last = now;
            if before < LAGGARD && seen.held_up >= LAGGARD {
                let pid = state.members.get(id).map_or(0, |member| member.pid);
                let behind = state.log.head().saturating_sub(position);
                tracing::warn!(
                    "feed {name:?}: pid {pid} is {behind} samples behind, and the others wait for it\n  {way_out}"
                );
            }
        }
    }
}

/// Notices who doesn't move.
#[derive(Default)]
struct Stall {
    seen: BTreeMap<u64, Still>,
    /// When somebody was last seen to starve.
    starved: Option<Instant>,
}

/// Where a consumer stands, and since when.
struct Still {
    position: u64,
    since: Instant,
    /// Since when it rests while another starves.
    resting: Option<Instant>,
}

impl Stall {
    /// Which of those in the way should be cut off now.
    fn look(&mut self, state: &State, in_the_way: &[(u64, u64)], limit: Duration) -> Vec<(u64, u64)> {
        // Who waits for wait_for others stands still because it must.
        if !state.members.gate_open {
            self.seen.clear();
            return Vec::new();
        }
        self.seen.retain(|id, still| in_the_way.contains(&(*id, still.position)));
        if state.members.anybody_starves(&state.log) {
            self.starved = Some(Instant::now());
        }
        let somebody_starves = self.starved.is_some_and(|at| at.elapsed() < BREATH);
        let over = |&&(id, position): &&(u64, u64)| {
            let now = Instant::now();
            let still = self.seen.entry(id).or_insert(Still { position, since: now, resting: None });
            let Some(member) = state.members.get(id) else { return false };
            // To say that it starves is no excuse: who really does lets go of what is in the way within a moment.
            let rests = member.page.is_resting() && somebody_starves;
            still.resting = rests.then(|| still.resting.unwrap_or(now));
            match still.resting {
                // A rank can't join again elsewhere: the others of its job go on where they are.
                Some(since) => since.elapsed() >= if member.rank.is_some() { limit } else { REST.min(limit) },
                None => {
                    let is_over = !member.page.is_resting() && still.since.elapsed() >= limit;
                    is_over && (state.members.another_starves(id, &state.log) || state.log.another_waits(id))
                }
            }
        };
        in_the_way.iter().filter(over).copied().collect()
    }
}
