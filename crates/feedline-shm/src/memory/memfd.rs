//! Memory of a process, sealed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs, ftruncate, memfd_create};

use super::{Memory, check_length};
use crate::RingError;

const FIXED_LENGTH: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK);

/// Of `linux/magic.h`: what memfds are files of.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// An anonymous file in memory, of fixed size.
#[derive(Debug)]
pub struct Memfd {
    fd: OwnedFd,
    len_bytes: u64,
}

impl Memfd {
    /// Memory of which every page is there now.
    pub fn create(name: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let memfd = Self::create_sparse(name, len_bytes)?;
        memfd.allocate()?;
        Ok(memfd)
    }

    /// Memory without pages yet.
    pub fn create_sparse(name: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Some machines refuse memory that could be executed; kernels before 6.3 don't know the flag.
        let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags));
        let fd = fd.map_err(RingError::os("creating shared memory"))?;
        ftruncate(&fd, len_bytes).map_err(RingError::memory(name, len_bytes))?;
        Ok(Self { fd, len_bytes })
    }

    /// The same memory with another length, for whoever has it alone or does not touch it yet.
    pub(crate) fn with_length(self, len_bytes: u64) -> Result<Self, RingError> {
        ftruncate(&self.fd, len_bytes).map_err(RingError::memory("a ring", len_bytes))?;
        Ok(Self { len_bytes, ..self })
    }

    /// Fixes the size; both sides may write.
    pub fn seal_size(&self) -> Result<(), RingError> {
        fcntl_add_seals(&self.fd, FIXED_LENGTH | SealFlags::SEAL).map_err(RingError::os("sealing shared memory"))
    }

    /// Checks a descriptor that a peer sent: memory of exactly this length, which is fixed.
    pub fn accept(fd: OwnedFd, what: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let bad = |why: String| RingError::BadDescriptor { what, why };
        let seals = fcntl_get_seals(&fd).map_err(|errno| bad(format!("no sealed memory ({errno})")))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(bad("its size is not sealed".into()));
        }
        // Huge pages of the other kind can run out at a touch.
        if fstatfs(&fd).map_err(RingError::os("looking at shared memory"))?.f_type != TMPFS_MAGIC {
            return Err(bad("no ordinary memory".into()));
        }
        check_length(&fd, what, len_bytes)?;
        Ok(Self { fd, len_bytes })
    }
}

// SAFETY: the descriptor is private, and the kernel keeps the seals: on the length from `fix_length` on, on writers from
// `seal_writer` on. What a peer sent has them already, or is not accepted.
unsafe impl Memory for Memfd {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn fix_length(&self) -> Result<(), RingError> {
        fcntl_add_seals(&self.fd, FIXED_LENGTH).map_err(RingError::os("sealing shared memory"))
    }

    fn seal_writer(&mut self) -> Result<(), RingError> {
        let seals = FIXED_LENGTH | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&self.fd, seals).map_err(RingError::os("sealing shared memory"))
    }

    fn share(&self) -> Result<OwnedFd, RingError> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(RingError::os("sharing a ring"))
    }

    fn takes_huge_pages(&self) -> bool {
        true
    }
}
