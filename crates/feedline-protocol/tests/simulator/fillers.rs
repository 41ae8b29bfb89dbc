//! Those who fill claims: each takes its time, so they finish in any order, and some give up.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::log::Run;

use crate::ring::{Ring, Sample};

/// A claim that is being filled.
pub struct Filler {
    pub run: Run,
    pub epoch: u64,
    /// The number of its first sample in the epoch.
    pub index: u64,
    pub len_bytes: u64,
    pub until: Duration,
    pub gives_up: bool,
    /// Where it writes. Another ring may be in use when it is done.
    pub ring: Rc<Ring>,
}

/// What stands in a slot while somebody writes there.
const HALF_WRITTEN: Sample = Sample { epoch: u64::MAX, index: u64::MAX, left: 0 };

impl Filler {
    pub fn begin(self) -> Self {
        self.put(&self.ring, |_| HALF_WRITTEN);
        self
    }

    /// It is done; what it wrote goes into the ring that is in use now.
    pub fn finish(&self, current: &Rc<Ring>) {
        let whole = |at: u64| Sample { epoch: self.epoch, index: self.index + at, left: self.run.samples - at };
        self.put(&self.ring, whole);
        if !Rc::ptr_eq(&self.ring, current) {
            self.put(current, whole);
        }
    }

    fn put(&self, ring: &Ring, sample: impl Fn(u64) -> Sample) {
        for at in 0..self.run.samples {
            ring.put(self.run.first + at, sample(at), self.run.byte_start, self.len_bytes);
        }
    }
}
