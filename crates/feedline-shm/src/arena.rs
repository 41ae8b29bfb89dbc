//! Memory that a process and its workers write to, handed out in extents of any length.
//!
//! ```text
//!  owner:   allocate ──▶ Extent ── a worker fills it ──▶ window() ──▶ tensors ──last drop──▶ may be allocated again
//!  worker:  open(descriptor) ──▶ write(offset, bytes)              a thread of the owner's process: writer() instead of open
//! ```
//!
//! It is one sparse memfd, mapped whole and once by each process: a worker that is there never has to be told of more memory. Pages
//! come with the first write and are used again by the next extent of that length. Unlike a ring's, its bytes may be written
//! by whoever has a tensor over them: nobody else reads them.
//!
//! A forked child sees the same pages. What tensors point at is made private just before a fork, so that neither sees what the other
//! does there (`extents` says which addresses those are until they are given back).

mod extents;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Weak};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use self::extents::{Extents, Freed};
use crate::fork::{self, Origin};
use crate::{Memfd, Memory, Mutex, RingError, SourceBytes, Window};

/// Where the parts of an arena begin: vector instructions and JAX want this.
pub const ALIGNMENT: u64 = 64;

/// An arena's addresses in this process.
#[derive(Debug)]
struct Mapped {
    memory: Memfd,
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: only addresses; who may touch the memory behind them is settled by `Arena` and `Extent`.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(memory: Memfd) -> Result<Self, RingError> {
        let len_bytes = memory.len_bytes() as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(null_mut(), len_bytes, access, flags, memory.fd(), 0) };
        let base = base.map_err(RingError::memory("address space", len_bytes as u64))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { memory, base, len_bytes })
    }

    /// Where a range is.
    ///
    /// # Panics
    /// If it is not inside.
    fn address(&self, offset: u64, len_bytes: usize) -> NonNull<u8> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(len_bytes));
        assert!(end.is_some_and(|end| end <= self.len_bytes), "{len_bytes} bytes at {offset} of an arena");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset as usize) }
    }

    /// Copies bytes into a range. Nobody reads a range that its owner has given to this process to fill.
    fn write(&self, offset: u64, bytes: SourceBytes<'_>) {
        let to = self.address(offset, bytes.len());
        // SAFETY:
        // - Mapped: `address` checked the range. Readable: the contract of `SourceBytes`.
        // - Overlap: a source that lies in this arena too is a tensor's, whose extent is lent out and so in no other's hands.
        // - No reference to these bytes is made here or elsewhere, so that others who write there spoil the bytes alone.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    fn read(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; len_bytes];
        let from = self.address(offset, len_bytes);
        // SAFETY: mapped (just checked); `copy` is new, so the two are apart.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr(), len_bytes) };
        copy
    }

    /// Replaces a range by a private copy of itself, or by the shared pages again.
    fn remap(&self, offset: u64, len_bytes: usize, private: bool) -> Result<(), RingError> {
        let place = self.address(offset, len_bytes).as_ptr().cast();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let failed = RingError::memory("a private copy of a batch", len_bytes as u64);
        if !private {
            let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: the range is ours, whole pages, and nothing points at it: its extent was given back.
            return unsafe { mmap(place, len_bytes, access, flags, self.memory.fd(), offset) }
                .map(drop)
                .map_err(failed);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let copy = unsafe { mmap_anonymous(null_mut(), len_bytes, access, MapFlags::PRIVATE) }.map_err(failed)?;
        // SAFETY: both have this length, and the copy is new. A thread that writes to its tensor meanwhile may see its write undone:
        // it is one that forks while it writes.
        unsafe { std::ptr::copy_nonoverlapping(place.cast::<u8>(), copy.cast::<u8>(), len_bytes) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves our own new pages over a range of ours, at whole pages: whoever reads there finds the same bytes.
        let moved = unsafe { libc::mremap(copy, len_bytes, len_bytes, flags, place) };
        if moved == libc::MAP_FAILED {
            // SAFETY: made above, and moved nowhere.
            let _ = unsafe { munmap(copy, len_bytes) };
            return Err(RingError::Os { what: "keeping a batch over a fork", source: rustix::io::Errno::NOMEM });
        }
        Ok(())
    }

    /// Gives a range's pages back to the system; it reads as zeros then.
    fn punch(&self, offset: u64, len_bytes: u64) {
        // Where it fails the memory stays: it is used again.
        let _ = fallocate(self.memory.fd(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len_bytes);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is ours, and whatever points into it holds an `Arc` of this.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// The owner's end: allocates.
#[derive(Debug)]
pub struct Arena(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    mapped: Arc<Mapped>,
    origin: Origin,
    extents: Mutex<Extents>,
}

impl Arena {
    /// An arena of so many bytes of address space, of which the first `reserved` are not allocated. It takes no memory yet.
    pub fn create(len_bytes: u64, reserved: u64) -> Result<Self, RingError> {
        let memory = Memfd::create_sparse("feedline-arena", len_bytes)?;
        memory.seal_size()?;
        let (mapped, origin) = (Arc::new(Mapped::new(memory)?), Origin::here());
        let owner = Arc::new(Owner { mapped, origin, extents: Extents::new(reserved, len_bytes).into() });
        fork::register(Arc::downgrade(&owner) as Weak<dyn fork::Table>);
        Ok(Self(owner))
    }

    /// To hand to workers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.mapped.memory.fd()
    }

    /// How long it is.
    pub fn len_bytes(&self) -> u64 {
        self.0.mapped.memory.len_bytes()
    }

    /// A worker's end for a thread of this process: it writes to the same addresses.
    pub fn writer(&self) -> ArenaWriter {
        ArenaWriter(Arc::clone(&self.0.mapped))
    }

    /// Memory of which nobody else has a byte. `None` if the arena is full.
    pub fn allocate(&self, len_bytes: u64) -> Option<Extent> {
        let offset = self.0.extents.lock().allocate(len_bytes)?;
        Some(Extent { owner: Arc::clone(&self.0), offset, len_bytes })
    }

    /// A copy of some bytes.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn read(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        self.0.mapped.read(offset, len_bytes)
    }
}

impl fork::Table for Owner {
    fn release_under_pressure(&self) {}

    fn before_fork(&self) {
        if !self.origin.is_here() || !fork::keeps_batches() {
            return;
        }
        let mut extents = self.extents.lock();
        for (offset, len_bytes) in extents.lent() {
            if self.mapped.remap(offset, len_bytes as usize, true).is_ok() {
                extents.made_private(offset);
            }
        }
    }
}

/// A part of an arena. Given back when the last of it and of its windows is dropped, on whatever thread.
#[derive(Debug)]
pub struct Extent {
    owner: Arc<Owner>,
    offset: u64,
    len_bytes: u64,
}

impl Extent {
    /// Where it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How long it is.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write<'a>(&mut self, offset_bytes: u64, bytes: impl Into<SourceBytes<'a>>) {
        let bytes = bytes.into();
        assert!(offset_bytes + bytes.len() as u64 <= self.len_bytes, "{} bytes into an extent", bytes.len());
        self.owner.mapped.write(self.offset + offset_bytes, bytes);
    }

    /// Its bytes, for tensors: it is filled, and no worker writes there any more.
    pub fn window(self) -> Window {
        self.owner.extents.lock().lend(self.offset);
        let start = self.owner.mapped.address(self.offset, self.len_bytes as usize);
        let len_bytes = self.len_bytes as usize;
        Window::new(start, len_bytes, true, Arc::new(self))
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // A child has the parent's table as it was; the memory is the parent's.
        if !self.owner.origin.is_here() {
            return;
        }
        let Owner { mapped, extents, .. } = &*self.owner;
        let mut extents = extents.lock();
        match extents.free(self.offset) {
            Freed::Kept => {}
            Freed::Surplus { offset, len_bytes } => mapped.punch(offset, len_bytes),
            Freed::Private { offset, len_bytes } => {
                // Where it can't be mapped again, it is never allocated again.
                if mapped.remap(offset, len_bytes as usize, false).is_ok() {
                    extents.mapped_again(offset);
                }
            }
        }
    }
}

/// A worker's end: writes where it was told to.
#[derive(Debug)]
pub struct ArenaWriter(Arc<Mapped>);

impl ArenaWriter {
    /// Maps an arena by its descriptor.
    pub fn open(fd: OwnedFd, len_bytes: u64) -> Result<Self, RingError> {
        Ok(Self(Arc::new(Mapped::new(Memfd::accept(fd, "the arena", len_bytes)?)?)))
    }

    /// Copies bytes to an offset that the owner gave to this worker.
    ///
    /// # Panics
    /// If they don't fit into the arena.
    pub fn write<'a>(&self, offset: u64, bytes: impl Into<SourceBytes<'a>>) {
        self.0.write(offset, bytes.into());
    }

    /// A copy of some bytes.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn read(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        self.0.read(offset, len_bytes)
    }

    /// How long it is.
    pub fn len_bytes(&self) -> u64 {
        self.0.memory.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn arena() -> Arena {
        Arena::create(1 << 30, PAGE).unwrap()
    }

    #[test]
    fn a_worker_writes_where_the_owner_reads() {
        let arena = arena();
        let worker = ArenaWriter::open(arena.fd().try_clone_to_owned().unwrap(), arena.len_bytes()).unwrap();
        let extent = arena.allocate(10).unwrap();
        worker.write(extent.offset() + 2, b"feed");
        assert_eq!(extent.window().to_vec(), b"\0\0feed\0\0\0\0");
    }

    #[test]
    fn a_thread_writes_at_the_owners_addresses_and_may_outlive_the_owner() {
        let arena = arena();
        let writer = arena.writer();
        let window = arena.allocate(10).unwrap().window();
        drop(arena);
        writer.write(PAGE, b"feed");
        assert_eq!(window.copy(0, 4).unwrap(), b"feed");
    }

    #[test]
    fn memory_that_a_tensor_points_at_is_not_allocated_again() {
        let arena = arena();
        let (first, place) = {
            let extent = arena.allocate(PAGE).unwrap();
            let place = extent.offset();
            (extent.window(), place)
        };
        let part = first.part(8, 8);
        drop(first);
        assert_ne!(arena.allocate(PAGE).unwrap().offset(), place);
        drop(part);
        assert!((0..2).map(|_| arena.allocate(PAGE).unwrap()).any(|extent| extent.offset() == place));
    }

    #[test]
    fn what_is_lent_over_a_fork_stays_and_is_shared_again_afterwards() {
        let arena = arena();
        let mut extent = arena.allocate(PAGE).unwrap();
        extent.write(0, b"mine");
        let (offset, window) = (extent.offset(), extent.window());
        fork::Table::before_fork(&*arena.0);
        let worker = ArenaWriter::open(arena.fd().try_clone_to_owned().unwrap(), arena.len_bytes()).unwrap();
        worker.write(offset, b"late");
        assert_eq!(window.copy(0, 4).unwrap(), b"mine", "private from the fork on");
        drop(window);
        let again = arena.allocate(PAGE).unwrap();
        assert_eq!(again.offset(), offset);
        worker.write(offset, b"next");
        assert_eq!(again.window().copy(0, 4).unwrap(), b"next");
    }

    #[test]
    #[should_panic(expected = "of an arena")]
    fn nothing_is_written_outside() {
        let arena = arena();
        let worker = ArenaWriter::open(arena.fd().try_clone_to_owned().unwrap(), arena.len_bytes()).unwrap();
        worker.write((1 << 30) - 2, b"feed");
    }
}
