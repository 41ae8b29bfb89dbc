//! Whether a consumer that ends has a reason to: one that the scenario gives, not one that the protocol made up.

use std::time::Duration;

use feedline_protocol::consumer::Trouble;
use feedline_protocol::log::Lag;
use feedline_protocol::message::{Entry, Refusal};
use feedline_protocol::shard::Shard;

use super::Judge;
use crate::consumer::Outcome;
use crate::scenario::Feed;

/// What is known of a consumer that ends.
pub struct Ending {
    /// The epoch that it wants next, if it has a place.
    pub wants: Option<u64>,
    /// How long it has waited.
    pub waited: Duration,
}

impl Judge {
    pub fn ends(&self, outcome: &Outcome, ending: &Ending, feed: &Feed) -> Result<(), String> {
        let is_explained = match outcome {
            // The world judges these two: they are its doing.
            Outcome::Killed | Outcome::ServerLost => true,
            // It may not come to hear of empty epochs at the end.
            Outcome::Ended => feed.epochs.is_some_and(|epochs| {
                ending.wants.is_none_or(|wants| (wants..epochs).all(|epoch| feed.length(epoch) == 0))
            }),
            Outcome::Trouble(trouble) => self.is_explained(trouble, ending, feed),
        };
        if is_explained {
            Ok(())
        } else {
            Err(format!("it ends without a cause: {outcome:?}, wanting {:?}", ending.wants))
        }
    }

    fn is_explained(&self, trouble: &Trouble, ending: &Ending, feed: &Feed) -> bool {
        match trouble {
            Trouble::Gone(_) => self.config.shard.is_some() || matches!(self.entry, Some(Entry::At { .. })),
            Trouble::Stalled { .. } => self.was_detached,
            &Trouble::TooFew { epoch, samples } => self.are_too_few(epoch, samples, feed),
            Trouble::NoEndInSight(_) => !feed.tells_length && ending.waited >= self.config.epoch_timeout,
            Trouble::Refused(refusal) => self.may_be_refused(refusal, feed),
            Trouble::ImpossiblePlace | Trouble::ImpossibleHead(_) | Trouble::Unsteady => false,
        }
    }

    /// Whether an epoch has so many samples from where the ranks begin with it, and that is not one for each.
    fn are_too_few(&self, epoch: u64, samples: u64, feed: &Feed) -> bool {
        let begins = match self.entry {
            Some(Entry::At { epoch: asked, index }) if asked == epoch => index,
            _ => 0,
        };
        let is_left = samples == feed.length(epoch).saturating_sub(begins);
        is_left && !self.config.drop_last && self.config.shard.is_some_and(|shard| samples < shard.world())
    }

    fn may_be_refused(&self, refusal: &Refusal, feed: &Feed) -> bool {
        let world = self.config.shard.map_or(1, Shard::world);
        match refusal {
            Refusal::RanksWithSkip => feed.policy.lag == Lag::Skip && self.config.shard.is_some(),
            Refusal::Whole => !feed.is_cut && self.config.batch_size.is_some(),
            Refusal::TooLarge { .. } => false,
            // A ring has room for one batch at least, as the source yields them around it; ranks look one step further ahead.
            Refusal::NoRing(_) => {
                let own = feed.source_batch.max(world) + feed.source_batch;
                let step = self.config.step_size().unwrap_or(if world > 1 { own } else { 1 });
                let needs = step * if world > 1 { 2 } else { 1 } + feed.source_batch - 1;
                feed.is_short_of_memory && (needs > feed.window || (world > 1 && self.config.batch_size.is_none()))
            }
        }
    }
}
