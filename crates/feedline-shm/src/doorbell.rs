//! How a consumer wakes a server that waits for space: an eventfd per consumer.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, readlink};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read};

use crate::RingError;

/// One side's end of an eventfd. Ringing twice before the other side reads it is ringing once.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one.
    pub fn new() -> Result<Self, RingError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        eventfd(0, flags).map(Self).map_err(RingError::os("creating an eventfd"))
    }

    /// The other end, received from a peer: an eventfd that doesn't block, and nothing else. A pipe could block the process that rings,
    /// and what is written to a file in the name of another could do harm.
    pub fn accept(fd: OwnedFd) -> Result<Self, RingError> {
        let bad = |why: String| RingError::BadDescriptor { what: "the doorbell", why };
        let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new());
        let kind = link.map_err(|errno| bad(format!("/proc does not say what it is ({errno})")))?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(bad(format!("no eventfd but {}", kind.to_string_lossy())));
        }
        let flags = fcntl_getfl(&fd).map_err(RingError::os("reading a doorbell's flags"))?;
        if !flags.contains(OFlags::NONBLOCK) {
            return Err(bad("it can block".into()));
        }
        Ok(Self(fd))
    }

    /// Rings.
    pub fn ring(&self) {
        // It fails only if the counter is full, and then it is rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Stops the ringing.
    pub fn clear(&self) {
        // The peer shares the flags of the descriptor and could make it block: say so with each read, where the kernel can.
        let mut count = [0_u8; 8];
        let current = u64::MAX;
        let read_now = preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], current, ReadWriteFlags::NOWAIT);
        if matches!(read_now, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
            let _ = read(&self.0, &mut count);
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
