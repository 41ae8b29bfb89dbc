//! When a consumer moved, and what its server can know of that.

use std::time::Duration;

use crate::server::LATEST_SIGHT;

/// When a consumer last asked for a place, or was further on than the server knew.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    /// The last move.
    pub last: Duration,
    /// The first of the moves that the server may not have seen when the last one came.
    unseen: Duration,
    /// The last one before that.
    before: Duration,
}

impl Moves {
    pub fn new(at: Duration) -> Self {
        Self { last: at, unseen: at, before: at }
    }

    /// It asks for a place: a server that gives it one knows of that.
    pub fn asks(&mut self, now: Duration) {
        *self = Self::new(now);
    }

    /// Its page shows that it is further on.
    pub fn at(&mut self, now: Duration) {
        if now > self.unseen + LATEST_SIGHT {
            (self.unseen, self.before) = (now, self.last);
        }
        self.last = now;
    }

    /// The last one that the server knows of for certain.
    pub fn seen(&self, now: Duration) -> Duration {
        if now > self.unseen + LATEST_SIGHT { self.last } else { self.before }
    }
}
