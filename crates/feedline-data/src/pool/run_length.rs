//! How many samples a worker takes at a time: few, so that all workers fill the next batch together and one slow sample delays only
//! itself; enough, so that dealing costs nothing beside making.

/// A run should take about this long.
const RUN_NANOS: u64 = 500_000;
/// A batch is cut into this many runs at most.
const MOST_RUNS: u64 = 256;

/// What a sample costs, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunLength {
    sample_nanos: Option<u64>,
}

impl RunLength {
    /// A run of so many samples took so long.
    pub fn note(&mut self, samples: u64, nanos: u64) {
        let Some(now) = nanos.checked_div(samples) else { return };
        // A slow sample now and then changes little, however slow; a dataset that becomes slower is followed within some runs.
        self.sample_nanos = Some(self.sample_nanos.map_or(now, |before| (before * 7 + now.min(before * 4)) / 8).max(1));
    }

    /// What a sample costs.
    pub fn sample_nanos(&self) -> Option<u64> {
        self.sample_nanos
    }

    /// How many samples of a batch of so many a worker should take.
    pub fn of_batch(&self, samples: u64) -> u64 {
        let worth = self.sample_nanos.map_or(1, |nanos| RUN_NANOS / nanos.max(1));
        worth.max(samples.div_ceil(MOST_RUNS)).clamp(1, samples.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_longer_the_cheaper_a_sample_is() {
        let mut length = RunLength::default();
        assert_eq!(length.of_batch(64), 1, "nothing is known yet");
        length.note(2, 200_000);
        assert_eq!(length.of_batch(64), 5);
        (0..200).for_each(|_| length.note(1, 1_000));
        assert_eq!(length.of_batch(64), 64);
        (0..200).for_each(|_| length.note(1, 50_000_000));
        assert_eq!(length.of_batch(64), 1);
        assert_eq!(length.of_batch(2560), 10, "no more runs than that");
    }

    #[test]
    fn one_slow_sample_does_not_count_for_all() {
        let mut length = RunLength::default();
        (0..50).for_each(|_| length.note(1, 100_000));
        length.note(1, 2_000_000_000);
        assert!(length.of_batch(64) >= 3);
    }
}
