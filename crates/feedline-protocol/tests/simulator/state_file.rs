//! What a server with a `state_file` leaves behind: a place that its source can go on from, and that nobody is behind.

use feedline_protocol::Mark;
use feedline_protocol::server::Progress;

use crate::rng::Rng;

/// The places that the source could go on from, and the one that is written down.
pub struct StateFile {
    states: Vec<Mark>,
    needed: Mark,
    pub written: Option<Mark>,
}

impl StateFile {
    pub fn new(resume: Option<Mark>) -> Self {
        let start = Mark { epoch: 0, index: 0 };
        Self { states: resume.into_iter().collect(), needed: resume.unwrap_or(start), written: resume }
    }

    /// The source has come this far. It isn't asked for its state each time, nor is that written each time.
    pub fn mark(&mut self, progress: Progress, rng: &Rng) {
        let Progress { head, oldest, needed } = progress;
        if head.index == 0 || rng.one_in(2) {
            self.states.retain(|&state| state != head);
            let at = self.states.partition_point(|&state| state < head);
            self.states.insert(at, head);
        }
        while self.states.len() > 1 && self.states[1] <= oldest {
            self.states.remove(0);
        }
        self.needed = needed.unwrap_or(self.needed);
        let is_behind = self.written.is_some_and(|written| self.needed < written);
        if is_behind || head.index == 0 || rng.one_in(3) {
            let good = self.states.iter().rfind(|&&state| state <= self.needed).copied();
            self.written = good.or(self.written);
        }
    }
}
