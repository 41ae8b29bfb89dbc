//! Parts of a ring that several threads fill at once, each its own.
//!
//! ```text
//!              claim                 a thread of its own              drop
//! Claimable ──────────▶ Slots ──▶ &mut [u8] for each lane, filled ──────────▶ free again
//! ```
//!
//! Which samples may be claimed is decided by the log (`feedline_protocol::log`), which knows what consumers still need. This
//! module makes sure of the rest, whatever its caller does: no byte is in two claims at once.

use std::sync::Arc;

use crate::mutex::{Mutex, MutexGuard};
use crate::{Layout, Memory, RingWriter, SourceBytes};

/// A range of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Which lane.
    pub lane: usize,
    /// Where it begins; positions only grow.
    pub position: u128,
    /// How long it is.
    pub len_bytes: usize,
}

impl SlotRange {
    fn end(&self) -> u128 {
        self.position + self.len_bytes as u128
    }

    /// Whether the two have a byte of a lane of this length in common. Ranges further apart than the lane is long may have.
    fn may_overlap(&self, other: &Self, lane_bytes: u64) -> bool {
        let is_empty = self.len_bytes == 0 || other.len_bytes == 0;
        let (first, last) = if self.position <= other.position { (self, other) } else { (other, self) };
        !is_empty && (first.end() > last.position || last.end() - first.position > u128::from(lane_bytes))
    }
}

/// A ring of which many may claim parts.
#[derive(Debug)]
pub struct Claimable {
    ring: RingWriter,
    claimed: Mutex<Vec<Arc<[SlotRange]>>>,
}

impl Claimable {
    /// Opens a ring to claims.
    pub fn new(ring: RingWriter) -> Self {
        Self { ring, claimed: Mutex::default() }
    }

    /// The memory to hand to consumers.
    pub fn memory(&self) -> &dyn Memory {
        self.ring.memory()
    }

    /// Its lanes.
    pub fn layout(&self) -> &Layout {
        self.ring.layout()
    }

    /// The memory of these ranges, for whoever holds the result alone. `None` if a part of it is claimed already.
    ///
    /// # Panics
    /// If a range is longer than its lane, or the ranges are not one for each lane, in the order of the lanes.
    pub fn claim(self: &Arc<Self>, ranges: impl IntoIterator<Item = SlotRange>) -> Option<Slots> {
        let ranges: Arc<[SlotRange]> = ranges.into_iter().collect();
        assert!(ranges.is_sorted_by(|one, next| one.lane < next.lane), "one range for each lane, in their order");
        let lanes = self.layout().lanes();
        for range in &*ranges {
            let lane_bytes = lanes[range.lane].len_bytes;
            assert!(range.len_bytes as u64 <= lane_bytes, "{range:?} is longer than its lane of {lane_bytes} bytes");
            assert!(range.position <= u128::MAX / 2, "{range:?} is further than any log gets");
        }
        let is_taken = |other: &SlotRange| {
            let own = ranges.binary_search_by_key(&other.lane, |own| own.lane);
            own.is_ok_and(|own| ranges[own].may_overlap(other, lanes[other.lane].len_bytes))
        };
        let mut claimed = self.claimed();
        if claimed.iter().any(|others| others.iter().any(is_taken)) {
            return None;
        }
        claimed.push(Arc::clone(&ranges));
        drop(claimed);
        Some(Slots { ring: Arc::clone(self), ranges })
    }

    fn claimed(&self) -> MutexGuard<'_, Vec<Arc<[SlotRange]>>> {
        self.claimed.lock()
    }
}

/// Memory of a ring that nobody else reads or writes while this lives.
#[derive(Debug)]
pub struct Slots {
    ring: Arc<Claimable>,
    ranges: Arc<[SlotRange]>,
}

impl Slots {
    /// The ranges, in the order in which they were claimed.
    pub fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }

    /// The bytes of one range. What was there before is still there.
    ///
    /// # Panics
    /// If there are not so many ranges.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let SlotRange { lane, position, len_bytes } = self.ranges[index];
        let start = self.ring.ring.address(lane, position, len_bytes);
        // SAFETY:
        // - Mapped: `address` checked the range, and `self.ring` keeps the mapping for as long as the result is borrowed.
        // - Initialised: memory from the kernel, whatever was written to it since.
        // - Exclusive in this process: the table of claims has no other one with a byte of these, `&mut self` lends them once, and
        //   `RingWriter::write` needs the ring for itself alone. In others: consumers read only what is published, and the one
        //   who claimed this asked the log whether anybody needs it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len_bytes) }
    }

    /// Copies somebody else's bytes into one range, from an offset on.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write<'a>(&mut self, index: usize, offset_bytes: usize, bytes: impl Into<SourceBytes<'a>>) {
        bytes.into().copy_to(&mut self.bytes_mut(index)[offset_bytes..]);
    }

    /// Takes over what another claim of the same ranges has, of another ring.
    ///
    /// # Panics
    /// If the ranges have other lengths.
    pub fn copy_from(&mut self, other: &mut Self) {
        for index in 0..self.ranges.len() {
            self.bytes_mut(index).copy_from_slice(other.bytes_mut(index));
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut claimed = self.ring.claimed();
        if let Some(index) = claimed.iter().position(|ranges| Arc::ptr_eq(ranges, &self.ranges)) {
            claimed.swap_remove(index);
        }
    }
}
