//! The server's end of a ring: the only place that writes into it.

use std::path::Path;

use crate::{Access, Layout, Mapping, Memfd, RingError, SourceBytes};

const NAME: &str = "feedline-ring";

/// A ring and the one mapping that may write to it.
#[derive(Debug)]
pub struct RingWriter {
    memfd: Memfd,
    layout: Layout,
    mapping: Mapping,
}

impl RingWriter {
    /// Allocates, maps and seals a ring.
    pub fn create(layout: Layout) -> Result<Self, RingError> {
        let mut memfd = Memfd::create_sparse(NAME, layout.len_bytes())?;
        let mapping = Mapping::new(&memfd, &layout, Access::Writer)?;
        mapping.use_huge_pages();
        memfd.allocate(NAME)?;
        memfd.seal_writer()?;
        Ok(Self { memfd, layout, mapping })
    }

    /// A ring in a file of this folder.
    pub fn create_in(folder: &Path, layout: Layout) -> Result<Self, RingError> {
        let mut memfd = Memfd::create_in(folder, NAME, layout.len_bytes())?;
        let mapping = Mapping::new(&memfd, &layout, Access::Writer)?;
        memfd.seal_writer()?;
        Ok(Self { memfd, layout, mapping })
    }

    /// The memory to hand to consumers.
    pub fn memfd(&self) -> &Memfd {
        &self.memfd
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
        let to = self.mapping.address(lane, position, bytes.len());
        // SAFETY:
        // - Mapped: `address` checked the range.
        // - Exclusive: `&mut self` is the only writer, and this is the only writable mapping (the memfd is sealed).
        // - Readable: the contract of `SourceBytes`. Apart: nobody is told an address in a writer's mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out again.
    pub fn read(&self, lane: usize, position: u128, out: &mut [u8]) {
        self.mapping.copy_out(lane, position, out);
    }

    /// Copies a range from an older ring, in pieces.
    pub fn copy_from(&mut self, old: &Self, lane: usize, position: u128, len_bytes: u64) {
        let mut piece = vec![0; len_bytes.min(1 << 20) as usize];
        let mut done = 0;
        while done < len_bytes {
            let part = &mut piece[..(len_bytes - done).min(1 << 20) as usize];
            old.read(lane, position + u128::from(done), part);
            self.write(lane, position + u128::from(done), &*part);
            done += part.len() as u64;
        }
    }
}
