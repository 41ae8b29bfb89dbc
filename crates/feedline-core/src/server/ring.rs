//! A ring of a server: its description, and where in it each sample stands.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use feedline_protocol::log::{Log, Size};
use feedline_shm::Span;

use crate::ring_info::RingInfo;

/// A ring's description, and the descriptor that consumers get.
#[derive(Debug)]
pub(super) struct Ring {
    pub info: RingInfo,
    pub memory: Arc<OwnedFd>,
    pub len_bytes: u64,
    /// Of the source's first batch.
    pub batch_bytes: u64,
}

impl Ring {
    /// The part of it that is history.
    pub fn history_bytes(&self) -> u64 {
        let Size { capacity, window, byte_lane, byte_window } = self.info.size();
        let part = |all: u64, window: u64| if all > 0 { (all - window) as f64 / all as f64 } else { 0.0 };
        (self.len_bytes as f64 * part(capacity, window).max(part(byte_lane, byte_window))) as u64
    }
}

/// Where samples that are intact stand.
pub(super) fn intact(samples: Range<u64>, log: &Log) -> Span {
    let bytes = log.bytes_of(samples.clone()).unwrap_or_default();
    Span { samples, bytes }
}
