//! The ranks of data-parallel jobs. They ask for their cursors at different moments, and must read the same epochs.
//!
//! ```text
//! first rank asks ──▶ Open: its place is held ──all have come──▶ done
//!                       ├──stall_timeout──▶ held no longer: who comes now finds the place, or that it is gone
//!                       └──a process of it ends──▶ forgotten
//! ```
//!
//! Each rank joins again and again, and all do so in the same order: the n-th join of one belongs to the n-th of the others.
//! So a rank takes the oldest open round that it has not taken part in, and opens one if there is none.
//!
//! A rank that has read its part may end before the others come, and its round stays open for them. Whoever comes then may be
//! such a late rank, or belong to the same job, started again. So a rank that comes a second time, from another process, ends the
//! rounds of its former one; and a rank that finds nobody alive in its round keeps it open, for the others of its own start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Notice;
use crate::log::{Gone, Log};
use crate::message::{Entry, Place, Rank};
use crate::page::Process;
use crate::time::{Since, Time};

/// Cursors that hold a place count down from here. The one above is `reconnecting`'s.
const FIRST_HOLDER: u64 = u64::MAX - 1;
/// The open rounds that one process may have begun, and all together: the oldest goes for another.
const MOST_OF_ONE: usize = 16;
const MOST: usize = 1024;

pub(super) struct Ranks<Q> {
    /// The oldest first.
    rounds: Vec<Round<Q>>,
    /// How many cursors were made.
    holders: u64,
}

impl<Q> Default for Ranks<Q> {
    fn default() -> Self {
        Self { rounds: Vec::new(), holders: 0 }
    }
}

/// A connection, and the process at its other end.
#[derive(Clone)]
pub(super) struct Peer<Q> {
    pub connection: u64,
    pub process: Q,
}

/// Joins that belong together.
struct Round<Q> {
    group: u64,
    world: u32,
    /// The place that they asked for; `None` for an epoch's start.
    asked: Option<(u64, u64)>,
    /// The place that they got: an epoch, and a sample of it.
    place: (u64, u64),
    /// How many samples of it those who came had had before the log.
    had: u64,
    /// Who began it.
    pid: u32,
    came: BTreeMap<u32, Peer<Q>>,
    /// Those of them that have read its epoch: that they end makes no difference to the round.
    done: BTreeSet<u32>,
    /// The cursor that holds the place, and since when somebody may have to wait for it.
    holder: Option<(u64, Since)>,
}

/// Why a rank got no place: the epoch that the others of its round read, and what is left of it.
pub(super) struct TooLate {
    pub epoch: u64,
    pub until: Option<u64>,
}

impl<Q: Process> Ranks<Q> {
    /// Gives a rank the place of its round.
    pub fn join(
        &mut self,
        log: &mut Log,
        id: u64,
        rank: Rank,
        entry: Entry,
        peer: &Peer<Q>,
        now: Time,
    ) -> Result<Place, TooLate> {
        if peer.process.is_dead() {
            // What it asked for before it ended is no part of its job's next start.
            return log.join(id, entry).map_err(|Gone { until }| TooLate { epoch: entry.epoch(), until });
        }
        self.reap(log);
        self.forget_former_start(log, rank);
        let asked = asked_place(entry);
        let is_mine = |round: &Round<Q>| {
            (round.group, round.world, round.asked) == (rank.group, rank.world, asked)
                && !round.came.contains_key(&rank.rank)
        };
        let Some(index) = self.rounds.iter().position(is_mine) else {
            return self.open(log, id, rank, entry, peer, now);
        };
        let round = &mut self.rounds[index];
        let is_alone = round.came.values().all(|other| other.process.is_dead());
        // Whatever comes of it: its next join belongs to another round.
        round.came.insert(rank.rank, peer.clone());
        let had = round.had;
        let beside = round.holder.and_then(|(holder, _)| log.join_beside(id, holder));
        let (epoch, index_in_epoch) = round.place;
        let place = match beside {
            Some(place) => Ok(Place { had, ..place }),
            None => log.join(id, Entry::At { epoch, index: index_in_epoch }),
        };
        match place {
            // Nobody is left whom it could be apart from.
            Err(_) if is_alone => {
                self.rounds.remove(index).let_go(log);
                return self.open(log, id, rank, entry, peer, now);
            }
            Ok(_) if is_alone => self.open_again(log, index, id, rank, peer, now),
            _ if round.came.len() >= round.world as usize => self.rounds.remove(index).let_go(log),
            _ => {}
        }
        place.map_err(|Gone { until }| TooLate { epoch, until })
    }

    /// All who came to a round before this rank have ended: the others of its start of the job may be on their way.
    fn open_again(&mut self, log: &mut Log, index: usize, id: u64, rank: Rank, peer: &Peer<Q>, now: Time) {
        let holder = self.new_holder();
        let round = &mut self.rounds[index];
        round.let_go(log);
        round.holder = log.join_beside(holder, id).map(|_| (holder, Since(now)));
        round.pid = peer.process.pid();
        round.came.retain(|&one, _| one == rank.rank);
        round.done.clear();
    }

    fn new_holder(&mut self) -> u64 {
        self.holders += 1;
        FIRST_HOLDER - (self.holders - 1)
    }

    /// A rank comes from another process than before, which has ended: its job was started again.
    fn forget_former_start(&mut self, log: &mut Log, rank: Rank) {
        self.rounds.retain_mut(|round| {
            let is_same_job = (round.group, round.world) == (rank.group, rank.world);
            let is_former = is_same_job && round.came.get(&rank.rank).is_some_and(|peer| peer.process.is_dead());
            if is_former {
                round.let_go(log);
            }
            !is_former
        });
    }

    fn open(
        &mut self,
        log: &mut Log,
        id: u64,
        rank: Rank,
        entry: Entry,
        peer: &Peer<Q>,
        now: Time,
    ) -> Result<Place, TooLate> {
        let asked = asked_place(entry);
        let (asked_epoch, index) = asked.unwrap_or((0, 0));
        let place = log.join(id, entry).map_err(|Gone { until }| TooLate { epoch: asked_epoch, until })?;
        if rank.world > 1 {
            self.make_room(log, peer.process.pid());
            let holder = self.new_holder();
            let is_held = log.join_beside(holder, id).is_some();
            self.rounds.push(Round {
                group: rank.group,
                world: rank.world,
                asked,
                place: (place.epoch, index),
                had: place.had,
                pid: peer.process.pid(),
                came: BTreeMap::from([(rank.rank, peer.clone())]),
                done: BTreeSet::new(),
                holder: is_held.then_some((holder, Since(now))),
            });
        }
        Ok(place)
    }

    /// For one more round of this process.
    fn make_room(&mut self, log: &mut Log, pid: u32) {
        let of_one = self.rounds.iter().filter(|round| round.pid == pid).count();
        let oldest = match (of_one >= MOST_OF_ONE, self.rounds.len() >= MOST) {
            (true, _) => self.rounds.iter().position(|round| round.pid == pid),
            (false, is_full) => is_full.then_some(0),
        };
        if let Some(oldest) = oldest {
            self.rounds.remove(oldest).let_go(log);
        }
    }

    /// Stops holding places for those who don't come.
    pub fn expire(&mut self, log: &mut Log, timeout: Duration, now: Time, notices: &mut Vec<Notice>) {
        for round in &mut self.rounds {
            let Some((holder, since)) = &mut round.holder else { continue };
            if log.cursor(*holder).is_some_and(|(_, sample)| sample.is_none()) {
                // Its epoch has not begun: nobody waits.
                *since = Since(now);
            } else if since.is_over(timeout, now) {
                round.let_go(log);
                let (epoch, came, world) = (round.place.0, round.came.len(), round.world);
                notices.push(Notice::RanksMissing { epoch, came, world, waited: timeout });
            }
        }
    }

    /// Forgets the rounds of processes that have ended: those who come now are another job, or the same one started again.
    /// True if there were any.
    pub fn reap(&mut self, log: &mut Log) -> bool {
        let before = self.rounds.len();
        self.forget_if(log, |peer| peer.process.is_dead());
        self.rounds.len() < before
    }

    /// The same, where only the end of a connection tells.
    pub fn disconnected(&mut self, log: &mut Log, peer: &Peer<Q>) {
        if !peer.process.is_watched() {
            self.forget_if(log, |one| one.connection == peer.connection);
        }
    }

    fn forget_if(&mut self, log: &mut Log, is_gone: impl Fn(&Peer<Q>) -> bool) {
        self.rounds.retain_mut(|round| {
            let Round { came, done, .. } = round;
            let goes = came.iter().any(|(rank, peer)| !done.contains(rank) && is_gone(peer));
            if goes {
                round.let_go(log);
            }
            !goes
        });
    }

    /// A rank gives its cursor back, or goes, when it was in this epoch: it has done its part in those before.
    pub fn leaves(&mut self, connection: u64, epoch: u64) {
        for round in self.rounds.iter_mut().filter(|round| epoch > round.place.0) {
            let own = round.came.iter().filter(|(_, one)| one.connection == connection);
            round.done.extend(own.map(|(&rank, _)| rank));
        }
    }

    /// Whether a feed must not end yet: some ranks have not come to read their part. If nobody is here any more, it is for
    /// those whose others have read theirs.
    pub fn keep_it_open(&self, log: &Log, is_alone: bool) -> bool {
        let is_half_done = self.rounds.iter().any(|round| round.holder.is_some() && !round.done.is_empty());
        (is_half_done || !is_alone) && self.is_waiting(log)
    }

    /// Whether samples are kept for ranks that have not come yet.
    pub fn is_waiting(&self, log: &Log) -> bool {
        let holds = |holder: u64| log.cursor(holder).is_some_and(|(_, sample)| sample.is_some());
        self.rounds.iter().any(|round| round.holder.is_some_and(|(holder, _)| holds(holder)))
    }
}

/// The place that a rank names, if it does.
fn asked_place(entry: Entry) -> Option<(u64, u64)> {
    match entry {
        Entry::At { epoch, index } => Some((epoch, index)),
        Entry::First { .. } => Some((0, 0)),
        Entry::EpochStart | Entry::Newest => None,
    }
}

impl<Q> Round<Q> {
    fn let_go(&mut self, log: &mut Log) {
        if let Some((holder, _)) = self.holder.take() {
            log.leave(holder);
        }
    }
}

#[cfg(test)]
mod tests;
