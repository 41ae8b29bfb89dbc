//! Which connections are accepted: by the socket's mode, the peer's user, and the number of connections.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use feedline_shm::peer::Peer;
use rustix::fs::{Mode, chmod};
use rustix::process::{Resource, geteuid, getrlimit};

use super::Shared;
use crate::access::is_own;
use crate::error::Error;
use crate::wire::{Channel, Reply};

const MAX_CONSUMERS: usize = 1024;
/// One consumer for this many descriptors that this process may have: a consumer takes four, and the loader needs some for its
/// files.
const DESCRIPTORS_EACH: u64 = 8;
/// This many more connections for the feed's own user, who may want to observe it, or to end it.
const RESERVE: usize = 8;
/// The share of all connections that one other user may have.
const SHARE_OF_OTHERS: usize = 4;

/// Before anybody can connect: opens the socket to other users only if some are allowed. The umask doesn't matter.
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
pub(super) struct Admission {
    /// When a refusal was last logged: refused peers could fill the log.
    logged: Option<Instant>,
}

impl Admission {
    /// Whether a peer is accepted beside those that are connected. A peer that will never be accepted gets the reason.
    pub fn admits<'a>(
        &mut self,
        shared: &Shared,
        peer: &Peer,
        channel: &mut Channel,
        there: impl Iterator<Item = &'a Peer> + Clone,
    ) -> bool {
        if !shared.options.allow.permits(peer) {
            let (name, own, uid) = (&shared.name, geteuid().as_raw(), peer.uid);
            let why = format!(
                "feed {name:?} belongs to user {own} and does not let in user {uid}\n  \
                 its owner can change that: Server(..., allow=({uid},))"
            );
            let _ = channel.send(&Reply::Refused { why }, vec![]);
            self.log_refusal(shared, peer, "it is not allowed to attach");
            return false;
        }
        let count = there.clone().count();
        let of_theirs = there.filter(|other| other.uid == peer.uid).count();
        let most = most_consumers();
        let is_room =
            if is_own(peer) { count < most + RESERVE } else { count < most && of_theirs < most / SHARE_OF_OTHERS };
        if !is_room {
            self.log_refusal(shared, peer, &format!("{count} connections are open"));
        }
        is_room
    }

    /// Whether a peer may be a consumer beside this many others. If not, it tries again: another one may leave.
    pub fn has_place(&mut self, shared: &Shared, peer: &Peer, others: usize) -> bool {
        let most = most_consumers();
        if others >= most {
            self.log_refusal(
                shared,
                peer,
                &format!("there are {most} consumers, the most that `ulimit -n` lets it have"),
            );
        }
        others < most
    }

    fn log_refusal(&mut self, shared: &Shared, peer: &Peer, why: &str) {
        if self.logged.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            self.logged = Some(Instant::now());
            tracing::warn!("feed {:?}: refused pid {} of user {}: {why}", shared.name, peer.pid, peer.uid);
        }
    }
}

/// How many consumers there may be: as many as connections, minus the reserve.
fn most_consumers() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_CONSUMERS.min((descriptors / DESCRIPTORS_EACH).max(4) as usize)
}
