//! A ring in this process's address space, every lane twice, back to back.
//!
//! ```text
//! memory     ▕ lane 0 ▏ lane 1 ▏
//! addresses  ▕ lane 0 ▏ lane 0 ▏ lane 1 ▏ lane 1 ▏
//!                  └ window ┘   a range that crosses a lane's end is still contiguous
//! ```

use std::ffi::c_void;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap};

use crate::layout::HUGE_PAGE;
use crate::{Hold, Layout, Memory, PrivatePages, RingError, page_size};

/// Of `linux/mman.h`, since Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// What a process may do with a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The server: writes are seen by all. Possible only before the memory is sealed.
    Writer,
    /// Reads what the server writes; a write is a crash.
    Reader,
    /// Reads what the server writes; a write makes a private copy of the page.
    Private,
    /// Reads what the server writes; a write is a crash, but pages can be made private on purpose.
    Frozen,
}

/// An owned range of addresses.
#[derive(Debug)]
pub(crate) struct Span {
    base: NonNull<u8>,
    /// What was mapped: the base is in it, aligned.
    mapped: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: a span is only addresses; who may touch the memory behind them is settled by the types that own it.
unsafe impl Send for Span {}
// SAFETY: as above; `Span` has no interior mutability of its own.
unsafe impl Sync for Span {}

impl Span {
    /// Addresses for a ring, beginning at a huge page.
    fn reserve(len_bytes: usize) -> Result<Self, RingError> {
        let len_bytes = len_bytes + HUGE_PAGE as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap_anonymous(null_mut(), len_bytes, ProtFlags::empty(), flags) }
            .map_err(RingError::memory("address space", len_bytes as u64))?;
        let mapped = non_null(mapped);
        let base = mapped.map_addr(|address| {
            address.checked_add(HUGE_PAGE as usize - 1).map_or(address, |last| {
                NonZero::new(last.get() / HUGE_PAGE as usize * HUGE_PAGE as usize).unwrap_or(address)
            })
        });
        Ok(Self { base, mapped, len_bytes })
    }

    /// Maps memory as a whole, once.
    pub(crate) fn map(memory: &dyn Memory, access: Access) -> Result<Self, RingError> {
        let len_bytes = memory.len_bytes() as usize;
        let (prot, flags) = access.flags();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(null_mut(), len_bytes, prot, flags, memory.fd(), 0) }
            .map_err(RingError::memory("a mapping", len_bytes as u64))?;
        Ok(Self { base: non_null(base), mapped: non_null(base), len_bytes })
    }

    /// Maps memory that has no length yet, for writing: addresses for so many bytes, of which none may be touched before there
    /// is memory behind it.
    pub(crate) fn map_ahead(fd: impl AsFd, len_bytes: u64) -> Result<Self, RingError> {
        let span = Self::reserve(len_bytes as usize)?;
        let (prot, flags) = Access::Writer.flags();
        let flags = flags | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range lies in `span`, which was reserved for it; nothing else is there.
        unsafe { mmap(span.base.as_ptr().cast(), len_bytes as usize, prot, flags, fd, 0) }
            .map_err(RingError::memory("a ring's mapping", len_bytes))?;
        Ok(span)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us as a whole, and every borrower of it is gone.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.len_bytes) };
    }
}

impl Access {
    fn flags(self) -> (ProtFlags, MapFlags) {
        match self {
            Self::Writer => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            Self::Reader => (ProtFlags::READ, MapFlags::SHARED),
            // NORESERVE: under strict overcommit a private writable mapping would otherwise be charged in full.
            Self::Private => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE),
            Self::Frozen => (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::NORESERVE),
        }
    }
}

fn non_null(base: *mut c_void) -> NonNull<u8> {
    NonNull::new(base.cast()).expect("the kernel never maps at address 0 unless asked to")
}

/// A ring, mirrored.
#[derive(Debug)]
pub struct Mapping {
    span: Span,
    lanes: Vec<MappedLane>,
    access: Access,
    kept: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct MappedLane {
    /// From the span's base.
    offset_bytes: usize,
    lane: crate::Lane,
}

impl Mapping {
    /// Maps every lane twice. About 40 µs, and a page fault for each page at its first touch.
    pub fn new(memory: &dyn Memory, layout: &Layout, access: Access) -> Result<Self, RingError> {
        assert!(layout.len_bytes() <= memory.len_bytes(), "the layout fits the memory");
        let span = Span::reserve(layout.len_bytes() as usize * 2)?;
        let (prot, flags) = access.flags();
        let mut lanes = Vec::with_capacity(layout.lanes().len());
        for &lane in layout.lanes() {
            let offset_bytes = lane.offset_bytes as usize * 2;
            for copy in 0..2 {
                let address = span.base.as_ptr().wrapping_add(offset_bytes + copy * lane.len_bytes as usize);
                // SAFETY:
                // - Ours: the range lies in `span`, which we reserved as twice the sum of all lanes; nothing else is there.
                // - Backed: the memory is at least as long as the layout, and its length is fixed before others map it.
                unsafe {
                    mmap(
                        address.cast(),
                        lane.len_bytes as usize,
                        prot,
                        flags | MapFlags::FIXED,
                        memory.fd(),
                        lane.offset_bytes,
                    )
                }
                .map_err(RingError::memory("a ring's mapping", lane.len_bytes))?;
            }
            lanes.push(MappedLane { offset_bytes, lane });
        }
        Ok(Self { span, lanes, access, kept: AtomicBool::new(false) })
    }

    /// Asks the kernel for huge pages under the large lanes of a ring that nobody uses yet. About 10 ms for 100 MB.
    ///
    /// Looking for private pages is ten times cheaper then, and so is the first touch. Where the kernel can't (before
    /// Linux 6.1, or where no memory in one piece is free) everything works with small ones.
    pub(crate) fn use_huge_pages(&self) {
        for (index, mapped) in self.lanes.iter().enumerate().filter(|(_, mapped)| mapped.lane.is_huge()) {
            let len_bytes = mapped.lane.len_bytes as usize;
            let start = self.address(index, 0, len_bytes).as_ptr();
            for offset in (0..len_bytes).step_by(HUGE_PAGE as usize) {
                // A page must be there to be made a huge one. SAFETY: inside the lane, writable, and nobody else's yet.
                unsafe { start.wrapping_add(offset).write(0) };
            }
            // SAFETY: whole pages of a mapping of ours; collapsing changes no byte.
            unsafe { libc::madvise(start.cast(), len_bytes, MADV_COLLAPSE) };
        }
    }

    /// What this mapping permits.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether pages of it can have become private.
    pub fn may_be_stale(&self) -> bool {
        self.access == Access::Private || self.has_kept()
    }

    /// Whether pages of it were made private on purpose.
    pub fn has_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Whether a job wrote into a range. Says no once pages were made private on purpose: then nobody can tell.
    pub fn was_written(&self, pages: &PrivatePages, lane: usize, position: u128, len_bytes: usize) -> bool {
        let start = self.address(lane, position, len_bytes).as_ptr() as usize;
        len_bytes > 0 && !self.has_kept() && pages.any_private(start, len_bytes)
    }

    /// Gives every page of a range its own copy, without changing a byte. False if that could not be done.
    ///
    /// Not to be called twice at once for one mapping: neighbouring ranges share pages.
    pub(crate) fn make_private(&self, lane: usize, position: u128, len_bytes: usize) -> bool {
        if len_bytes == 0 {
            return true;
        }
        self.kept.store(true, Ordering::Relaxed);
        let start = self.address(lane, position, len_bytes).as_ptr() as usize;
        let page = page_size() as usize;
        let first = start / page * page;
        let len = (start + len_bytes).next_multiple_of(page) - first;
        match self.access {
            Access::Private => {
                populate(first, len);
                true
            }
            Access::Frozen => {
                // The kernel refuses when a process has too many memory areas; nothing has changed then.
                if protect(first, len, MprotectFlags::READ | MprotectFlags::WRITE).is_err() {
                    return false;
                }
                populate(first, len);
                let _ = protect(first, len, MprotectFlags::READ);
                true
            }
            Access::Writer | Access::Reader => false,
        }
    }

    /// The address of `len_bytes` at a position, contiguous.
    ///
    /// # Panics
    /// If the range is longer than the lane.
    pub(crate) fn address(&self, lane: usize, position: u128, len_bytes: usize) -> NonNull<u8> {
        let MappedLane { offset_bytes, lane } = self.lanes[lane];
        assert!(len_bytes as u64 <= lane.len_bytes, "a window of {len_bytes} bytes in a lane of {}", lane.len_bytes);
        let offset = offset_bytes + lane.wrap(position) as usize;
        // SAFETY: wrap() < len and len_bytes <= len, so the end is within the lane's two copies, inside `span`.
        unsafe { self.span.base().add(offset) }
    }

    /// A few bytes of the sample `first`. `None` if they were not held in place.
    pub fn read<const N: usize>(&self, lane: usize, position: u128, hold: Hold<'_>, first: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.copy_out(lane, position, &mut bytes);
        hold.was_in_place(first).then_some(bytes)
    }

    /// Copies published bytes out. The caller asks its [`Hold`] afterwards, or is the writer itself.
    pub(crate) fn copy_out(&self, lane: usize, position: u128, out: &mut [u8]) {
        let from = self.address(lane, position, out.len());
        // SAFETY:
        // - Mapped: `address` checked the range; a memfd can't shrink, and for a file the caller of `FileMemory::accept` promised it.
        // - Unchanging: the caller's `Hold` says so, asked afterwards; if it doesn't, nobody sees what was copied.
        // - Apart: `out` is ordinary memory, never inside a ring.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
    }
}

fn protect(first: usize, len_bytes: usize, flags: MprotectFlags) -> rustix::io::Result<()> {
    // SAFETY: whole pages of a mapping of ours; every access that was allowed before stays allowed.
    unsafe { mprotect(std::ptr::with_exposed_provenance_mut(first), len_bytes, flags) }
}

fn populate(first: usize, len_bytes: usize) {
    let start = std::ptr::with_exposed_provenance_mut(first);
    // SAFETY: whole, writable pages of a private mapping of ours; populating changes no byte.
    if unsafe { madvise(start, len_bytes, Advice::LinuxPopulateWrite) }.is_ok() {
        return;
    }
    for address in (first..first + len_bytes).step_by(page_size() as usize) {
        // SAFETY: the byte is mapped and writable; it is accessed atomically here, and OR of zero keeps its value even if
        // a thread of the job writes to it at the same time.
        let byte = unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(address)) };
        byte.fetch_or(0, Ordering::Relaxed);
    }
}
