//! Ranges of the log that some live tensor still points at.
//!
//! A lease is born when a batch is cut and dies with the last window over it, on whatever thread that happens.
//! The oldest living lease bounds what the server may overwrite.
//!
//! ```text
//! cut ──▶ Live ──last drop──▶ Released
//!           └──keep()──▶ Owned (pages made private, the log moves on)
//! ```
//!
//! Deciding *when* a lease is kept too long is `feedline-core`'s work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use feedline_protocol::UNKNOWN;
use feedline_protocol::leases::Leases;

use crate::fork::{Origin, Table, register, tables};
use crate::mutex::{Mutex, MutexGuard};
use crate::{Access, CursorHandle, Doorbell, HeadReader, Mapping, Window, fault};

/// A lane, a position on it, and a length in bytes.
type Range = (usize, u128, usize);

/// One consumer's cursor and leases, and the page in which the server reads about them.
pub struct LeaseTable {
    state: Mutex<State>,
    page: CursorHandle,
    head: Arc<HeadReader>,
    bell: Doorbell,
    kept: AtomicU64,
    /// One lease is made private at a time.
    keeping: Mutex<()>,
    origin: Origin,
}

struct State {
    leases: Leases<Held>,
    cursor: u64,
    epoch: u64,
}

#[derive(Clone)]
struct Held {
    mapping: Arc<Mapping>,
    ranges: Arc<[Range]>,
}

/// A live lease. Dropping it lets the server overwrite the samples.
pub struct Lease {
    table: Arc<LeaseTable>,
    id: u64,
    mapping: Arc<Mapping>,
}

impl LeaseTable {
    /// A table for a consumer that stands at `cursor` in `epoch`.
    pub fn new(head: Arc<HeadReader>, page: CursorHandle, bell: Doorbell, epoch: u64, cursor: u64) -> Arc<Self> {
        let state = Mutex::new(State { leases: Leases::default(), cursor, epoch });
        let table = Arc::new(Self {
            state,
            page,
            head,
            bell,
            kept: AtomicU64::new(0),
            keeping: Mutex::new(()),
            origin: Origin::here(),
        });
        let weak: Weak<Self> = Arc::downgrade(&table);
        register(weak);
        table
    }

    /// Cuts a batch: leases the samples from the cursor to `end`, and moves the cursor there.
    pub fn cut(self: &Arc<Self>, mapping: &Arc<Mapping>, ranges: Vec<Range>, end: u64) -> Vec<Window> {
        let ranges: Arc<[Range]> = ranges.into();
        let held = Held { mapping: Arc::clone(mapping), ranges: Arc::clone(&ranges) };
        let mut state = self.lock();
        let first = state.cursor;
        let id = state.leases.cut(first, held);
        state.cursor = end;
        self.page.cursor.store(end, Ordering::Relaxed);
        self.page.leases.store(state.leases.len() as u32, Ordering::Relaxed);
        drop(state);
        fault::point("consumer:leased");
        let lease = Arc::new(Lease { table: Arc::clone(self), id, mapping: Arc::clone(mapping) });
        let writable = mapping.access() == Access::Private;
        let window = |&(lane, position, len_bytes): &Range| {
            let start = mapping.address(lane, position, len_bytes);
            Window::new(start, len_bytes, writable, lease.clone())
        };
        ranges.iter().map(window).collect()
    }

    /// Begins anew where the server placed us. Leases of an older join are forgotten: they were made private, or their ring
    /// was left to them.
    pub fn enter(&self, join: u64, epoch: u64, cursor: u64) {
        let mut state = self.lock();
        let old = std::mem::take(&mut state.leases);
        state.leases.continue_after(&old);
        state.epoch = epoch;
        state.cursor = cursor;
        self.page.cursor.store(cursor, Ordering::Relaxed);
        self.page.leases.store(0, Ordering::Relaxed);
        self.page.enter(join, epoch, cursor);
        drop(state);
        drop(old);
    }

    /// Moves the cursor on without a lease: a copied batch, a dropped tail, the next epoch.
    pub fn advance(&self, epoch: u64, cursor: u64) {
        let mut state = self.lock();
        state.epoch = epoch;
        state.cursor = cursor;
        self.page.cursor.store(cursor, Ordering::Relaxed);
        self.report(&state);
    }

    /// The page that the server reads.
    pub fn page(&self) -> &CursorHandle {
        &self.page
    }

    /// The server's bell.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Whether the cursor or a lease keeps the server from overwriting this sample and those after it.
    pub(crate) fn needs(&self, sample: u64) -> bool {
        let state = self.lock();
        state.leases.floor(state.cursor) <= sample
    }

    /// How many leases live.
    pub fn live(&self) -> usize {
        self.lock().leases.len()
    }

    /// The oldest sample that a lease holds.
    pub fn oldest(&self) -> Option<u64> {
        self.lock().leases.oldest().map(|(_, first, _)| first)
    }

    /// Makes the oldest lease's pages private and lets the log move on; its windows keep address and bytes.
    ///
    /// Expensive: about 1 ms for each MB. False if there is none, or the kernel refused.
    pub fn keep_oldest(&self) -> bool {
        let _one_at_a_time = self.keeping.lock();
        let Some((id, held)) = self.lock().leases.oldest().map(|(id, _, held)| (id, held.clone())) else {
            return false;
        };
        fault::point("consumer:keeping");
        if !held.make_private() {
            return false;
        }
        fault::point("consumer:kept");
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.release(id);
        true
    }

    /// How many leases were made private so far.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Lets go of every lease of this process, of whatever feed, that a server waits for.
    pub fn release_all_under_pressure() {
        for table in tables() {
            table.release_under_pressure();
        }
    }

    fn release(&self, id: u64) {
        let mut state = self.lock();
        // One that was made private, or belongs to an older join, has nothing to report.
        let Some(held) = state.leases.release(id) else { return };
        self.page.leases.store(state.leases.len() as u32, Ordering::Relaxed);
        self.report(&state);
        drop(state);
        // Outside of the lock: this may be the last one to unmap a ring.
        drop(held);
    }

    fn report(&self, state: &State) {
        if self.page.release(&self.head, state.epoch, state.leases.floor(state.cursor)) {
            fault::point("consumer:released");
            self.bell.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Held {
    fn make_private(&self) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.all(|&(lane, position, len_bytes)| self.mapping.make_private(lane, position, len_bytes))
    }
}

impl Table for LeaseTable {
    fn release_under_pressure(&self) {
        let in_the_way = |wanted| wanted != UNKNOWN && self.oldest().is_some_and(|first| first < wanted);
        while self.origin.is_here() && in_the_way(self.head.wanted()) && self.keep_oldest() {}
    }

    fn before_fork(&self) {
        if self.origin.is_here() {
            let _one_at_a_time = self.keeping.lock();
            let held: Vec<Held> = self.lock().leases.iter().cloned().collect();
            for held in held {
                held.make_private();
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child has its parent's leases as bytes only. The mapping goes in either case.
        if self.table.origin.is_here() {
            self.table.release(self.id);
        }
        let _ = &self.mapping;
    }
}
