//! A consumer's page and bell, and the numbers of consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use feedline_protocol::message::{Join, Rank};
use feedline_protocol::page::MemberPage;
use feedline_shm::{CursorHandle, Doorbell};

use super::Machine;
use crate::read_mode::ReadMode;
use crate::stats::ConsumerStats;

/// The server's side of a consumer: its page, and the bell that it rings.
pub(super) struct Page {
    pub handle: CursorHandle,
    pub bell: Arc<Doorbell>,
}

impl MemberPage for Page {
    fn position(&self, join: u64) -> Option<(u64, u64)> {
        self.handle.position(join)
    }

    fn is_waiting(&self) -> bool {
        self.handle.is_waiting()
    }

    fn is_resting(&self) -> bool {
        self.handle.is_resting()
    }

    fn cut_off(&self) -> bool {
        self.handle.cut_off()
    }

    fn count(&self, join: u64) {
        self.handle.count(join);
    }

    fn cursor(&self) -> u64 {
        MemberPage::cursor(&self.handle)
    }

    fn leases(&self) -> u32 {
        MemberPage::leases(&self.handle)
    }
}

/// The numbers of all consumers; `age` tells how long a sample has been there.
pub(super) fn consumer_stats(machine: &Machine, age: impl Fn(u64) -> Duration) -> Vec<ConsumerStats> {
    let log = machine.log();
    let mut jobs = BTreeMap::new();
    let mode = ReadMode::words(0).0.to_owned();
    let expected = machine.members().expected().map(|(id, peer)| {
        let mode = mode.clone();
        ConsumerStats { id, pid: peer.pid, uid: peer.uid, job: id, mode, waiting: true, ..ConsumerStats::default() }
    });
    let attached = machine.members().iter().map(|(id, member)| {
        let page = &member.page.handle;
        let cursor = page.cursor.load(Ordering::Relaxed);
        let (mode, copies_because) = ReadMode::words(page.mode.load(Ordering::Relaxed));
        // A consumer that waits for its turn, or for its epoch, has no position yet.
        let has_place = log.cursor(id).is_some_and(|(_, released)| released.is_some());
        let is_joined = member.is_joined();
        let lag_samples = if is_joined && has_place { log.head().saturating_sub(cursor) } else { 0 };
        let (batch_size, rank) =
            member.last_join.map_or((None, None), |Join { batch_size, rank, .. }| (batch_size, rank));
        ConsumerStats {
            id,
            pid: member.process.pid,
            uid: member.process.uid,
            joined: is_joined,
            batch_size,
            job: rank.map_or(id, |rank| *jobs.entry(rank.group).or_insert(id)),
            rank: rank.map(|Rank { rank, world, .. }| (rank, world)),
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
            waiting: is_joined && page.is_waiting(),
            resting: is_joined && page.is_resting(),
        }
    });
    attached.chain(expected).collect()
}
