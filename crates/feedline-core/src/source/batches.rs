//! Sources that yield whole batches, one after the other: each is copied into a claim of its own.
//!
//! A source may also ask for claims beforehand, and have its workers fill them: then there is nothing to copy.
//!
//! ```text
//! next ──▶ Batch ───────────────────────────────▶ claim (or the one that it has), copy, commit
//!   ├────▶ Wants(samples) ──▶ give(claim, or none where there is no room) ──▶ next
//!   └────▶ Filled(claim) ───────────────────────▶ commit
//! ```

use std::sync::Arc;

use feedline_shm::fault;

use super::{Halt, Length, Mark, Source};
use crate::batch::{Batch, Leaf};
use crate::error::{Failure, FailureKind};
use crate::explain::Explanation;
use crate::options::Name;
use crate::schema::{Mismatch, Schema};
use crate::server::{Appender, Claim, First};
use crate::stats::PoolReport;
use crate::text;
use crate::whole::Encoded;

/// What a source of batches has.
#[derive(Debug)]
pub enum Item<'a> {
    /// A batch, and its claim if the source has one already, of as many samples.
    Batch(Batch<'a>, Option<Claim>),
    /// The next batch, in its claim.
    Filled(Claim),
    /// It asks for a claim, for the first of its batches that has none.
    Wants {
        /// Of how many samples.
        samples: u64,
        /// It has nothing else to do.
        waits: bool,
    },
}

impl<'a> From<Batch<'a>> for Item<'a> {
    fn from(batch: Batch<'a>) -> Self {
        Self::Batch(batch, None)
    }
}

/// Epochs of batches.
pub trait BatchSource {
    /// Begins an epoch. Called again before the last one has ended if nobody needs the rest of that.
    fn begin(&mut self, epoch: u64) -> Result<(), Failure>;

    /// The next batch of the epoch, or `None` at its end. Its bytes are borrowed until the next call.
    fn next(&mut self) -> Result<Option<Item<'_>>, Failure>;

    /// The claim that it asked for; `None` if there is no room now.
    fn give(&mut self, _claim: Option<Claim>) {}

    /// The last batch went into the log as it was: others with the same types and shapes could be written there in place.
    fn fits(&mut self) {}

    /// How many batches are filled at once, where they lie in the ring.
    fn filling(&self) -> u64 {
        0
    }

    /// As [`Source::take_back`].
    fn take_back(&mut self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// As [`Source::is_exhausted`].
    fn is_exhausted(&self) -> bool {
        false
    }

    /// As [`Source::keeps_state`].
    fn keeps_state(&self) -> bool {
        false
    }

    /// As [`Source::mark`], after each batch.
    fn mark(&mut self, _head: Mark, _oldest: Mark, _needed: Option<Mark>) -> Result<(), Failure> {
        Ok(())
    }

    /// As [`Source::can_seek`].
    fn can_seek(&self) -> bool {
        false
    }

    /// Goes on at this sample, or batch, of the epoch.
    fn seek(&mut self, _index: u64, _counts_batches: bool) -> Result<(), Failure> {
        Ok(())
    }

    /// As [`Source::finish`].
    fn finish(&mut self) {}

    /// As [`Source::length`].
    fn length(&self) -> Length {
        Length::default()
    }

    /// As [`Source::pool`].
    fn pool(&self) -> Option<PoolReport> {
        None
    }
}

/// A source of batches as a source of claims. One copy per batch, on the server's thread.
pub struct FromBatches<'a> {
    source: &'a mut dyn BatchSource,
    /// What all batches look like, from the first on.
    schema: Option<Arc<Schema>>,
}

impl<'a> FromBatches<'a> {
    /// For one feed.
    pub fn new(source: &'a mut dyn BatchSource) -> Self {
        Self { source, schema: None }
    }
}

impl Source for FromBatches<'_> {
    fn begin(&mut self, epoch: u64) -> Result<(), Failure> {
        self.source.begin(epoch)
    }

    fn append(&mut self, log: &mut Appender<'_, '_>) -> Result<bool, Halt> {
        fault::point("server:before_next");
        loop {
            let filling = self.source.filling();
            let next = log.watch(|| self.source.next())??;
            fault::point("server:after_next");
            let (samples, waits) = match next {
                None => return Ok(false),
                Some(Item::Filled(claim)) => {
                    fault::point("server:copied");
                    claim.commit();
                    return Ok(true);
                }
                Some(Item::Batch(batch, claim)) => {
                    let schema = match &mut self.schema {
                        Some(schema) => schema,
                        none => none
                            .insert(log.begin(|takes_whole| Ok(First { filling, ..First::of(&batch, takes_whole) }))?),
                    };
                    if append(log, schema, &batch, claim)? {
                        self.source.fits();
                    }
                    return Ok(true);
                }
                Some(Item::Wants { samples, waits }) => (samples, waits),
            };
            let claim = if waits { Some(log.claim_next(samples)?) } else { log.claim_if_possible(samples)? };
            self.source.give(claim);
            fault::point("server:before_next");
        }
    }

    fn take_back(&mut self) -> Result<bool, Failure> {
        self.source.take_back()
    }

    fn is_exhausted(&self) -> bool {
        self.source.is_exhausted()
    }

    fn keeps_state(&self) -> bool {
        self.source.keeps_state()
    }

    fn mark(&mut self, head: Mark, oldest: Mark, needed: Option<Mark>) -> Result<(), Failure> {
        self.source.mark(head, oldest, needed)
    }

    fn can_seek(&self) -> bool {
        self.source.can_seek()
    }

    fn seek(&mut self, index: u64) -> Result<(), Failure> {
        self.source.seek(index, matches!(self.schema.as_deref(), Some(Schema::Whole { .. })))
    }

    fn finish(&mut self) {
        self.source.finish();
    }

    fn length(&self) -> Length {
        self.source.length()
    }

    fn pool(&self) -> Option<PoolReport> {
        self.source.pool()
    }
}

fn mismatch(Mismatch(message): Mismatch) -> Failure {
    let way_out = text![
        "a feed's batches must keep their types and shapes; pad them to a fixed shape, or serve whole batches of any shape with ",
        Name::whole_batches.of_value(true),
    ];
    Failure::new(FailureKind::Schema, Explanation::new(message).hint(way_out))
}

impl First {
    /// What the first batch shows.
    fn of(batch: &Batch<'_>, takes_whole: bool) -> Self {
        let schema = Schema::of(batch, takes_whole);
        match &schema {
            Schema::Cut { .. } => Self::cut(schema.samples_in(batch).unwrap_or(0), schema),
            Schema::Whole { .. } => {
                Self { batch_bytes: Encoded::new(batch).len_bytes(), batch_samples: 1, filling: 0, schema }
            }
        }
    }
}

/// Copies a batch into the log. Whether its bytes were those that stand there.
fn append(log: &mut Appender<'_, '_>, schema: &Schema, batch: &Batch<'_>, claim: Option<Claim>) -> Result<bool, Halt> {
    let samples = schema.samples_in(batch).map_err(mismatch)?;
    if let Some(claim) = claim.as_ref().filter(|claim| claim.samples() != samples) {
        let what = format!("a batch of {samples} samples has a claim of {}", claim.samples());
        return Err(Failure::new(FailureKind::Server, what).into());
    }
    match schema {
        _ if samples == 0 => Ok(false),
        Schema::Cut { .. } => {
            let claim = claim.map_or_else(|| log.claim_next(samples), Ok)?;
            Ok(append_cut(claim, schema, batch))
        }
        Schema::Whole { .. } => append_whole(log, batch).map(|()| false),
    }
}

fn append_cut(mut claim: Claim, schema: &Schema, batch: &Batch<'_>) -> bool {
    let mut is_as_it_was = true;
    for (index, leaf) in batch.leaves.iter().enumerate() {
        let Leaf::Array(array) = leaf else { continue };
        if !array.data.is_empty() {
            fault::point("server:copying");
            match schema.reordered(index, array) {
                None => claim.write(index, array.data),
                Some(bytes) => {
                    is_as_it_was = false;
                    claim.write(index, &bytes);
                }
            }
        }
    }
    fault::point("server:copied");
    claim.commit();
    is_as_it_was
}

fn append_whole(log: &mut Appender<'_, '_>, batch: &Batch<'_>) -> Result<(), Halt> {
    let encoded = Encoded::new(batch);
    let mut claim = log.claim_whole(encoded.len_bytes())?;
    for (offset, bytes) in encoded.pieces() {
        claim.write_at(offset, bytes);
    }
    claim.commit();
    Ok(())
}
