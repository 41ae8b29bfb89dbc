//! A ring as its server describes it: how much fits, what is in it, and where a sample is in its lanes.

use std::sync::Arc;

use feedline_protocol::consumer::Shape;
use feedline_protocol::log::Size;
use feedline_protocol::server::RingShape;
use feedline_shm::Layout;
use serde::{Deserialize, Serialize};

use crate::schema::Schema;

/// A ring and what is in it. Its memory comes as a descriptor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingInfo {
    /// Counts the rings of a feed.
    pub generation: u32,
    /// How many samples fit.
    pub capacity: u64,
    /// How far consumers may be apart, of those samples; the rest is history.
    pub window: u64,
    /// How long the lane for batches of variable length is, 0 without one.
    pub byte_lane: u64,
    /// Of it, the window.
    pub byte_window: u64,
    /// Whether it is a file, not memory.
    pub is_file: bool,
    /// Whether samples may be overwritten before a slow consumer has read them.
    pub skips: bool,
    /// Whether the one epoch that is in it is read again and again.
    pub replays: bool,
    /// How often, or how many epochs there are.
    pub epochs: Option<u64>,
    /// How many samples the source's first batch had.
    pub source_batch: u64,
    /// What the source reports about its samples, where they can't be counted because batches travel whole.
    pub reported: Option<ReportedLength>,
    /// What is in it.
    pub schema: Arc<Schema>,
}

/// What a source reports about itself: how many samples an epoch has, in batches of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedLength {
    /// In an epoch.
    pub samples: u64,
    /// In each batch but the last.
    pub batch_size: u64,
}

impl RingInfo {
    /// How much fits.
    pub fn size(&self) -> Size {
        let Self { capacity, window, byte_lane, byte_window, .. } = *self;
        Size { capacity, window, byte_lane, byte_window }
    }

    /// Whether it only stands for a feed that has nothing in it yet.
    pub(crate) fn is_placeholder(&self) -> bool {
        matches!(*self.schema, Schema::Whole { .. }) && self.generation == 0 && self.capacity == 1
    }

    /// The next ring, of another size.
    pub(crate) fn resized(&self, size: Size) -> Self {
        let Size { capacity, window, byte_lane, byte_window } = size;
        Self { generation: self.generation + 1, capacity, window, byte_lane, byte_window, ..self.clone() }
    }

    /// As the server's state machine sees it.
    pub(crate) fn shape(&self) -> RingShape {
        RingShape {
            generation: self.generation,
            size: self.size(),
            source_batch: self.source_batch,
            is_cut: matches!(*self.schema, Schema::Cut { .. }),
            is_placeholder: self.is_placeholder(),
            sample_bytes: strides(&self.schema).iter().sum(),
        }
    }

    /// As a consumer's state machine sees it.
    pub(crate) fn consumer_shape(&self) -> Shape {
        Shape {
            generation: self.generation,
            is_cut: matches!(*self.schema, Schema::Cut { .. }),
            skips: self.skips,
            replays: self.replays,
            epochs: self.epochs,
            source_batch: self.source_batch.max(1),
        }
    }
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
