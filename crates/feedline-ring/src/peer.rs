//! Who is at the other end of a Unix socket, and whether it still lives.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::RingError;

/// The process at the other end.
#[derive(Debug)]
pub struct Peer {
    /// Its process id, in this process's namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Becomes readable when it dies. None on kernels without pidfds: then the socket's end alone tells.
    pub pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Asks the kernel.
    pub fn of(socket: impl AsFd) -> Result<Self, RingError> {
        let cred = socket_peercred(&socket).map_err(RingError::os("asking who the peer is"))?;
        let pidfd = peer_pidfd(&socket).or_else(|| pidfd_open(cred.pid, PidfdFlags::empty()).ok());
        Ok(Self { pid: cred.pid.as_raw_nonzero().get().unsigned_abs(), uid: cred.uid.as_raw(), pidfd })
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }
}

/// `SO_PEERPIDFD` (Linux 6.5): unlike a pid it can't be reused between asking and opening.
fn peer_pidfd(socket: impl AsFd) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: both out-pointers are to live locals, and `len` is the size of the first.
    let result = unsafe { libc::getsockopt(raw, libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut len) };
    if result != 0 || fd < 0 {
        return None;
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
