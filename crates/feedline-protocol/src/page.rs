//! The shared pages as the state machines see them: words that one side writes and the other reads, at any moment.
//!
//! In production they are atomics in shared memory (`feedline-shm`), in the simulator plain numbers that become visible late.
//! What is written first is seen first; nothing else is promised, but for the two fences that are named here.

use crate::message::{EpochLength, FeedState, UNKNOWN};

/// The length of the table of epoch ends.
pub const EPOCH_ENDS: u64 = 64;

/// The end of an epoch that was abandoned: whoever was in it has been detached, and may not know yet.
pub const ABANDONED: u64 = u64::MAX - 1;

/// Marks, in the table, where an epoch was abandoned. No position is that large.
const ABANDONED_BIT: u64 = 1 << 63;

/// The head page, as consumers read it.
pub trait HeadView {
    /// One past the newest published sample.
    fn head(&self) -> u64;
    /// An epoch's entry in the table of ends, or [`UNKNOWN`]. Load the head first: an end that bounds it is then seen.
    fn entry_of(&self, epoch: u64) -> u64;
    /// Where an epoch ended, or [`UNKNOWN`], or [`ABANDONED`].
    fn end_of(&self, epoch: u64) -> u64 {
        match self.entry_of(epoch) {
            UNKNOWN => UNKNOWN,
            entry if entry & ABANDONED_BIT != 0 => ABANDONED,
            end => end,
        }
    }
    /// Where an epoch begins, or [`UNKNOWN`]: where the one before it ended, or was abandoned.
    fn start_of(&self, epoch: u64) -> u64 {
        match epoch.checked_sub(1).map_or(0, |before| self.entry_of(before)) {
            UNKNOWN => UNKNOWN,
            entry => entry & !ABANDONED_BIT,
        }
    }
    /// How many epochs have ended.
    fn ended(&self) -> u64;
    /// The first epoch whose end is still in the table.
    fn first_known(&self) -> u64 {
        (self.ended() + 1).saturating_sub(EPOCH_ENDS)
    }
    /// The first sample that was intact when all that was read before this call was read.
    fn oldest(&self) -> u64;
    /// Where the fastest reader was when something was last overwritten.
    fn fastest(&self) -> u64;
    /// Which ring holds the samples before a head that was loaded before this.
    fn generation(&self) -> u32;
    /// What became of the server.
    fn state(&self) -> FeedState;
    /// How many consumers have a cursor, or had when the server died.
    fn joined(&self) -> u32;
    /// The earliest epoch that one of them is in.
    fn slowest(&self) -> u64;
    /// How long an epoch is.
    fn length(&self) -> EpochLength;
    /// The sample whose release the server waits for, or [`UNKNOWN`].
    fn wanted(&self) -> u64;
}

/// The head page, as the server writes it.
pub trait HeadPage {
    /// Makes samples before `head` visible.
    fn publish(&self, head: u64);
    /// Tells where an epoch ended, and that all before it have.
    fn end_epoch(&self, epoch: u64, end: u64);
    /// Tells that an epoch ends here because nobody reads it any more.
    fn abandon_epoch(&self, epoch: u64, end: u64) {
        self.end_epoch(epoch, end | ABANDONED_BIT);
    }
    /// Tells what is about to be overwritten, before it is, and where the fastest reader is.
    fn forget_before(&self, oldest: u64, fastest: u64);
    /// Tells how long an epoch is.
    fn set_length(&self, length: EpochLength);
    /// What [`Self::set_length`] told last.
    fn length(&self) -> EpochLength;
    /// Tells that the ring was replaced, before anything is published in the new one.
    fn set_generation(&self, generation: u32);
    /// Tells what became of the server.
    fn set_state(&self, state: FeedState);
    /// Tells how many consumers have a cursor.
    fn set_joined(&self, joined: u32);
    /// Tells which epoch the slowest of them is in.
    fn set_slowest(&self, epoch: u64);
    /// Announces that the server is about to sleep until somebody has released `sample`; fenced. Check again after this.
    fn want(&self, sample: u64);
    /// Withdraws [`Self::want`].
    fn want_nothing(&self);
    /// Ends a change: fenced; then, if a consumer sleeps, wakes all.
    fn announce(&self, is_anybody_waiting: impl FnOnce() -> bool);
}

/// A consumer's page, as the server reads it. Nothing in it is believed unchecked.
pub trait MemberPage {
    /// The consumer's epoch, and the oldest sample that it needs. `None` while the words are those of another join.
    fn position(&self, join: u64) -> Option<(u64, u64)>;
    /// Whether it sleeps for want of data.
    fn is_waiting(&self) -> bool;
    /// Whether it has read an epoch and not asked for the next.
    fn is_resting(&self) -> bool;
    /// The server goes on without it, if it still rests: one of the two comes first.
    fn cut_off(&self) -> bool;
    /// Tells the consumer that [`HeadPage::set_joined`] counts it since this join: should the server die before it answers, the
    /// consumer knows whether the next server waits for it.
    fn count(&self, join: u64);
    /// One past the newest sample that it took.
    fn cursor(&self) -> u64;
    /// How many leases it holds.
    fn leases(&self) -> u32;
}

/// A process at the other end of a connection.
pub trait Process: Clone {
    /// Its number, for people.
    fn pid(&self) -> u32;
    /// Whether it has died.
    fn is_dead(&self) -> bool;
    /// Whether [`Self::is_dead`] can tell. If not, the end of its connection does.
    fn is_watched(&self) -> bool;
}

/// What a consumer reads and writes without asking anybody: the head page, its own page with its leases, and the ring.
pub trait ConsumerMemory: HeadView {
    /// Takes the place that the server gave for a join.
    fn enter(&self, join: u64, epoch: u64, cursor: u64);
    /// Moves the cursor on without a lease: a copied batch, a dropped tail, the next epoch.
    fn advance(&self, epoch: u64, cursor: u64);
    /// It has read an epoch and not asked for the next.
    fn rest(&self);
    /// It asks. False if the server went on without it meanwhile.
    fn wake(&self) -> bool;
    /// Tells how many samples were overwritten before they could be taken, in all.
    fn set_skipped(&self, samples: u64);
    /// How many samples of its source batch are left from a published sample on, itself included. `None` if it was
    /// overwritten. The cursor counts `lead` samples more than the ring.
    fn source_batch_at(&self, sample: u64, lead: u64) -> Option<u64>;
}
