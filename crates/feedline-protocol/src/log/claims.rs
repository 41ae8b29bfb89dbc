//! Runs of the log that are being filled. Several may be open at once; they are published in order.
//!
//! ```text
//!  claim ──▶ filling ──commit──▶ filled ──all before it are published──▶ published
//!               └──give back──▶ gone, and all behind it with it: the log goes on from its first sample
//! ```
//!
//! A run that is given back leaves a hole that nothing behind it can be published over. So what is behind it is not published
//! either: runs that are filled already are gone at once, those that are still being filled when they are committed or given
//! back. Only then is anything claimed again, because until then somebody may write there.

use std::collections::VecDeque;
use std::ops::Range;

use super::Log;

/// Samples that one claim covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first of them.
    pub first: u64,
    /// How many.
    pub samples: u64,
    /// The number of the first in its epoch.
    pub index: u64,
    /// Where they begin in the byte lane (0 without one).
    pub byte_start: u64,
}

/// What became of a run that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The head has moved over it.
    Published,
    /// It waits for those before it.
    Waiting,
    /// It will not be published: a run before it was given back.
    Gone,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.samples
    }
}

/// The runs that are not published yet, in order.
#[derive(Debug, Default)]
pub(super) struct Claims {
    runs: VecDeque<Claimed>,
    /// Where the earliest run that was given back began, until all behind it are back too.
    broken_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Claimed {
    run: Run,
    state: State,
    /// Where the byte lane ended before it.
    end_bytes_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Somebody may write there.
    Filling,
    /// It waits for those before it.
    Filled,
    /// It will not be published.
    Gone,
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The run that begins with `first` and is being filled. Claims are few: looking from the front is the quickest.
    fn filling(&mut self, first: u64) -> Option<usize> {
        self.runs.iter().position(|claimed| claimed.run.first == first && claimed.state == State::Filling)
    }
}

impl Log {
    /// One past the newest sample that is claimed.
    pub fn claimed(&self) -> u64 {
        self.claims.runs.back().map_or(self.head, |claimed| claimed.run.end())
    }

    /// Whether samples are being filled.
    pub fn is_filling(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Whether a run was given back, and somebody still fills what is behind it: nothing can be claimed until then.
    pub fn is_broken(&self) -> bool {
        self.claims.broken_at.is_some()
    }

    /// Runs that are filled and wait for those before them.
    pub(super) fn filled(&self) -> impl Iterator<Item = Range<u64>> {
        let filled = self.claims.runs.iter().filter(|claimed| claimed.state == State::Filled);
        filled.map(|claimed| claimed.run.first..claimed.run.end())
    }

    /// Claims the next `need` samples for writing, if there is room for them.
    pub fn claim(&mut self, need: u64, need_bytes: u64) -> Option<Run> {
        if self.claims.broken_at.is_some() || !self.has_room(need, need_bytes) {
            return None;
        }
        let oldest = self.wanted_of(self.whole(), need, need_bytes);
        debug_assert!(!self.policy.replay || oldest == 0, "a log that keeps everything grows before it is full");
        let first = self.claimed();
        self.forget_before(oldest);
        let (mut byte_start, mut end_bytes_before) = (0, 0);
        if let Some(lane) = &mut self.bytes {
            (byte_start, end_bytes_before) = (lane.next_start(), lane.end_bytes);
            lane.end_bytes = byte_start + need_bytes;
            lane.starts.push_back(byte_start);
        }
        let start = self.starts.back().copied().flatten().unwrap_or(first);
        let run = Run { first, samples: need, index: first - start, byte_start };
        self.claims.runs.push_back(Claimed { run, state: State::Filling, end_bytes_before });
        Some(run)
    }

    /// The run that begins with `first` is filled.
    pub fn commit(&mut self, first: u64) -> Committed {
        let Some(index) = self.claims.filling(first) else { return Committed::Gone };
        if self.claims.broken_at.is_some_and(|broken_at| first >= broken_at) {
            self.claims.runs[index].state = State::Gone;
            self.mend();
            return Committed::Gone;
        }
        self.claims.runs[index].state = State::Filled;
        let before = self.head;
        while let Some(front) = self.claims.runs.front().filter(|front| front.state == State::Filled) {
            self.head = front.run.end();
            self.claims.runs.pop_front();
        }
        if self.head > before { Committed::Published } else { Committed::Waiting }
    }

    /// The run that begins with `first` will not be filled: neither it nor what is behind it is published.
    pub fn give_back(&mut self, first: u64) {
        let Some(index) = self.claims.filling(first) else { return };
        self.claims.runs[index].state = State::Gone;
        self.break_at(first);
    }

    /// Nothing of what is being filled will be published.
    pub(super) fn give_back_all(&mut self) {
        self.break_at(self.head);
    }

    fn break_at(&mut self, sample: u64) {
        let broken_at = self.claims.broken_at.map_or(sample, |broken_at| broken_at.min(sample));
        self.claims.broken_at = Some(broken_at);
        let is_behind = |claimed: &&mut Claimed| claimed.run.first >= broken_at && claimed.state == State::Filled;
        self.claims.runs.iter_mut().filter(is_behind).for_each(|claimed| claimed.state = State::Gone);
        self.mend();
    }

    /// Goes on from where the log is broken, once nobody writes behind that.
    fn mend(&mut self) {
        let Some(broken_at) = self.claims.broken_at else { return };
        let kept = self.claims.runs.partition_point(|claimed| claimed.run.first < broken_at);
        if self.claims.runs.range(kept..).any(|claimed| claimed.state == State::Filling) {
            return;
        }
        if let (Some(lane), Some(first)) = (&mut self.bytes, self.claims.runs.get(kept)) {
            lane.end_bytes = first.end_bytes_before;
            lane.starts.truncate(broken_at.saturating_sub(self.oldest) as usize);
        }
        self.claims.runs.truncate(kept);
        self.claims.broken_at = None;
    }
}

#[cfg(test)]
mod tests;
