//! The shared pages: words that one side writes and the other sees late, in the order in which they were written.
//!
//! A reader sees a prefix of all that was written. Each read may show more of it, or not; a fence, or a message that was sent
//! after a write, shows all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use feedline_protocol::page::{EPOCH_ENDS, HeadPage, HeadView, MemberPage};
use feedline_protocol::{EpochLength, FeedState, UNKNOWN};

use crate::rng::Rng;

/// What one side wrote, in order.
#[derive(Debug)]
struct Stores(RefCell<Vec<(u8, u64)>>);

impl Default for Stores {
    fn default() -> Self {
        Self(RefCell::new(Vec::with_capacity(512)))
    }
}

impl Stores {
    fn write(&self, word: u8, value: u64) {
        self.0.borrow_mut().push((word, value));
    }
}

/// What the other side has seen of it.
#[derive(Debug)]
struct Seen<const WORDS: usize> {
    until: Cell<usize>,
    words: RefCell<[u64; WORDS]>,
    rng: Rc<Rng>,
}

impl<const WORDS: usize> Seen<WORDS> {
    fn new(initial: [u64; WORDS], rng: &Rc<Rng>) -> Self {
        Self { until: Cell::new(0), words: RefCell::new(initial), rng: Rc::clone(rng) }
    }

    fn see(&self, stores: &Stores, at_most: usize) {
        let stores = stores.0.borrow();
        let until = stores.len().min(self.until.get().saturating_add(at_most));
        let mut words = self.words.borrow_mut();
        for &(word, value) in &stores[self.until.get()..until] {
            words[word as usize] = value;
        }
        self.until.set(until);
    }

    fn see_all(&self, stores: &Stores) {
        self.see(stores, usize::MAX);
    }

    fn read(&self, stores: &Stores, word: u8) -> u64 {
        if self.until.get() < stores.0.borrow().len() {
            match self.rng.below(4) {
                0 => self.see_all(stores),
                1 => self.see(stores, self.rng.within(1, 3) as usize),
                _ => {}
            }
        }
        self.words.borrow()[word as usize]
    }
}

const HEAD: u8 = 0;
const ENDED: u8 = 1;
const OLDEST: u8 = 2;
const FASTEST: u8 = 3;
const GENERATION: u8 = 4;
const STATE: u8 = 5;
const JOINED: u8 = 6;
const SLOWEST: u8 = 7;
const SAMPLES: u8 = 8;
const BATCHES: u8 = 9;
const TAIL: u8 = 10;
const WANTED: u8 = 11;
const ENDS: u8 = 12;
const HEAD_WORDS: usize = ENDS as usize + EPOCH_ENDS as usize;

fn head_words() -> [u64; HEAD_WORDS] {
    let mut words = [0; HEAD_WORDS];
    for word in [SAMPLES, BATCHES, TAIL, WANTED] {
        words[word as usize] = UNKNOWN;
    }
    words[ENDS as usize..].fill(UNKNOWN);
    words
}

/// The head page of one server.
#[derive(Debug, Default)]
pub struct Head {
    /// Whose it is.
    pub server: u32,
    stores: Stores,
    length: Cell<Option<EpochLength>>,
    /// Counts announcements that found a consumer waiting: all of them wake up.
    wakes: Cell<u64>,
}

impl Head {
    pub fn new(server: u32) -> Self {
        Self { server, ..Self::default() }
    }

    pub fn wakes(&self) -> u64 {
        self.wakes.get()
    }
}

impl HeadPage for Head {
    fn publish(&self, head: u64) {
        self.stores.write(HEAD, head);
    }

    fn end_epoch(&self, epoch: u64, end: u64) {
        self.stores.write(ENDS + (epoch % EPOCH_ENDS) as u8, end);
        self.stores.write(ENDED, epoch + 1);
    }

    fn forget_before(&self, oldest: u64, fastest: u64) {
        self.stores.write(FASTEST, fastest);
        self.stores.write(OLDEST, oldest);
    }

    fn set_length(&self, length: EpochLength) {
        self.length.set(Some(length));
        self.stores.write(SAMPLES, length.samples);
        self.stores.write(BATCHES, length.batches);
        self.stores.write(TAIL, length.tail);
    }

    fn length(&self) -> EpochLength {
        self.length.get().unwrap_or(EpochLength::UNKNOWN)
    }

    fn set_generation(&self, generation: u32) {
        self.stores.write(GENERATION, generation.into());
    }

    fn set_state(&self, state: FeedState) {
        self.stores.write(STATE, state.word().into());
    }

    fn set_joined(&self, joined: u32) {
        self.stores.write(JOINED, joined.into());
    }

    fn set_slowest(&self, epoch: u64) {
        self.stores.write(SLOWEST, epoch);
    }

    fn want(&self, sample: u64) {
        self.stores.write(WANTED, sample);
    }

    fn want_nothing(&self) {
        self.stores.write(WANTED, UNKNOWN);
    }

    fn announce(&self, is_anybody_waiting: impl FnOnce() -> bool) {
        if is_anybody_waiting() {
            self.wakes.set(self.wakes.get() + 1);
        }
    }
}

/// What one consumer has seen of a head page.
#[derive(Debug)]
pub struct HeadReader {
    pub head: Rc<Head>,
    seen: Seen<HEAD_WORDS>,
}

impl HeadReader {
    pub fn new(head: &Rc<Head>, rng: &Rc<Rng>) -> Self {
        Self { head: Rc::clone(head), seen: Seen::new(head_words(), rng) }
    }

    fn read(&self, word: u8) -> u64 {
        self.seen.read(&self.head.stores, word)
    }

    /// A fence, or a message.
    pub fn see_all(&self) {
        self.seen.see_all(&self.head.stores);
    }
}

impl HeadView for HeadReader {
    fn head(&self) -> u64 {
        self.read(HEAD)
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        if epoch >= self.ended() {
            return UNKNOWN;
        }
        let end = self.read(ENDS + (epoch % EPOCH_ENDS) as u8);
        if epoch < self.first_known() { UNKNOWN } else { end }
    }

    fn ended(&self) -> u64 {
        self.read(ENDED)
    }

    fn oldest(&self) -> u64 {
        // Fenced on both sides: what was read before this call was there before what is seen now.
        self.see_all();
        self.read(OLDEST)
    }

    fn fastest(&self) -> u64 {
        self.read(FASTEST)
    }

    fn generation(&self) -> u32 {
        self.read(GENERATION) as u32
    }

    fn state(&self) -> FeedState {
        FeedState::from_word(self.read(STATE) as u32)
    }

    fn joined(&self) -> u32 {
        self.read(JOINED) as u32
    }

    fn slowest(&self) -> u64 {
        self.read(SLOWEST)
    }

    fn length(&self) -> EpochLength {
        EpochLength { samples: self.read(SAMPLES), batches: self.read(BATCHES), tail: self.read(TAIL) }
    }

    fn wanted(&self) -> u64 {
        self.read(WANTED)
    }
}

const JOIN: u8 = 0;
const RELEASED: u8 = 1;
const EPOCH: u8 = 2;
const WAITING: u8 = 3;
const CURSOR: u8 = 4;
const LEASES: u8 = 5;
const PAGE_WORDS: usize = 6;

/// A consumer is in an epoch, rests between two, or has lost its cursor while it rested: one word that both change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Awake,
    Resting,
    CutOff,
}

/// One consumer's own page.
#[derive(Debug, Default)]
pub struct CursorPage {
    stores: Stores,
    rest: Cell<Rest>,
    /// The join since which the server counts it.
    pub counted: Cell<u64>,
}

impl CursorPage {
    pub fn enter(&self, join: u64, epoch: u64, released: u64) {
        self.stores.write(CURSOR, released);
        self.stores.write(LEASES, 0);
        self.stores.write(EPOCH, epoch);
        self.stores.write(RELEASED, released);
        self.stores.write(JOIN, join);
    }

    pub fn release(&self, epoch: u64, released: u64) {
        self.stores.write(EPOCH, epoch);
        self.stores.write(RELEASED, released);
    }

    pub fn set_cursor(&self, cursor: u64) {
        self.stores.write(CURSOR, cursor);
    }

    pub fn set_leases(&self, leases: usize) {
        self.stores.write(LEASES, leases as u64);
    }

    pub fn set_waiting(&self, is_waiting: bool) {
        self.stores.write(WAITING, is_waiting.into());
    }

    pub fn rest(&self) {
        self.rest.set(Rest::Resting);
    }

    pub fn wake(&self) -> bool {
        self.rest.replace(Rest::Awake) != Rest::CutOff
    }
}

/// What the server has seen of a consumer's page.
#[derive(Debug)]
pub struct PageReader {
    page: Rc<CursorPage>,
    seen: Seen<PAGE_WORDS>,
}

impl PageReader {
    pub fn new(page: &Rc<CursorPage>, rng: &Rc<Rng>) -> Self {
        Self { page: Rc::clone(page), seen: Seen::new([0; PAGE_WORDS], rng) }
    }

    fn read(&self, word: u8) -> u64 {
        self.seen.read(&self.page.stores, word)
    }

    pub fn see_all(&self) {
        self.seen.see_all(&self.page.stores);
    }
}

impl MemberPage for PageReader {
    fn position(&self, join: u64) -> Option<(u64, u64)> {
        if self.read(JOIN) != join {
            return None;
        }
        let released = self.read(RELEASED);
        Some((self.read(EPOCH), released))
    }

    fn is_waiting(&self) -> bool {
        // Always looked at after a fence.
        self.seen.see_all(&self.page.stores);
        self.read(WAITING) != 0
    }

    fn is_resting(&self) -> bool {
        // An atomic that both sides change: acquired, so what was written before it is seen.
        self.seen.see_all(&self.page.stores);
        self.page.rest.get() == Rest::Resting
    }

    fn cut_off(&self) -> bool {
        let is_resting = self.page.rest.get() == Rest::Resting;
        if is_resting {
            self.page.rest.set(Rest::CutOff);
        }
        is_resting
    }

    fn count(&self, join: u64) {
        self.page.counted.set(join);
    }

    fn cursor(&self) -> u64 {
        self.read(CURSOR)
    }

    fn leases(&self) -> u32 {
        self.read(LEASES) as u32
    }
}
