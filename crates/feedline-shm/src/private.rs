//! Which pages of a private mapping no longer follow the ring.
//!
//! A page that a training step wrote into no longer follows the ring. It would show old bytes when the ring comes round,
//! so every range is looked at before it is handed out.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::{Mapping, page_size};

/// Up to this many bytes, comparing with the shared mapping is cheaper than asking the kernel.
const COMPARE_BYTES: usize = 8192;

/// Finds private pages in this process's mappings.
#[derive(Debug)]
pub struct PrivatePages {
    pagemap: OwnedFd,
    has_scan: bool,
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = (3 << 30) | ((size_of::<ScanArg>() as u64) << 16) | ((b'f' as u64) << 8) | 16;
const PAGEMAP_PRESENT: u64 = 1 << 63;
const PAGEMAP_SWAPPED: u64 = 1 << 62;
const PAGEMAP_FILE: u64 = 1 << 61;

impl PrivatePages {
    /// None where the kernel doesn't let a process look at its own pages; batches must then be copied.
    pub fn open() -> Option<Self> {
        let pagemap: OwnedFd = File::open("/proc/self/pagemap").ok()?.into();
        let probe = Self { pagemap, has_scan: true };
        let byte = 0_u8;
        let here = &raw const byte as usize;
        match probe.scan(here, here + 1) {
            // The stack is private memory: a scan that works must say so.
            Some(true) => Some(probe),
            _ => {
                let fallback = Self { has_scan: false, ..probe };
                fallback.read_pagemap(here, here + 1)?.then_some(fallback)
            }
        }
    }

    /// Whether the kernel has `PAGEMAP_SCAN` (Linux 6.7); without it each page's entry is read.
    pub fn has_scan(&self) -> bool {
        self.has_scan
    }

    /// Whether a window of `mapping` would show other bytes than `shared`, which follows the ring, does.
    ///
    /// Up to 100 ns for each page, small or huge, that is mapped; nothing for pages that were never touched.
    pub fn is_stale(&self, mapping: &Mapping, shared: &Mapping, lane: usize, position: u128, len_bytes: usize) -> bool {
        if len_bytes == 0 || !mapping.may_be_stale() {
            return false;
        }
        let start = mapping.address(lane, position, len_bytes);
        if len_bytes <= COMPARE_BYTES {
            // Equal bytes are right bytes, in whatever page they stand: nobody else can change a private page.
            return !equal(start.as_ptr(), shared.address(lane, position, len_bytes).as_ptr(), len_bytes);
        }
        self.any_private(start.as_ptr() as usize, len_bytes)
    }

    /// Whether anything in this range was written to.
    pub(crate) fn any_private(&self, start: usize, len_bytes: usize) -> bool {
        let found = if self.has_scan { self.scan(start, start + len_bytes) } else { None };
        // If nothing can be said, a fresh mapping is right and merely slow.
        found.or_else(|| self.read_pagemap(start, start + len_bytes)).unwrap_or(true)
    }

    fn scan(&self, start: usize, end: usize) -> Option<bool> {
        let page = page_size();
        let mut region = Region::default();
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: start as u64 / page * page,
            end: (end as u64).next_multiple_of(page),
            vec: &raw mut region as u64,
            vec_len: 1,
            max_pages: 1,
            category_inverted: PAGE_IS_FILE,
            category_mask: PAGE_IS_FILE,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArg::default()
        };
        // SAFETY: the request takes a pointer to `struct pm_scan_arg`, whose size we give, and writes at most `vec_len`
        // regions to `vec`; both are live locals.
        let found = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) };
        (found >= 0).then_some(found > 0)
    }

    fn read_pagemap(&self, start: usize, end: usize) -> Option<bool> {
        let page = page_size() as usize;
        let (first, last) = (start / page, end.div_ceil(page));
        let mut entries = vec![0_u8; (last - first) * 8];
        let file = File::from(self.pagemap.try_clone().ok()?);
        file.read_exact_at(&mut entries, first as u64 * 8).ok()?;
        Some(entries.chunks_exact(8).any(|entry| {
            let bits = u64::from_ne_bytes(entry.try_into().expect("chunks of eight bytes"));
            bits & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED) != 0 && bits & PAGEMAP_FILE == 0
        }))
    }
}

fn equal(left: *const u8, right: *const u8, len_bytes: usize) -> bool {
    // Not through references: there is no lease yet. SAFETY: both ranges were checked by `Mapping::address` and are mapped;
    // the caller's cursor keeps the server from writing to them. A thread of the job that writes into an earlier batch
    // touches other bytes of the page.
    let order = unsafe { libc::memcmp(left.cast(), right.cast(), len_bytes) };
    order == 0
}
