//! The server's side of the arithmetic: what may be overwritten, and where a newcomer begins. Pure numbers.
//!
//! ```text
//!      oldest                    floor                 head          claimed
//!        │ history: still intact   │ somebody needs it   │ being filled │
//!  ──────┴─────────────────────────┴─────────────────────┴──────────────┴────▶ sample index
//!                                  └──────── at most `window` ──────────┘
//!        └──────────────────────── at most `capacity` ──────────────────┘
//! ```
//!
//! The window is what the user calls the ring, the rest of the capacity is the history. Who reads from the history (a late
//! joiner; anybody, under [`Lag::History`]) is bounded by the capacity, the others by the window.
//!
//! Invariant: nothing that a cursor still needs is ever overwritten, unless the policy is [`Lag::Skip`].

mod claims;
mod cursors;
mod passing;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::page::EPOCH_ENDS;
use claims::Claims;
pub use claims::{Committed, Run};
use cursors::Cursor;
pub use cursors::Gone;
pub use transfer::Transfer;

/// How many epochs the log can run ahead of the slowest consumer: the table must keep the ends from the one before that one's
/// epoch to the one after the newest.
pub const MOST_EPOCHS_AHEAD: u64 = EPOCH_ENDS - 3;

/// Batches of variable length begin at multiples of this, so that tensors in them are aligned.
pub const ALIGN_BYTES: u64 = 64;

/// Who waits for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lag {
    /// The fastest waits for the slowest once the window is full.
    #[default]
    Block,
    /// The fastest waits once the whole capacity is full.
    History,
    /// The log waits for the fastest only.
    Skip,
}

/// What the log does with its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Who waits for whom.
    pub lag: Lag,
    /// Nothing is ever overwritten: one epoch, for everybody, again and again.
    pub replay: bool,
    /// How many epochs the log may run ahead of the slowest consumer, or, under [`Lag::Skip`], of the fastest; at most
    /// [`MOST_EPOCHS_AHEAD`].
    pub epochs_ahead: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { lag: Lag::default(), replay: false, epochs_ahead: 2 }
    }
}

/// How much fits. In samples, and, where they are of variable length, in bytes too (0 otherwise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// In all.
    pub capacity: u64,
    /// Of it, the part that bounds how far consumers may be apart.
    pub window: u64,
    /// The byte lane.
    pub byte_lane: u64,
    /// Of it, the window.
    pub byte_window: u64,
}

impl Size {
    /// The same history behind a window of at least this.
    pub fn widened(self, window: u64, byte_window: u64) -> Self {
        let (more, more_bytes) = (window.saturating_sub(self.window), byte_window.saturating_sub(self.byte_window));
        Self {
            capacity: self.capacity.saturating_add(more),
            window: self.window + more,
            byte_lane: self.byte_lane.saturating_add(more_bytes),
            byte_window: self.byte_window + more_bytes,
        }
    }

    /// The same window with a history of at least this behind it.
    pub fn deepened(self, history: u64, history_bytes: u64) -> Self {
        let deep = |window: u64, history: u64| window.saturating_add(history);
        Self {
            capacity: self.capacity.max(deep(self.window, history)),
            byte_lane: self.byte_lane.max(if self.byte_lane > 0 { deep(self.byte_window, history_bytes) } else { 0 }),
            ..self
        }
    }
}

/// The state of one log.
#[derive(Debug, Default)]
pub struct Log {
    policy: Policy,
    size: Size,
    head: u64,
    claims: Claims,
    oldest: u64,
    /// The first sample of all.
    first: u64,
    /// Where each epoch from `first_epoch` on began; `None` for one that was abandoned.
    starts: VecDeque<Option<u64>>,
    first_epoch: u64,
    writing: bool,
    cursors: BTreeMap<u64, Cursor>,
    last_running: u64,
    bytes: Option<ByteLane>,
}

/// Byte positions of samples of variable length.
#[derive(Debug, Default)]
struct ByteLane {
    /// Where what was claimed ends.
    end_bytes: u64,
    /// Where each sample from `oldest` on begins, those that are being filled included.
    starts: VecDeque<u64>,
}

/// How far apart the head and a cursor may be.
#[derive(Clone, Copy)]
struct Reach {
    samples: u64,
    bytes: u64,
}

impl Log {
    /// An empty log without room.
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Goes on in the middle of an epoch: a log of an earlier process had come this far.
    pub fn resume(&mut self, epoch: u64, index: u64) {
        debug_assert_eq!(self.head, 0);
        (self.head, self.oldest, self.first) = (index, index, index);
        (self.first_epoch, self.last_running) = (epoch, epoch);
    }

    /// Gives a log that has nothing in it yet its size.
    pub fn shape(&mut self, size: Size) {
        debug_assert_eq!(self.head, self.oldest);
        self.size = size;
        self.bytes = (size.byte_lane > 0).then(ByteLane::default);
    }

    /// Makes room: the ring was replaced by a larger one that holds all intact samples.
    pub fn grow(&mut self, size: Size) {
        debug_assert!(size.capacity >= self.size.capacity && size.byte_lane >= self.size.byte_lane);
        self.size = size;
    }

    /// What it does with its samples.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How much fits.
    pub fn size(&self) -> Size {
        self.size
    }

    /// One past the newest published sample.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The oldest sample whose bytes are intact.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The epoch that is being written, or will be next if none is.
    pub fn epoch(&self) -> u64 {
        let begun = self.begun();
        if self.writing { begun - 1 } else { begun }
    }

    fn begun(&self) -> u64 {
        self.first_epoch + self.starts.len() as u64
    }

    /// Where sample `sample`, still intact, begins in the byte lane.
    pub fn byte_start(&self, sample: u64) -> Option<u64> {
        let index = sample.checked_sub(self.oldest)?;
        self.bytes.as_ref()?.starts.get(usize::try_from(index).ok()?).copied()
    }

    /// Where in the byte lane intact samples begin and end; `None` without a lane or without samples.
    pub fn bytes_of(&self, samples: Range<u64>) -> Option<Range<u64>> {
        let end = self.byte_start(samples.end).or(self.bytes.as_ref().map(|lane| lane.end_bytes));
        Some(self.byte_start(samples.start)?..end?).filter(|_| !samples.is_empty())
    }

    /// The earliest epoch that anybody reads or waits for.
    pub fn slowest_epoch(&self) -> u64 {
        self.cursors.values().map(|cursor| cursor.epoch).min().unwrap_or(self.last_running)
    }

    /// The epoch that the log must not run too far ahead of.
    fn epoch_to_wait_for(&self) -> u64 {
        let fastest = || self.cursors.values().map(|cursor| cursor.epoch).max();
        let skipping = (self.policy.lag == Lag::Skip).then(fastest).flatten();
        skipping.unwrap_or_else(|| self.slowest_epoch())
    }

    /// Whether the next epoch may begin. If nobody is here, it is counted from the epoch that whoever comes would begin with.
    pub fn can_begin_epoch(&self) -> bool {
        !self.is_too_far_behind(self.epoch_to_wait_for())
    }

    /// Whether the next epoch would be too far ahead of one in this.
    fn is_too_far_behind(&self, epoch: u64) -> bool {
        self.epoch() > epoch.saturating_add(self.policy.epochs_ahead.min(MOST_EPOCHS_AHEAD))
    }

    /// The sample that the slowest must have come to before the next epoch may begin.
    pub fn wanted_for_epoch(&self) -> u64 {
        let ahead = self.policy.epochs_ahead.min(MOST_EPOCHS_AHEAD);
        self.epoch().checked_sub(ahead).and_then(|epoch| self.start_of(epoch)).unwrap_or(0)
    }

    /// Whether everybody waits for a later epoch than the next.
    pub fn would_jump(&self) -> bool {
        let epochs = self.cursors.values().map(|cursor| cursor.epoch);
        !self.writing
            && epochs.min().is_some_and(|epoch| epoch > self.begun())
            && self.cursors.values().all(|cursor| cursor.released.is_none())
    }

    /// If so, goes there. True if it did.
    pub fn jump(&mut self) -> bool {
        let is_wanted = self.would_jump();
        if is_wanted {
            self.starts.clear();
            self.first_epoch = self.slowest_epoch();
        }
        is_wanted
    }

    /// Begins an epoch at the head; whoever waited for it stands there now. `had` samples of it came before this log.
    pub fn begin_epoch(&mut self, had: u64) {
        debug_assert!(!self.writing && had <= self.head && self.claims.is_empty());
        let epoch = self.epoch();
        let start = self.head - had;
        self.starts.push_back(Some(start));
        self.writing = true;
        for cursor in self.cursors.values_mut() {
            if cursor.released.is_none() && cursor.epoch <= epoch {
                cursor.released = Some(self.head);
            }
        }
        let needed = self.epoch_to_wait_for().min(epoch);
        // Of an epoch that nobody reads any more, samples may still be there for somebody who comes back.
        while self.first_epoch < needed
            && (self.starts[1].is_some_and(|next| next <= self.oldest) || self.first_epoch + MOST_EPOCHS_AHEAD < epoch)
        {
            self.starts.pop_front();
            self.first_epoch += 1;
        }
    }

    /// Ends the epoch that is being written, all of which is published.
    pub fn end_epoch(&mut self) {
        debug_assert!(self.writing && self.claims.is_empty());
        self.writing = false;
    }

    /// Ends the epoch that is being written because nobody needs the rest. What is being filled will not be published.
    pub fn abandon_epoch(&mut self) {
        debug_assert!(self.writing);
        self.writing = false;
        if let Some(last) = self.starts.back_mut() {
            *last = None;
        }
        self.give_back_all();
    }

    /// What bounds one that reads from the history.
    fn whole(&self) -> Reach {
        Reach { samples: self.size.capacity, bytes: self.size.byte_lane }
    }

    /// What bounds the others.
    fn ring(&self) -> Reach {
        Reach { samples: self.size.window, bytes: self.size.byte_window }
    }

    /// How far one must have released before `need` more samples, in `need_bytes` of the byte lane, can be claimed.
    fn wanted_of(&self, reach: Reach, need: u64, need_bytes: u64) -> u64 {
        let by_count = (self.claimed() + need).saturating_sub(reach.samples);
        let by_bytes = self.bytes.as_ref().map_or(0, |lane| {
            let first_byte = (lane.next_start() + need_bytes).saturating_sub(reach.bytes);
            let gone = lane.starts.partition_point(|&start| start < first_byte) as u64;
            if first_byte > 0 && gone == lane.starts.len() as u64 { self.claimed() } else { self.oldest + gone }
        });
        by_count.max(by_bytes)
    }

    /// Those who must release something before `need` more samples can be claimed: the oldest sample that each needs, and
    /// the one that it must come to.
    pub fn in_the_way(&self, need: u64, need_bytes: u64) -> Vec<InTheWay> {
        if self.policy.replay {
            return Vec::new();
        }
        let near = self.wanted_of(self.ring(), need, need_bytes);
        // No reach is shorter than the window.
        if self.cursors.values().all(|cursor| cursor.released.is_none_or(|released| released >= near)) {
            return Vec::new();
        }
        let far = self.wanted_of(self.whole(), need, need_bytes);
        // Nobody reads further ahead than this one, and the log is no further ahead of it than the window. So a consumer that
        // is alone in the history doesn't use that up. If another waits for its epoch, the log goes on for that one's sake.
        let fastest = self.cursors.values().filter_map(|cursor| cursor.released).max();
        let anybody_waits = self.cursors.values().any(|cursor| cursor.released.is_none());
        let wanted_of = |cursor: &Cursor| match self.policy.lag {
            Lag::Block if cursor.is_behind && (anybody_waits || cursor.released != fastest) => far,
            Lag::Block => near,
            Lag::History if anybody_waits || cursor.released != fastest => far,
            Lag::History => near,
            Lag::Skip if cursor.released == fastest => near,
            Lag::Skip => 0,
        };
        let blocked = self.cursors.iter().filter_map(|(&id, cursor)| {
            let (released, wanted) = (cursor.released?, wanted_of(cursor));
            (released < wanted).then_some(InTheWay { id, released, wanted })
        });
        blocked.collect()
    }

    /// With nobody there: whether more would be of use to whoever comes, and fits the window.
    fn is_of_use(&self, need: u64, need_bytes: u64) -> bool {
        let floor = match self.start_of(self.last_running) {
            _ if self.policy.replay => 0,
            Some(start) if start >= self.oldest => start,
            // Whoever comes back has had what an earlier process produced of this epoch.
            Some(_) if self.oldest == self.first => self.first,
            _ => return false,
        };
        floor >= self.wanted_of(self.ring(), need, need_bytes)
    }

    /// Whether `need` more samples, in `need_bytes` of the byte lane, may be claimed now.
    fn has_room(&self, need: u64, need_bytes: u64) -> bool {
        if self.cursors.is_empty() {
            self.is_of_use(need, need_bytes)
        } else {
            !self.is_abandoned() && self.in_the_way(need, need_bytes).is_empty()
        }
    }

    fn forget_before(&mut self, sample: u64) {
        let gone = sample.saturating_sub(self.oldest);
        self.oldest += gone;
        if let Some(lane) = &mut self.bytes {
            lane.starts.drain(..lane.starts.len().min(gone as usize));
        }
    }

    fn start_of(&self, epoch: u64) -> Option<u64> {
        let index = epoch.checked_sub(self.first_epoch)?;
        *self.starts.get(usize::try_from(index).ok()?)?
    }

    /// Which epoch a sample belongs to, and its number there.
    pub fn locate(&self, sample: u64) -> Option<(u64, u64)> {
        let index = self.starts.iter().rposition(|start| start.is_some_and(|start| start <= sample))?;
        Some((self.first_epoch + index as u64, sample - self.starts[index]?))
    }
}

/// One whose samples would be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTheWay {
    /// Who.
    pub id: u64,
    /// The oldest sample that it needs.
    pub released: u64,
    /// The one that it must come to.
    pub wanted: u64,
}

impl ByteLane {
    fn next_start(&self) -> u64 {
        self.end_bytes.checked_next_multiple_of(ALIGN_BYTES).expect("byte positions stay far below 2^64")
    }
}

#[cfg(test)]
mod epoch_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod tests;
