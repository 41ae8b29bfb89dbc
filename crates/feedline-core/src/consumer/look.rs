//! What there is to take at the cursor, and taking it.

use std::sync::atomic::Ordering;

use feedline_ring::signal::UNKNOWN;
use feedline_ring::{Hold, fault};

use super::shard::{self, Ahead, Shard, Step};
use super::{Check, Consumer, FAR};
use crate::batch::Received;
use crate::error::Error;

/// How often to look again at a page that changes meanwhile.
const LOOKS: usize = 10_000;

/// What there is to take.
pub(super) enum Look {
    /// A batch.
    Batch(Cut),
    /// The epoch ended at this sample.
    EpochOver(u64),
    Nothing,
}

/// A batch that can be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub first: u64,
    pub until: u64,
    /// Where the one after it begins: further on, if others share what lies around it.
    pub next: u64,
    /// None of this epoch comes after it. Told only where others share it.
    pub is_last: bool,
}

impl Consumer {
    /// What there is to take. Waits only for a ring that was announced.
    pub(super) fn look(&mut self, check: Check<'_>) -> Result<Look, Error> {
        for _ in 0..LOOKS {
            if let Some(look) = self.look_once(check)? {
                return Ok(look);
            }
        }
        Err(Error::Protocol(format!("the server of feed {:?} changes its mind without end", self.config.name)))
    }

    /// The same, or `None` if the server went on meanwhile.
    pub(super) fn look_once(&mut self, check: Check<'_>) -> Result<Option<Look>, Error> {
        let head = self.head.head();
        if head >= FAR {
            return Err(Error::Protocol(format!("the server of feed {:?} is at sample {head}", self.config.name)));
        }
        if self.head.generation() != self.view.generation() {
            self.adopt_ring(check)?;
            if !self.joined {
                return Ok(Some(Look::Nothing));
            }
        }
        if self.view.skips()
            && let Some(over) = self.skip(head)
        {
            return Ok(Some(over));
        }
        if self.cursor.is_none() {
            match self.epoch_in_log().checked_sub(1).map_or(0, |before| self.head.end_of(before)) {
                UNKNOWN => return Ok(Some(Look::Nothing)),
                start => self.enter_epoch(start),
            }
        }
        let mut cursor = self.cursor.expect("set just above");
        let end = self.head.end_of(self.epoch_in_log());
        if self.head.generation() != self.view.generation() {
            // We were away for long, and perhaps detached: the entry may be another epoch's by now.
            return Ok(None);
        }
        if self.view.skips() && self.epoch < self.head.first_known() {
            // It ended, and the log has gone on, while we looked.
            return Ok(None);
        }
        let there = head.min(end);
        if self.had > 0 && cursor < there {
            let had = self.had.min(there - cursor);
            (cursor, self.had) = (cursor + had, self.had - had);
            self.move_to(cursor);
        }
        if let Some(shard) = self.config.shard {
            let is_all = end != UNKNOWN && head >= end;
            return self.look_at_step(shard, Ahead { there: there.saturating_sub(cursor), is_all }, cursor).map(Some);
        }
        let want = match self.config.batch_size {
            Some(size) => size,
            None if cursor < there => match self.view.source_batch_at(cursor, self.hold()) {
                Some(want) => want,
                None => return Ok(None),
            },
            None => 1,
        };
        let is_tail = self.config.batch_size.is_none() && self.config.drop_last && want < self.view.source_batch();
        // A smaller batch may be the epoch's last: it is not if something follows it.
        let may_be_last = cursor.saturating_add(want) == if end == UNKNOWN { head } else { end };
        if there.saturating_sub(cursor) >= want && !(is_tail && may_be_last) {
            let until = cursor + want;
            return Ok(Some(Look::Batch(Cut { first: cursor, until, next: until, is_last: false })));
        }
        if end == UNKNOWN || head < end {
            return Ok(Some(Look::Nothing));
        }
        let last = Cut { first: cursor, until: end, next: end, is_last: false };
        Ok(Some(if cursor < end && !self.config.drop_last { Look::Batch(last) } else { Look::EpochOver(end) }))
    }

    /// Our slice of the next step, which begins at the cursor.
    pub(super) fn look_at_step(&mut self, shard: Shard, ahead: Ahead, cursor: u64) -> Result<Look, Error> {
        match self.step_at(shard, ahead, cursor) {
            Step::Take(samples) => {
                let (first, until) = shard.slice(samples);
                let (next, after) = (cursor + samples, Ahead { there: ahead.there - samples, ..ahead });
                let is_last = ahead.is_all && matches!(self.step_at(shard, after, next), Step::Over(_));
                Ok(Look::Batch(Cut { first: cursor + first, until: cursor + until, next, is_last }))
            }
            Step::Wait => Ok(Look::Nothing),
            Step::Over(left_out) => Ok(Look::EpochOver(cursor + left_out)),
            Step::TooFew(samples) => Err(self.too_few(samples, shard)),
        }
    }

    pub(super) fn step_at(&self, shard: Shard, ahead: Ahead, cursor: u64) -> Step {
        let (world, drop_last) = (shard.world(), self.config.drop_last);
        match self.config.step_size() {
            Some(full) => shard::cut(ahead, full, world, drop_last),
            None if self.view.is_cut() => {
                // Of one that was overwritten it doesn't matter: taking it will show that.
                let left_at = |at: u64| self.view.source_batch_at(cursor + at, self.hold()).unwrap_or(1);
                shard::own(ahead, self.view.source_batch(), world, drop_last, left_at)
            }
            None => shard::whole(ahead, world, drop_last, cursor == self.start),
        }
    }

    /// What keeps the samples from the cursor on in place.
    fn hold(&self) -> Hold<'_> {
        if self.view.skips() {
            return Hold::Nobody(&self.head);
        }
        Hold::Cursor { table: &self.table, lead: self.lead }
    }

    /// `None` if the batch was overwritten before it could be taken.
    pub(super) fn take(&mut self, Cut { first, until, next, is_last }: Cut) -> Result<Option<Received>, Error> {
        let was = self.view.manner();
        let received = if self.view.skips() {
            let Some(received) = self.view.take_unguarded(&self.head, first, until)? else { return Ok(None) };
            self.table.advance(self.epoch, until);
            received
        } else {
            // What other ranks take before us and after us is not ours to hold.
            if self.cursor != Some(first) {
                self.table.advance(self.epoch, first + self.lead);
            }
            let received = self.view.take(&self.table, (first, until, self.lead), self.epoch, &self.config.name)?;
            if until != next {
                self.table.advance(self.epoch, next + self.lead);
            }
            received
        };
        if self.view.manner() != was {
            self.report_mode();
        }
        fault::point("consumer:cut");
        (self.cursor, self.is_last) = (Some(next), is_last);
        (self.in_epoch, self.is_finished, self.may_be_over) = (true, false, false);
        self.taken = self.taken.map(|taken| taken + 1);
        self.pressure.handed_out(first + self.lead);
        self.stats.batches += 1;
        self.stats.samples += until - first;
        self.table.page().batches.store(self.stats.batches, Ordering::Relaxed);
        self.table.page().samples.store(self.stats.samples, Ordering::Relaxed);
        Ok(Some(received))
    }
}
