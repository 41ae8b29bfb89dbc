//! How large a ring is, and where in it a sample stands. Arithmetic, plus one look at how much memory there is.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use feedline_protocol::log::{Lag, Size};
use feedline_shm::RingWriter;

use super::Options;
use crate::error::Error;
use crate::limits::{available_bytes, size_text};
use crate::ring_info::{RingInfo, layout, strides};
use crate::schema::Schema;

/// What a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    /// Bytes.
    Bytes(u64),
    /// Samples (batches, where they travel whole).
    Samples(u64),
}

/// How much of an epoch is kept behind the ring, for those who come late or are slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum History {
    /// A little, and never much memory.
    Default,
    /// A share of the epoch.
    Share(f64),
    /// Bytes.
    Bytes(u64),
}

/// What [`History::Default`] keeps: this share, up to this size, and up to an eighth of the memory that is left.
const DEFAULT_SHARE: f64 = 0.02;
const DEFAULT_CEILING: u64 = 256 << 20;

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

impl PublishedRing {
    /// The part of it that is history.
    pub fn history_bytes(&self) -> u64 {
        let Size { capacity, window, byte_lane, byte_window } = self.info.size();
        let part = |all: u64, window: u64| if all > 0 { (all - window) as f64 / all as f64 } else { 0.0 };
        (self.len_bytes as f64 * part(capacity, window).max(part(byte_lane, byte_window))) as u64
    }
}

/// The first ring of a feed, for batches of `samples` samples and `len_bytes` bytes.
pub(crate) fn first_ring(
    schema: &Schema,
    options: &Options,
    samples: u64,
    len_bytes: u64,
    epoch: Option<u64>,
) -> Result<RingInfo, Error> {
    let size = options.ring;
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
    let (window, byte_window, source_batch) = match schema {
        Schema::Cut { .. } => ((bytes / per_sample).max(2 * samples), 0, samples),
        Schema::Whole { .. } => {
            let window = match size {
                Some(RingSize::Samples(count)) => count.max(2),
                _ => (bytes / 1024).clamp(64, 1 << 16),
            };
            (window, bytes + 4096, 1)
        }
    };
    let mut size = Size { capacity: window, window, byte_lane: byte_window, byte_window };
    if options.policy.lag == Lag::Skip {
        // Half of it stays behind the fastest, for those who are a little slower.
        size.window = (window / 2).max(2 * samples).min(window);
        size.byte_window = (byte_window / 2).max(2 * batch_bytes).min(byte_window);
    }
    let size = match epoch {
        Some(epoch) => with_history(size, options, epoch, per_sample),
        None => size,
    };
    Ok(ring_info(schema.clone(), options, size, source_batch))
}

/// A ring of this size, the first of its feed.
pub(super) fn ring_info(schema: Schema, options: &Options, size: Size, source_batch: u64) -> RingInfo {
    let Size { capacity, window, byte_lane, byte_window } = size;
    RingInfo {
        generation: 0,
        capacity,
        window,
        byte_lane,
        byte_window,
        is_file: options.history_dir.is_some(),
        skips: options.policy.lag == Lag::Skip && !options.policy.replay,
        replays: options.policy.replay,
        epochs: options.epochs,
        source_batch,
        told: None,
        schema,
    }
}

/// A size with the history that was asked for, of epochs with `epoch` samples of `sample_bytes` each.
pub(super) fn with_history(size: Size, options: &Options, epoch: u64, sample_bytes: u64) -> Size {
    // Batches in the byte lane begin at multiples of 64.
    let padded = sample_bytes + if size.byte_lane > 0 { 64 } else { 0 };
    let share = |share: f64| (epoch as f64 * share).ceil() as u64;
    let history = match options.history {
        _ if options.policy.replay => epoch.saturating_sub(size.window),
        History::Share(part) => share(part),
        History::Bytes(bytes) => bytes / padded.max(1),
        History::Default => {
            let ceiling = DEFAULT_CEILING.min(available_bytes() / 8);
            share(DEFAULT_SHARE).min(ceiling / padded.max(1))
        }
    };
    size.deepened(history, history.saturating_mul(padded))
}

/// Allocates a ring, or says what there was no room for.
pub(crate) fn allocate(info: &RingInfo, batch_bytes: u64, folder: Option<&Path>) -> Result<RingWriter, Error> {
    let history = if info.replays {
        " with the whole epoch in it".to_owned()
    } else if info.capacity > info.window {
        let share = (info.capacity - info.window) as f64 / info.capacity as f64;
        format!(", {:.0} % of it history", share * 100.0)
    } else {
        String::new()
    };
    let way_out = match (history.is_empty(), folder.is_some()) {
        (true, _) => "give a smaller ring=, make the batches smaller, or raise the memory limit",
        (false, false) => "give a smaller history= or ring=, or history_dir= a folder on a disk with room",
        (false, true) => "give a smaller history=, or history_dir= a folder on a disk with more room",
    };
    let too_large = |len: u64, free: u64| {
        let left = match folder {
            Some(folder) => format!("{} are left in {}", size_text(free), folder.display()),
            None => format!("{} of memory are left here", size_text(free)),
        };
        Error::Memory(format!(
            "a ring of {}{history} (batches of {}) does not fit: {left}\n  {way_out}",
            size_text(len),
            size_text(batch_bytes),
        ))
    };
    let all_lanes =
        strides(&info.schema).iter().sum::<u64>().saturating_mul(info.capacity).saturating_add(info.byte_lane);
    let layout = layout(info).ok_or_else(|| too_large(all_lanes, available_bytes()))?;
    if let Some(folder) = folder {
        let (len, free) = (layout.len_bytes(), crate::limits::disk_available(folder));
        // The kernel would take all that there is before it refuses.
        if len > free {
            return Err(too_large(len, free));
        }
        return RingWriter::create_in(folder, layout).map_err(|error| match error {
            feedline_shm::RingError::NoMemory { .. } => too_large(len, crate::limits::disk_available(folder)),
            feedline_shm::RingError::Os { source, .. } => {
                Error::Invalid(format!("history_dir={}: no file can be made there: {source}", folder.display()))
            }
            other => Error::Ring(other),
        });
    }
    let len = layout.len_bytes();
    let free = available_bytes();
    if len > free {
        return Err(too_large(len, free));
    }
    RingWriter::create(layout).map_err(|error| match error {
        feedline_shm::RingError::NoMemory { .. } => too_large(len, free),
        other => Error::Ring(other),
    })
}
