//! What there is to take at the cursor, and taking it.

use super::{Consumer, Cursor, Notice, Progress, State, Trouble};
use crate::message::{FAR, Join, UNKNOWN};
use crate::page::ConsumerMemory;
use crate::shard::{self, Ahead, Shard, Step};

/// How often a page is read again that changes meanwhile.
const MOST_ATTEMPTS: usize = 10_000;

/// What to do for the next batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Send this: it has no cursor.
    Join(Join),
    /// Wait for the answer to the last join.
    AwaitAnswer,
    /// Wait for the ring that the head page speaks of.
    AwaitRing,
    /// Take these samples, between [`Consumer::begin_take`] and [`Consumer::took`], and hand them out.
    Take(Cut),
    /// Hand out that the epoch is over.
    EpochOver,
    /// Wait for data.
    Wait,
    /// All passes over an epoch that is replayed were made.
    Ended,
}

/// What there is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    /// A batch.
    Batch(Cut),
    /// The epoch ended at this sample.
    EpochOver(u64),
    /// Nothing yet.
    Nothing,
    /// Samples in a ring that is not here yet.
    NewRing,
}

/// A batch that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its first sample.
    pub first: u64,
    /// One past its last.
    pub until: u64,
    /// Where the one after it begins: further on, if others share what lies around it.
    pub next: u64,
    /// None of this epoch comes after it. Told only where others share it.
    pub is_last: bool,
}

impl Consumer {
    /// What to do for the next batch. To be called again after each wait, and after a batch that was overwritten before it could
    /// be taken.
    pub fn next(&mut self, memory: &impl ConsumerMemory) -> Result<Next, Trouble> {
        loop {
            match &self.state {
                // At first, and when the server detached us.
                State::Idle(intent) => {
                    let intent = *intent;
                    return Ok(Next::Join(self.ask(intent)));
                }
                State::Joining(_) => return Ok(Next::AwaitAnswer),
                State::Joined(cursor) => {
                    if self.shape.replays && self.shape.epochs.is_some_and(|epochs| cursor.epoch >= epochs) {
                        return Ok(Next::Ended);
                    }
                }
            }
            match self.available(memory)? {
                Available::Batch(cut) if self.is_finished() => self.move_to(cut.next, memory),
                Available::Batch(cut) => return Ok(Next::Take(cut)),
                Available::EpochOver(end) => {
                    if !self.pass(end, memory) {
                        return Ok(Next::EpochOver);
                    }
                    self.wake(memory);
                }
                Available::Nothing => return Ok(Next::Wait),
                Available::NewRing => return Ok(Next::AwaitRing),
            }
        }
    }

    /// The source may yield more than it promised; whoever asks after the last batch wants the next epoch.
    pub(super) fn is_finished(&self) -> bool {
        matches!(&self.state, State::Joined(Cursor { progress: Progress::Finished, .. }))
    }

    /// What there is to take; nothing for a consumer without a cursor.
    pub fn available(&mut self, memory: &impl ConsumerMemory) -> Result<Available, Trouble> {
        for _ in 0..MOST_ATTEMPTS {
            if let Some(available) = self.try_available(memory)? {
                return Ok(available);
            }
        }
        Err(Trouble::Unsteady)
    }

    /// The same, or `None` if the server went on meanwhile.
    fn try_available(&mut self, memory: &impl ConsumerMemory) -> Result<Option<Available>, Trouble> {
        let head = memory.head();
        if head >= FAR {
            return Err(Trouble::ImpossibleHead(head));
        }
        if memory.generation() != self.shape.generation {
            return Ok(Some(Available::NewRing));
        }
        if self.shape.skips
            && let Some(over) = self.skip(head, memory)
        {
            return Ok(Some(over));
        }
        let State::Joined(Cursor { epoch, sample, .. }) = self.state else { return Ok(Some(Available::Nothing)) };
        let epoch = self.epoch_in_log(epoch);
        let mut cursor = match sample {
            Some(sample) => sample,
            None => match memory.start_of(epoch) {
                UNKNOWN => return Ok(Some(Available::Nothing)),
                start => {
                    self.enter_epoch(start, memory);
                    start
                }
            },
        };
        let end = memory.end_of(epoch);
        if memory.generation() != self.shape.generation {
            // We were away for long, and perhaps detached: the entry may be another epoch's by now.
            return Ok(None);
        }
        if self.shape.skips && epoch < memory.first_known() {
            // It ended, and the log has gone on, while we looked.
            return Ok(None);
        }
        let there = head.min(end);
        if let Some(Cursor { had, .. }) = self.cursor_mut()
            && *had > 0
            && cursor < there
        {
            let passed = (*had).min(there - cursor);
            *had -= passed;
            cursor += passed;
            self.move_to(cursor, memory);
        }
        if let Some(shard) = self.config.shard {
            let is_all = end != UNKNOWN && head >= end;
            let ahead = Ahead { there: there.saturating_sub(cursor), is_all };
            return self.available_step(shard, ahead, cursor, memory).map(Some);
        }
        let want = match self.config.batch_size {
            Some(size) => size,
            None if cursor < there && self.shape.is_cut => match memory.source_batch_at(cursor, self.lead()) {
                Some(want) => want,
                None => return Ok(None),
            },
            None => 1,
        };
        let is_tail = self.config.batch_size.is_none()
            && self.config.drop_last
            && self.shape.is_cut
            && want < self.shape.source_batch;
        // A smaller batch may be the epoch's last: it is not if something follows it.
        let may_be_last = cursor.saturating_add(want) == if end == UNKNOWN { head } else { end };
        if there.saturating_sub(cursor) >= want && !(is_tail && may_be_last) {
            let until = cursor + want;
            return Ok(Some(Available::Batch(Cut { first: cursor, until, next: until, is_last: false })));
        }
        if end == UNKNOWN || head < end {
            return Ok(Some(Available::Nothing));
        }
        let last = Cut { first: cursor, until: end, next: end, is_last: false };
        Ok(Some(if cursor < end && !self.config.drop_last {
            Available::Batch(last)
        } else {
            Available::EpochOver(end)
        }))
    }

    /// This rank's slice of the next step, which begins at the cursor.
    fn available_step(
        &mut self,
        shard: Shard,
        ahead: Ahead,
        cursor: u64,
        memory: &impl ConsumerMemory,
    ) -> Result<Available, Trouble> {
        match self.step_at(shard, ahead, cursor, memory) {
            Step::Take(samples) => {
                let (first, until) = shard.slice(samples);
                let (next, after) = (cursor + samples, Ahead { there: ahead.there - samples, ..ahead });
                let is_last = ahead.is_all && matches!(self.step_at(shard, after, next, memory), Step::Over(_));
                Ok(Available::Batch(Cut { first: cursor + first, until: cursor + until, next, is_last }))
            }
            Step::Wait => Ok(Available::Nothing),
            Step::Over(left_out) => Ok(Available::EpochOver(cursor + left_out)),
            Step::TooFew(samples) => Err(Trouble::TooFew { epoch: self.epoch(), samples }),
        }
    }

    fn step_at(&self, shard: Shard, ahead: Ahead, cursor: u64, memory: &impl ConsumerMemory) -> Step {
        let (world, drop_last) = (shard.world(), self.config.drop_last);
        match self.config.step_size() {
            Some(full) => shard::cut(ahead, full, world, drop_last),
            None if self.shape.is_cut => {
                // Of one that was overwritten it doesn't matter: taking it will show that.
                let left_at = |at: u64| memory.source_batch_at(cursor + at, self.lead()).unwrap_or(1);
                shard::own(ahead, self.shape.source_batch, world, drop_last, left_at)
            }
            None => {
                let is_first = matches!(&self.state, State::Joined(at) if at.start == cursor);
                shard::whole(ahead, world, drop_last, is_first)
            }
        }
    }

    /// Before a batch is taken: releases the part of the step that other ranks take before this one.
    pub fn begin_take(&self, cut: Cut, memory: &impl ConsumerMemory) {
        if let State::Joined(Cursor { epoch, sample, lead, .. }) = self.state
            && sample != Some(cut.first)
            && !self.shape.skips
        {
            memory.advance(epoch, cut.first + lead);
        }
    }

    /// A batch was taken. In the consumer's page, its cursor stands behind it.
    pub fn took(&mut self, cut: Cut, memory: &impl ConsumerMemory) {
        let skips = self.shape.skips;
        let Some(cursor) = self.cursor_mut() else { return };
        if skips {
            memory.advance(cursor.epoch, cut.until);
        } else if cut.until != cut.next {
            // Releases the part that other ranks take after this one, too.
            memory.advance(cursor.epoch, cut.next + cursor.lead);
        }
        cursor.sample = Some(cut.next);
        cursor.progress = Progress::Begun { was_last: cut.is_last };
        cursor.taken = cursor.taken.map(|taken| taken + 1);
    }

    /// The epoch is over. True if whoever asks had done with it before, and wants the next one.
    pub(super) fn pass(&mut self, end: u64, memory: &impl ConsumerMemory) -> bool {
        let State::Joined(Cursor { progress, .. }) = self.state else { return false };
        self.end_epoch(end, memory);
        matches!(progress, Progress::Finished | Progress::Fresh { may_be_over: true })
    }

    pub(super) fn end_epoch(&mut self, end: u64, memory: &impl ConsumerMemory) {
        self.leave_out(end);
        self.report_skipped();
        let replays = self.shape.replays;
        let State::Joined(cursor) = &mut self.state else { return };
        self.steps = cursor.taken.or(self.steps);
        cursor.epoch += 1;
        cursor.taken = Some(0);
        cursor.had = 0;
        cursor.progress = Progress::Fresh { may_be_over: false };
        if replays {
            cursor.lead += end;
        }
        self.enter_epoch(if replays { 0 } else { end }, memory);
        memory.rest();
    }

    /// The epoch begins at this sample, and so does the consumer.
    fn enter_epoch(&mut self, start: u64, memory: &impl ConsumerMemory) {
        if let Some(cursor) = self.cursor_mut() {
            cursor.start = start;
        }
        self.move_to(start, memory);
    }

    /// Moves the cursor on without a batch.
    pub(super) fn move_to(&mut self, sample: u64, memory: &impl ConsumerMemory) {
        if let Some(cursor) = self.cursor_mut() {
            cursor.sample = Some(sample);
            memory.advance(cursor.epoch, sample + cursor.lead);
        }
    }

    /// At an epoch's end: what of it can't be cut and was too little for all ranks.
    fn leave_out(&mut self, end: u64) {
        let State::Joined(Cursor { epoch, sample, .. }) = self.state else { return };
        let batches = end.saturating_sub(sample.unwrap_or(end));
        if batches == 0 || self.config.shard.is_none() || self.shape.is_cut {
            return;
        }
        if self.left_out == 0 {
            self.notices.push(Notice::LeftOut { batches, epoch });
        }
        self.left_out += batches;
    }
}
