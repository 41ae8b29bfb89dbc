//! What a consumer wants.

use std::sync::Arc;
use std::time::Duration;

use feedline_protocol::consumer as protocol;
use feedline_protocol::message::{Entry, FAR, MOST_RANKS};
use feedline_protocol::shard::Shard;

use crate::access::Allow;
use crate::error::Error;
use crate::read_mode::Mode;

/// What a consumer wants.
#[derive(Clone, Debug)]
pub struct Config {
    /// The feed's name.
    pub name: String,
    /// The batch size; `None` for the source's own batches. Of one rank, where ranks share the feed.
    pub batch_size: Option<u64>,
    /// The rank, if several share each epoch.
    pub shard: Option<Shard>,
    /// Leave out an epoch's last batch if it is smaller.
    pub drop_last: bool,
    /// Where to begin.
    pub entry: Entry,
    /// After leaving an epoch in the middle: go on to the next one, instead of joining by the same rules.
    pub moves_on: bool,
    /// How long to wait for the feed and its first batch.
    pub timeout: Duration,
    /// How long a server that lives may leave a question unanswered, and an epoch of unknown length may keep a late consumer
    /// waiting; a second at least.
    pub answer_timeout: Duration,
    /// How to take batches.
    pub mode: Mode,
    /// How long to wait for another server when this one is lost.
    pub reconnect: Duration,
    /// Which users' feeds are accepted, besides one's own and root's.
    pub allow: Allow,
    /// What to do while nobody serves the feed.
    pub when_missing: Option<WhenMissing>,
}

/// Called again and again while a feed is looked for and not there: may have it started. Doesn't wait; an error ends the search.
#[derive(Clone)]
pub struct WhenMissing(pub Arc<dyn Fn() -> Result<(), Error> + Send + Sync>);

impl std::fmt::Debug for WhenMissing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WhenMissing")
    }
}

impl Config {
    /// The source's own batches of a feed, in place, from an epoch's start.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batch_size: None,
            shard: None,
            drop_last: false,
            entry: Entry::EpochStart,
            moves_on: false,
            timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
            mode: Mode::Cow,
            reconnect: Duration::ZERO,
            allow: Allow::default(),
            when_missing: None,
        }
    }

    /// The part that concerns the protocol.
    pub(super) fn protocol(&self) -> protocol::Config {
        protocol::Config {
            batch_size: self.batch_size,
            shard: self.shard,
            drop_last: self.drop_last,
            entry: self.entry,
            moves_on: self.moves_on,
            epoch_timeout: self.answer_timeout.max(protocol::MIN_TIMEOUT),
        }
    }

    /// Refuses values that no feed could satisfy.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.batch_size == Some(0) {
            return Err(Error::BatchSize("a batch has at least one sample, not 0".into()));
        }
        match self.shard {
            Some(Shard { world, rank, .. }) if rank >= world || world > MOST_RANKS => {
                Err(Error::Invalid(format!("there is no rank {rank} of {world}").into()))
            }
            Some(_) if self.entry == Entry::Newest => {
                Err(Error::Invalid("ranks begin with an epoch, not with its newest sample".into()))
            }
            Some(Shard { world, .. }) if self.protocol().step_size() >= Some(FAR) => {
                let size = self.batch_size.unwrap_or(0);
                let what = format!("a batch of {size} samples for each of {world} ranks is not possible");
                Err(Error::BatchSize(what.into()))
            }
            _ => Ok(()),
        }
    }
}
