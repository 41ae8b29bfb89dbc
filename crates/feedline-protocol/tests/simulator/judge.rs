//! Whether what one consumer was handed is what it may rely on: each sample of its plan, in order, exactly once, in batches of
//! its size, with the right tail.

use std::collections::BTreeMap;

use feedline_protocol::Mark;
use feedline_protocol::consumer::{Config, Trouble};
use feedline_protocol::log::Lag;
use feedline_protocol::message::{Answer, Entry, Join};
use feedline_protocol::shard::Shard;

use crate::consumer::Outcome;
use crate::ring::Sample;
use crate::scenario::Feed;

pub struct Judge {
    config: Config,
    expects: Expect,
    /// It has had all of an epoch that was promised, and may be told more of it.
    finished: Option<Mark>,
    /// It was told to go on at a place that may be an epoch's end.
    may_be_over: bool,
    was_detached: bool,
    /// It asked for a place by its number.
    has_resumed: bool,
    /// Which samples of each epoch a rank had.
    pub had: BTreeMap<u64, Vec<u64>>,
    /// The epochs that it read from start to end.
    pub whole: Vec<u64>,
    is_whole: bool,
}

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
            has_resumed: false,
            had: BTreeMap::new(),
            whole: Vec::new(),
            is_whole: false,
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
                self.has_resumed = true;
                // It had done with that epoch, and passed over what came of it all the same.
                let mark = Mark { epoch, index };
                self.may_be_over &= expected == Expect::At(mark);
                let has_finished = |finished: Mark| finished.epoch == epoch && finished.index <= index;
                self.may_be_over |= self.finished.take().is_some_and(has_finished);
                Expect::At(mark)
            }
        };
        self.finished = None;
        self.is_whole = matches!(self.expects, Expect::EpochStart);
        Ok(())
    }

    pub fn answered(&mut self, answer: &Answer) {
        self.was_detached |= matches!(answer, Answer::Detached { .. });
    }

    pub fn resumes(&mut self, mark: Mark) {
        self.expects = Expect::At(mark);
        self.finished = None;
        self.may_be_over = mark.index > 0;
        self.has_resumed = true;
    }

    pub fn breaks_off(&mut self) {
        self.expects = Expect::EpochStart;
        self.finished = None;
    }

    pub fn loses_server(&mut self) {
        self.has_resumed = true;
    }

    /// It had all that was promised of its epoch, and stopped.
    pub fn finishes(&mut self, feed: &Feed) {
        self.forget_pass(feed);
        if let Expect::At(mark) = self.expects {
            if self.is_whole {
                self.whole.push(mark.epoch);
            }
            self.finished = Some(mark);
            self.expects = Expect::At(Mark { epoch: mark.epoch + 1, index: 0 });
            self.is_whole = true;
        }
    }

    /// The next pass over an epoch that is replayed has the same samples again.
    fn forget_pass(&mut self, feed: &Feed) {
        if feed.policy.replay {
            self.had.clear();
        }
    }

    /// Whether an epoch is over at this place.
    fn is_over(&self, mark: Mark, feed: &Feed) -> bool {
        let left = feed.length(mark.epoch).saturating_sub(mark.index);
        let own = if feed.is_cut { feed.source_batch } else { 1 };
        let world = self.config.shard.map_or(1, Shard::world);
        let size = self.config.step_size().unwrap_or(own * world);
        left == 0 || (self.config.drop_last && left < size)
    }

    pub fn batch(&mut self, samples: &[Sample], feed: &Feed) -> Result<(), String> {
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
            return self.rank_batch(begins, samples.len() as u64);
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

    fn rank_batch(&mut self, begins: Mark, len: u64) -> Result<(), String> {
        let had = self.had.entry(begins.epoch).or_default();
        if had.last().is_some_and(|&last| last >= begins.index) {
            return Err(format!("a rank had sample {} of epoch {} again", begins.index, begins.epoch));
        }
        had.extend(begins.index..begins.index + len);
        // Where its next step begins is the others' affair too.
        self.expects = Expect::Anything;
        (self.finished, self.may_be_over) = (None, false);
        Ok(())
    }

    pub fn epoch_over(&mut self, feed: &Feed) -> Result<(), String> {
        let skips = feed.policy.lag == Lag::Skip && !feed.policy.replay;
        self.forget_pass(feed);
        if let Expect::At(mut mark) = self.expects {
            // An epoch that it had done with is passed without a word.
            if self.may_be_over && self.is_over(mark, feed) {
                mark = Mark { epoch: mark.epoch + 1, index: 0 };
            }
            if self.config.shard.is_none() && !skips && !self.is_over(mark, feed) {
                return Err(format!("the epoch ended at {mark:?}, of {} samples", feed.length(mark.epoch)));
            }
            if self.is_whole {
                self.whole.push(mark.epoch);
            }
            self.expects = Expect::At(Mark { epoch: mark.epoch + 1, index: 0 });
        }
        self.finished = None;
        self.may_be_over = false;
        self.is_whole = true;
        Ok(())
    }

    pub fn ends(&self, outcome: &Outcome) -> Result<(), String> {
        let Outcome::Trouble(trouble) = outcome else { return Ok(()) };
        let is_explained = match trouble {
            Trouble::Gone(lost) => self.has_resumed || self.was_detached || lost.is_late_rank,
            Trouble::Stalled { .. } => self.was_detached,
            Trouble::TooFew { .. } => self.config.shard.is_some(),
            Trouble::Refused(_) | Trouble::NoEndInSight(_) => true,
            Trouble::ImpossiblePlace | Trouble::ImpossibleHead(_) | Trouble::Unsteady => false,
        };
        if is_explained { Ok(()) } else { Err(format!("trouble without a cause: {trouble:?}")) }
    }
}
