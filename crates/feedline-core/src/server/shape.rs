//! How large a ring is, and where in it a sample stands. Arithmetic, plus one look at how much memory there is.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use feedline_ring::{Layout, RingWriter};

use crate::error::Error;
use crate::limits::{available_bytes, size_text};
use crate::schema::Schema;
use crate::wire::RingInfo;

/// What a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    /// Bytes.
    Bytes(u64),
    /// Samples (batches, where they travel whole).
    Samples(u64),
}

/// Batches that the default ring holds.
const DEFAULT_BATCHES: u64 = 8;
const SMALLEST_BYTES: u64 = 16 << 20;
/// The default goes past this only for the sake of three batches.
const LARGEST_BYTES: u64 = 512 << 20;

/// A ring as consumers get to know it.
#[derive(Debug)]
pub(crate) struct PublishedRing {
    pub info: RingInfo,
    pub memory: Arc<OwnedFd>,
    pub len_bytes: u64,
}

/// Bytes per sample of each lane of fixed stride.
///
/// Cut: for each sample, how many samples of its source batch are left, itself included; then the fields.
/// Whole: where each batch begins in the byte lane, and how long it is.
pub(crate) fn strides(schema: &Schema) -> Vec<u64> {
    match schema {
        Schema::Cut { fields, .. } => {
            let fields = fields.iter().map(|field| field.stride_bytes().expect("checked when the schema was accepted"));
            std::iter::once(4).chain(fields).collect()
        }
        Schema::Whole { .. } => vec![16],
    }
}

/// The lanes of a ring; `None` if it can't be addressed.
pub(crate) fn layout(info: &RingInfo) -> Option<Layout> {
    let mut lanes = Vec::new();
    for stride in strides(&info.schema) {
        lanes.push(stride.checked_mul(info.capacity)?);
    }
    if info.byte_lane > 0 {
        lanes.push(info.byte_lane);
    }
    Layout::new(lanes)
}

/// The first ring of a feed, for batches of `samples` samples and `len_bytes` bytes.
pub(crate) fn first_ring(
    schema: &Schema,
    size: Option<RingSize>,
    samples: u64,
    len_bytes: u64,
) -> Result<RingInfo, Error> {
    let batch_bytes = len_bytes.max(1);
    let samples = samples.max(1);
    let per_sample = batch_bytes.div_ceil(samples);
    let bytes = match size {
        Some(RingSize::Bytes(bytes)) => bytes,
        Some(RingSize::Samples(count)) => count.saturating_mul(per_sample),
        None => {
            let wanted = (DEFAULT_BATCHES * batch_bytes).clamp(SMALLEST_BYTES, LARGEST_BYTES.max(3 * batch_bytes));
            wanted.min(available_bytes() / 2).max(2 * batch_bytes)
        }
    };
    if bytes < 2 * batch_bytes {
        return Err(Error::Memory(format!(
            "a ring of {} cannot hold two batches of {}\n  give it at least ring=\"{}MB\", or make the loader's batches smaller",
            size_text(bytes),
            size_text(batch_bytes),
            (2 * batch_bytes).div_ceil(1_000_000),
        )));
    }
    let info = match schema {
        Schema::Cut { .. } => {
            let capacity = (bytes / per_sample).max(2 * samples);
            RingInfo { generation: 1, capacity, byte_lane: 0, source_batch: samples, schema: schema.clone() }
        }
        Schema::Whole { .. } => {
            let capacity = match size {
                Some(RingSize::Samples(count)) => count.max(2),
                _ => (bytes / 1024).clamp(64, 1 << 16),
            };
            RingInfo { generation: 1, capacity, byte_lane: bytes + 4096, source_batch: 1, schema: schema.clone() }
        }
    };
    Ok(info)
}

/// Allocates a ring, or says what there was no room for.
pub(crate) fn allocate(info: &RingInfo, batch_bytes: u64) -> Result<RingWriter, Error> {
    let too_large = |len: u64, free: u64| {
        Error::Memory(format!(
            "a ring of {} (batches of {}) does not fit: {} of memory are left here\n  \
             give a smaller ring=, make the batches smaller, or raise the memory limit",
            size_text(len),
            size_text(batch_bytes),
            size_text(free),
        ))
    };
    let layout = layout(info).ok_or_else(|| too_large(u64::MAX, available_bytes()))?;
    let len = layout.len_bytes();
    let free = available_bytes();
    if len > free {
        return Err(too_large(len, free));
    }
    RingWriter::create(layout).map_err(|error| match error {
        feedline_ring::RingError::NoMemory { .. } => too_large(len, free),
        other => Error::Ring(other),
    })
}
