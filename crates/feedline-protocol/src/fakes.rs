//! Pages and processes for tests: plain numbers that everybody sees at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::message::{EpochLength, FeedState, UNKNOWN};
use crate::page::{ConsumerMemory, HeadPage, HeadView, MemberPage, Process};

/// A head page, for both sides.
#[derive(Debug)]
pub(crate) struct Head {
    pub head: Cell<u64>,
    pub ends: RefCell<BTreeMap<u64, u64>>,
    pub ended: Cell<u64>,
    pub oldest: Cell<u64>,
    pub fastest: Cell<u64>,
    pub generation: Cell<u32>,
    pub state: Cell<FeedState>,
    pub joined: Cell<u32>,
    pub slowest: Cell<u64>,
    pub length: Cell<EpochLength>,
    pub wanted: Cell<u64>,
    /// How often all who sleep were woken.
    pub wakes: Cell<u32>,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            head: Cell::default(),
            ends: RefCell::default(),
            ended: Cell::default(),
            oldest: Cell::default(),
            fastest: Cell::default(),
            generation: Cell::default(),
            state: Cell::default(),
            joined: Cell::default(),
            slowest: Cell::default(),
            length: Cell::new(EpochLength::UNKNOWN),
            wanted: Cell::new(UNKNOWN),
            wakes: Cell::default(),
        }
    }
}

impl HeadPage for Head {
    fn publish(&self, head: u64) {
        self.head.set(head);
    }

    fn end_epoch(&self, epoch: u64, end: u64) {
        self.ends.borrow_mut().insert(epoch, end);
        self.ended.set(epoch + 1);
    }

    fn forget_before(&self, oldest: u64, fastest: u64) {
        self.oldest.set(oldest);
        self.fastest.set(fastest);
    }

    fn set_length(&self, length: EpochLength) {
        self.length.set(length);
    }

    fn length(&self) -> EpochLength {
        self.length.get()
    }

    fn set_generation(&self, generation: u32) {
        self.generation.set(generation);
    }

    fn set_state(&self, state: FeedState) {
        self.state.set(state);
    }

    fn set_joined(&self, joined: u32) {
        self.joined.set(joined);
    }

    fn set_slowest(&self, epoch: u64) {
        self.slowest.set(epoch);
    }

    fn want(&self, sample: u64) {
        self.wanted.set(sample);
    }

    fn want_nothing(&self) {
        self.wanted.set(UNKNOWN);
    }

    fn announce(&self, is_anybody_waiting: impl FnOnce() -> bool) {
        if is_anybody_waiting() {
            self.wakes.set(self.wakes.get() + 1);
        }
    }
}

impl HeadView for Head {
    fn head(&self) -> u64 {
        self.head.get()
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        let is_known = epoch < self.ended.get() && epoch >= self.first_known();
        self.ends.borrow().get(&epoch).copied().filter(|_| is_known).unwrap_or(UNKNOWN)
    }

    fn ended(&self) -> u64 {
        self.ended.get()
    }

    fn oldest(&self) -> u64 {
        self.oldest.get()
    }

    fn fastest(&self) -> u64 {
        self.fastest.get()
    }

    fn generation(&self) -> u32 {
        self.generation.get()
    }

    fn state(&self) -> FeedState {
        self.state.get()
    }

    fn joined(&self) -> u32 {
        self.joined.get()
    }

    fn slowest(&self) -> u64 {
        self.slowest.get()
    }

    fn length(&self) -> EpochLength {
        self.length.get()
    }

    fn wanted(&self) -> u64 {
        self.wanted.get()
    }
}

/// A consumer's page, as the server sees it.
#[derive(Debug, Default)]
pub(crate) struct PageWords {
    pub position: Cell<Option<(u64, u64)>>,
    pub is_waiting: Cell<bool>,
    pub is_resting: Cell<bool>,
    /// The consumer asks at the very moment at which the server would go on without it.
    pub wakes_up_first: Cell<bool>,
    pub cursor: Cell<u64>,
    pub leases: Cell<u32>,
    /// The join since which the server counts it.
    pub counted: Cell<u64>,
}

pub(crate) type Page = Rc<PageWords>;

impl MemberPage for Page {
    fn position(&self, _join: u64) -> Option<(u64, u64)> {
        self.position.get()
    }

    fn is_waiting(&self) -> bool {
        self.is_waiting.get()
    }

    fn is_resting(&self) -> bool {
        self.is_resting.get()
    }

    fn cut_off(&self) -> bool {
        self.is_resting.get() && !self.wakes_up_first.get()
    }

    fn count(&self, join: u64) {
        self.counted.set(join);
    }

    fn cursor(&self) -> u64 {
        self.cursor.get()
    }

    fn leases(&self) -> u32 {
        self.leases.get()
    }
}

/// A process, by its number, that dies when it is told to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pid(pub u32, pub Rc<Cell<bool>>);

impl Process for Pid {
    fn pid(&self) -> u32 {
        self.0
    }

    fn is_dead(&self) -> bool {
        self.1.get()
    }

    fn is_watched(&self) -> bool {
        true
    }
}

/// What a consumer sees, and what it wrote last.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub head: Head,
    /// Its join, its epoch and its cursor.
    pub entered: Cell<Option<(u64, u64, u64)>>,
    pub advanced: Cell<Option<(u64, u64)>>,
    pub rests: Cell<bool>,
    pub was_cut_off: Cell<bool>,
    pub skipped: Cell<u64>,
    /// How many samples the source's batches have.
    pub source_batch: Cell<u64>,
}

impl HeadView for Memory {
    fn head(&self) -> u64 {
        HeadView::head(&self.head)
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        self.head.entry_of(epoch)
    }

    fn ended(&self) -> u64 {
        self.head.ended()
    }

    fn oldest(&self) -> u64 {
        self.head.oldest()
    }

    fn fastest(&self) -> u64 {
        self.head.fastest()
    }

    fn generation(&self) -> u32 {
        self.head.generation()
    }

    fn state(&self) -> FeedState {
        self.head.state()
    }

    fn joined(&self) -> u32 {
        self.head.joined()
    }

    fn slowest(&self) -> u64 {
        self.head.slowest()
    }

    fn length(&self) -> EpochLength {
        HeadView::length(&self.head)
    }

    fn wanted(&self) -> u64 {
        self.head.wanted()
    }
}

impl ConsumerMemory for Memory {
    fn enter(&self, join: u64, epoch: u64, cursor: u64) {
        self.entered.set(Some((join, epoch, cursor)));
    }

    fn advance(&self, epoch: u64, cursor: u64) {
        self.advanced.set(Some((epoch, cursor)));
    }

    fn rest(&self) {
        self.rests.set(true);
    }

    fn wake(&self) -> bool {
        self.rests.set(false);
        !self.was_cut_off.replace(false)
    }

    fn set_skipped(&self, samples: u64) {
        self.skipped.set(samples);
    }

    fn source_batch_at(&self, sample: u64, _lead: u64) -> Option<u64> {
        let batch = self.source_batch.get().max(1);
        Some(batch - sample % batch)
    }
}
