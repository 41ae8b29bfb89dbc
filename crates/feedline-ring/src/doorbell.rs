//! How a consumer wakes a server that waits for room: an eventfd per consumer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::RingError;

/// One side's end of an eventfd. Ringing twice before the other side looks is ringing once.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one.
    pub fn new() -> Result<Self, RingError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        eventfd(0, flags).map(Self).map_err(RingError::os("creating an eventfd"))
    }

    /// The other end, received from the peer.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Rings.
    pub fn ring(&self) {
        // It fails only if the counter is full, and then it is rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Stops the ringing.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
