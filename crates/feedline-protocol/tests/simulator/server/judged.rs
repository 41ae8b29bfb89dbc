//! What the judges ask of a server.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::message::Join;

use super::{LATEST_SIGHT, Link, SLICE, ServerProcess, Stage};
use crate::judge::places::Asked;
use crate::ring::Ring;
use crate::wire::Pid;

impl ServerProcess {
    /// Whether this is the memory that it appends to.
    pub fn writes_to(&self, ring: &Rc<Ring>) -> bool {
        self.ring.as_ref().is_some_and(|own| Rc::ptr_eq(own, ring))
    }

    /// The cursor that it keeps for a process.
    pub fn cursor_of(&self, pid: &Pid) -> Option<(u64, Option<u64>)> {
        let is_its = |link: &Link| Rc::ptr_eq(&link.pid.is_dead, &pid.is_dead);
        let link = self.links.iter().rfind(|link| is_its(link))?;
        self.machine.log().cursor(link.id)
    }

    /// Whether a consumer has read all that there will be, or was given the time to ask for it, when it last moved at `moved`.
    pub fn is_done_with(&self, pid: &Pid, moved: Duration, now: Duration) -> bool {
        let is_its = |link: &&Link| Rc::ptr_eq(&link.pid.is_dead, &pid.is_dead) && link.stage == Stage::Attached;
        let Some(link) = self.links.iter().rfind(is_its) else { return true };
        let epochs = if self.feed.policy.replay { self.feed.epochs.unwrap_or(0) } else { self.next_epoch };
        let (is_done, since) = match self.machine.log().cursor(link.id) {
            Some((epoch, released)) => {
                let has_all = !self.feed.policy.replay && released == Some(self.machine.log().head());
                (epoch >= epochs || has_all, moved)
            }
            None => (false, link.idle_since),
        };
        is_done || now.saturating_sub(since) + LATEST_SIGHT + SLICE >= self.feed.stall_timeout
    }

    pub fn is_about_to_detach(&self) -> bool {
        self.replacing.as_ref().is_some_and(|replacing| !replacing.detaches.is_empty())
    }

    /// The log, as this one finds it that asks for a place.
    pub(super) fn asked(&self, join: &Join) -> Asked {
        let log = self.machine.log();
        let others = self.links.iter().filter_map(|link| log.cursor(link.id)).map(|(epoch, _)| epoch);
        // Places are held for those who come back after a server was lost, and for ranks.
        let are_all = !self.returns.has_any() && !self.returns.has_ranks;
        let sample_at = |position: u64| self.ring.as_ref().and_then(|ring| ring.get(position));
        Asked::new(join, self.feed.policy.replay, log, others.max().filter(|_| are_all), sample_at)
    }
}
