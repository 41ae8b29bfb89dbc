//! Plans, for Python: which samples an epoch has, and in which order.

use feedline_protocol::plan::order::{Parts, Weighted};
use feedline_protocol::plan::steps::{TooFew, slice};
use feedline_protocol::plan::{self, Mixture, Order, PlannedEpoch, Steps};
use feedline_shm::Mutex;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

/// An order of samples: a function of the seed and the epoch.
#[pyclass(frozen, module = "feedline._core")]
pub struct Plan {
    order: Order,
    /// The epoch that was asked for last: some orders make a list of it.
    last: Mutex<Option<(u64, u64, PlannedEpoch)>>,
}

impl From<Order> for Plan {
    fn from(order: Order) -> Self {
        Self { order, last: Mutex::new(None) }
    }
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Plan {
    #[staticmethod]
    fn sequential(samples: u64) -> Self {
        Order::Sequential(samples).into()
    }

    #[staticmethod]
    fn shuffled(samples: u64) -> Self {
        Order::Shuffled(samples).into()
    }

    /// Samples drawn by weights, so many in each epoch.
    #[staticmethod]
    fn weighted(weights: Vec<f64>, samples: u64, replacement: bool) -> PyResult<Self> {
        Ok(Order::Weighted(Weighted::new(weights.into(), samples, replacement).map_err(refused)?).into())
    }

    /// The samples of a list, as it is or shuffled.
    #[staticmethod]
    fn subset(samples: Vec<u64>, shuffled: bool) -> Self {
        let places = samples.len() as u64;
        let order = if shuffled { Order::Shuffled(places) } else { Order::Sequential(places) };
        Order::Subset { samples: samples.into(), order: Box::new(order) }.into()
    }

    /// One dataset after the other: `(samples of the dataset, its plan)` for each.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn concatenation(parts: Vec<(u64, Bound<'_, Self>)>) -> Self {
        Order::Concatenation(parts_of(&parts)).into()
    }

    /// Several datasets at once. `phases`: from which sample of the stream on, which weights.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn mixture(parts: Vec<(u64, Bound<'_, Self>)>, phases: Vec<(u64, Vec<f64>)>, epoch_samples: u64) -> PyResult<Self> {
        let mut phases = phases.into_iter();
        let first = phases.next().filter(|(start, _)| *start == 0);
        let (_, weights) = first.ok_or_else(|| refused("a mixture's first weights are those from sample 0 on"))?;
        let mut mixture = Mixture::new(parts_of(&parts), &weights, epoch_samples).map_err(refused)?;
        for (start, weights) in phases {
            mixture = mixture.then(start, &weights).map_err(refused)?;
        }
        Ok(Order::Mixture(mixture).into())
    }

    /// The seed and the plan of a shared loader, by what its feed says of its order; `None` where a list belongs to that.
    #[staticmethod]
    fn of_feed(order: &str) -> Option<(u64, Self)> {
        let plan = plan::Plan::of_feed(order)?;
        Some((plan.seed(), plan.order().clone().into()))
    }

    /// How many samples an epoch has.
    fn __len__(&self) -> usize {
        self.order.samples() as usize
    }

    fn __str__(&self) -> String {
        self.order.to_string()
    }

    /// The numbers of an epoch's samples from a place on.
    fn numbers(&self, py: Python<'_>, seed: u64, epoch: u64, first: u64, count: u64) -> PyResult<Vec<u64>> {
        let samples = self.order.samples();
        let end = first.checked_add(count).filter(|&end| end <= samples);
        let end = end.ok_or_else(|| {
            PyIndexError::new_err(format!(
                "samples {first} to {} of an epoch with {samples}",
                first.saturating_add(count)
            ))
        })?;
        py.detach(|| {
            let mut last = self.last.lock();
            if last.as_ref().is_none_or(|(of, at, _)| (*of, *at) != (seed, epoch)) {
                *last = Some((seed, epoch, plan::Plan::new(seed, self.order.clone()).epoch(epoch)));
            }
            let (.., planned) = last.as_ref().expect("filled just now");
            Ok((first..end).map(|index| planned.at(index).sample).collect())
        })
    }
}

fn parts_of(parts: &[(u64, Bound<'_, Plan>)]) -> Parts {
    Parts::new(parts.iter().map(|(samples, plan)| (*samples, plan.get().order.clone())))
}

/// What a sample's draws are seeded with in an epoch.
#[pyfunction]
pub fn draw(seed: u64, epoch: u64, sample: u64) -> u64 {
    plan::draw(seed, epoch, sample)
}

/// The places of a rank's part of the step after so many samples, and where the step ends; `None` when the epoch is over.
#[pyfunction]
pub fn next_step(
    samples: u64,
    consumed: u64,
    batch_size: u64,
    rank: u32,
    world: u32,
    drop_last: bool,
) -> PyResult<Option<(u64, u64, u64)>> {
    let steps = Steps { samples, batch_size, world: world.into(), drop_last };
    let step =
        steps.next(consumed).map_err(|TooFew { samples }| refused(format!("{samples} samples for {world} ranks")))?;
    Ok(step.map(|step| {
        let mine = slice(step.clone(), rank, world);
        (mine.start, mine.end, step.end)
    }))
}

/// How many steps an epoch has.
#[pyfunction]
pub fn count_steps(samples: u64, batch_size: u64, world: u32, drop_last: bool) -> u64 {
    Steps { samples, batch_size, world: world.into(), drop_last }.count()
}
