//! How large a ring is, and where in it a sample stands. Arithmetic; only the free memory is read from the system.

use std::path::Path;
use std::sync::Arc;

use feedline_protocol::log::{Lag, Size};
use feedline_shm::{Reserve, RingWriter};

use super::First;
use crate::error::Error;
use crate::explain::Explanation;
use crate::limits::{available_bytes, size_text};
use crate::options::kinds::DEFAULT_SHARE;
use crate::options::{History, Name, Options, RingSize};
use crate::ring_info::{RingInfo, layout, strides};
use crate::schema::Schema;
use crate::text;

/// What [`History::Default`] keeps at most; at most an eighth of the memory that is left, too.
const DEFAULT_CEILING: u64 = 256 << 20;

/// Batches that the default ring holds.
const DEFAULT_BATCHES: u64 = 8;
const SMALLEST_BYTES: u64 = 16 << 20;
/// The default goes past this only for the sake of three batches.
const LARGEST_BYTES: u64 = 512 << 20;

/// The first ring of a feed.
pub(crate) fn first_ring(first: &First, options: &Options, epoch: Option<u64>) -> Result<RingInfo, Error> {
    let (schema, size) = (&first.schema, options.ring);
    let batch_bytes = first.batch_bytes.max(1);
    let samples = first.batch_samples.max(1);
    let per_sample = batch_bytes.div_ceil(samples);
    let bytes = match size {
        Some(RingSize::Bytes(bytes)) => bytes,
        Some(RingSize::Samples(count)) => count.saturating_mul(per_sample),
        None => {
            let batches = DEFAULT_BATCHES.saturating_add(first.filling);
            let wanted = batches.saturating_mul(batch_bytes).clamp(SMALLEST_BYTES, LARGEST_BYTES.max(3 * batch_bytes));
            wanted.min(available_bytes() / 2).max(2 * batch_bytes)
        }
    };
    if bytes < 2 * batch_bytes {
        let least = format!("{}MB", (2 * batch_bytes).div_ceil(1_000_000));
        let what = format!("a ring of {} cannot hold two batches of {}", size_text(bytes), size_text(batch_bytes));
        return Err(Error::Memory(Explanation::new(what).hint(text![
            "give it at least ",
            Name::ring.of_value(least),
            ", or make the loader's batches smaller",
        ])));
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
    if options.lag == Lag::Skip {
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
        skips: options.lag == Lag::Skip && !options.replay,
        replays: options.replay,
        epochs: options.epochs,
        source_batch,
        reported: None,
        schema: Arc::new(schema),
    }
}

/// A size with the history that was asked for, of epochs with `epoch` samples of `sample_bytes` each.
pub(super) fn with_history(size: Size, options: &Options, epoch: u64, sample_bytes: u64) -> Size {
    // Batches in the byte lane begin at multiples of 64.
    let padded = sample_bytes + if size.byte_lane > 0 { 64 } else { 0 };
    let share = |share: f64| (epoch as f64 * share).ceil() as u64;
    let history = match options.history {
        _ if options.replay => epoch.saturating_sub(size.window),
        History::Share(part) => share(part),
        History::Bytes(bytes) => bytes / padded.max(1),
        History::Default => {
            let ceiling = DEFAULT_CEILING.min(available_bytes() / 8);
            share(DEFAULT_SHARE).min(ceiling / padded.max(1))
        }
    };
    size.deepened(history, history.saturating_mul(padded))
}

/// Allocates a ring, or says what there was no room for. With it, its number if it was in reserve.
pub(crate) fn allocate(
    info: &RingInfo,
    batch_bytes: u64,
    folder: Option<&Path>,
    reserve: Option<&Reserve>,
) -> Result<(RingWriter, Option<u32>), Error> {
    let history = if info.replays {
        " with the whole epoch in it".to_owned()
    } else if info.capacity > info.window {
        let share = (info.capacity - info.window) as f64 / info.capacity as f64;
        format!(", {:.0} % of it history", share * 100.0)
    } else {
        String::new()
    };
    let (ring, kept, elsewhere) = (Name::ring.named(), Name::history.named(), Name::history_dir.named());
    let way_out = match (history.is_empty(), folder.is_some()) {
        (true, _) => text!["give a smaller ", ring, ", make the batches smaller, or raise the memory limit"],
        (false, false) => {
            text!["give a smaller ", kept, " or ", ring, ", or ", elsewhere, " a folder on a disk with room"]
        }
        (false, true) => text!["give a smaller ", kept, ", or ", elsewhere, " a folder on a disk with more room"],
    };
    let too_large = |len: u64, free: u64| {
        let left = match folder {
            Some(folder) => format!("{} are left in {}", size_text(free), folder.display()),
            None => format!("{} of memory are left here", size_text(free)),
        };
        let (ring, batches) = (size_text(len), size_text(batch_bytes));
        let what = format!("a ring of {ring}{history} (batches of {batches}) does not fit: {left}");
        Error::Memory(Explanation::new(what).hint(way_out.clone()))
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
        return RingWriter::create_in(folder, layout).map(|ring| (ring, None)).map_err(|error| match error {
            feedline_shm::RingError::NoMemory { .. } => too_large(len, crate::limits::disk_available(folder)),
            feedline_shm::RingError::Os { source, .. } => {
                let given = Name::history_dir.given(folder.to_owned().into());
                let what = text![given, format!(": no file can be made there: {source}")];
                Error::Invalid(Explanation::new(what).hint("name a folder that you may write to, on a local disk"))
            }
            other => Error::Ring(other),
        });
    }
    let len = layout.len_bytes();
    let free = available_bytes();
    if len > free {
        return Err(too_large(len, free));
    }
    let ring = match reserve.and_then(|reserve| reserve.take(len)) {
        Some(taken) => taken.and_then(|(number, memory)| Ok((RingWriter::on(Box::new(memory), layout)?, Some(number)))),
        None => RingWriter::create(layout).map(|ring| (ring, None)),
    };
    ring.map_err(|error| match error {
        feedline_shm::RingError::NoMemory { .. } => too_large(len, free),
        other => Error::Ring(other),
    })
}
