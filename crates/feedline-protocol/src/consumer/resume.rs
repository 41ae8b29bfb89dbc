//! Going on where one was: with a saved place, after being detached, after the server was lost.

use super::{Available, Consumer, Cursor, Progress, Shape, State, Trouble};
use crate::consumer::joining::Intent;
use crate::message::{Mark, Others, UNKNOWN};
use crate::page::{ABANDONED, ConsumerMemory, HeadView};

/// Where to go on, and why there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    pub mark: Mark,
    pub cause: Cause,
}

/// Why a consumer asks for a place by its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// It is a saved place, or the epoch after one that was broken off.
    Asked,
    /// It had this place and lost it.
    Lost {
        /// How far it was with its epoch.
        progress: Progress,
        /// How long a consumer may stand still, if it was detached for that.
        stalled_secs: Option<f64>,
        /// Others that it belongs together with stay there: its ranks, or those who read from a server that was lost.
        is_bound: bool,
    },
}

impl Resume {
    /// A saved place.
    pub fn asked(mark: Mark) -> Self {
        Self { mark, cause: Cause::Asked }
    }

    /// Whether this very place is needed, not one like it.
    pub fn is_bound(&self) -> bool {
        matches!(self.cause, Cause::Lost { is_bound: true, .. })
    }

    pub fn stalled_secs(&self) -> Option<f64> {
        if let Cause::Lost { stalled_secs, .. } = self.cause { stalled_secs } else { None }
    }

    /// How far a consumer is with its epoch when it has its cursor again.
    pub fn progress(&self) -> Progress {
        match self.cause {
            // The place may be an epoch's end.
            Cause::Asked => Progress::Fresh { may_be_over: self.mark.index > 0 },
            Cause::Lost { progress: Progress::Finished, .. } => Progress::Fresh { may_be_over: true },
            Cause::Lost { progress, .. } => progress,
        }
    }
}

/// What a consumer does whose server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutServer {
    /// Hands out that its epoch is over.
    EpochOver,
    /// It had done with the epoch that was over, and looks again.
    Passed,
    /// Needs another server ([`Consumer::reconnect`]).
    Reconnect,
}

/// Samples that are no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The place that was asked for.
    pub mark: Mark,
    /// The first sample of its epoch that still is there, if any is.
    pub until: Option<u64>,
    /// A rank came too late: the others began there.
    pub is_late_rank: bool,
}

impl Consumer {
    /// The next sample that this consumer will get: where to go on after a crash.
    pub fn position(&self, head: &impl HeadView) -> Mark {
        let place = self.place();
        let State::Joined(cursor) = &self.state else { return place };
        // What a source promised, or the last epoch had, is not enough: this one may be longer.
        let is_known = self.config.shard.is_some() || head.end_of(self.epoch_in_log(cursor.epoch)) != UNKNOWN;
        let is_over = cursor.progress == Progress::Finished || (is_known && self.has_read_all(head));
        if is_over { Mark { epoch: place.epoch + 1, index: 0 } } else { place }
    }

    /// Where it stands in the epoch that it is in.
    pub fn place(&self) -> Mark {
        match &self.state {
            State::Idle(Intent { epoch, resume, .. }) | State::Joining(Intent { epoch, resume, .. }) => {
                resume.map_or(Mark { epoch: *epoch, index: 0 }, |resume| resume.mark)
            }
            State::Joined(cursor) => cursor.place(),
        }
    }

    /// Whether nothing of this epoch is left for it, as far as its length is known.
    pub fn has_read_all(&self, head: &impl HeadView) -> bool {
        let State::Joined(cursor) = &self.state else { return false };
        let (Progress::Begun { was_last }, Some(sample)) = (cursor.progress, cursor.sample) else { return false };
        if self.config.shard.is_some() {
            // All ranks must come to the same answer: what the source promised may turn out wrong for one of them.
            return was_last;
        }
        let length = head.length();
        let expected = if self.shape.is_cut { length.samples } else { length.batches };
        let left = match (head.end_of(self.epoch_in_log(cursor.epoch)), expected) {
            // It was detached without having heard of it: others read no further.
            (ABANDONED, _) => return false,
            (UNKNOWN, UNKNOWN) => return cursor.taken.is_some() && cursor.taken == self.batches_per_epoch(head),
            (UNKNOWN, expected) => expected.saturating_sub(cursor.place().index),
            (end, _) => end.saturating_sub(sample),
        };
        let size = self.config.batch_size.unwrap_or(if self.shape.is_cut { self.shape.source_batch } else { 1 });
        left == 0 || (self.config.drop_last && left < size)
    }

    /// Whether it is in the middle of an epoch, or was when it lost its cursor: what is left of it must come in the same order.
    pub fn is_inside(&self, head: &impl HeadView) -> bool {
        let has_place = match &self.state {
            State::Idle(intent) | State::Joining(intent) => intent.resume.is_some_and(|resume| resume.is_bound()),
            State::Joined(_) => true,
        };
        has_place && self.place().index > 0 && !self.has_read_all(head)
    }

    /// Goes on there, from the next batch on. If those samples are gone, asking for that batch says so. A consumer that has read
    /// nothing loses nothing: if the first epoch's beginning is gone, it begins like one that has just attached.
    ///
    /// True if a cursor is to be given back first.
    #[must_use]
    pub fn resume_at(&mut self, mark: Mark) -> bool {
        let had_cursor = self.leave();
        self.state = State::Idle(Intent { epoch: mark.epoch, resume: Some(Resume::asked(mark)), ..Intent::default() });
        had_cursor
    }

    /// The server has taken the cursor away. A rank goes on in that very place or not at all: the other ranks do. One that was in
    /// the middle of an epoch asks for its place; the log may have its samples still.
    pub(super) fn be_detached(&mut self, stalled_secs: Option<f64>, memory: &impl HeadView) {
        match &mut self.state {
            State::Joined(cursor) => {
                let (epoch, progress, place) = (cursor.epoch, cursor.progress, cursor.place());
                let has_begun = progress != Progress::Finished && (cursor.has_begun() || place.index > 0);
                let resume = if self.config.shard.is_some() {
                    let mark = self.position(memory);
                    // Of the next epoch, nothing was handed out.
                    let progress = if mark.epoch > epoch { Progress::Fresh { may_be_over: false } } else { progress };
                    Some(Resume { mark, cause: Cause::Lost { progress, stalled_secs, is_bound: true } })
                } else if has_begun {
                    let cause = Cause::Lost { progress, stalled_secs, is_bound: false };
                    Some(Resume { mark: place, cause })
                } else {
                    None
                };
                self.state = State::Idle(Intent { epoch, resume, ..Intent::default() });
            }
            // The consumer noticed it first, and hears now for how long it stood still.
            State::Idle(Intent { resume: Some(resume), .. }) | State::Joining(Intent { resume: Some(resume), .. }) => {
                if let Cause::Lost { stalled_secs: secs, .. } = &mut resume.cause {
                    *secs = stalled_secs.or(*secs);
                }
            }
            State::Idle(_) | State::Joining(_) => {}
        }
    }

    /// Another server of the same feed has come in the place of the one that was lost, whose process and head page these are, and
    /// which had `counted` this join of the consumer's ([`MemberPage::count`]). Tells where the consumer goes on, if it has a place.
    ///
    /// [`MemberPage::count`]: crate::page::MemberPage::count
    pub fn reconnect(&mut self, shape: Shape, server: u32, lost: &impl HeadView, counted: u64) -> Option<Mark> {
        let (mut intent, tells, is_one) = match &self.state {
            State::Idle(intent) => (*intent, intent.resume.is_some() || intent.others[0].is_some(), false),
            // The server may have counted it, and not come to answer.
            State::Joining(intent) => (*intent, true, counted == self.joins),
            State::Joined(cursor) => {
                let cause = Cause::Lost { progress: cursor.progress, stalled_secs: None, is_bound: true };
                let resume = Some(Resume { mark: cursor.place(), cause });
                (Intent { epoch: cursor.epoch, resume, ..Intent::default() }, true, true)
            }
        };
        if let Some(Resume { cause: Cause::Lost { stalled_secs, .. }, .. }) = &mut intent.resume {
            *stalled_secs = None;
        }
        let resume = intent.resume;
        let slowest = resume.map_or(u64::MAX, |resume| resume.mark.epoch);
        let here = Others { server, count: lost.joined(), is_one, slowest: slowest.min(lost.slowest()) };
        intent.others = match intent.others {
            _ if !tells => [None; 2],
            [Some(first), _] if first.count > 0 => [Some(first), Some(here)],
            _ => [Some(here), None],
        };
        intent.has_told = false;
        self.state = State::Idle(intent);
        self.shape = shape;
        resume.map(|resume| resume.mark)
    }

    /// The server is lost. What is needed to tell whether an epoch is over is still here, and such an end is passed. Where an epoch
    /// is replayed, only one that was begun: all of them are here, without end if this consumer gets nothing of any.
    pub fn without_server(&mut self, memory: &impl ConsumerMemory) -> WithoutServer {
        let Ok(Available::EpochOver(end)) = self.available(memory) else { return WithoutServer::Reconnect };
        let State::Joined(Cursor { progress, .. }) = self.state else { return WithoutServer::Reconnect };
        if self.shape.replays && progress == (Progress::Fresh { may_be_over: false }) {
            return WithoutServer::Reconnect;
        }
        if self.pass(end, memory) { WithoutServer::Passed } else { WithoutServer::EpochOver }
    }

    /// The feed is over: what a consumer gets that stood still for too long and whose place is lost, if it is one.
    pub fn lost_by_stalling(&mut self) -> Option<Trouble> {
        let (State::Idle(intent) | State::Joining(intent)) = &mut self.state else { return None };
        let secs = intent.resume?.stalled_secs()?;
        intent.resume = None;
        Some(Trouble::Stalled { secs, lost: None })
    }

    /// The cursor, for those who know that there is one.
    pub(super) fn cursor_mut(&mut self) -> Option<&mut Cursor> {
        if let State::Joined(cursor) = &mut self.state { Some(cursor) } else { None }
    }

    /// Asks for the next batch after a rest.
    pub fn wake(&mut self, memory: &impl ConsumerMemory) {
        if !memory.wake() {
            // The server's word of it is on the way, and comes before the answer to the next join.
            self.be_detached(None, memory);
        }
    }
}
