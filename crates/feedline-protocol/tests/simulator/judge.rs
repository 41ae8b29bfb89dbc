//! Whether what one consumer was handed is what it may rely on: each sample of its plan, in order, exactly once, in batches of
//! its size, with the right tail; and whether it knows where it is.
//!
//! `outcomes` judges why it ends, `ranks` those who share an epoch together, `waiting` who waits for whom and for how long,
//! `memory` what the server knows of those who read, `places` whether it gives a consumer the place that is there.

pub mod memory;
pub mod outcomes;
pub mod places;
pub mod ranks;
pub mod waiting;

use feedline_protocol::Mark;
use feedline_protocol::consumer::Config;
use feedline_protocol::log::Lag;
use feedline_protocol::message::{Answer, Entry, Join};
use feedline_protocol::shard::Shard;

use crate::ring::Sample;
use crate::scenario::Feed;

pub struct Judge {
    config: Config,
    expects: Expect,
    /// It has had all of an epoch that was promised, and may be told more of it.
    finished: Option<Mark>,
    /// It was told to go on at a place that may be an epoch's end.
    may_be_over: bool,
    /// It was detached, and has no other place yet.
    was_detached: bool,
    /// What it asked for last.
    entry: Option<Entry>,
    /// The epoch of its last batch, and where that ended in the log, while it goes on from there.
    reached: Option<(u64, u64)>,
    /// What it lost where samples are skipped, if that can be told.
    missed: Option<Missed>,
}

/// What a consumer that is too slow has lost since its last batch.
#[derive(Clone, Copy, Debug)]
struct Missed {
    /// What it had counted then.
    counted: u64,
    /// At the ends of epochs since.
    samples: u64,
}

/// How many epochs a consumer may be behind so that what it lost can be counted: not all ends are kept.
const COUNTABLE_EPOCHS: u64 = 50;

/// With what the next batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Anything,
    EpochStart,
    At(Mark),
}

impl Judge {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            expects: Expect::EpochStart,
            finished: None,
            may_be_over: false,
            was_detached: false,
            entry: None,
            reached: None,
            missed: None,
        }
    }

    pub fn joins(&mut self, join: &Join, feed: &Feed) -> Result<(), String> {
        // Where samples are skipped, the place may be anywhere behind the last sample that was handed out.
        let skips = feed.policy.lag == Lag::Skip && !feed.policy.replay;
        let expected = self.expects;
        if let Expect::At(mark @ Mark { index: 1.., .. }) = expected
            && !matches!(join.entry, Entry::At { epoch, index }
                if index == mark.index && (epoch == mark.epoch || feed.policy.replay))
            && !(self.may_be_over && self.is_over(mark, feed))
            && self.finished.is_none()
            && !skips
        {
            return Err(format!("it was to go on at {mark:?}, and asks for {:?}", join.entry));
        }
        self.expects = match join.entry {
            Entry::Newest | Entry::First { else_newest: true } => Expect::Anything,
            Entry::EpochStart | Entry::First { .. } => Expect::EpochStart,
            Entry::At { epoch, index } => {
                // It had done with that epoch, and passed over what came of it all the same.
                let mark = Mark { epoch, index };
                self.may_be_over &= expected == Expect::At(mark);
                // Which pass over an epoch that is replayed it is, only the consumer counts.
                let is_same = |finished: u64| finished == epoch || feed.policy.replay;
                let has_finished = |finished: Mark| is_same(finished.epoch) && finished.index <= index;
                self.may_be_over |= self.finished.take().is_some_and(has_finished);
                Expect::At(mark)
            }
        };
        self.finished = None;
        self.missed = None;
        self.reached = None;
        self.entry = Some(join.entry);
        Ok(())
    }

    pub fn answered(&mut self, answer: &Answer) {
        match answer {
            Answer::Detached { .. } => self.was_detached = true,
            Answer::Joined { .. } => self.was_detached = false,
            Answer::Gone { .. } | Answer::Refused(_) => {}
        }
    }

    pub fn resumes(&mut self, mark: Mark) {
        self.expects = Expect::At(mark);
        self.finished = None;
        self.may_be_over = mark.index > 0;
    }

    pub fn breaks_off(&mut self) {
        self.expects = Expect::EpochStart;
        self.finished = None;
    }

    /// It had all that was promised of its epoch, and stopped.
    pub fn finishes(&mut self, feed: &Feed) {
        if let Expect::At(mark) = self.expects {
            self.missed = self.missed.filter(|_| self.is_over(mark, feed));
            self.finished = Some(mark);
            self.reached = None;
            self.expects = Expect::At(Mark { epoch: mark.epoch + 1, index: 0 });
        }
    }

    /// Whether an epoch is over at this place.
    fn is_over(&self, mark: Mark, feed: &Feed) -> bool {
        let left = feed.length(mark.epoch).saturating_sub(mark.index);
        let own = if feed.is_cut { feed.source_batch } else { 1 };
        let world = self.config.shard.map_or(1, Shard::world);
        let size = self.config.step_size().unwrap_or(own * world);
        // Batches that can't be cut, and are too few for all ranks, are left out.
        let leaves_out = self.config.drop_last || (self.config.shard.is_some() && !feed.is_cut);
        left == 0 || (leaves_out && left < size)
    }

    /// It was handed these, and says that it has `skipped` so many in all.
    pub fn batch(&mut self, samples: &[Sample], feed: &Feed, skipped: u64) -> Result<(), String> {
        let Some(&first) = samples.first() else { return Err("a batch of nothing".into()) };
        let skips = feed.policy.lag == Lag::Skip && !feed.policy.replay;
        for (at, sample) in samples.iter().enumerate() {
            if (sample.epoch, sample.index) != (first.epoch, first.index + at as u64) {
                return Err(format!("a batch that is not in one piece: {samples:?}"));
            }
        }
        // An epoch that is replayed has the same samples each time.
        let epoch = match self.expects {
            Expect::At(mark) if feed.policy.replay => {
                if first.index == 0 && mark.index > 0 {
                    mark.epoch + 1
                } else {
                    mark.epoch
                }
            }
            _ => first.epoch,
        };
        let begins = Mark { epoch, index: first.index };
        if self.config.shard.is_some() {
            // Where its next step begins is the others' affair too.
            self.expects = Expect::Anything;
            (self.finished, self.may_be_over) = (None, false);
            return Ok(());
        }
        let is_expected = match self.expects {
            Expect::Anything => true,
            Expect::EpochStart => begins.index == 0 || skips,
            Expect::At(mark) if begins == mark => true,
            Expect::At(mark) if skips => begins > mark,
            // Epochs may be empty, or, with `drop_last`, too short for a batch.
            Expect::At(mark) => {
                let mut at = mark;
                let mut may_pass = self.may_be_over;
                while may_pass && at < begins && self.is_over(at, feed) {
                    at = Mark { epoch: at.epoch + 1, index: 0 };
                    may_pass = at == begins;
                }
                at == begins
            }
        };
        if !is_expected {
            return Err(format!("{:?} was expected, and {begins:?} came", self.expects));
        }
        if skips {
            self.judge_skips(begins, skipped, feed)?;
        }
        let len = samples.len() as u64;
        let end = Mark { epoch, index: begins.index + len };
        let size = self.config.batch_size.unwrap_or(first.left);
        let is_tail = end.index == feed.length(epoch) && len < size && !self.config.drop_last;
        if len != size && !is_tail {
            return Err(format!("a batch of {len} where {size} were asked for: {samples:?}"));
        }
        self.expects = Expect::At(end);
        (self.finished, self.may_be_over) = (None, false);
        Ok(())
    }

    /// What a consumer that is too slow loses is counted, each sample once.
    fn judge_skips(&mut self, begins: Mark, skipped: u64, feed: &Feed) -> Result<(), String> {
        let before = self.missed.replace(Missed { counted: skipped, samples: 0 });
        let (Some(missed), Expect::At(mark)) = (before, self.expects) else { return Ok(()) };
        let lost = missed.samples + distance(mark, begins, feed);
        let counted = skipped - missed.counted;
        let is_exact = begins.epoch - mark.epoch < COUNTABLE_EPOCHS;
        // A tail that would have been left out may count as lost.
        if self.config.drop_last || counted == lost || (!is_exact && counted < lost) {
            return Ok(());
        }
        Err(format!("it lost {lost} samples between {mark:?} and {begins:?}, and counts {counted}"))
    }

    /// It takes these samples of the log, of which all before `oldest` may be overwritten, and the ends of all epochs before
    /// `first_known` are forgotten. What it passes over without having had it is gone.
    pub fn takes(
        &mut self,
        epoch: u64,
        (first, until): (u64, u64),
        oldest: u64,
        first_known: u64,
    ) -> Result<(), String> {
        let Some((before, reached)) = self.reached.replace((epoch, until)) else { return Ok(()) };
        let is_gone = reached < oldest || before < first_known;
        // A tail may be left out.
        if first == reached || is_gone || self.config.drop_last || self.config.shard.is_some() {
            return Ok(());
        }
        Err(format!("it skipped from {reached} to {first}, though all from {oldest} on is there"))
    }

    /// After a batch: where the consumer believes that it stands, and the place that it would save.
    pub fn stands(&self, place: Mark, saved: Mark, feed: &Feed) -> Result<(), String> {
        let Expect::At(mut mark) = self.expects else { return Ok(()) };
        if feed.policy.replay {
            // Which pass over the epoch it is, only the consumer counts.
            mark.epoch = place.epoch;
        }
        let next = Mark { epoch: mark.epoch + 1, index: 0 };
        if place != mark {
            return Err(format!("it stands at {mark:?}, and believes that it is at {place:?}"));
        }
        if saved != mark && !(saved == next && self.is_over(mark, feed)) {
            return Err(format!("it stands at {mark:?}, and would save {saved:?}"));
        }
        Ok(())
    }

    pub fn epoch_over(&mut self, feed: &Feed) -> Result<(), String> {
        let skips = feed.policy.lag == Lag::Skip && !feed.policy.replay;
        if let Expect::At(mut mark) = self.expects {
            // An epoch that it had done with is passed without a word.
            if self.may_be_over && self.is_over(mark, feed) {
                mark = Mark { epoch: mark.epoch + 1, index: 0 };
            }
            if self.config.shard.is_none() && !skips && !self.is_over(mark, feed) {
                return Err(format!("the epoch ended at {mark:?}, of {} samples", feed.length(mark.epoch)));
            }
            if let Some(missed) = &mut self.missed {
                missed.samples += feed.length(mark.epoch).saturating_sub(mark.index);
            }
            self.expects = Expect::At(Mark { epoch: mark.epoch + 1, index: 0 });
        }
        self.finished = None;
        self.may_be_over = false;
        Ok(())
    }
}

/// How many samples lie between two places.
fn distance(from: Mark, until: Mark, feed: &Feed) -> u64 {
    if from.epoch == until.epoch {
        return until.index.saturating_sub(from.index);
    }
    let rest = feed.length(from.epoch).saturating_sub(from.index);
    rest + (from.epoch + 1..until.epoch).map(|epoch| feed.length(epoch)).sum::<u64>() + until.index
}
