//! The memory of a feed: which sample stands in each slot, and in each cell of the byte lane.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use feedline_protocol::consumer::Shape;
use feedline_protocol::log::Size;

/// What a sample is: its epoch, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub epoch: u64,
    pub index: u64,
    /// How many samples of its source batch are left from it on.
    pub left: u64,
}

/// The bytes of one cell of the byte lane.
pub const CELL_BYTES: u64 = 64;

/// One generation's memory. Never written to again once it was replaced.
#[derive(Debug)]
pub struct Ring {
    pub size: Size,
    pub shape: Shape,
    /// How often something was written.
    writes: Cell<u64>,
    slots: RefCell<Vec<Option<Slot>>>,
    cells: RefCell<Vec<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    position: u64,
    sample: Sample,
    start: u64,
    len_bytes: u64,
}

/// A batch that somebody has: where it stands, and what was there when it was taken.
#[derive(Clone, Debug)]
pub struct Lease {
    ring: Rc<Ring>,
    first: u64,
    pub samples: Vec<Sample>,
    /// How often the ring had been written to when all of it was last seen to be there.
    seen: Cell<u64>,
}

impl Ring {
    pub fn new(size: Size, shape: Shape) -> Self {
        let cells = (size.byte_lane / CELL_BYTES) as usize;
        Self {
            size,
            shape,
            writes: Cell::new(0),
            slots: RefCell::new(vec![None; size.capacity as usize]),
            cells: RefCell::new(vec![u64::MAX; cells]),
        }
    }

    /// Copies samples from another.
    pub fn copy_from(&self, old: &Self, positions: Range<u64>) {
        for position in positions {
            if let Some(Slot { sample, start, len_bytes, .. }) = old.slot(position) {
                self.put(position, sample, start, len_bytes);
            }
        }
    }

    pub fn put(&self, position: u64, sample: Sample, start: u64, len_bytes: u64) {
        self.writes.set(self.writes.get() + 1);
        let mut slots = self.slots.borrow_mut();
        let capacity = slots.len() as u64;
        slots[(position % capacity) as usize] = Some(Slot { position, sample, start, len_bytes });
        let mut cells = self.cells.borrow_mut();
        let count = cells.len() as u64;
        for cell in 0..len_bytes.div_ceil(CELL_BYTES) {
            cells[((start / CELL_BYTES + cell) % count) as usize] = position;
        }
    }

    fn slot(&self, position: u64) -> Option<Slot> {
        let slots = self.slots.borrow();
        let slot = slots[(position % slots.len() as u64) as usize].filter(|slot| slot.position == position)?;
        if slot.len_bytes == 0 {
            return Some(slot);
        }
        let cells = self.cells.borrow();
        let is_own = |cell: u64| cells[((slot.start / CELL_BYTES + cell) % cells.len() as u64) as usize] == position;
        (0..slot.len_bytes.div_ceil(CELL_BYTES)).all(is_own).then_some(slot)
    }

    /// What stands at these positions of the log, if all of it is still there.
    pub fn read(&self, positions: Range<u64>) -> Option<Vec<Sample>> {
        let mut samples = Vec::with_capacity((positions.end - positions.start) as usize);
        for position in positions {
            samples.push(self.get(position)?);
        }
        Some(samples)
    }

    /// What stands at a position of the log, if all of it is still there.
    pub fn get(&self, position: u64) -> Option<Sample> {
        self.slot(position).map(|slot| slot.sample)
    }
}

impl Lease {
    /// What has just been taken.
    pub fn new(ring: &Rc<Ring>, first: u64, samples: Vec<Sample>) -> Self {
        Self { ring: Rc::clone(ring), first, samples, seen: Cell::new(ring.writes.get()) }
    }

    /// Whether what was taken is still there.
    pub fn is_intact(&self) -> bool {
        let writes = self.ring.writes.get();
        if self.seen.replace(writes) == writes {
            return true;
        }
        (self.first..).zip(&self.samples).all(|(position, &sample)| self.ring.get(position) == Some(sample))
    }
}
