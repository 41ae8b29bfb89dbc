//! Copying what is intact into another ring, while others go on filling their claims.
//!
//! ```text
//!                 ┌───────── something was filled meanwhile ◀────────┐
//!                 ▼                                                  │
//!   Transfer ── rest ──▶ copy, without the lock ──▶ rest, under it ──┴─ nothing ──▶ install, under the same lock
//! ```
//!
//! Nothing may be claimed meanwhile, so what is left gets less with every turn. Claims that are still being filled when the
//! ring is replaced are not copied: whoever fills them takes what it wrote along when it commits.

use std::ops::Range;

use super::Log;

/// What was copied already: runs of samples, in order, apart from each other.
#[derive(Clone, Debug, Default)]
pub struct Transfer(Vec<Range<u64>>);

impl Transfer {
    /// Runs of intact samples that were not copied yet. They count as copied from now on.
    pub fn rest(&mut self, log: &Log) -> Vec<Range<u64>> {
        let intact: Vec<_> = log.intact().collect();
        let mut rest = Vec::new();
        for run in &intact {
            let mut from = run.start;
            for copied in self.0.iter().filter(|copied| copied.end > run.start && copied.start < run.end) {
                rest.push(from..copied.start);
                from = copied.end;
            }
            rest.push(from..run.end);
        }
        rest.retain(|run| run.start < run.end);
        self.0 = intact;
        rest
    }
}

impl Log {
    /// Everything that was written and is still there: what is published, and what waits to be.
    fn intact(&self) -> impl Iterator<Item = Range<u64>> {
        std::iter::once(self.oldest..self.head).chain(self.filled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Policy, Size};

    #[test]
    fn each_sample_is_copied_once_and_what_is_being_filled_is_not() {
        let mut log = Log::new(Policy::default());
        log.shape(Size { capacity: 100, window: 100, ..Size::default() });
        log.begin_epoch(0);
        for first in [0, 10, 20, 30, 40] {
            assert_eq!(log.claim(10, 0).unwrap().first, first);
        }
        log.commit(0);
        log.commit(20);
        let mut transfer = Transfer::default();
        assert_eq!(transfer.rest(&log), [0..10, 20..30]);
        assert_eq!(transfer.rest(&log), []);
        for (filled, why) in [(40, "filled"), (10, "published, together with what was copied"), (30, "published")] {
            log.commit(filled);
            assert_eq!(transfer.rest(&log), std::slice::from_ref(&(filled..filled + 10)), "{why} meanwhile");
            assert_eq!(transfer.rest(&log), []);
        }
    }
}
