//! A run of the log that is being filled, by whichever thread has it.
//!
//! ```text
//! Appender::claim ──▶ Claim ──commit──▶ published, once all before it are
//!                       └────drop────▶ given back: neither it nor what is behind it is published
//! ```
//!
//! A ring may be replaced while claims are open. Whoever prepares the new one copies what is committed by then; a claim that is
//! committed later takes along what it wrote into the old one.

use std::sync::Arc;

use feedline_protocol::log::{Committed, Run};
use feedline_shm::{LanePlace, Slots, SourceBytes, fault};

use super::Shared;

/// The memory of samples that nobody has seen yet.
pub struct Claim {
    shared: Arc<Shared>,
    run: Run,
    /// `None` once it is committed.
    slots: Option<Slots>,
}

/// The lanes before the fields': how many samples of the source's batch are left; or, for whole batches, where each stands.
pub(super) const HIDDEN_LANES: usize = 1;

/// Where a claim stands, for processes that have its ring mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which ring of those in reserve.
    pub ring: u32,
    /// Each field's lane.
    pub fields: Vec<LanePlace>,
}

impl Claim {
    /// Takes over what the log granted; `left` samples of the source's batch are left from its first on.
    pub(super) fn new(shared: &Arc<Shared>, (run, mut slots): (Run, Slots), left: u64) -> Self {
        let (words, _) = slots.bytes_mut(0).as_chunks_mut::<4>();
        let lefts = (0..run.samples).map(|at| (left - at) as u32);
        words.iter_mut().zip(lefts).for_each(|(word, left)| *word = left.to_le_bytes());
        Self { shared: Arc::clone(shared), run, slots: Some(slots) }
    }

    /// The same for a batch that travels whole.
    pub(super) fn whole(shared: &Arc<Shared>, (run, mut slots): (Run, Slots), len_bytes: u64) -> Self {
        slots.write(0, 0, &[run.byte_start.to_le_bytes(), len_bytes.to_le_bytes()].concat());
        Self { shared: Arc::clone(shared), run, slots: Some(slots) }
    }

    fn slots_mut(&mut self) -> &mut Slots {
        self.slots.as_mut().expect("taken by `commit` and `drop` alone")
    }

    /// Where worker processes that have mapped the ring find it; `None` if they have not.
    ///
    /// Whoever has it filled by others commits or drops it when they have finished, or were reaped.
    pub fn place(&self) -> Option<Place> {
        let slots = self.slots.as_ref()?;
        let fields = (HIDDEN_LANES..slots.lanes()).map(|lane| slots.place_in_memory(lane)).collect();
        Some(Place { ring: slots.reserved()?, fields })
    }

    /// The number of its first sample in the epoch.
    pub fn index(&self) -> u64 {
        self.run.index
    }

    /// How many samples it has.
    pub fn samples(&self) -> u64 {
        self.run.samples
    }

    /// A field's bytes, of all samples, one after the other. What was there before is still there.
    pub fn field(&mut self, field: usize) -> &mut [u8] {
        self.slots_mut().bytes_mut(field + HIDDEN_LANES)
    }

    /// Copies a field's bytes.
    ///
    /// # Panics
    /// If there are more of them than fit.
    pub(crate) fn write<'a>(&mut self, field: usize, bytes: impl Into<SourceBytes<'a>>) {
        self.slots_mut().write(field + HIDDEN_LANES, 0, bytes);
    }

    /// Copies a part of a batch that travels whole.
    pub(crate) fn write_at<'a>(&mut self, offset_bytes: u64, bytes: impl Into<SourceBytes<'a>>) {
        self.slots_mut().write(HIDDEN_LANES, offset_bytes as usize, bytes);
    }

    /// It is filled. Publishes it together with what waits for it, or leaves that to those before it.
    pub fn commit(mut self) {
        let Self { shared, run, slots } = &mut self;
        // A forked child commits and gives back nothing: it has neither the server's threads nor its locks.
        if !shared.origin.is_here() {
            return;
        }
        let Some(mut slots) = slots.take() else { return };
        let mut state = shared.lock();
        while !state.slots().has(&slots) {
            let mut carried = state.slots().claim(slots.span().clone()).expect("a larger ring has the same places");
            drop(state);
            carried.copy_from(&mut slots);
            slots = carried;
            state = shared.lock();
        }
        state.slots().free(slots);
        let committed = state.machine.commit(run.first, &shared.head);
        fault::point("server:published");
        if committed == Committed::Published {
            state.machine.announce(&shared.head);
            let (head, oldest) = (state.machine.log().head(), state.machine.log().oldest());
            state.stamps.forget_before(oldest);
            state.stamps.note(head, shared.meter.last_turn());
            state.tally.publish(head);
        }
        shared.returned(&state);
        drop(state);
        fault::point("server:announced");
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else { return };
        if !self.shared.origin.is_here() {
            return;
        }
        let mut state = self.shared.lock();
        state.slots().free(slots);
        state.machine.give_back(self.run.first);
        self.shared.returned(&state);
    }
}
