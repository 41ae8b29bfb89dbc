//! Making rings: the first one, and others in its place.
//!
//! A ring is replaced, never resized. Old mappings keep the old memory. What was published there is never written to again, so
//! nobody's view changes; a claim that is open fills its slots there, and is carried over when it is committed. Whatever has to be true of the log and its consumers from the new ring on is made true under the same lock.

use std::sync::Arc;

use feedline_protocol::log::{Size, Transfer};
use feedline_protocol::{EpochLength, UNKNOWN};
use feedline_shm::{Claimable, Slots, fault};

use super::producer::Producer;
use super::ring::{Ring, intact};
use super::shape::{allocate, first_ring, ring_info, with_history};
use super::{First, Shared, State};
use crate::error::Error;
use crate::limits::size_text;
use crate::options::History;
use crate::ring_info::{ReportedLength, RingInfo, strides};
use crate::schema::Schema;
use crate::source::{Halt, Length};

/// A ring that nobody knows of yet, and what was copied into it.
pub(super) struct Prepared {
    ring: Ring,
    slots: Claimable,
    transfer: Transfer,
}

impl Prepared {
    fn new(info: RingInfo, batch_bytes: u64, shared: &Shared) -> Result<Self, Error> {
        let reserve = shared.reserve.lock().clone().filter(|_| matches!(*info.schema, Schema::Cut { .. }));
        let folder = shared.options.history_dir.as_deref();
        let (writer, reserved) = allocate(&info, batch_bytes, folder, reserve.as_deref())?;
        let (memory, len_bytes) = (Arc::new(writer.memory().share()?), writer.layout().len_bytes());
        let slots = Claimable::in_reserve(writer, strides(&info.schema), reserved);
        Ok(Self { ring: Ring { info, memory, len_bytes, batch_bytes }, slots, transfer: Transfer::default() })
    }
}

impl Producer<'_> {
    /// Makes the first ring.
    pub fn begin_feed(&mut self, first: &First) -> Result<(), Halt> {
        let options = &self.shared.options;
        let samples = first.batch_samples;
        self.correct_length(&first.schema, samples);
        let length = self.shared.head.length();
        let known = |number: u64| (number != UNKNOWN).then_some(number);
        // Where only batches are counted, the first one tells how much memory they take.
        let epoch = known(length.samples).or_else(|| known(length.batches).map(|count| count.saturating_mul(samples)));
        self.has_history = epoch.is_some() || matches!(options.history, History::Bytes(_));
        let mut info = first_ring(first, options, epoch.or(self.has_history.then_some(0)))?;
        if let (Schema::Whole { .. }, Length { samples: Some(samples), batch_size: Some(batch_size), .. }) =
            (&first.schema, self.length)
        {
            info.reported = Some(ReportedLength { samples, batch_size });
        }
        let info = {
            let state = self.shared.lock();
            let window = if matches!(first.schema, Schema::Cut { .. }) { state.machine.wanted_window() } else { 0 };
            // A consumer that is here already came while the feed was empty, and got an empty ring.
            let before = state.ring.as_ref().map(|ring| ring.info.generation);
            let info = RingInfo { generation: before.unwrap_or(0), ..info };
            info.resized(info.size().widened(window, 0))
        };
        let prepared = Prepared::new(info, first.batch_bytes, self.shared)?;
        self.install(prepared, |_| ());
        Ok(())
    }

    /// The first batch may show that the source can't tell its length in samples.
    fn correct_length(&self, schema: &Schema, samples: u64) {
        let announced = self.shared.head.length();
        let Length { batch_size, .. } = self.length;
        let corrected = match schema {
            // The unit is the batch.
            Schema::Whole { .. } => EpochLength { samples: announced.batches, tail: 1, ..announced },
            // What the loader collates isn't what it samples.
            Schema::Cut { .. } if batch_size.is_some_and(|size| samples != size.min(announced.samples)) => {
                EpochLength { samples: self.shared.options.samples.unwrap_or(UNKNOWN), ..announced }
            }
            Schema::Cut { .. } => return,
        };
        self.shared.head.set_length(corrected);
    }

    /// A ring for a feed that has nothing in it yet, so that consumers can attach and see an empty epoch.
    pub fn publish_empty(&mut self) -> Result<(), Halt> {
        let schema = Schema::Whole { why: "the loader has yielded nothing yet".into() };
        let size = Size { capacity: 1, window: 1, byte_lane: 4096, byte_window: 4096 };
        let info = ring_info(schema, &self.shared.options, size, 1);
        let prepared = Prepared::new(info, 1, self.shared)?;
        self.install(prepared, |_| ());
        self.ring = None;
        Ok(())
    }

    /// Another ring of this size, with every intact sample in it. About 10 ms for 100 MB.
    pub fn prepare(&self, size: Size) -> Result<Prepared, Error> {
        let old = self.ring();
        let mut prepared = Prepared::new(old.info.resized(size), old.batch_bytes, self.shared)?;
        self.transfer(&mut prepared);
        Ok(prepared)
    }

    /// Copies what was not there yet when this was last called.
    fn transfer(&self, prepared: &mut Prepared) {
        if self.ring.is_none() {
            return;
        }
        let rest: Vec<Slots> = {
            let mut state = self.shared.lock();
            let log = state.machine.log();
            let rest: Vec<_> = prepared.transfer.rest(log).into_iter().map(|run| intact(run, log)).collect();
            let slots = state.slots();
            rest.into_iter().map(|span| slots.claim(span).expect("nobody fills what is intact")).collect()
        };
        for mut old in rest {
            let mut new = prepared.slots.claim(old.span().clone()).expect("nobody fills a ring that nobody knows");
            new.copy_from(&mut old);
            prepared.slots.free(new);
            self.shared.lock().slots().free(old);
        }
    }

    /// Makes a ring known, and does under the same lock what goes with it. Nothing is claimed meanwhile, so each turn has less to
    /// copy: what others have filled since the last.
    pub fn install(&mut self, mut prepared: Prepared, also: impl FnOnce(&mut State)) {
        fault::point("server:ring_prepared");
        let mut state = loop {
            self.transfer(&mut prepared);
            let state = self.shared.lock();
            if self.ring.is_none() || prepared.transfer.clone().rest(state.machine.log()).is_empty() {
                break state;
            }
        };
        let ring = Arc::new(prepared.ring);
        state.slots = Some(prepared.slots);
        if self.ring.is_some() {
            state.events.note("ring", None, &format!("another ring, of {}", size_text(ring.len_bytes)));
        }
        state.ring = Some(Arc::clone(&ring));
        state.machine.install(ring.info.shape(), &self.shared.head);
        also(&mut state);
        self.shared.report(&mut state);
        drop(state);
        fault::point("server:ring_installed");
        self.shared.control_bell.ring();
        self.is_short_of_memory = false;
        self.ring = Some(ring);
    }

    /// Makes room for the source's own batches, `samples` more in `bytes` of the byte lane: without it the feed can't go on.
    pub fn grow_for_source(&mut self, samples: u64, bytes: u64) -> Result<(), Halt> {
        let old = self.ring().info.size();
        let mut size = old;
        if old.byte_lane == 0 && old.window < 2 * samples {
            size = size.widened(4 * samples, 0);
        }
        if old.byte_lane > 0 && old.byte_window < 2 * bytes {
            size = size.widened(0, 4 * bytes);
        }
        if self.shared.options.replay {
            let (claimed, end_bytes) = {
                let state = self.shared.lock();
                let log = state.machine.log();
                (log.claimed(), log.bytes_of(log.oldest()..log.claimed()).map_or(0, |bytes| bytes.end))
            };
            let doubled = |have: u64, need: u64| if need > have { need.max(2 * have) } else { have };
            size.capacity = doubled(size.capacity, claimed + samples);
            size.byte_lane = if old.byte_lane > 0 { doubled(size.byte_lane, end_bytes + bytes + 64) } else { 0 };
        }
        if size != old {
            let prepared = self.prepare(size)?;
            self.install(prepared, |_| ());
        }
        Ok(())
    }

    /// Once an epoch's length is known: makes room for the history, where that is a share of it.
    pub fn grow_for_history(&mut self) {
        let length = self.shared.head.length().samples;
        let Some(ring) = self.ring.as_ref().filter(|_| length != UNKNOWN && !self.has_history) else { return };
        self.has_history = true;
        let (batches, bytes) = {
            let state = self.shared.lock();
            (state.tally.batches, state.tally.bytes)
        };
        let per_sample = match &*ring.info.schema {
            Schema::Whole { .. } if batches > 0 => bytes / batches,
            _ => strides(&ring.info.schema).iter().sum(),
        };
        let size = with_history(ring.info.size(), &self.shared.options, length, per_sample);
        if size == ring.info.size() {
            return;
        }
        match self.prepare(size) {
            Ok(prepared) => self.install(prepared, |_| ()),
            Err(error) => {
                let why = error.explanation().worded(self.shared.launch.reader);
                tracing::warn!("feed {:?} goes on without a history: {why}", self.shared.name);
            }
        }
    }

    /// Makes room for consumers' larger batches; where there is none, the consumers that need it get an error.
    pub fn grow_for_consumers(&mut self, window: u64) {
        let Some(ring) = &self.ring else { return };
        match self.prepare(ring.info.size().widened(window, 0)) {
            Ok(prepared) => self.install(prepared, |_| ()),
            Err(error) => {
                self.shared.lock().machine.refuse_larger(&error.to_string());
                self.shared.control_bell.ring();
            }
        }
    }

    /// Makes room for ranks that each need more at once than fits, or sends them an error where there is none.
    pub fn grow_for_ranks(&mut self, ranks: &[u64]) {
        let Some(ring) = &self.ring else { return };
        let Size { window, byte_window, .. } = ring.info.size();
        match self.prepare(ring.info.size().widened(window.saturating_mul(2), byte_window.saturating_mul(2))) {
            Ok(prepared) => self.install(prepared, |_| ()),
            Err(error) => {
                self.shared.lock().machine.refuse(ranks, &error.to_string());
                self.shared.control_bell.ring();
            }
        }
    }
}
