//! Memory that can be handed to another process and can't be pulled from under it. Its kinds are siblings behind one trait:
//!
//! | kind | where the bytes are | who can still harm a reader |
//! |---|---|---|
//! | [`Memfd`] | in memory | nobody: its size and its writers are sealed |
//! | [`FileMemory`] | in a file without a name, cached in memory as long as there is enough | the file's owner and root |
//!
//! ```text
//! create ──▶ map as writer ──▶ allocate ──▶ fix_length ──▶ seal_writer ──▶ share ════▶ accept ──▶ map as reader
//!                                               └ worker processes map it as writers
//! ```
//!
//! `tests/memory_kinds.rs` holds every kind to what [`Memory`] promises.

mod file;
mod memfd;

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, fallocate, fstat};

pub use self::file::FileMemory;
pub use self::memfd::Memfd;
use crate::RingError;

/// A stretch of bytes of fixed length that several processes can map.
///
/// # Safety
/// Mappings rely on what the methods promise: the descriptor is always of the same memory, and that never becomes shorter. Once
/// [`Self::seal_writer`] has returned, nobody can map it for writing.
pub unsafe trait Memory: fmt::Debug + Send + Sync {
    /// What is mapped.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Its length, which never changes.
    fn len_bytes(&self) -> u64;

    /// Forbids every change of the length, as far as this kind can: from then on others can trust it and still write.
    fn fix_length(&self) -> Result<(), RingError> {
        Ok(())
    }

    /// Forbids every writable mapping but those that exist already, and every change of the length. What exists writes on.
    fn seal_writer(&mut self) -> Result<(), RingError>;

    /// A descriptor for another process, after [`Self::seal_writer`]. A process that has it can read all bytes, also once this end is
    /// gone, and can neither write nor shorten them.
    fn share(&self) -> Result<OwnedFd, RingError>;

    /// Whether it is worth asking the kernel for huge pages.
    fn takes_huge_pages(&self) -> bool {
        false
    }

    /// Takes the pages or blocks that aren't there yet, so that no later write can fail.
    ///
    /// The kernel kills somebody rather than refuse memory: look how much is left before you ask.
    fn allocate(&self) -> Result<(), RingError> {
        let len_bytes = self.len_bytes();
        fallocate(self.fd(), FallocateFlags::empty(), 0, len_bytes).map_err(RingError::memory("a ring", len_bytes))
    }
}

/// Checks that what a peer sent has the length that it announced.
fn check_length(fd: &OwnedFd, what: &'static str, len_bytes: u64) -> Result<(), RingError> {
    let stat = fstat(fd).map_err(RingError::os("looking at shared memory"))?;
    let actual = u64::try_from(stat.st_size).unwrap_or(0);
    if actual == len_bytes {
        return Ok(());
    }
    Err(RingError::BadDescriptor { what, why: format!("{actual} bytes long where {len_bytes} were announced") })
}
