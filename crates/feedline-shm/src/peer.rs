//! Who is at the other end of a Unix socket, and whether it still lives.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use feedline_protocol::page::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::RingError;

/// The process at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its process id, in this process's namespace; 0 if it isn't there.
    pub pid: u32,
    /// Its user, and its groups, when it connected or began to listen.
    pub uid: u32,
    /// The first is its own, the others are supplementary.
    pub gids: Vec<u32>,
    /// Becomes readable when it dies. None on kernels without pidfds: then the socket's end alone tells.
    pub pidfd: Option<Arc<OwnedFd>>,
}

impl Peer {
    /// Asks the kernel.
    pub fn of(socket: impl AsFd) -> Result<Self, RingError> {
        let cred = credentials(&socket).map_err(RingError::os("asking who the peer is"))?;
        let by_pid = || pidfd_open(Pid::from_raw(cred.pid)?, PidfdFlags::empty()).ok();
        let pidfd = peer_pidfd(&socket).or_else(by_pid);
        let mut gids = vec![cred.gid];
        gids.extend(supplementary_groups(&socket));
        Ok(Self { pid: cred.pid.unsigned_abs(), uid: cred.uid, gids, pidfd: pidfd.map(Arc::new) })
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }
}

impl Process for Peer {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_dead(&self) -> bool {
        Self::is_dead(self)
    }

    fn is_watched(&self) -> bool {
        self.pidfd.is_some()
    }
}

/// `SO_PEERCRED`. Not rustix's: that has no room for the pid 0 of a peer in another namespace.
fn credentials(socket: impl AsFd) -> Result<libc::ucred, Errno> {
    let mut cred = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: both out-pointers are to live locals, and `len` is the size of the first.
    let result =
        unsafe { libc::getsockopt(raw, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len) };
    if result == 0 { Ok(cred) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `SO_PEERGROUPS` (Linux 4.13); none where the kernel doesn't tell.
fn supplementary_groups(socket: impl AsFd) -> Vec<u32> {
    const SO_PEERGROUPS: libc::c_int = 59;
    /// What a process can have (`NGROUPS_MAX`).
    const MOST: usize = 65_536;
    let raw = socket.as_fd().as_raw_fd();
    let mut gids: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = (gids.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: `gids` has room for `len` bytes, and `len` is a live local.
        let result =
            unsafe { libc::getsockopt(raw, libc::SOL_SOCKET, SO_PEERGROUPS, gids.as_mut_ptr().cast(), &raw mut len) };
        if result == 0 {
            gids.truncate(len as usize / size_of::<libc::gid_t>());
            return gids;
        }
        if last_error() != Errno::RANGE || gids.len() == MOST {
            return Vec::new();
        }
        gids.resize(MOST, 0);
    }
}

/// `SO_PEERPIDFD` (Linux 6.5): unlike a pid it can't be reused between asking and opening. `None` where the kernel has none.
pub fn peer_pidfd(socket: impl AsFd) -> Option<OwnedFd> {
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
