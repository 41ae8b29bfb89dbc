//! A file that stands for memory, where that isn't enough.
//!
//! Files can't be sealed. Nobody has a descriptor that can write to it or shorten it, the server included, once it is mapped, and
//! its mode lets nobody open one. But the file's owner can change the mode. A process that touches bytes that were cut off gets a
//! SIGBUS: a mapping of a file is as good as its owner is trusted.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, ftruncate, open, unlink};
use rustix::io::Errno;

use super::{Memory, check_length};
use crate::RingError;

/// A file without a name, of fixed size.
#[derive(Debug)]
pub struct FileMemory {
    fd: OwnedFd,
    len_bytes: u64,
}

impl FileMemory {
    /// A file in a folder, without blocks yet.
    pub fn create_in(folder: &Path, len_bytes: u64) -> Result<Self, RingError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
        // A process that gets a descriptor from us can't open it again for writing.
        let mode = Mode::RUSR;
        let fd = match open(folder, flags | OFlags::TMPFILE, mode) {
            // Not every file system has files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                static COUNT: AtomicU64 = AtomicU64::new(0);
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let path = folder.join(format!(".feedline-{}-{count}", std::process::id()));
                let opened = open(&path, flags | OFlags::CREATE, mode);
                let _ = unlink(&path);
                opened
            }
            opened => opened,
        };
        let fd = fd.map_err(RingError::os("making a file for the history"))?;
        ftruncate(&fd, len_bytes).map_err(RingError::memory("a ring", len_bytes))?;
        Ok(Self { fd, len_bytes })
    }

    /// Checks a descriptor that a peer sent: a file of exactly this length, which can't be written to through it.
    ///
    /// # Safety
    ///
    /// The file must not become shorter while it is mapped, and nothing that this process could check promises that: its
    /// owner and root can. The caller trusts them with its life.
    pub unsafe fn accept(fd: OwnedFd, what: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let bad = |why: &str| RingError::BadDescriptor { what, why: why.into() };
        let flags = fcntl_getfl(&fd).map_err(RingError::os("looking at a file"))?;
        if flags & OFlags::RWMODE != OFlags::RDONLY {
            return Err(bad("it is open for writing"));
        }
        let stat = fstat(&fd).map_err(RingError::os("looking at a file"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(bad("it is not a file"));
        }
        check_length(&fd, what, len_bytes)?;
        Ok(Self { fd, len_bytes })
    }
}

// SAFETY: the descriptor is private, made by `create_in` or checked by `accept`, whose caller answers for the file's length; the
// only one that could write is closed by `seal_writer`.
unsafe impl Memory for FileMemory {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// There are no seals: the one descriptor that can write is closed instead.
    fn seal_writer(&mut self) -> Result<(), RingError> {
        self.fd = self.share()?;
        Ok(())
    }

    fn share(&self) -> Result<OwnedFd, RingError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(RingError::os("sharing a ring"))
    }
}
