//! Where a source puts its samples: the side of the server that a [`Source`](crate::source::Source) sees.

use std::sync::Arc;

use super::claim::Claim;
use super::producer::Producer;
use crate::error::Failure;
use crate::ring_info::strides;
use crate::schema::Schema;
use crate::source::Halt;

/// The log, for whoever appends to it.
pub struct Appender<'p, 'a>(pub(super) &'p mut Producer<'a>);

/// What has to be known of the samples before the first one is claimed.
#[derive(Clone, Debug)]
pub struct First {
    /// What they look like.
    pub schema: Schema,
    /// How many are in a batch of the source's own.
    pub batch_samples: u64,
    /// How many bytes such a batch has.
    pub batch_bytes: u64,
    /// How many batches are filled at once, where they lie in the ring.
    pub filling: u64,
}

impl First {
    /// Samples that can be cut, in batches of so many.
    pub fn cut(batch_samples: u64, schema: Schema) -> Self {
        let batch_bytes = batch_samples.max(1).saturating_mul(strides(&schema).iter().sum());
        Self { schema, batch_samples, batch_bytes, filling: 0 }
    }
}

impl Appender<'_, '_> {
    /// Makes the feed's ring, if this is the feed's first sample, and tells what all samples look like. `first` is asked only then,
    /// and learns whether the user wants batches whole.
    pub fn begin(&mut self, first: impl FnOnce(bool) -> Result<First, Failure>) -> Result<Arc<Schema>, Halt> {
        if self.0.ring.is_none() {
            let first = first(self.0.shared.options.whole_batches)?;
            self.0.begin_feed(&first)?;
        }
        Ok(Arc::clone(&self.0.ring().info.schema))
    }

    /// The number in the epoch of the sample that is claimed next. It goes back if a claim is given back.
    pub fn index(&mut self) -> Result<u64, Halt> {
        self.0.wait_for_source(|state| !state.machine.log().is_broken())?;
        Ok(self.0.next_index())
    }

    /// Claims samples from the one with this `index` on; `left` samples of the source's own batch are left from there, so at most
    /// `left` can be claimed. Waits for room. `None` if a claim before them was given back meanwhile: ask for the index again.
    ///
    /// # Panics
    /// If batches travel whole, nothing is claimed, or more than is left.
    pub fn claim(&mut self, index: u64, samples: u64, left: u64) -> Result<Option<Claim>, Halt> {
        assert!((1..=left).contains(&samples), "a claim of {samples} samples, of a batch with {left} left");
        assert!(matches!(*self.0.ring().info.schema, Schema::Cut { .. }), "whole batches are claimed one by one");
        self.0.claim_samples(Some(index), samples, left)
    }

    /// Claims the next samples, for a source that never has two claims open.
    pub(crate) fn claim_next(&mut self, samples: u64) -> Result<Claim, Halt> {
        let claim = self.0.claim_samples(None, samples, samples)?;
        Ok(claim.expect("nobody else could have given anything back"))
    }

    /// Claims the next samples, if there is room for them.
    pub(crate) fn claim_if_possible(&mut self, samples: u64) -> Result<Option<Claim>, Halt> {
        self.0.claim_samples_if_possible(samples)
    }

    /// Claims room for a batch that travels whole.
    pub(crate) fn claim_whole(&mut self, len_bytes: u64) -> Result<Claim, Halt> {
        self.0.claim_batch(len_bytes)
    }

    /// Runs what may hang, under the eyes of the watchdog. It may also fork: a child that comes back from it stops here.
    pub fn watch<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Halt> {
        let shared = self.0.shared;
        let inside = shared.watch.enter(&shared.meter);
        let outcome = work();
        if !shared.origin.is_here() {
            return Err(Halt::Stopped);
        }
        drop(inside);
        Ok(outcome)
    }
}
