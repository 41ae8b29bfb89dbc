//! A ring of a server: its memory, and where in it each sample stands.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use feedline_protocol::log::{Log, Size};
use feedline_shm::{Claimable, RingWriter, Span};

use crate::ring_info::{RingInfo, strides};

/// A ring, its description, and the descriptor that consumers get.
#[derive(Debug)]
pub(super) struct Ring {
    pub slots: Arc<Claimable>,
    pub info: RingInfo,
    pub memory: Arc<OwnedFd>,
}

impl Ring {
    pub fn new(writer: RingWriter, info: RingInfo, memory: Arc<OwnedFd>) -> Self {
        Self { slots: Arc::new(Claimable::new(writer, strides(&info.schema))), info, memory }
    }

    pub fn len_bytes(&self) -> u64 {
        self.slots.layout().len_bytes()
    }

    /// The part of it that is history.
    pub fn history_bytes(&self) -> u64 {
        let Size { capacity, window, byte_lane, byte_window } = self.info.size();
        let part = |all: u64, window: u64| if all > 0 { (all - window) as f64 / all as f64 } else { 0.0 };
        (self.len_bytes() as f64 * part(capacity, window).max(part(byte_lane, byte_window))) as u64
    }

    /// Where intact samples stand.
    pub fn intact(&self, samples: Range<u64>, log: &Log) -> Span {
        let bytes = log.bytes_of(samples.clone()).unwrap_or_default();
        Span { samples, bytes }
    }
}
