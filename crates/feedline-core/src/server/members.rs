//! What the server knows of its consumers. Their own pages are read here, and believed only as far as the log allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use feedline_ring::log::{Log, Place};
use feedline_ring::signal::CursorWords;
use feedline_ring::{CursorHandle, Doorbell};

use super::{ConsumerStats, Since};
use crate::consumer::{Manner, own_step};
use crate::wire::{Rank, Reply};

/// One consumer.
pub(super) struct Member {
    pub page: CursorHandle,
    pub bell: Arc<Doorbell>,
    pub pid: u32,
    pub uid: u32,
    pub batch_size: Option<u64>,
    /// If it shares the feed with others.
    pub rank: Option<Rank>,
    pub joined: bool,
    /// It has asked and must be answered once enough others have.
    pub at_gate: bool,
    pub join_number: u64,
    /// Where it was placed, until it is told.
    pub place: Option<Place>,
    /// What the control thread has to tell it: it stood still for too long, or the ring can't grow for it.
    pub news: Option<Reply>,
    /// When it attached, or left its cursor.
    pub idle_since: Since,
    /// Where it was seen, and since when it has been there, while the server waits for the last epoch to be read.
    pub still: Option<(Option<u64>, Since)>,
    /// The ring could not grow for it, and it was told.
    pub is_refused: bool,
}

/// All consumers, joined or not.
#[derive(Default)]
pub(super) struct Members {
    map: BTreeMap<u64, Member>,
    /// The pid and user of those who wait for the first ring.
    early: BTreeMap<u64, (u32, u32)>,
    /// Enough have asked once: from then on everybody is answered at once.
    pub gate_open: bool,
    /// The furthest epoch that anybody who is gone had reached.
    reached: u64,
    /// And the furthest sample.
    reached_sample: Option<u64>,
    /// Since when nobody is attached.
    alone_since: Option<Since>,
    /// How many samples the source's batches have.
    pub source_batch: u64,
}

impl Member {
    /// How many samples it must see before it can take a batch.
    pub fn needs(&self, source_batch: u64) -> u64 {
        match self.rank {
            None => self.batch_size.unwrap_or(1),
            Some(Rank { world, .. }) => {
                // One step, and what shows whether another follows it.
                self.batch_size.unwrap_or_else(|| own_step(source_batch, world.into())).saturating_mul(2)
            }
        }
    }
}

impl Members {
    /// Somebody has come, and waits for the first ring.
    pub fn expect(&mut self, id: u64, pid: u32, uid: u32) {
        self.early.insert(id, (pid, uid));
    }

    pub fn insert(&mut self, id: u64, member: Member) {
        self.early.remove(&id);
        self.map.insert(id, member);
        self.alone_since = None;
    }

    /// Forgets a consumer, but not how far it came.
    pub fn remove(&mut self, id: u64, log: &Log) -> Option<Member> {
        if let Some((epoch, released)) = log.cursor(id) {
            self.reached = self.reached.max(epoch);
            self.reached_sample = self.reached_sample.max(released);
        }
        self.early.remove(&id);
        let member = self.map.remove(&id);
        if self.map.is_empty() {
            self.alone_since = Some(Since::now());
        }
        member
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Member> {
        self.map.get_mut(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn values(&self) -> impl Iterator<Item = &Member> {
        self.map.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Member)> {
        self.map.iter_mut().map(|(&id, member)| (id, member))
    }

    /// Takes a consumer's cursor away and has it told.
    pub fn cut_off(&mut self, id: u64, log: &mut Log, news: Reply) {
        log.leave(id);
        if let Some(member) = self.map.get_mut(&id) {
            member.joined = false;
            member.at_gate = false;
            member.idle_since = Since::now();
            member.news = Some(news);
        }
    }

    /// A consumer.
    pub fn get(&self, id: u64) -> Option<&Member> {
        self.map.get(&id)
    }

    /// How many have a cursor.
    pub fn joined(&self) -> usize {
        self.map.values().filter(|member| member.joined).count()
    }

    /// How many have a cursor, and were told so.
    pub fn placed(&self) -> usize {
        self.map.values().filter(|member| member.joined && !member.at_gate).count()
    }

    /// The pages of all, for waking.
    pub fn pages(&self) -> impl Iterator<Item = &CursorWords> {
        self.map.values().map(|member| &*member.page)
    }

    /// Takes over what consumers report.
    pub fn refresh(&self, log: &mut Log) {
        for (&id, member) in self.map.iter().filter(|(_, member)| member.joined) {
            if let Some((epoch, released)) = member.page.position(member.join_number) {
                log.advance(id, epoch, released);
            }
        }
    }

    /// Whether a consumer sleeps, and really for want of data: one that was stopped in its sleep still says so.
    pub fn starves(&self, id: u64, log: &Log) -> bool {
        let Some(member) = self.map.get(&id).filter(|member| member.joined && member.page.is_waiting()) else {
            return false;
        };
        let is_writing_its_epoch = log.cursor(id).is_some_and(|(epoch, _)| epoch >= log.epoch());
        let there = log.head().saturating_sub(member.page.cursor.load(Ordering::Relaxed));
        is_writing_its_epoch && there < member.needs(self.source_batch)
    }

    /// Whether anybody else does.
    pub fn another_starves(&self, id: u64, log: &Log) -> bool {
        self.map.keys().any(|&other| other != id && self.starves(other, log))
    }

    /// Whether anybody does.
    pub fn anybody_starves(&self, log: &Log) -> bool {
        self.map.keys().any(|&id| self.starves(id, log))
    }

    /// Whether everybody who is here has read `epochs` epochs, or has not moved for long enough. If nobody is here,
    /// whether somebody had; a job that crashed finds its feed again for as long as patience lasts.
    pub fn are_done(&mut self, log: &Log, epochs: u64, patience: Duration) -> bool {
        // Who has had everything may never ask for more.
        let is_all = |released: Option<u64>| !log.policy().replay && released == Some(log.head());
        if self.map.is_empty() {
            let given_up = self.alone_since.is_some_and(|since| since.is_over(patience));
            return self.gate_open && (self.reached >= epochs || is_all(self.reached_sample) || given_up);
        }
        let mut all = self.gate_open;
        for (&id, member) in &mut self.map {
            all &= match log.cursor(id) {
                Some((epoch, released)) if member.joined => {
                    let since =
                        member.still.filter(|(at, _)| *at == released).map_or_else(Since::now, |(_, since)| since);
                    member.still = Some((released, since));
                    epoch >= epochs || is_all(released) || since.is_over(patience)
                }
                _ => member.idle_since.is_over(patience),
            };
        }
        all
    }

    /// Of all; `age` tells how long a sample has been there.
    pub fn stats(&self, log: &Log, age: impl Fn(u64) -> Duration) -> Vec<ConsumerStats> {
        let mut jobs = BTreeMap::new();
        let mode = Manner::words(0).0.to_owned();
        let early = self.early.iter().map(|(&id, &(pid, uid))| {
            let mode = mode.clone();
            ConsumerStats { id, pid, uid, job: id, mode, waiting: true, ..ConsumerStats::default() }
        });
        self.map
            .iter()
            .map(|(&id, member)| {
                let page = &member.page;
                let cursor = page.cursor.load(Ordering::Relaxed);
                let (mode, copies_because) = Manner::words(page.mode.load(Ordering::Relaxed));
                // Who waits for its turn, or for its epoch, has no place yet.
                let has_place = log.cursor(id).is_some_and(|(_, released)| released.is_some());
                let lag_samples = if member.joined && has_place { log.head().saturating_sub(cursor) } else { 0 };
                ConsumerStats {
                    id,
                    pid: member.pid,
                    uid: member.uid,
                    joined: member.joined,
                    batch_size: member.batch_size,
                    job: member.rank.map_or(id, |rank| *jobs.entry(rank.group).or_insert(id)),
                    rank: member.rank.map(|Rank { rank, world, .. }| (rank, world)),
                    epoch: log.cursor(id).map_or(0, |(epoch, _)| epoch),
                    cursor,
                    lag_samples,
                    lag_secs: if lag_samples > 0 { age(cursor).as_secs_f64() } else { 0.0 },
                    mode: mode.to_owned(),
                    copies_because: copies_because.map(str::to_owned),
                    leases: page.leases.load(Ordering::Relaxed),
                    batches: page.batches.load(Ordering::Relaxed),
                    samples: page.samples.load(Ordering::Relaxed),
                    skipped: page.skipped.load(Ordering::Relaxed),
                    waited_secs: page.waited_nanos.load(Ordering::Relaxed) as f64 / 1e9,
                    waiting: member.joined && page.is_waiting(),
                    resting: member.joined && page.is_resting(),
                }
            })
            .chain(early)
            .collect()
    }
}
