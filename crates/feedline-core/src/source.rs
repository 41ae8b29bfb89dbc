//! What appends to the log.
//!
//! A Python iterator is one source; a pool of workers, a native pipeline or another machine's feed are others. The server
//! asks for one batch after the other, on the thread that called `Server::run`, and copies each into the ring.

pub use feedline_protocol::Mark;

use crate::batch::Batch;
use crate::error::Failure;

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

/// Epochs of batches.
pub trait Source {
    /// Begins an epoch. Called again before the last one has ended if nobody needs the rest of that.
    fn begin(&mut self, epoch: u64) -> Result<(), Failure>;

    /// The next batch of the epoch, or `None` at its end. Its bytes are borrowed until the next call.
    fn next(&mut self) -> Result<Option<Batch<'_>>, Failure>;

    /// Whether the epoch that has just ended was none, because there is nothing more to come. The feed ends with the one before.
    fn is_exhausted(&self) -> bool {
        false
    }

    /// Whether [`Self::mark`] should be called after each batch.
    fn keeps_state(&self) -> bool {
        false
    }

    /// After an epoch was begun, and after each batch that was published: how far the source has come, from where on it is still there for whoever comes late, and
    /// from where on somebody needs it (`None` if nobody is there). A source that can go on in another process keeps what
    /// it needs for that.
    fn mark(&mut self, _head: Mark, _oldest: Mark, _needed: Option<Mark>) -> Result<(), Failure> {
        Ok(())
    }

    /// Nothing more will be asked of it.
    fn finish(&mut self) {}

    /// How long an epoch is. Asked once, before the first batch.
    fn length(&self) -> Length {
        Length::default()
    }
}
