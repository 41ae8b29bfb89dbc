//! Which users may attach to a feed, and whose feeds a consumer attaches to: those of its own user and of root, and of
//! others that were named.
//!
//! The kernel says who the peer is (`SO_PEERCRED`, `SO_PEERGROUPS`); what the peer says about itself doesn't count.

use feedline_shm::peer::Peer;

/// The other users and groups, by number: the caller resolves names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Users.
    pub uids: Vec<u32>,
    /// Groups.
    pub gids: Vec<u32>,
}

impl Allow {
    /// Whether nobody else is allowed.
    pub fn is_empty(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }

    /// Whether this process talks to a peer.
    pub fn permits(&self, peer: &Peer) -> bool {
        is_own(peer) || self.uids.contains(&peer.uid) || peer.gids.iter().any(|gid| self.gids.contains(gid))
    }
}

/// Whether a peer is of this process's user, or root.
pub(crate) fn is_own(peer: &Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gids: &[u32]) -> Peer {
        Peer { pid: 1, uid, gids: gids.to_vec(), pidfd: None }
    }

    #[test]
    fn oneself_root_and_those_who_were_named() {
        let own = rustix::process::geteuid().as_raw();
        let nobody = Allow::default();
        assert!(nobody.is_empty());
        assert!(nobody.permits(&peer(own, &[])) && nobody.permits(&peer(0, &[])));
        assert!(!nobody.permits(&peer(own + 1000, &[0, own])));
        let some = Allow { uids: vec![own + 1000], gids: vec![77] };
        assert!(some.permits(&peer(own + 1000, &[])));
        assert!(some.permits(&peer(own + 1001, &[5, 77])));
        assert!(!some.permits(&peer(own + 1001, &[own + 1000])));
    }
}
