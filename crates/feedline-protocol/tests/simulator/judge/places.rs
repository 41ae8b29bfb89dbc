//! Whether a server gives a consumer the place that it asks for, if that is there: as the log stood before it asked.

use feedline_protocol::log::{Log, MOST_EPOCHS_AHEAD};
use feedline_protocol::message::{Entry, Join};

use crate::ring::Sample;

/// What a consumer asks for, and what of it is there.
pub struct Asked {
    entry: Entry,
    is_rank: bool,
    /// The newest epoch that has begun and was not abandoned, if its first sample is still there.
    newest: Option<u64>,
    /// The furthest epoch that anybody is in, or waits for, if that is known and anybody is here.
    furthest: Option<u64>,
    /// The sample that it asks for is there, and of no epoch from there on is only a part.
    has_sample: bool,
}

impl Asked {
    pub fn new(
        join: &Join,
        replays: bool,
        log: &Log,
        furthest: Option<u64>,
        sample_at: impl Fn(u64) -> Option<Sample>,
    ) -> Self {
        let begun = log.locate(log.head());
        let newest = begun.filter(|&(epoch, index)| log.epoch() <= epoch + 1 && log.head() - index >= log.oldest());
        let is_it = |sample: Sample| match join.entry {
            Entry::At { epoch, index } => sample.index == index && (replays || sample.epoch == epoch),
            _ => false,
        };
        // Where nobody waits for slow consumers, the ends of epochs are forgotten before their samples are.
        let is_known = replays || join.entry.epoch() + MOST_EPOCHS_AHEAD >= log.epoch();
        let has_sample = || (log.oldest()..log.head()).filter_map(&sample_at).any(is_it);
        Self {
            entry: join.entry,
            is_rank: join.rank.is_some(),
            newest: newest.map(|(epoch, _)| epoch),
            furthest,
            has_sample: is_known && matches!(join.entry, Entry::At { .. }) && has_sample(),
        }
    }

    /// It got this place, or none, at a server that has abandoned or passed over an epoch, or not.
    pub fn judge_place(&self, place: Option<(u64, Option<u64>)>, has_passed_over: bool) -> Result<(), String> {
        let entry = self.entry;
        match (place, self.newest, self.furthest) {
            // Nobody waits for another epoch who could read one together with the others, from its first sample on.
            (Some((epoch, None)), Some(newest), Some(furthest)) if entry == Entry::EpochStart && furthest <= newest => {
                Err(format!("it is to wait for epoch {epoch}, though {newest} is there from its start on"))
            }
            (None, ..) if self.has_sample && !self.is_rank && !has_passed_over => {
                Err(format!("it asks for {entry:?}, which is there, and gets no place"))
            }
            _ => Ok(()),
        }
    }
}
