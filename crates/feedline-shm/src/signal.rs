//! The shared words through which one server and its consumers tell each other of data and of free space.
//!
//! ```text
//! data:  publish ── head, tick ──▶ consumer sleeps on `tick` (futex)
//! space: release ── released ────▶ server sleeps until a doorbell rings; it rings once `released` reaches `wanted`
//! ```
//!
//! Each sleep is announced (`waiting`, `wanted`), fenced, and checked once more before it begins; each change is made,
//! fenced, and then the announcement looked at. So one of the two always sees the other: no wake-up is lost, and none is
//! sent for nothing. `tests/loom_model.rs` checks this over all interleavings.
//!
//! The head page is read-only for consumers: loads are relaxed, followed by an acquire fence, and [`HeadWords`] has no store
//! that they could call. Stores are [`WritableHeadWords`]'s, which only the server's end of the page gives.

use std::ops::Deref;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use feedline_protocol::page::EPOCH_ENDS;
use feedline_protocol::{EpochLength, UNKNOWN};

/// A consumer is in an epoch, or asks for one.
const AWAKE: u32 = 0;
/// It has read an epoch and not asked for the next.
const RESTING: u32 = 1;
/// The server has taken its cursor away while it rested.
const CUT_OFF: u32 = 2;

/// Written by the server alone, read by every consumer: what can be done with a page that is mapped read-only.
#[repr(C)]
#[derive(Debug)]
pub struct HeadWords {
    head: AtomicU64,
    /// Changes with everything that consumers may wait for; the futex that they sleep on.
    tick: AtomicU32,
    generation: AtomicU32,
    wanted: AtomicU64,
    /// What became of the server: a number that `feedline-core` gives its meaning.
    state: AtomicU32,
    /// How many consumers have a cursor.
    joined: AtomicU32,
    /// The earliest epoch that one of them is in.
    slowest: AtomicU64,
    epoch_samples: AtomicU64,
    epoch_batches: AtomicU64,
    epoch_tail: AtomicU64,
    /// Samples before this one may be overwritten under a reader that nobody waits for.
    oldest: AtomicU64,
    /// Where the fastest of these readers was then.
    fastest: AtomicU64,
    /// How many epochs have ended; the table below has the ends of the last of them.
    ended: AtomicU64,
    ends: [AtomicU64; EPOCH_ENDS as usize],
}

/// The same words in memory that this process may write to: the server's end.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct WritableHeadWords(HeadWords);

impl Deref for WritableHeadWords {
    type Target = HeadWords;

    fn deref(&self) -> &HeadWords {
        &self.0
    }
}

/// Written by one consumer, read by the server, which believes none of it unchecked.
#[repr(C)]
#[derive(Debug)]
pub struct CursorWords {
    /// Which join the words below belong to.
    join: AtomicU64,
    released: AtomicU64,
    epoch: AtomicU64,
    waiting: AtomicU32,
    /// For display only: how the consumer takes its batches, and how many leases it holds.
    pub mode: AtomicU32,
    /// Live leases.
    pub leases: AtomicU32,
    /// [`AWAKE`], [`RESTING`] or [`CUT_OFF`].
    rest: AtomicU32,
    /// Samples handed out up to here.
    pub cursor: AtomicU64,
    /// Batches handed out.
    pub batches: AtomicU64,
    /// And the samples in them.
    pub samples: AtomicU64,
    /// Time spent waiting for data.
    pub waited_nanos: AtomicU64,
    /// Samples that were overwritten before they were handed out.
    pub skipped: AtomicU64,
    /// Written by the server: the join since which it counts this consumer.
    counted: AtomicU64,
}

impl Default for HeadWords {
    fn default() -> Self {
        Self {
            head: AtomicU64::new(0),
            tick: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            wanted: AtomicU64::new(UNKNOWN),
            state: AtomicU32::new(0),
            joined: AtomicU32::new(0),
            slowest: AtomicU64::new(0),
            epoch_samples: AtomicU64::new(UNKNOWN),
            epoch_batches: AtomicU64::new(UNKNOWN),
            epoch_tail: AtomicU64::new(UNKNOWN),
            oldest: AtomicU64::new(0),
            fastest: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ends: std::array::from_fn(|_| AtomicU64::new(UNKNOWN)),
        }
    }
}

impl Default for CursorWords {
    fn default() -> Self {
        Self {
            join: AtomicU64::new(0),
            released: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            mode: AtomicU32::new(0),
            leases: AtomicU32::new(0),
            rest: AtomicU32::new(AWAKE),
            cursor: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }
}

fn slot(epoch: u64) -> usize {
    (epoch % EPOCH_ENDS) as usize
}

/// What the server does.
impl WritableHeadWords {
    /// Prepares the shared page before anybody else maps it.
    pub fn reset(&self) {
        self.wanted.store(UNKNOWN, Ordering::Relaxed);
        self.epoch_samples.store(UNKNOWN, Ordering::Relaxed);
        self.epoch_batches.store(UNKNOWN, Ordering::Relaxed);
        self.epoch_tail.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Makes samples before `head` visible. Follow with [`Self::advance_tick`].
    pub fn publish(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    /// Tells where an epoch ended, and that all before it have. Follow with [`Self::advance_tick`].
    pub fn end_epoch(&self, epoch: u64, end: u64) {
        self.ends[slot(epoch)].store(end, Ordering::Release);
        self.ended.store(epoch + 1, Ordering::Release);
    }

    /// Tells what is about to be overwritten, before it is, and where the fastest reader is.
    pub fn forget_before(&self, oldest: u64, fastest: u64) {
        self.fastest.store(fastest, Ordering::Relaxed);
        self.oldest.store(oldest, Ordering::Release);
        // Before the writes that follow. Pairs with the fence in `oldest`.
        fence(Ordering::Release);
    }

    /// Tells how long an epoch is.
    pub fn set_length(&self, length: EpochLength) {
        self.epoch_samples.store(length.samples, Ordering::Release);
        self.epoch_batches.store(length.batches, Ordering::Release);
        self.epoch_tail.store(length.tail, Ordering::Release);
    }

    /// Tells that the ring was replaced, before anything is published in the new one.
    pub fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Release);
    }

    /// Tells what became of the server. Follow with [`Self::advance_tick`].
    pub fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    /// Tells how many consumers have a cursor.
    pub fn set_joined(&self, joined: u32) {
        self.joined.store(joined, Ordering::Relaxed);
    }

    /// Tells which epoch the slowest of them is in.
    pub fn set_slowest(&self, epoch: u64) {
        self.slowest.store(epoch, Ordering::Relaxed);
    }

    /// Ends a change. A consumer that is seen to wait after this must be woken through the tick.
    pub fn advance_tick(&self) {
        self.tick.fetch_add(1, Ordering::Release);
        // Pairs with the fence in `CursorWords::prepare_wait`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the server is about to sleep until somebody has released `sample`. Check again after this.
    pub fn want(&self, sample: u64) {
        self.wanted.store(sample, Ordering::Relaxed);
        // Pairs with the fences in `CursorWords::release` and `CursorWords::prepare_wait`.
        fence(Ordering::SeqCst);
    }

    /// Withdraws [`Self::want`].
    pub fn want_nothing(&self) {
        self.wanted.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// What consumers read.
impl HeadWords {
    /// One past the newest sample. What was written before it is visible afterwards.
    pub fn head(&self) -> u64 {
        let head = self.head.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        head
    }

    /// Where an epoch ended, or [`UNKNOWN`]. Load the head first: an end that bounds it is then seen.
    pub fn end_of(&self, epoch: u64) -> u64 {
        if epoch >= self.ended() {
            return UNKNOWN;
        }
        let end = self.ends[slot(epoch)].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // The entry may be a later epoch's by now, if nobody waits for us.
        if epoch < self.first_known() { UNKNOWN } else { end }
    }

    /// How many epochs have ended.
    pub fn ended(&self) -> u64 {
        let ended = self.ended.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        ended
    }

    /// The first epoch whose end is still in the table.
    pub fn first_known(&self) -> u64 {
        (self.ended() + 1).saturating_sub(EPOCH_ENDS)
    }

    /// The first sample that was intact when all that was read before this call was read.
    pub fn oldest(&self) -> u64 {
        // After the reads that came before. Pairs with the fence in `forget_before`.
        fence(Ordering::Acquire);
        let oldest = self.oldest.load(Ordering::Relaxed);
        // And before those that come: the ends of epochs that are gone.
        fence(Ordering::Acquire);
        oldest
    }

    /// Where the fastest reader was when something was last overwritten.
    pub fn fastest(&self) -> u64 {
        self.fastest.load(Ordering::Relaxed)
    }

    /// Which ring holds the samples before a head that was loaded before this.
    pub fn generation(&self) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        generation
    }

    /// What became of the server.
    pub fn state(&self) -> u32 {
        let state = self.state.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        state
    }

    /// How many consumers have a cursor, or had when the server died.
    pub fn joined(&self) -> u32 {
        self.joined.load(Ordering::Relaxed)
    }

    /// The earliest epoch that one of them is in, or was when the server last published something.
    pub fn slowest(&self) -> u64 {
        self.slowest.load(Ordering::Relaxed)
    }

    /// How long an epoch is.
    pub fn length(&self) -> EpochLength {
        EpochLength {
            samples: self.epoch_samples.load(Ordering::Relaxed),
            batches: self.epoch_batches.load(Ordering::Relaxed),
            tail: self.epoch_tail.load(Ordering::Relaxed),
        }
    }

    /// The sample whose release the server waits for, or [`UNKNOWN`].
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The number that changes with everything that consumers may wait for.
    pub fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// The same as the kernel's futex. Not for other crates: a holder of the atomic can store to it.
    #[cfg(not(loom))]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.tick
    }
}

impl CursorWords {
    /// Takes the place that the server gave for its `join`; from now on it listens to [`Self::release`] again.
    pub fn enter(&self, join: u64, epoch: u64, released: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.released.store(released, Ordering::Relaxed);
        self.join.store(join, Ordering::Release);
    }

    /// Reports that everything before `released` may be overwritten; true if the server waits and must hear the bell.
    pub fn release(&self, head: &HeadWords, epoch: u64, released: u64) -> bool {
        self.epoch.store(epoch, Ordering::Relaxed);
        // Release: reads of the samples happen before the server's writes over them (its acquire is in `position`).
        self.released.store(released, Ordering::Release);
        // Pairs with the fence in `WritableHeadWords::want`.
        fence(Ordering::SeqCst);
        released >= head.wanted()
    }

    /// Announces a sleep. Returns the tick to sleep on and whether the server waits for space and must hear the bell.
    /// Check the condition again after this, then sleep, then call [`Self::end_wait`].
    pub fn prepare_wait(&self, head: &HeadWords) -> (u32, bool) {
        self.waiting.store(1, Ordering::Relaxed);
        // Pairs with the fences in `WritableHeadWords::advance_tick` and `WritableHeadWords::want`.
        fence(Ordering::SeqCst);
        let tick = head.tick();
        fence(Ordering::Acquire);
        (tick, head.wanted() != UNKNOWN)
    }

    /// Withdraws the announcement.
    pub fn end_wait(&self) {
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// The consumer has read an epoch and not asked for the next.
    pub fn rest(&self) {
        self.rest.store(RESTING, Ordering::Release);
    }

    /// It asks. False if the server went on without it meanwhile.
    pub fn wake(&self) -> bool {
        if self.rest.load(Ordering::Relaxed) == AWAKE {
            return true;
        }
        self.rest.swap(AWAKE, Ordering::AcqRel) != CUT_OFF
    }

    /// Whether it rests.
    pub fn is_resting(&self) -> bool {
        // Acquire: a caller that asks for its leases next must not see older ones.
        self.rest.load(Ordering::Acquire) == RESTING
    }

    /// The server goes on without it, if it still rests: one of the two comes first.
    pub fn cut_off(&self) -> bool {
        self.rest.compare_exchange(RESTING, CUT_OFF, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The server counts this consumer since this join, and has said so in the head page.
    pub fn count(&self, join: u64) {
        self.counted.store(join, Ordering::Release);
    }

    /// The join since which the server counts this consumer.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// What the consumer reports: its epoch, and the oldest sample that it needs. `None` while the words are still those of
    /// an older join, whose last tensors may yet die on any thread.
    pub fn position(&self, join: u64) -> Option<(u64, u64)> {
        if self.join.load(Ordering::Acquire) != join {
            return None;
        }
        let released = self.released.load(Ordering::Acquire);
        Some((self.epoch.load(Ordering::Relaxed), released))
    }

    /// Whether the consumer sleeps for want of data.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }
}
