//! Drawing samples by weights.

use std::fmt;
use std::sync::Arc;

use super::random::{Key, unit};

/// Weights that nothing can be drawn by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightError {
    /// This one is negative, infinite or not a number.
    Invalid {
        /// Whose weight it is.
        index: usize,
        /// The weight.
        weight: f64,
    },
    /// None is larger than 0.
    AllZero,
    /// Without replacement, more samples are asked for than have a weight.
    TooFew {
        /// How many are asked for.
        wanted: u64,
        /// How many have a weight above 0.
        there: u64,
    },
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { index, weight } => write!(f, "weight {index} is {weight}: weights are numbers from 0 on"),
            Self::AllZero => f.write_str("no weight is larger than 0"),
            Self::TooFew { wanted, there } => {
                write!(f, "{wanted} samples without replacement, where {there} have a weight above 0")
            }
        }
    }
}

impl std::error::Error for WeightError {}

/// Refuses what isn't a weight; gives their sum.
pub(crate) fn check(weights: &[f64]) -> Result<f64, WeightError> {
    let is_invalid = |&(_, weight): &(usize, f64)| !(weight >= 0.0 && weight.is_finite());
    if let Some((index, weight)) = weights.iter().copied().enumerate().find(is_invalid) {
        return Err(WeightError::Invalid { index, weight });
    }
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest > 0.0 { Ok(weights.iter().sum()) } else { Err(WeightError::AllZero) }
}

/// Draws with replacement, each in constant time: Walker's alias method, with Vose's way to fill its table.
#[derive(Clone, Debug)]
pub struct Alias(Arc<[Slot]>);

/// A number, and who stands there otherwise.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// How likely the number itself is.
    own: f64,
    other: u64,
}

impl Alias {
    /// A table as long as the weights.
    pub fn new(weights: &[f64]) -> Result<Self, WeightError> {
        check(weights)?;
        // Relative to the largest, so that the sum is finite.
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
        let share = |weight: &f64| weight / largest * weights.len() as f64 / sum;
        let mut slots: Vec<Slot> =
            (0..).zip(weights).map(|(own, weight)| Slot { own: share(weight), other: own }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..slots.len()).partition(|&at| slots[at].own < 1.0);
        while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
            small.pop();
            slots[less].other = more as u64;
            slots[more].own -= 1.0 - slots[less].own;
            if slots[more].own < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // What is left over is off by rounding alone. One without a weight must not come up by that.
        let likeliest = (0..slots.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b])).unwrap_or(0) as u64;
        for at in small.into_iter().chain(large) {
            slots[at] = if weights[at] > 0.0 {
                Slot { own: 1.0, other: at as u64 }
            } else {
                Slot { own: 0.0, other: likeliest }
            };
        }
        Ok(Self(slots.into()))
    }

    /// The number that a key draws in its `index`th try.
    pub fn at(&self, key: Key, index: u64) -> u64 {
        let random = key.number(index);
        let wide = u128::from(random) * self.0.len() as u128;
        let number = (wide >> 64) as u64;
        let slot = self.0[number as usize];
        if unit(wide as u64) < slot.own { number } else { slot.other }
    }
}

/// Draws so many numbers without replacement: each time by the weights of those that are left. Costs a list and a sort.
pub(crate) fn without_replacement(weights: &[f64], samples: u64, key: Key) -> Vec<u64> {
    // The first of n exponential clocks with rates w to ring is i with a chance of w_i / sum(w), and they have no memory.
    // `libm`: the standard library's logarithm may differ between machines in its last bit.
    let rings = |(number, &weight): (u64, &f64)| {
        (weight > 0.0).then(|| (-libm::log(unit(key.number(number))) / weight, number))
    };
    let mut clocks: Vec<(f64, u64)> = (0..).zip(weights).filter_map(rings).collect();
    clocks.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    clocks.into_iter().take(samples as usize).map(|(_, number)| number).collect()
}
