//! Which sample stands at each place of an epoch. Pure numbers: whoever has the plan knows every epoch, past and future.
//!
//! ```text
//!  seed, epoch ──▶ Order::epoch ──▶ EpochOrder ── at(index) ──▶ Place { sample, draw }
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`order`] | the orders: sequential, shuffled, weighted, a subset, a concatenation, a mixture, a list |
//! | [`permutation`] | a shuffle of any length that can be looked up anywhere, without a list |
//! | [`weighted`] | drawing by weights, with and without replacement |
//! | [`mixture`] | several orders in given proportions, which may change |
//! | [`steps`] | an epoch cut into steps, and these into ranks' slices |
//! | `text` | orders in words, and back |
//! | [`random`] | numbers that depend on nothing but what they are asked for |
//!
//! A place in an epoch can be looked up without the places before it. So a state is the seed, the epoch and how many samples were
//! consumed: going on from there costs the same everywhere, at any batch size and for any number of ranks.

pub mod mixture;
pub mod order;
pub mod permutation;
pub mod random;
pub mod steps;
mod text;
pub mod weighted;

#[cfg(test)]
mod tests;

pub use self::mixture::Mixture;
pub use self::order::{EpochOrder, Order};
pub use self::random::Key;
pub use self::steps::Steps;

/// What stands at a place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sample's number in the dataset.
    pub sample: u64,
    /// What its random draws are seeded with: the same for every place at which this epoch has this sample.
    pub draw: u64,
}

/// An order under a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    order: Order,
}

impl Plan {
    /// The same seed and order always give the same plan.
    pub fn new(seed: u64, order: Order) -> Self {
        Self { seed, order }
    }

    /// The plan of a loader of ours, by what its feed says of its order: "seed 7: shuffled, 100 samples", or "run" and the number of
    /// the server's run, in hexadecimal, in place of a seed. `None` for any other order, and for those of a list.
    pub fn of_feed(order: &str) -> Option<Self> {
        let (seed, order) = order.split_once(": ")?;
        let seed = match seed.split_once(' ')? {
            ("seed", seed) => seed.parse().ok()?,
            ("run", run) => u64::from_str_radix(run, 16).ok()? & (u64::MAX >> 1),
            _ => return None,
        };
        Some(Self::new(seed, Order::from_words(order)?))
    }

    /// The seed that it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The order that it was made with.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// One epoch. Costs nothing, but for orders that have to make a list.
    pub fn epoch(&self, epoch: u64) -> PlannedEpoch {
        PlannedEpoch { order: self.order.epoch(Key::new(self.seed), epoch), draws: draws(self.seed, epoch) }
    }
}

/// The draws of an epoch's samples.
fn draws(seed: u64, epoch: u64) -> Key {
    Key::new(seed).with(DRAWS).with(epoch)
}

/// What a sample's draws are seeded with in an epoch, whatever its place.
pub fn draw(seed: u64, epoch: u64, sample: u64) -> u64 {
    draws(seed, epoch).number(sample)
}

/// Keeps the draws of samples apart from those of the order.
const DRAWS: u64 = 0xd2a5;

/// One epoch of a plan.
#[derive(Clone, Debug)]
pub struct PlannedEpoch {
    order: EpochOrder,
    draws: Key,
}

impl PlannedEpoch {
    /// How many samples it has.
    pub fn samples(&self) -> u64 {
        self.order.samples()
    }

    /// What stands at this place.
    ///
    /// # Panics
    /// If the epoch is shorter.
    pub fn at(&self, index: u64) -> Place {
        let sample = self.order.at(index);
        Place { sample, draw: self.draws.number(sample) }
    }
}
