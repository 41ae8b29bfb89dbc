//! Memory that can be handed to another process and can't be pulled from under it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::memfd_create;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
};

use crate::RingError;

const FIXED_SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// An anonymous file in memory, of fixed size.
#[derive(Debug)]
pub struct Memfd {
    fd: OwnedFd,
    len_bytes: u64,
}

impl Memfd {
    /// Memory of which every page is there now, so that no later write can fail.
    pub fn create(name: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let memfd = Self::create_sparse(name, len_bytes)?;
        memfd.allocate(name)?;
        Ok(memfd)
    }

    /// Memory without pages yet.
    pub(crate) fn create_sparse(name: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Some machines refuse memory that could be executed; kernels before 6.3 don't know the flag.
        let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags));
        let fd = fd.map_err(RingError::os("creating shared memory"))?;
        ftruncate(&fd, len_bytes).map_err(RingError::memory(name, len_bytes))?;
        Ok(Self { fd, len_bytes })
    }

    /// Takes the pages that aren't there yet.
    ///
    /// The kernel kills somebody rather than refuse: look how much memory is left before you ask.
    pub(crate) fn allocate(&self, name: &'static str) -> Result<(), RingError> {
        let len_bytes = self.len_bytes;
        fallocate(&self.fd, FallocateFlags::empty(), 0, len_bytes).map_err(RingError::memory(name, len_bytes))
    }

    /// Fixes the size, and forbids every writable mapping but those that exist already.
    pub fn seal_writer(&self) -> Result<(), RingError> {
        fcntl_add_seals(&self.fd, FIXED_SIZE | SealFlags::FUTURE_WRITE).map_err(RingError::os("sealing shared memory"))
    }

    /// Fixes the size; both sides may write.
    pub fn seal_size(&self) -> Result<(), RingError> {
        fcntl_add_seals(&self.fd, FIXED_SIZE).map_err(RingError::os("sealing shared memory"))
    }

    /// Checks a descriptor that a peer sent: memory, at least this long, and of fixed size.
    pub fn accept(fd: OwnedFd, what: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let bad = |why: String| RingError::BadDescriptor { what, why };
        let seals = fcntl_get_seals(&fd).map_err(|errno| bad(format!("no sealed memory ({errno})")))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(bad("its size is not sealed".into()));
        }
        let stat = fstat(&fd).map_err(RingError::os("looking at shared memory"))?;
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        if actual != len_bytes {
            return Err(bad(format!("{actual} bytes long where {len_bytes} were announced")));
        }
        Ok(Self { fd, len_bytes })
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
