//! The server's end of a ring: the only place that writes into it.

use std::path::Path;
use std::ptr::NonNull;

use crate::{Access, FileMemory, Layout, Mapping, Memfd, Memory, RingError, SourceBytes};

/// A ring and this process's one mapping that may write to it. For several writers at once, make it a [`Claimable`](crate::Claimable).
#[derive(Debug)]
pub struct RingWriter {
    memory: Box<dyn Memory>,
    layout: Layout,
    mapping: Mapping,
}

impl RingWriter {
    /// A ring in memory.
    pub fn create(layout: Layout) -> Result<Self, RingError> {
        Self::on(Box::new(Memfd::create_sparse("feedline-ring", layout.len_bytes())?), layout)
    }

    /// A ring in a file of this folder.
    pub fn create_in(folder: &Path, layout: Layout) -> Result<Self, RingError> {
        Self::on(Box::new(FileMemory::create_in(folder, layout.len_bytes())?), layout)
    }

    /// Maps, allocates and seals memory of any kind that nobody else has yet.
    pub fn on(memory: Box<dyn Memory>, layout: Layout) -> Result<Self, RingError> {
        Self::with_workers(memory, layout, |_| Ok(()))
    }

    /// The same, for a ring that worker processes write to as well: `hand_out` gives them the memory before it is sealed, and
    /// comes back when each of them has mapped it ([`Self::for_worker`]).
    pub fn with_workers(
        mut memory: Box<dyn Memory>,
        layout: Layout,
        hand_out: impl FnOnce(&dyn Memory) -> Result<(), RingError>,
    ) -> Result<Self, RingError> {
        let mapping = Mapping::new(&*memory, &layout, Access::Writer)?;
        if memory.takes_huge_pages() {
            mapping.use_huge_pages();
        }
        memory.allocate()?;
        memory.fix_length()?;
        hand_out(&*memory)?;
        memory.seal_writer()?;
        Ok(Self { memory, layout, mapping })
    }

    /// A worker process's end of a ring that its server has not sealed yet.
    ///
    /// # Safety
    ///
    /// This process has no other writer of the same memory, and writes only what the server has claimed for it, while it has.
    pub unsafe fn for_worker(memory: Box<dyn Memory>, layout: Layout) -> Result<Self, RingError> {
        let mapping = Mapping::new(&*memory, &layout, Access::Writer)?;
        Ok(Self { memory, layout, mapping })
    }

    /// The memory to hand to consumers.
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// Its lanes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Copies `bytes` to a position. The caller has claimed it: no consumer's cursor or lease reaches there.
    ///
    /// # Panics
    /// If `bytes` are longer than the lane.
    pub fn write<'a>(&mut self, lane: usize, position: u128, bytes: impl Into<SourceBytes<'a>>) {
        let bytes = bytes.into();
        let to = self.address(lane, position, bytes.len());
        // SAFETY:
        // - Mapped: `address` checked the range.
        // - Exclusive: `&mut self` is the only writer in this process, and the only writable mappings are this one and those of
        //   the server's own workers, each of which writes what was claimed for it (the memory is sealed).
        // - Readable: the contract of `SourceBytes`. Apart: nobody is told an address in a writer's mapping but `Slots`, whose
        //   ring is no longer anybody's to borrow mutably.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Where a range is.
    pub(crate) fn address(&self, lane: usize, position: u128, len_bytes: usize) -> NonNull<u8> {
        self.mapping.address(lane, position, len_bytes)
    }
}
