//! Who comes in: the socket's mode, the peer's user, and how many there may be.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use feedline_ring::peer::Peer;
use rustix::fs::{Mode, chmod};
use rustix::process::{Resource, geteuid, getrlimit};

use super::Shared;
use crate::access::is_own;
use crate::error::Error;
use crate::wire::{Channel, Reply};

const MAX_CONNECTIONS: usize = 1024;
/// One connection for so many descriptors that this process may have: a consumer takes four, and the loader wants some for
/// its files.
const DESCRIPTORS_EACH: u64 = 8;
/// Of all connections, those that one other user may have.
const SHARE_OF_OTHERS: usize = 4;

/// Before anybody can connect: opens the socket to others only if there are any. Whatever the umask is.
pub(super) fn set_up(socket: &Path, shared: &Shared) -> Result<(), Error> {
    let others = !shared.options.allow.is_empty();
    let mode = Mode::from_raw_mode(if others { 0o666 } else { 0o600 });
    chmod(socket, mode).map_err(|errno| Error::Folder { path: socket.to_owned(), why: errno.to_string() })?;
    let folder = socket.parent().unwrap_or(socket);
    let mode = std::fs::metadata(folder).map_or(0, |meta| meta.permissions().mode() & 0o777);
    if others && mode & 0o011 == 0 {
        tracing::warn!(
            "feed {:?}: others are allowed to attach and cannot reach {} (mode {mode:o}): set FEEDLINE_DIR to a folder of \
             yours that they can, with mode 711 or 750",
            shared.name,
            folder.display()
        );
    }
    Ok(())
}

#[derive(Default)]
pub(super) struct Door {
    /// When the log last told of somebody turned away: they could fill it.
    told: Option<Instant>,
}

impl Door {
    /// Whether a peer comes in beside those who are there. One who may never is told why.
    pub fn admits<'a>(
        &mut self,
        shared: &Shared,
        peer: &Peer,
        channel: &mut Channel,
        there: impl Iterator<Item = &'a Peer> + Clone,
    ) -> bool {
        let (name, Peer { pid, uid, .. }) = (&shared.name, peer);
        let why = if shared.options.allow.permits(peer) {
            let count = there.clone().count();
            let of_theirs = there.filter(|other| other.uid == peer.uid).count();
            let most = most_connections();
            if count < most && (is_own(peer) || of_theirs < most / SHARE_OF_OTHERS) {
                return true;
            }
            format!("{count} connections are open")
        } else {
            let own = geteuid().as_raw();
            let why = format!(
                "feed {name:?} belongs to user {own} and does not let in user {uid}\n  \
                 its owner can change that: Server(..., allow=({uid},))"
            );
            let _ = channel.send(&Reply::Refused { why, batch_size: false }, vec![]);
            "it is not allowed to attach".to_owned()
        };
        if self.told.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            self.told = Some(Instant::now());
            tracing::warn!("feed {name:?}: refused pid {pid} of user {uid}: {why}");
        }
        false
    }
}

fn most_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_CONNECTIONS.min((descriptors / DESCRIPTORS_EACH).max(4) as usize)
}
