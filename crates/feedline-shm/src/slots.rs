//! Parts of a ring that several threads fill at once, each its own.
//!
//! ```text
//!              claim                 a thread of its own              free
//! Claimable ──────────▶ Slots ──▶ &mut [u8] for each lane, filled ──────────▶ may be claimed again
//!                         └─────────────── dropped ────▶ never claimed again
//! ```
//!
//! Which samples may be claimed is decided by the log (`feedline_protocol::log`), which knows what consumers still need. This
//! module makes sure of the rest, whatever its caller does: no byte is in two claims at once. It has no lock: whoever owns the
//! table of claims has one already, the log's.

use std::ops::Range;
use std::sync::Arc;

use crate::{LanePlace, Layout, Memory, RingWriter, SourceBytes};

/// What one claim covers: samples, in every lane of fixed stride, and their part of the byte lane (empty without one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which samples.
    pub samples: Range<u64>,
    /// Where they stand in the byte lane; positions only grow.
    pub bytes: Range<u64>,
}

/// A ring of which many may claim parts: lanes of fixed stride, and perhaps a byte lane behind them.
#[derive(Debug)]
pub struct Claimable {
    lanes: Arc<Lanes>,
    claimed: Vec<Span>,
}

#[derive(Debug)]
struct Lanes {
    ring: RingWriter,
    /// Bytes per sample of each lane of fixed stride.
    strides: Vec<u64>,
    /// How many samples fit into the lane that holds the fewest.
    capacity: u64,
    /// How long the byte lane is; 0 without one.
    byte_lane: u64,
    /// Its number among those that workers have mapped.
    reserved: Option<u32>,
}

impl Claimable {
    /// Opens a ring to claims.
    ///
    /// # Panics
    /// If the ring has fewer lanes than there are strides, or more than one beyond them.
    pub fn new(ring: RingWriter, strides: Vec<u64>) -> Self {
        Self::in_reserve(ring, strides, None)
    }

    /// The same for a ring that was in reserve, under this number.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn in_reserve(ring: RingWriter, strides: Vec<u64>, reserved: Option<u32>) -> Self {
        let (fixed, variable) = ring.layout().lanes().split_at(strides.len());
        assert!(variable.len() <= 1, "at most one lane has no stride");
        let samples = fixed.iter().zip(&strides).filter_map(|(lane, &stride)| lane.len_bytes.checked_div(stride));
        let capacity = samples.min().unwrap_or(0);
        let byte_lane = variable.first().map_or(0, |lane| lane.len_bytes);
        Self { lanes: Arc::new(Lanes { ring, strides, capacity, byte_lane, reserved }), claimed: Vec::new() }
    }

    /// The memory to hand to consumers.
    pub fn memory(&self) -> &dyn Memory {
        self.lanes.ring.memory()
    }

    /// Its lanes.
    pub fn layout(&self) -> &Layout {
        self.lanes.ring.layout()
    }

    /// The memory of these samples, for whoever holds the result alone. `None` if a part of it is claimed already.
    ///
    /// # Panics
    /// If they don't fit into the ring.
    pub fn claim(&mut self, span: Span) -> Option<Slots> {
        let Lanes { capacity, byte_lane, .. } = *self.lanes;
        assert!(len(&span.samples) <= capacity, "{span:?} is longer than its lane of {capacity} samples");
        assert!(len(&span.bytes) <= byte_lane, "{span:?} is longer than its lane of {byte_lane} bytes");
        let is_taken = |other: &Span| {
            may_overlap(&span.samples, &other.samples, capacity) || may_overlap(&span.bytes, &other.bytes, byte_lane)
        };
        if self.claimed.iter().any(is_taken) {
            return None;
        }
        self.claimed.push(span.clone());
        Some(Slots { lanes: Arc::clone(&self.lanes), span })
    }

    /// Whether these are a part of this ring.
    pub fn has(&self, slots: &Slots) -> bool {
        Arc::ptr_eq(&self.lanes, &slots.lanes)
    }

    /// Nobody fills them any more: they may be claimed again. Those of another ring are let go of.
    pub fn free(&mut self, slots: Slots) {
        // Taken apart, so that they are gone: nobody writes there after this.
        let Slots { lanes, span } = slots;
        if Arc::ptr_eq(&self.lanes, &lanes)
            && let Some(index) = self.claimed.iter().position(|claimed| *claimed == span)
        {
            self.claimed.swap_remove(index);
        }
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Whether two ranges may have a place in common where `turn` is the same place as 0: they have if they overlap, and may have if
/// they don't lie within one turn.
fn may_overlap(one: &Range<u64>, other: &Range<u64>, turn: u64) -> bool {
    if one.is_empty() || other.is_empty() {
        return false;
    }
    let all = one.end.max(other.end) - one.start.min(other.start);
    all < len(one) + len(other) || all > turn
}

/// Memory of a ring that nobody else reads or writes while this lives.
#[derive(Debug)]
pub struct Slots {
    lanes: Arc<Lanes>,
    span: Span,
}

impl Slots {
    /// What they cover.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// How many lanes the ring has.
    pub fn lanes(&self) -> usize {
        self.lanes.ring.layout().lanes().len()
    }

    /// How many bytes they have in one lane.
    pub fn len_bytes(&self, lane: usize) -> usize {
        self.place(lane).1
    }

    /// The ring's number among those that workers have mapped.
    pub fn reserved(&self) -> Option<u32> {
        self.lanes.reserved
    }

    /// Where they stand in one lane, for a worker that has the ring's memory mapped.
    ///
    /// # Panics
    /// If the ring has fewer lanes.
    pub fn place_in_memory(&self, lane: usize) -> LanePlace {
        let (position, of) = (self.place(lane).0, self.lanes.ring.layout().lanes()[lane]);
        LanePlace { start: of.offset_bytes, len_bytes: of.len_bytes, position: of.wrap(position) }
    }

    /// Where they stand in one lane, and how many bytes they have there.
    fn place(&self, lane: usize) -> (u128, usize) {
        let Span { samples, bytes } = &self.span;
        match self.lanes.strides.get(lane) {
            Some(&stride) => (u128::from(samples.start) * u128::from(stride), (len(samples) * stride) as usize),
            None => (bytes.start.into(), len(bytes) as usize),
        }
    }

    /// The bytes in one lane. What was there before is still there.
    ///
    /// # Panics
    /// If the ring has fewer lanes.
    pub fn bytes_mut(&mut self, lane: usize) -> &mut [u8] {
        let (position, len_bytes) = self.place(lane);
        let start = self.lanes.ring.address(lane, position, len_bytes);
        // SAFETY:
        // - Mapped: `address` checked the range, and `self.lanes` keeps the mapping for as long as the result is borrowed.
        // - Initialised: memory from the kernel, whatever was written to it since.
        // - Exclusive in this process: the table of claims has no other one with a byte of these, `&mut self` lends them once, and
        //   `RingWriter::write` needs the ring for itself alone. In others: consumers read only what is published, and the one
        //   who claimed this asked the log whether anybody needs it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len_bytes) }
    }

    /// Copies somebody else's bytes into one lane, from an offset on.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write<'a>(&mut self, lane: usize, offset_bytes: usize, bytes: impl Into<SourceBytes<'a>>) {
        bytes.into().copy_to(&mut self.bytes_mut(lane)[offset_bytes..]);
    }

    /// Copies what another claim of the same samples has, of another ring.
    ///
    /// # Panics
    /// If a sample has another length there.
    pub fn copy_from(&mut self, other: &mut Self) {
        for lane in 0..self.lanes() {
            self.bytes_mut(lane).copy_from_slice(other.bytes_mut(lane));
        }
    }
}
