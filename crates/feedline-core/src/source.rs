//! What appends to the log.
//!
//! A source claims runs of samples, fills their memory in place, from as many threads as it likes, and commits them in any order;
//! they are published in the order of the log. A Python iterator of batches is one, through an adapter ([`FromBatches`]); a pool
//! of workers, a native pipeline or another machine's feed are others. [`Synthetic`] is the smallest.
//!
//! ```text
//!  server's thread                         any thread
//!  begin(epoch)
//!  append(log) ──▶ log.claim(…) ──▶ fill claim.field(0), claim.field(1), … ──▶ claim.commit()
//!  append(log) ──▶ log.claim(…) ──▶ fill … ──▶ dropped: nothing behind it is published, append(log) is asked again
//!  append(log) ──▶ nothing left: the epoch ends when all that was claimed is committed
//! ```

mod batches;
mod synthetic;

pub use feedline_protocol::Mark;

pub use self::batches::{BatchSource, FromBatches, Item};
pub use self::synthetic::Synthetic;
use crate::error::{Error, Failure};
use crate::server::Appender;
use crate::stats::PoolReport;

/// How long an epoch is, as far as the source can tell beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// In samples.
    pub samples: Option<u64>,
    /// In batches as the source yields them.
    pub batches: Option<u64>,
    /// Samples in each batch but the last, where the source can tell.
    pub batch_size: Option<u64>,
}

/// Why appending stopped in the middle of an epoch. A source hands it on.
#[derive(Debug)]
pub enum Halt {
    /// Nobody needs the rest of this epoch; the next one should begin.
    Abandoned,
    /// The server was stopped, or lingered long enough.
    Stopped,
    /// It can't go on.
    Failed(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(Failure::server(&error))
    }
}

/// Epochs of samples. All calls come from the thread that called `Server::run`.
pub trait Source {
    /// Begins an epoch. Called again before the last one has ended if nobody needs the rest of that.
    fn begin(&mut self, epoch: u64) -> Result<(), Failure>;

    /// Claims the next of the epoch. False if nothing is left to claim; asked again if something was given back since.
    fn append(&mut self, log: &mut Appender<'_, '_>) -> Result<bool, Halt>;

    /// Nobody needs the rest of the epoch, and nothing more is to be filled. True while somebody may still write to a claim: asked
    /// again then. A source whose claims come back by themselves has nothing to do. May take a tenth of a second.
    fn take_back(&mut self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Whether the epoch that has just ended was none, because there is nothing more to come. The feed ends with the one before.
    fn is_exhausted(&self) -> bool {
        false
    }

    /// Whether [`Self::mark`] should be called.
    fn keeps_state(&self) -> bool {
        false
    }

    /// After an epoch was begun, after each call of [`Self::append`] that claimed something or since which something was published,
    /// and before the epoch ends: how far the log has come, from where on it is still there
    /// for whoever comes late, and from where on somebody needs it (`None` if nobody is there). A source that can go on in another
    /// process keeps what it needs for that.
    fn mark(&mut self, _head: Mark, _oldest: Mark, _needed: Option<Mark>) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it can go on at a later place of an epoch without making what lies before that.
    fn can_seek(&self) -> bool {
        false
    }

    /// Goes on at this sample of the epoch; where batches travel whole, at this batch.
    fn seek(&mut self, _index: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// Nothing more will be asked of it.
    fn finish(&mut self) {}

    /// How long an epoch is. Asked once, before the first batch.
    fn length(&self) -> Length {
        Length::default()
    }

    /// Where its pool of workers leaves its numbers, if it has one. Asked once, before the first batch.
    fn pool(&self) -> Option<PoolReport> {
        None
    }
}
