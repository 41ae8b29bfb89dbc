//! Memory that can be handed to another process and can't be pulled from under it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
    fcntl_getfl, fstat, fstatfs, ftruncate, memfd_create, open, unlink,
};
use rustix::io::Errno;

use crate::RingError;

const FIXED_SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Of `linux/magic.h`: what memfds are files of.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// An anonymous file of fixed size: in memory, or in a folder.
#[derive(Debug)]
pub struct Memfd {
    fd: OwnedFd,
    len_bytes: u64,
    backing: Backing,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In memory, sealed.
    Memory,
    /// In a file without a name, which the page cache keeps in memory as long as there is enough.
    ///
    /// Files can't be sealed. Nobody has a descriptor that can write to it or shorten it, the server included, once it is
    /// mapped, and its mode lets nobody open one. But the file's owner can change the mode. Whoever touches bytes that were
    /// cut off gets a SIGBUS: a mapping of a file is as good as its owner is trusted.
    File,
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
        Ok(Self { fd, len_bytes, backing: Backing::Memory })
    }

    /// A file without a name in a folder, with all of its blocks, so that no later write can fail.
    pub(crate) fn create_in(folder: &Path, name: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
        // Who gets a descriptor from us can't open it again for writing.
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
        ftruncate(&fd, len_bytes).map_err(RingError::memory(name, len_bytes))?;
        let file = Self { fd, len_bytes, backing: Backing::File };
        file.allocate(name)?;
        Ok(file)
    }

    /// A descriptor for others.
    pub fn share(&self) -> Result<OwnedFd, RingError> {
        let shared = match self.backing {
            Backing::Memory => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0),
            Backing::File => {
                let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
                open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            }
        };
        shared.map_err(RingError::os("sharing a ring"))
    }

    /// Where the bytes are.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Takes the pages that aren't there yet.
    ///
    /// The kernel kills somebody rather than refuse: look how much memory is left before you ask.
    pub(crate) fn allocate(&self, name: &'static str) -> Result<(), RingError> {
        let len_bytes = self.len_bytes;
        fallocate(&self.fd, FallocateFlags::empty(), 0, len_bytes).map_err(RingError::memory(name, len_bytes))
    }

    /// Fixes the size, and forbids every writable mapping but those that exist already.
    ///
    /// A file has no seals: its one descriptor that can write or shorten it is closed instead. See [`Backing::File`] for who
    /// could still open another.
    pub fn seal_writer(&mut self) -> Result<(), RingError> {
        if self.backing == Backing::File {
            self.fd = self.share()?;
            return Ok(());
        }
        fcntl_add_seals(&self.fd, FIXED_SIZE | SealFlags::FUTURE_WRITE).map_err(RingError::os("sealing shared memory"))
    }

    /// Fixes the size; both sides may write.
    pub fn seal_size(&self) -> Result<(), RingError> {
        fcntl_add_seals(&self.fd, FIXED_SIZE).map_err(RingError::os("sealing shared memory"))
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
        Self::of_length(fd, what, len_bytes, Backing::Memory)
    }

    /// The same for a file that only the server can write to.
    ///
    /// # Safety
    ///
    /// The file must not become shorter while it is mapped, and nothing that this process could check promises that: its
    /// owner and root can (see [`Backing::File`]). The caller trusts them with its life.
    pub unsafe fn accept_file(fd: OwnedFd, what: &'static str, len_bytes: u64) -> Result<Self, RingError> {
        let bad = |why: &str| RingError::BadDescriptor { what, why: why.into() };
        let flags = fcntl_getfl(&fd).map_err(RingError::os("looking at a file"))?;
        if flags & OFlags::RWMODE != OFlags::RDONLY {
            return Err(bad("it is open for writing"));
        }
        let stat = fstat(&fd).map_err(RingError::os("looking at a file"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(bad("it is not a file"));
        }
        Self::of_length(fd, what, len_bytes, Backing::File)
    }

    fn of_length(fd: OwnedFd, what: &'static str, len_bytes: u64, backing: Backing) -> Result<Self, RingError> {
        let bad = |why: String| RingError::BadDescriptor { what, why };
        let stat = fstat(&fd).map_err(RingError::os("looking at shared memory"))?;
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        if actual != len_bytes {
            return Err(bad(format!("{actual} bytes long where {len_bytes} were announced")));
        }
        Ok(Self { fd, len_bytes, backing })
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
