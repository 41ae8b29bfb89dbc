//! The appending side: takes batches from the source, copies, publishes. Waiting for room is `backpressure`'s, making rings `replace`'s.
//!
//! ```text
//! begin epoch ──▶ next ──▶ claim ──▶ copy ──▶ publish ─┐
//!      ▲            ▲        │ full: sleep on bells     │
//!      │            └────────┼──────────────────────────┘
//!      └── end, or nobody needs the rest
//! ```

use feedline_protocol::server::{Begun, Progress};
use feedline_protocol::{EpochLength, UNKNOWN};
use feedline_shm::{RingWriter, fault};

use super::Shared;
use crate::batch::{Batch, Leaf};
use crate::error::{Error, Failure, FailureKind};
use crate::ring_info::RingInfo;
use crate::schema::{Mismatch, Schema};
use crate::source::{Length, Source};
use crate::whole::Encoded;

/// Why appending stopped in the middle of an epoch.
pub(super) enum Halt {
    /// Nobody needs the rest of this epoch; the next one should begin.
    Abandoned,
    /// The server was stopped, or lingered long enough.
    Stopped,
    /// It can't go on.
    Failed(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(Failure::server(&error))
    }
}

/// The ring in use, with what belongs to it.
pub(super) struct Ring {
    pub writer: RingWriter,
    pub info: RingInfo,
    pub strides: Vec<u64>,
}

pub(super) struct Producer<'a> {
    pub shared: &'a Shared,
    pub ring: Option<Ring>,
    /// What the source said of itself.
    pub length: Length,
    pub poll: Poll<'a>,
    /// The ring has the history that was asked for, as far as that can be known.
    pub has_history: bool,
    /// A ring could not be replaced, and the log says so already.
    pub is_short_of_memory: bool,
}

/// The caller's hook: called at least ten times a second while the server sleeps; an error ends the feed.
pub(super) type Poll<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// Serves all epochs, then waits until they are read.
pub(super) fn run(shared: &Shared, source: &mut dyn Source, poll: Poll<'_>) -> Result<(), Failure> {
    let length = source.length();
    let samples = shared.options.samples.or(length.samples);
    shared.head.set_length(EpochLength {
        samples: samples.unwrap_or(UNKNOWN),
        batches: length.batches.unwrap_or(UNKNOWN),
        tail: UNKNOWN,
    });
    let mut producer = Producer { shared, ring: None, length, poll, has_history: false, is_short_of_memory: false };
    match producer.epochs(source) {
        Ok(()) | Err(Halt::Abandoned | Halt::Stopped) => Ok(()),
        Err(Halt::Failed(failure)) => {
            if matches!(failure.kind, FailureKind::Loader | FailureKind::Schema) {
                producer.let_in();
            }
            Err(failure)
        }
    }
}

impl Producer<'_> {
    fn epochs(&mut self, source: &mut dyn Source) -> Result<(), Halt> {
        let options = &self.shared.options;
        let (mut had, mut complete) = options.resume.map_or((0, 0), |at| (at.index, at.epoch));
        let mut next = complete;
        while options.epochs.is_none_or(|epochs| complete < epochs) {
            self.wait_for_epoch()?;
            self.grow_for_history();
            let Begun { epoch, is_wanted_by_number } =
                self.shared.change(|state| state.machine.begin_epoch(std::mem::take(&mut had), &self.shared.head));
            fault::point("server:epoch_begun");
            if is_wanted_by_number {
                // A consumer that comes back with an epoch's number has had those before it.
                complete = complete.max(epoch);
                if options.epochs.is_some_and(|epochs| complete >= epochs) {
                    break;
                }
            }
            {
                let _inside = self.shared.watch.enter(&self.shared.meter);
                source.begin(epoch)?;
            }
            if source.keeps_state() {
                self.mark(source)?;
            }
            let length = self.epoch(source)?;
            if source.is_exhausted() {
                break;
            }
            self.end_epoch(epoch, length)?;
            fault::point("server:epoch_ended");
            next = epoch + 1;
            // An epoch that everybody left in the middle was nobody's.
            complete += u64::from(length.is_some());
            if options.policy.replay {
                break;
            }
        }
        source.finish();
        if options.policy.replay {
            return self.replay();
        }
        self.shared.change(|state| state.machine.drain(&self.shared.head));
        self.shared.control_bell.ring();
        self.wait_for_readers(next)
    }

    /// The one epoch is there. Serves it until all passes are made, or without end.
    fn replay(&mut self) -> Result<(), Halt> {
        let shared = self.shared;
        let epochs = shared.options.epochs;
        self.wait_until(|state| {
            epochs.is_some_and(|epochs| state.machine.is_read(epochs, &shared.head, shared.meter.time()))
        })?;
        shared.change(|state| state.machine.drain(&shared.head));
        Ok(())
    }

    /// Appends one epoch: how long it was, or `None` if it was abandoned.
    fn epoch(&mut self, source: &mut dyn Source) -> Result<Option<EpochLength>, Halt> {
        let mut length = EpochLength::default();
        let had = {
            let state = self.shared.lock();
            let log = state.machine.log();
            log.locate(log.head()).map_or(0, |(_, index)| index)
        };
        loop {
            let appended = match self.next(source) {
                Ok(appended) => appended,
                Err(Halt::Abandoned) => return Ok(None),
                Err(halt) => return Err(halt),
            };
            match appended {
                Some(0) => {}
                Some(count) => {
                    length.samples += count;
                    length.batches += 1;
                    length.tail = count;
                    if source.keeps_state() {
                        self.mark(source)?;
                    }
                }
                // Of an epoch that began before this server, it has counted only a part.
                None if had > 0 => return Ok(Some(self.shared.head.length())),
                None => return Ok(Some(length)),
            }
        }
    }

    /// Tells the source how far it has come, and what of it is still needed.
    fn mark(&mut self, source: &mut dyn Source) -> Result<(), Halt> {
        let progress = self.shared.change(|state| state.machine.progress(self.shared.meter.time()));
        if let Some(Progress { head, oldest, needed }) = progress {
            let _inside = self.shared.watch.enter(&self.shared.meter);
            source.mark(head, oldest, needed)?;
        }
        Ok(())
    }

    fn next(&mut self, source: &mut dyn Source) -> Result<Option<u64>, Halt> {
        let wanted = self.shared.change(|state| {
            state.machine.halted(self.shared.meter.time())?;
            Ok::<_, feedline_protocol::server::Halt>(state.machine.wanted_growth(1))
        })?;
        if let Some(window) = wanted {
            self.grow_for_consumers(window);
        }
        fault::point("server:before_next");
        let inside = self.shared.watch.enter(&self.shared.meter);
        let next = source.next();
        // A source may fork, and the child come back to us: the ring is its parent's.
        if !self.shared.origin.is_here() {
            return Err(Halt::Stopped);
        }
        let Some(batch) = next? else { return Ok(None) };
        drop(inside);
        fault::point("server:after_next");
        let mismatch = |Mismatch(message)| {
            let way_out = "a feed's batches must keep their types and shapes; pad them to a fixed shape, or serve whole batches \
                           of any shape with whole_batches=True";
            Failure::new(FailureKind::Schema, format!("{message}\n  {way_out}"))
        };
        if self.ring.is_none() {
            self.begin_feed(&batch)?;
        }
        let ring = self.ring.as_mut().expect("set just above");
        let samples = ring.info.schema.samples_in(&batch).map_err(mismatch)?;
        if samples == 0 {
            return Ok(Some(0));
        }
        match &ring.info.schema {
            Schema::Cut { .. } => self.append_cut(&batch, samples)?,
            Schema::Whole { .. } => self.append_whole(&batch)?,
        }
        Ok(Some(samples))
    }

    fn append_cut(&mut self, batch: &Batch<'_>, samples: u64) -> Result<(), Halt> {
        self.grow_for_source(samples, 0)?;
        self.claim(samples, 0)?;
        fault::point("server:claimed");
        let shared = self.shared;
        let first = u128::from(shared.lock().machine.log().head());
        let ring = self.ring_mut();
        let left: Vec<u8> = (1..=samples as u32).rev().flat_map(u32::to_le_bytes).collect();
        ring.writer.write(0, first * 4, &left);
        let mut bytes = 0;
        for (index, leaf) in batch.leaves.iter().enumerate() {
            let Leaf::Array(array) = leaf else { continue };
            let stride = u128::from(ring.strides[index + 1]);
            if stride > 0 {
                fault::point("server:copying");
                match ring.info.schema.reordered(index, array) {
                    None => ring.writer.write(index + 1, first * stride, array.data),
                    Some(bytes) => ring.writer.write(index + 1, first * stride, &bytes),
                }
                bytes += array.data.len() as u64;
            }
        }
        fault::point("server:copied");
        self.publish(bytes);
        Ok(())
    }

    fn append_whole(&mut self, batch: &Batch<'_>) -> Result<(), Halt> {
        let encoded = Encoded::new(batch);
        let len = encoded.len_bytes();
        self.grow_for_source(1, len)?;
        let start = self.claim(1, len)?;
        let shared = self.shared;
        let sample = u128::from(shared.lock().machine.log().head());
        let ring = self.ring_mut();
        ring.writer.write(0, sample * 16, &[start.to_le_bytes(), len.to_le_bytes()].concat());
        for (offset, bytes) in encoded.pieces() {
            ring.writer.write(1, u128::from(start + offset), bytes);
        }
        self.publish(len);
        Ok(())
    }

    fn publish(&self, bytes: u64) {
        let mut state = self.shared.lock();
        state.machine.publish(&self.shared.head);
        fault::point("server:published");
        state.machine.announce(&self.shared.head);
        let (head, oldest) = (state.machine.log().head(), state.machine.log().oldest());
        state.stamps.forget_before(oldest);
        state.stamps.note(head, self.shared.meter.last_turn());
        state.batches += 1;
        state.bytes += bytes;
        drop(state);
        fault::point("server:announced");
    }

    fn end_epoch(&mut self, epoch: u64, length: Option<EpochLength>) -> Result<(), Halt> {
        if self.ring.is_none() && self.shared.lock().ring.is_none() {
            // A loader that goes on at an epoch's end has yielded it before.
            if self.shared.options.resume.is_none() {
                tracing::warn!("feed {:?}: the loader yielded nothing in its first epoch", self.shared.name);
            }
            self.publish_empty()?;
        }
        self.shared.change(|state| state.machine.end_epoch(epoch, length, &self.shared.head));
        Ok(())
    }

    pub fn ring(&self) -> &Ring {
        self.ring.as_ref().expect("batches are appended only to a ring")
    }

    fn ring_mut(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("batches are appended only to a ring")
    }
}
