//! Getting a cursor, and giving it back.

use super::epoch_wait::EpochWait;
use super::resume::Resume;
use super::{Consumer, Cursor, Lost, Notice, Progress, State, Trouble};
use crate::message::{Answer, Entry, Join, Mark, Others, Place, Rank, UNKNOWN};
use crate::page::ConsumerMemory;
use crate::shard::Shard;
use crate::time::Time;

/// The state of a consumer that has read nothing.
const NOTHING_READ: Mark = Mark { epoch: 0, index: 0 };

/// What the next join asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intent {
    /// The epoch that was read last, or is next.
    pub epoch: u64,
    /// Where to go on; by the consumer's own rules if `None`.
    pub resume: Option<Resume>,
    /// The epoch that was broken off.
    pub broke_off: Option<u64>,
    /// What to tell the next server of those who read from one that was lost ([`Join::others`]).
    pub others: [Option<Others>; 2],
    /// This server has heard of them already: it counts whoever says that it is one.
    pub has_told: bool,
}

impl Consumer {
    /// Whoever iterated has stopped. A consumer that had all batches has finished the epoch, whether or not one more was asked
    /// for. True if its cursor is to be given back, when its batches are safe.
    #[must_use]
    pub fn stop(&mut self, memory: &impl ConsumerMemory) -> bool {
        if !self.has_read_all(memory) {
            return self.leave();
        }
        let end = memory.end_of(self.epoch_in_log(self.epoch()));
        if end != UNKNOWN {
            self.end_epoch(end, memory);
        } else if let State::Joined(cursor) = &mut self.state {
            cursor.progress = Progress::Finished;
            memory.rest();
        }
        false
    }

    /// Gives the cursor back. True if the server is to be told, when batches that are still alive are safe.
    #[must_use]
    pub fn leave(&mut self) -> bool {
        let replays = self.shape.replays;
        let intent = match &self.state {
            State::Idle(_) => return false,
            // This server was told of the others. If it dies now, the next one was not.
            State::Joining(Intent { epoch, others, .. }) => {
                Intent { epoch: *epoch, others: *others, has_told: true, ..Intent::default() }
            }
            State::Joined(cursor) => {
                let (began, epoch) = (cursor.has_begun(), cursor.epoch);
                // Whoever takes just one batch, to see what it is like, has not broken off an epoch.
                let broke_off = (began && cursor.taken != Some(1)).then_some(epoch);
                // The next one to be read of a log that replays is another pass over the same epoch.
                let next = epoch + u64::from(began && replays);
                let moves_on = began && !replays && self.config.moves_on;
                let resume = moves_on.then(|| Resume::asked(Mark { epoch: epoch + 1, index: 0 }));
                Intent { epoch: next, resume, broke_off, ..Intent::default() }
            }
        };
        self.state = State::Idle(intent);
        true
    }

    fn entry(&self, intent: &Intent) -> Entry {
        match intent.resume {
            None => self.config.entry,
            // Its state is from before its first batch. A consumer that had this place and lost it needs this very one.
            Some(resume @ Resume { mark: NOTHING_READ, .. }) if !resume.is_bound() => {
                Entry::First { else_newest: self.config.entry.may_be_newest() }
            }
            Some(Resume { mark: Mark { epoch, index }, .. }) => Entry::At { epoch, index },
        }
    }

    /// What to send for a cursor.
    pub(super) fn ask(&mut self, intent: Intent) -> Join {
        self.joins += 1;
        let is_rejoining = intent.resume.is_some_and(|resume| resume.is_bound());
        let rank = self.config.shard.map(|Shard { group, world, rank }| Rank { group, world, rank, is_rejoining });
        let (entry, others) = (self.entry(&intent), if intent.has_told { [None; 2] } else { intent.others });
        self.state = State::Joining(intent);
        Join { number: self.joins, batch_size: self.config.step_size(), entry, others, rank }
    }

    /// The server has answered. Answers to a join that was withdrawn are ignored.
    pub fn handle_answer(&mut self, answer: Answer, memory: &impl ConsumerMemory, now: Time) -> Result<(), Trouble> {
        match answer {
            Answer::Joined { number, place } if number == self.joins => self.enter(number, place, memory, now),
            Answer::Gone { number, epoch, until } if number == self.joins => self.be_too_late(epoch, until),
            Answer::Joined { .. } | Answer::Gone { .. } => Ok(()),
            Answer::Refused(refusal) => Err(Trouble::Refused(refusal)),
            Answer::Detached { stalled_secs } => {
                self.be_detached(Some(stalled_secs), memory);
                Ok(())
            }
        }
    }

    fn enter(&mut self, number: u64, place: Place, memory: &impl ConsumerMemory, now: Time) -> Result<(), Trouble> {
        let State::Joining(intent) = self.state else { return Ok(()) };
        if !place.is_possible() {
            return Err(Trouble::ImpossiblePlace);
        }
        let Place { epoch, sample, had, start } = place;
        let Intent { epoch: before, resume, broke_off, .. } = intent;
        let mark = resume.map(|resume| resume.mark);
        self.epoch_wait = EpochWait::new(!resume.is_some_and(|resume| resume.is_bound()), now);
        if mark == Some(NOTHING_READ) && epoch > 0 {
            self.notices.push(Notice::FirstEpochGone(epoch));
        }
        let epoch = if self.shape.replays { mark.map_or(before, |mark| mark.epoch) } else { epoch };
        let taken = (had == 0 && sample.is_none_or(|sample| sample == start)).then_some(0);
        let progress = resume.map_or(Progress::Fresh { may_be_over: false }, |resume| resume.progress());
        self.state = State::Joined(Cursor { epoch, sample, start, had, lead: 0, progress, taken });
        memory.enter(number, epoch, sample.unwrap_or(start));
        let running = memory.ended();
        if sample.is_none() && epoch > running + 1 {
            self.notices.push(Notice::WaitsForLaterEpoch { epoch, running });
        }
        // Said once: a loop that breaks off each epoch would get it again and again.
        let is_again = broke_off == Some(epoch) && !self.shape.replays && taken.is_some();
        if is_again && !std::mem::replace(&mut self.has_told_again, true) {
            self.notices.push(Notice::ReadsAgain(epoch));
        }
        Ok(())
    }

    /// The place that it asked for is no longer there.
    fn be_too_late(&mut self, epoch: u64, until: Option<u64>) -> Result<(), Trouble> {
        let State::Joining(intent) = self.state else { return Ok(()) };
        self.state = State::Idle(Intent { resume: None, ..intent });
        let mark = intent.resume.map(|resume| resume.mark);
        let is_late_rank = mark.is_none() && self.config.shard.is_some();
        let lost = Lost { mark: mark.unwrap_or(Mark { epoch, index: 0 }), until, is_late_rank };
        Err(match intent.resume.and_then(|resume| resume.stalled_secs()) {
            Some(secs) => Trouble::Stalled { secs, lost: Some(lost) },
            None => Trouble::Gone(lost),
        })
    }
}
