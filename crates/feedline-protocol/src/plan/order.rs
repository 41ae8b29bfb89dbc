//! Orders: pure functions of a seed and an epoch to a sequence of sample numbers.

use std::sync::Arc;

use super::mixture::Mixture;
use super::permutation::Permutation;
use super::random::Key;
use super::weighted::{self, Alias, WeightError};

/// In which order an epoch has its samples. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Order {
    /// Every sample once, by number.
    Sequential(u64),
    /// Every sample once, in another order in each epoch.
    Shuffled(u64),
    /// Samples drawn by weights.
    Weighted(Weighted),
    /// The samples of a list, in an order over its places.
    Subset {
        /// The samples.
        samples: Arc<[u64]>,
        /// At which place of them the epoch has each one.
        order: Box<Order>,
    },
    /// One order after the other.
    Concatenation(Parts),
    /// Several orders at once, in proportions that may change.
    Mixture(Mixture),
}

/// Samples drawn by weights, as many as asked for.
#[derive(Clone, Debug)]
pub struct Weighted {
    weights: Arc<[f64]>,
    samples: u64,
    /// `None` without replacement.
    alias: Option<Alias>,
}

impl Weighted {
    /// Draws `samples` samples in each epoch. Without replacement an epoch has a list of them; with it, none.
    pub fn new(weights: Arc<[f64]>, samples: u64, with_replacement: bool) -> Result<Self, WeightError> {
        weighted::check(&weights)?;
        let there = weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
        if !with_replacement && samples > there {
            return Err(WeightError::TooFew { wanted: samples, there });
        }
        let alias = if with_replacement { Some(Alias::new(&weights)?) } else { None };
        Ok(Self { weights, samples, alias })
    }

    /// One for each sample of the dataset.
    pub(super) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Whether a sample may come several times in an epoch.
    pub(super) fn is_with_replacement(&self) -> bool {
        self.alias.is_some()
    }
}

/// Orders over datasets that are numbered one after the other.
#[derive(Clone, Debug)]
pub struct Parts(Arc<[Part]>);

/// An order over one of several datasets.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number of the dataset's first sample.
    pub(super) offset: u64,
    /// How many samples the dataset has.
    pub(super) len: u64,
    pub(super) order: Order,
}

impl Parts {
    /// Datasets of so many samples, each with its order.
    pub fn new(parts: impl IntoIterator<Item = (u64, Order)>) -> Self {
        let numbered = parts.into_iter().scan(0, |offset, (len, order)| {
            let part = Part { offset: *offset, len, order };
            *offset += len;
            Some(part)
        });
        Self(numbered.collect())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Part> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A part's order in an epoch of its own. Two parts with equal orders are shuffled differently.
    pub(super) fn epoch(&self, part: usize, key: Key, epoch: u64) -> EpochOrder {
        self.0[part].order.epoch(key.with(part as u64), epoch)
    }
}

impl std::ops::Index<usize> for Parts {
    type Output = Part;

    fn index(&self, part: usize) -> &Part {
        &self.0[part]
    }
}

impl Order {
    /// How many samples an epoch has: the same number in each.
    pub fn samples(&self) -> u64 {
        match self {
            Self::Sequential(samples) | Self::Shuffled(samples) => *samples,
            Self::Weighted(weighted) => weighted.samples,
            Self::Subset { order, .. } => order.samples(),
            Self::Concatenation(parts) => parts.iter().map(|part| part.order.samples()).sum(),
            Self::Mixture(mixture) => mixture.epoch_samples(),
        }
    }

    /// One epoch of it.
    pub fn epoch(&self, key: Key, epoch: u64) -> EpochOrder {
        let here = key.with(epoch);
        match self {
            Self::Sequential(samples) => EpochOrder::Sequential(*samples),
            Self::Shuffled(samples) => EpochOrder::Shuffled(Permutation::new(here, *samples)),
            Self::Weighted(Weighted { weights, samples, alias }) => match alias {
                Some(alias) => EpochOrder::Drawn { alias: alias.clone(), key: here, samples: *samples },
                None => EpochOrder::Listed(weighted::without_replacement(weights, *samples, here).into()),
            },
            Self::Subset { samples, order } => {
                EpochOrder::Subset { samples: Arc::clone(samples), order: Box::new(order.epoch(key, epoch)) }
            }
            Self::Concatenation(parts) => {
                let mut start = 0;
                let placed = |(number, part): (usize, &Part)| {
                    let placed = Placed { start, offset: part.offset, order: parts.epoch(number, key, epoch) };
                    start += part.order.samples();
                    placed
                };
                EpochOrder::Concatenation(parts.iter().enumerate().map(placed).collect())
            }
            Self::Mixture(mixture) => EpochOrder::Mixture { mixture: mixture.clone(), key, epoch },
        }
    }
}

/// One epoch of an order.
#[derive(Clone, Debug)]
pub enum EpochOrder {
    /// By number.
    Sequential(u64),
    /// Without a list.
    Shuffled(Permutation),
    /// Each drawn by its place.
    Drawn {
        /// How likely each sample is.
        alias: Alias,
        /// Which ones it draws.
        key: Key,
        /// How many are drawn.
        samples: u64,
    },
    /// A list, from wherever it came: a sampler's, for example.
    Listed(Arc<[u64]>),
    /// Places in a list.
    Subset {
        /// The list.
        samples: Arc<[u64]>,
        /// The places.
        order: Box<EpochOrder>,
    },
    /// One after the other.
    Concatenation(Vec<Placed>),
    /// In proportions.
    Mixture {
        /// The proportions, and the orders.
        mixture: Mixture,
        /// The key of all epochs.
        key: Key,
        /// Which epoch.
        epoch: u64,
    },
}

/// A part of a concatenation.
#[derive(Clone, Debug)]
pub struct Placed {
    start: u64,
    offset: u64,
    order: EpochOrder,
}

impl EpochOrder {
    /// How many samples it has.
    pub fn samples(&self) -> u64 {
        match self {
            Self::Sequential(samples) | Self::Drawn { samples, .. } => *samples,
            Self::Shuffled(permutation) => permutation.len(),
            Self::Listed(list) => list.len() as u64,
            Self::Subset { order, .. } => order.samples(),
            Self::Concatenation(parts) => parts.last().map_or(0, |last| last.start + last.order.samples()),
            Self::Mixture { mixture, .. } => mixture.epoch_samples(),
        }
    }

    /// The sample at a place.
    ///
    /// # Panics
    /// If the epoch is shorter.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.samples(), "place {index} of an epoch with {} samples", self.samples());
        match self {
            Self::Sequential(_) => index,
            Self::Shuffled(permutation) => permutation.at(index),
            Self::Drawn { alias, key, .. } => alias.at(*key, index),
            Self::Listed(list) => list[index as usize],
            Self::Subset { samples, order } => samples[order.at(index) as usize],
            Self::Concatenation(parts) => {
                // Parts without samples begin where the next one does.
                let part = &parts[parts.partition_point(|part| part.start <= index) - 1];
                part.offset + part.order.at(index - part.start)
            }
            Self::Mixture { mixture, key, epoch } => mixture.at(*key, *epoch, index),
        }
    }
}
