//! Several orders at once, in given proportions. Every stretch of a mixture has its proportions, not only the whole.
//!
//! A mixture is one stream, cut into epochs. Each part is a stream too: its own epochs, one after the other, each sample once in each.
//! So nothing is lost or repeated where the mixture's epochs meet, nor where the proportions change.
//!
//! ```text
//!  weights 2 : 1 from sample 0     1 : 1 from sample 9
//!  A B A A B A A B A │ A B A B A B ...
//! ```
//!
//! The m-th sample of a part with weight q is due at (2m + 1) / 2q, and samples come when they are due (Webster's method: after any number
//! of samples each part has had its share, to within one sample or so). How many of each part came before a place follows by
//! division, so places can be looked up anywhere.

use std::fmt;
use std::sync::Arc;

use super::order::Parts;
use super::random::Key;
use super::weighted::{WeightError, check};

/// Weights are counted in parts of this.
const UNIT: f64 = (1_u64 << 32) as f64;

/// Several orders in proportions.
#[derive(Clone, Debug)]
pub struct Mixture {
    parts: Parts,
    epoch_samples: u64,
    /// In the order of their beginnings; the first begins with sample 0.
    phases: Arc<[Phase]>,
}

/// A stretch of the stream with the same weights.
#[derive(Clone, Debug)]
struct Phase {
    /// The number of its first sample in the stream.
    start: u64,
    /// As they were given.
    given: Vec<f64>,
    weights: Vec<u64>,
    /// How many samples each part had before it.
    before: Vec<u64>,
}

/// Why there is no such mixture.
#[derive(Clone, Debug, PartialEq)]
pub enum MixtureError {
    /// These weights can't be used.
    Weights(WeightError),
    /// So many weights for so many parts.
    Count {
        /// How many weights.
        weights: usize,
        /// How many parts.
        parts: usize,
    },
    /// A part with a weight has no samples.
    Empty(usize),
    /// The weights change at a sample before the last change.
    Past {
        /// Where they are to change.
        start: u64,
        /// Where they changed last.
        last: u64,
    },
}

impl fmt::Display for MixtureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights(error) => error.fmt(f),
            Self::Count { weights, parts } => write!(f, "{weights} weights for {parts} datasets"),
            Self::Empty(part) => write!(f, "dataset {part} has a weight, and no samples"),
            Self::Past { start, last } => {
                write!(f, "weights that change at sample {start}, where they change at sample {last} already")
            }
        }
    }
}

impl From<WeightError> for MixtureError {
    fn from(error: WeightError) -> Self {
        Self::Weights(error)
    }
}

impl Mixture {
    /// Epochs of so many samples, in these proportions until they are changed.
    pub fn new(parts: Parts, weights: &[f64], epoch_samples: u64) -> Result<Self, MixtureError> {
        let before = vec![0; parts.len()];
        let given = weights.to_vec();
        let weights = shares(&parts, weights)?;
        Ok(Self { parts, epoch_samples, phases: [Phase { start: 0, given, weights, before }].into() })
    }

    /// The same with other weights from a sample of the stream on: sample `index` of an epoch is `epoch * epoch_samples + index` there.
    pub fn then(&self, start: u64, weights: &[f64]) -> Result<Self, MixtureError> {
        let given = weights.to_vec();
        let weights = shares(&self.parts, weights)?;
        let mut phases = self.phases.to_vec();
        let last = phases.last().expect("there is always the first");
        if start < last.start {
            return Err(MixtureError::Past { start, last: last.start });
        }
        let before = last.counts(start);
        phases.retain(|phase| phase.start < start);
        phases.push(Phase { start, given, weights, before });
        Ok(Self { parts: self.parts.clone(), epoch_samples: self.epoch_samples, phases: phases.into() })
    }

    /// How many samples an epoch has.
    pub fn epoch_samples(&self) -> u64 {
        self.epoch_samples
    }

    /// How many orders it mixes.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The orders that it mixes.
    pub(super) fn orders(&self) -> &Parts {
        &self.parts
    }

    /// From which sample of the stream on it has which weights.
    pub fn schedule(&self) -> impl Iterator<Item = (u64, &[f64])> {
        self.phases.iter().map(|phase| (phase.start, &phase.given[..]))
    }

    pub(super) fn at(&self, key: Key, epoch: u64, index: u64) -> u64 {
        let place = epoch * self.epoch_samples + index;
        let phase = &self.phases[self.phases.partition_point(|phase| phase.start <= place) - 1];
        let counts = phase.counts(place);
        let number = phase.next(place, &counts);
        let part = &self.parts[number];
        let samples = part.order.samples();
        let order = self.parts.epoch(number, key, counts[number] / samples);
        part.offset + order.at(counts[number] % samples)
    }
}

impl Phase {
    /// How many samples each part had before this place.
    fn counts(&self, place: u64) -> Vec<u64> {
        let taken = self.taken(place - self.start);
        self.before.iter().zip(taken).map(|(before, taken)| before + taken).collect()
    }

    /// Which part is next, where each had so many.
    fn next(&self, place: u64, counts: &[u64]) -> usize {
        debug_assert_eq!(
            place - self.start,
            counts.iter().zip(&self.before).map(|(count, before)| count - before).sum()
        );
        let taken: Vec<u64> = counts.iter().zip(&self.before).map(|(count, before)| count - before).collect();
        self.due(&taken)
    }

    /// How many of its first `samples` samples are each part's.
    fn taken(&self, samples: u64) -> Vec<u64> {
        let sum: u128 = self.weights.iter().map(|&weight| u128::from(weight)).sum();
        // All that are due by then are among the first `samples`: no part is ahead of its share by more than a half.
        let by = u128::from(samples.saturating_sub(self.weights.len() as u64));
        let share = |&weight: &u64| ((2 * by * u128::from(weight) + sum) / (2 * sum)) as u64;
        let mut taken: Vec<u64> = self.weights.iter().map(share).collect();
        while taken.iter().sum::<u64>() < samples {
            let next = self.due(&taken);
            taken[next] += 1;
        }
        taken
    }

    /// The part whose next sample is due first; of several, the first.
    fn due(&self, taken: &[u64]) -> usize {
        let is_sooner = |a: usize, b: usize| {
            let due = |part: usize, other: usize| (2 * u128::from(taken[part]) + 1) * u128::from(self.weights[other]);
            due(a, b) < due(b, a)
        };
        let weighted = (0..taken.len()).filter(|&part| self.weights[part] > 0);
        weighted.reduce(|first, part| if is_sooner(part, first) { part } else { first }).expect("a weight is above 0")
    }
}

/// Weights as whole numbers.
fn shares(parts: &Parts, weights: &[f64]) -> Result<Vec<u64>, MixtureError> {
    if weights.len() != parts.len() {
        return Err(MixtureError::Count { weights: weights.len(), parts: parts.len() });
    }
    check(weights)?;
    let is_empty = |&part: &usize| weights[part] > 0.0 && parts[part].order.samples() == 0;
    if let Some(part) = (0..weights.len()).find(is_empty) {
        return Err(MixtureError::Empty(part));
    }
    let largest = weights.iter().copied().fold(0.0, f64::max);
    // However small, a weight above 0 counts.
    let share = |&weight: &f64| if weight > 0.0 { ((weight / largest * UNIT).round() as u64).max(1) } else { 0 };
    Ok(weights.iter().map(share).collect())
}
