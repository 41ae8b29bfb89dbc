//! Counts what is published: the source's own batches, and their bytes.
//!
//! Runs are noted when they are granted, in the order of the log, and counted when they are published. One that is given back takes
//! those behind it with it; all of them are granted again, and counted once.

use std::collections::VecDeque;
use std::ops::Range;

use feedline_protocol::log::Run;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub batches: u64,
    pub bytes: u64,
    /// Where the last batch stands in the log, and what came before it since the one before.
    last_batch: Range<u64>,
    /// Not published yet.
    granted: VecDeque<Granted>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    end: u64,
    bytes: u64,
    ends_batch: bool,
}

impl Tally {
    /// A run was granted that has so many bytes; `left` samples of the source's batch are left from its first on.
    pub fn grant(&mut self, run: Run, left: u64, bytes: u64) {
        while self.granted.back().is_some_and(|granted| granted.end > run.first) {
            self.granted.pop_back();
        }
        self.granted.push_back(Granted { end: run.first + run.samples, bytes, ends_batch: run.samples == left });
    }

    /// The log has come to here.
    pub fn publish(&mut self, head: u64) {
        while let Some(&Granted { end, bytes, ends_batch }) = self.granted.front().filter(|granted| granted.end <= head)
        {
            self.granted.pop_front();
            self.bytes += bytes;
            if ends_batch {
                self.batches += 1;
                self.last_batch = self.last_batch.end..end;
            }
        }
    }

    /// How many samples the last batch has, in an epoch that begins here.
    pub fn tail(&self, epoch_start: u64) -> u64 {
        self.last_batch.end.saturating_sub(self.last_batch.start.max(epoch_start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(tally: &mut Tally, first: u64, samples: u64, left: u64) {
        tally.grant(Run { first, samples, index: first, byte_start: 0 }, left, 10 * samples);
    }

    #[test]
    fn batches_are_counted_when_their_last_sample_is_published() {
        let mut tally = Tally::default();
        grant(&mut tally, 0, 3, 4);
        grant(&mut tally, 3, 1, 1);
        grant(&mut tally, 4, 2, 2);
        assert_eq!((tally.batches, tally.bytes), (0, 0));
        tally.publish(3);
        assert_eq!((tally.batches, tally.bytes, tally.tail(0)), (0, 30, 0));
        tally.publish(6);
        assert_eq!((tally.batches, tally.bytes, tally.tail(0)), (2, 60, 2));
        grant(&mut tally, 6, 1, 1);
        tally.publish(7);
        assert_eq!((tally.batches, tally.tail(6), tally.tail(7)), (3, 1, 0));
    }

    #[test]
    fn what_is_granted_again_is_counted_once() {
        let mut tally = Tally::default();
        (0..4).for_each(|batch| grant(&mut tally, 2 * batch, 2, 2));
        tally.publish(2);
        grant(&mut tally, 2, 1, 2);
        grant(&mut tally, 3, 1, 1);
        tally.publish(4);
        assert_eq!((tally.batches, tally.bytes), (2, 40));
        assert_eq!(tally.tail(0), 2);
    }
}
