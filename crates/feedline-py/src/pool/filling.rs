//! What a server and the pool of its loader agree on, so that workers write samples where jobs read them.
//!
//! ```text
//!  server (`PySource`)                       loader's pool (`PoolOwner`)
//!  Wants ◀────────────────────────────────── offer: a batch without a place
//!  give(claim, or none: there is no room) ─▶ offer: the workers fill it
//!  Filled(claim) ◀────────────────────────── next: the workers have filled it
//! ```
//!
//! The loader yields this object itself where it has no batch to yield, but one of these requests. Nothing is asked for before a batch of
//! the pool's was copied to the ring as it was: then every other one of the same lanes can be written there.

use std::os::fd::RawFd;
use std::sync::Arc;

use feedline_core::batch::Leaf;
use feedline_core::schema::ArrayKind;
use feedline_core::server::{Claim, Place};
use feedline_data::pool::Claimed;
use feedline_data::pool::claimed::Slots;
use feedline_shm::{LanePlace, Mutex, Reserve, ReservedRings};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::worker::own;
use crate::flatten::flatten;

/// As many rings as a feed may have, one after the other, into which workers write.
const RINGS: u32 = 16;
const FEWEST_RINGS: u32 = 2;

/// How batches come to stand in a ring at once.
#[pyclass(frozen, module = "feedline._core")]
pub struct Filling(Mutex<State>);

#[derive(Default)]
struct State {
    /// The descriptors of rings, until they are lent.
    reserve: Option<Arc<Reserve>>,
    /// How many batches its pool has in flight, once there is one.
    batches: Option<u64>,
    /// For each field of the feed, the pool's lane.
    lanes: Option<Vec<usize>>,
    /// Behind those fields is one more, with the samples' numbers, which the loader gives itself.
    has_numbers: bool,
    /// A batch of these lanes was copied as it was.
    is_on: bool,
    /// The latest batch that the pool has yielded was one of these lanes.
    is_of_lanes: bool,
    wants: Option<Wants>,
    /// What was given, if it was asked for.
    given: Option<Option<Claim>>,
    /// The claim of the batch that is yielded next.
    ready: Option<Claim>,
}

/// What is asked of the server.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub samples: u64,
    /// Nothing else is in flight.
    pub waits: bool,
}

/// What the pool may do with its next batch.
pub enum Room {
    /// No place is asked for.
    Arena,
    /// A place, for the first batch that has none.
    Granted(Claimed),
    /// None now.
    Refused,
    /// The server is asked.
    Asked,
}

impl Filling {
    /// For a server's loader. None where there is no memory to be had in reserve.
    pub fn new() -> Option<(Self, Arc<Reserve>)> {
        let len_bytes = Reserve::longest_ring();
        let mut rings = RINGS;
        loop {
            match Reserve::create(rings, len_bytes) {
                Ok(reserve) => {
                    let reserve = Arc::new(reserve);
                    let state = State { reserve: Some(Arc::clone(&reserve)), ..State::default() };
                    return Some((Self(state.into()), reserve));
                }
                Err(_) if rings / 2 >= FEWEST_RINGS => rings /= 2,
                Err(_) => return None,
            }
        }
    }

    /// How many batches are filled at once.
    pub fn batches(&self) -> u64 {
        self.0.lock().batches.unwrap_or(0)
    }

    /// What the loader asks for, where it yielded this object.
    pub fn wants(&self) -> Option<Wants> {
        self.0.lock().wants.take()
    }

    pub fn give(&self, claim: Option<Claim>) {
        self.0.lock().given = Some(claim);
    }

    /// The claim of what the loader has just yielded.
    pub fn ready(&self) -> Option<Claim> {
        self.0.lock().ready.take()
    }

    /// The batch that the loader has just yielded was copied as it was.
    pub fn fits(&self) {
        let mut state = self.0.lock();
        state.is_on |= state.is_of_lanes && state.lanes.is_some() && state.batches.is_some();
    }

    /// Lets go of what is asked, given or ready.
    pub fn take_back(&self) {
        let mut state = self.0.lock();
        let State { given, ready, .. } = &mut *state;
        let gone = (given.take(), ready.take());
        state.wants = None;
        drop(state);
        drop(gone);
    }

    /// Nothing more is filled.
    pub fn end(&self) {
        self.take_back();
        let mut state = self.0.lock();
        (state.is_on, state.lanes) = (false, None);
    }

    /// A pool is to fill claims, with so many batches in flight.
    pub fn begin(&self, batches: u64) {
        self.0.lock().batches = Some(batches);
    }

    /// What to do with a batch of so many samples; `first_unclaimed` in flight comes before it.
    pub fn room_for(&self, samples: u64, first_unclaimed: Option<u64>, waits: bool) -> Room {
        let mut state = self.0.lock();
        if !state.is_on {
            return Room::Arena;
        }
        let samples = first_unclaimed.unwrap_or(samples);
        match state.given.take() {
            None => {
                state.wants = Some(Wants { samples, waits });
                Room::Asked
            }
            Some(None) => Room::Refused,
            Some(Some(claim)) if claim.samples() == samples => {
                let fields = |lanes: &[usize]| lanes.len() + usize::from(state.has_numbers);
                let place = claim.place().zip(state.lanes.as_deref());
                let place = place.filter(|(place, lanes)| place.fields.len() == fields(lanes));
                let slots = place.and_then(|(place, lanes)| slots(&place, lanes));
                Room::Granted(Claimed { samples, slots, claim: Box::new(claim) })
            }
            // For another batch than this; the server gives its place to nobody else before.
            Some(Some(claim)) => {
                state.wants = Some(Wants { samples, waits });
                drop(state);
                drop(claim);
                Room::Asked
            }
        }
    }

    /// The pool yields a batch, with its claim.
    pub fn yields(&self, claimed: Option<Claimed>, is_of_lanes: bool) {
        let claim = claimed.and_then(|claimed| claimed.claim.downcast::<Claim>().ok());
        let mut state = self.0.lock();
        (state.ready, state.is_of_lanes) = (claim.map(|claim| *claim), is_of_lanes);
    }
}

/// Where the pool's lanes are, if there is a field for each.
fn slots(place: &Place, lanes: &[usize]) -> Option<Slots> {
    let mut places = vec![LanePlace::default(); lanes.len()];
    for (field, &lane) in place.fields.iter().zip(lanes) {
        *places.get_mut(lane)? = *field;
    }
    Some(Slots { ring: place.ring, lanes: places })
}

#[pymethods]
impl Filling {
    /// The descriptors of the rings for the workers of one pool, and their length. None but for the first pool that asks.
    fn lend(&self) -> Option<(Vec<RawFd>, u64)> {
        let reserve = self.0.lock().reserve.take()?;
        // The server has them too, for as long as it serves.
        Some(reserve.descriptors())
    }

    /// Says what a batch is built of: one whose leaves are tensors of one number each, that of their lane.
    fn describe(&self, probe: &Bound<'_, PyAny>, lanes: usize) {
        let Ok(flat) = flatten(probe, false) else { return };
        let batch = flat.as_batch();
        let lane = |leaf: &Leaf<'_>| match leaf {
            Leaf::Array(array) if array.kind == ArrayKind::Torch && array.subclass.is_none() => {
                let number = i64::from_le_bytes(array.data.to_vec().try_into().ok()?);
                usize::try_from(number).ok().filter(|&lane| lane < lanes)
            }
            _ => None,
        };
        let found: Option<Vec<usize>> = batch.leaves.iter().map(lane).collect();
        let is_each_there = |found: &Vec<usize>| (0..lanes).all(|lane| found.contains(&lane)) && found.len() == lanes;
        self.0.lock().lanes = found.filter(is_each_there);
    }

    /// Each batch that is filled gets the numbers of its samples by `number`.
    fn take_numbers(&self) {
        self.0.lock().has_numbers = true;
    }

    /// Gives the batch that is yielded next the numbers of its samples.
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn number(&self, numbers: Vec<i64>) -> PyResult<()> {
        let mut state = self.0.lock();
        let field = state.lanes.as_ref().map_or(0, Vec::len);
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let place = state.ready.as_mut().map(|claim| claim.field(field)).filter(|place| place.len() == bytes.len());
        let place =
            place.ok_or_else(|| PyValueError::new_err("a batch that is filled has no place for these numbers"))?;
        place.copy_from_slice(&bytes);
        Ok(())
    }

    /// Gives back what was granted and not used.
    fn give_back(&self, py: Python<'_>) {
        py.detach(|| self.take_back());
    }

    /// Whether the server is to be asked for something before the loader goes on.
    #[getter]
    fn asks(&self) -> bool {
        self.0.lock().wants.is_some()
    }
}

/// Rings that the workers of a pool write into: mapped by the process that they are forked from.
#[pyclass(frozen, module = "feedline._core")]
pub struct PoolRings(Arc<ReservedRings>);

impl PoolRings {
    pub fn rings(&self) -> Arc<ReservedRings> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl PoolRings {
    /// Maps what `Filling.lend` gave, in descriptors that are this object's from now on.
    #[new]
    fn new(fds: Vec<RawFd>, len_bytes: u64) -> PyResult<Self> {
        let rings = ReservedRings::map(fds.into_iter().map(own).collect(), len_bytes);
        Ok(Self(Arc::new(rings.map_err(|error| PyOSError::new_err(error.to_string()))?)))
    }

    /// Lets go of the rings before this one.
    fn forget_before(&self, ring: u32) {
        self.0.forget_before(ring);
    }
}
