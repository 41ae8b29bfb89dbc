//! Where a batch's samples stand: each field in a lane of its own, one sample behind the other.

use feedline_shm::arena::ALIGNMENT;

/// The lanes of every batch of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Bytes per sample of each.
    strides: Vec<u64>,
}

impl Lanes {
    /// Lanes with so many bytes per sample.
    pub fn new(strides: Vec<u64>) -> Self {
        Self { strides }
    }

    /// Bytes per sample of each lane.
    pub fn strides(&self) -> &[u64] {
        &self.strides
    }

    /// Where each lane of a batch of so many samples begins, and how long the whole is.
    pub fn places(&self, samples: u64) -> (Vec<u64>, u64) {
        let mut end = 0_u64;
        let starts = self.strides.iter().map(|stride| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + stride * samples;
            start
        });
        let starts = starts.collect();
        (starts, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_begin_aligned_and_do_not_overlap() {
        let lanes = Lanes::new(vec![3, 0, 8]);
        assert_eq!(lanes.places(5), (vec![0, 64, 64], 104));
        assert_eq!(Lanes::default().places(5), (vec![], 0));
    }
}
