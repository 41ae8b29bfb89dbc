//! The appending side: has the source claim samples, epoch after epoch. Waiting for room is `backpressure`'s, making rings `replace`'s;
//! a claim publishes itself (`claim`).
//!
//! ```text
//! begin epoch ──▶ append ──▶ claim (full: sleep on bells) ─┐
//!      ▲             └◀────────────────────────────────────┤
//!      └── end, when all is filled, or nobody needs the rest
//! ```

use std::sync::Arc;

use feedline_protocol::server::{Begun, Progress};
use feedline_protocol::{EpochLength, UNKNOWN};
use feedline_shm::fault;

use super::Shared;
use super::appender::Appender;
use super::claim::Claim;
use super::demand;
use super::ring::Ring;
use crate::error::{Failure, FailureKind};
use crate::source::{Halt, Length, Source};

pub(super) struct Producer<'a> {
    pub shared: &'a Arc<Shared>,
    pub ring: Option<Arc<Ring>>,
    /// What the source said of itself.
    pub length: Length,
    pub poll: Poll<'a>,
    /// The ring has the history that was asked for, as far as that can be known.
    pub has_history: bool,
    /// The source can go on at another place of the epoch.
    pub can_seek: bool,
    /// A ring could not be replaced, and the log says so already.
    pub is_short_of_memory: bool,
}

/// The caller's hook: called at least ten times a second while the server sleeps; an error ends the feed.
pub(super) type Poll<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// Serves all epochs, then waits until they are read.
pub(super) fn run(shared: &Arc<Shared>, source: &mut dyn Source, poll: Poll<'_>) -> Result<(), Failure> {
    let pool = source.pool();
    pool.iter().for_each(|pool| demand::tell(shared, pool));
    shared.lock().pool = pool;
    let length = source.length();
    let samples = shared.options.samples.or(length.samples);
    shared.head.set_length(EpochLength {
        samples: samples.unwrap_or(UNKNOWN),
        batches: length.batches.unwrap_or(UNKNOWN),
        tail: UNKNOWN,
    });
    let mut producer =
        Producer { shared, ring: None, length, poll, has_history: false, can_seek: false, is_short_of_memory: false };
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
        let (mut had, mut complete) = self.shared.launch.resume.map_or((0, 0), |at| (at.index, at.epoch));
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
            if let Some(length) = length {
                self.end_epoch(epoch, length)?;
            }
            fault::point("server:epoch_ended");
            next = epoch + 1;
            // An epoch that everybody left in the middle was nobody's.
            complete += u64::from(length.is_some());
            if options.replay {
                break;
            }
        }
        source.finish();
        if options.replay {
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

    /// Appends one epoch: how long it was, or `None` if it was abandoned, and is over.
    fn epoch(&mut self, source: &mut dyn Source) -> Result<Option<EpochLength>, Halt> {
        let mut had = self.next_index();
        let mut marked = self.progress();
        let ((start, _), before) = (marked, self.shared.lock().tally.batches);
        loop {
            had += self.pass_over(source)?;
            let is_over = match self.append(source) {
                Ok(true) => false,
                Ok(false) => self.has_settled()?,
                Err(Halt::Abandoned) => {
                    self.take_back(source)?;
                    return Ok(None);
                }
                Err(halt) => return Err(halt),
            };
            // What was claimed before may have been filled since.
            if source.keeps_state() && marked != self.progress() {
                marked = self.progress();
                self.mark(source)?;
            }
            if is_over {
                break;
            }
        }
        // Of an epoch that began before this server, or was not made from its beginning on, it has counted only a part.
        if had > 0 {
            return Ok(Some(self.shared.head.length()));
        }
        let state = self.shared.lock();
        let (batches, tail) = (state.tally.batches - before, state.tally.tail(start));
        Ok(Some(EpochLength { samples: state.machine.log().head() - start, batches, tail }))
    }

    /// Nobody needs the rest of an epoch: waits until the source has let go of what it fills.
    fn take_back(&mut self, source: &mut dyn Source) -> Result<(), Halt> {
        loop {
            let is_filling = {
                let _inside = self.shared.watch.enter(&self.shared.meter);
                source.take_back()?
            };
            if !is_filling {
                return Ok(());
            }
            if self.shared.lock().machine.phase().is_broken() {
                return Err(Halt::Stopped);
            }
            (self.poll)()?;
        }
    }

    /// Goes on at the place that all who are here have asked for, if the source can: how many samples need not be made.
    fn pass_over(&mut self, source: &mut dyn Source) -> Result<u64, Halt> {
        self.can_seek = source.can_seek();
        if !self.can_seek {
            return Ok(0);
        }
        let (shared, before) = (self.shared, self.next_index());
        let samples = shared.head.length().samples;
        let to = shared.change(|state| state.machine.pass_over(samples, &shared.head, shared.meter.time()));
        let Some(index) = to else { return Ok(0) };
        let _inside = shared.watch.enter(&shared.meter);
        source.seek(index)?;
        Ok(index - before)
    }

    /// Everything is claimed: waits until it is filled. False if some of it was given back, and is to be claimed again.
    fn has_settled(&mut self) -> Result<bool, Halt> {
        let before = self.next_index();
        self.wait_for_source(|state| !state.machine.log().is_filling())?;
        Ok(self.next_index() == before)
    }

    /// The number in the epoch of the sample that is claimed next.
    pub fn next_index(&self) -> u64 {
        let state = self.shared.lock();
        let log = state.machine.log();
        log.locate(log.claimed()).map_or(0, |(_, index)| index)
    }

    /// How far the log has come, and how far it is claimed.
    fn progress(&self) -> (u64, u64) {
        let state = self.shared.lock();
        (state.machine.log().head(), state.machine.log().claimed())
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

    fn append(&mut self, source: &mut dyn Source) -> Result<bool, Halt> {
        let wanted = self.shared.change(|state| {
            state.machine.halted(&self.shared.head, self.shared.meter.time())?;
            Ok::<_, feedline_protocol::server::Halt>(state.machine.wanted_growth(1))
        })?;
        if let Some(window) = wanted {
            self.grow_for_consumers(window);
        }
        let appended = source.append(&mut Appender(self));
        // A source may fork, and the child come back to us: the ring is its parent's.
        if self.shared.origin.is_here() { appended } else { Err(Halt::Stopped) }
    }

    /// `None` if the next sample is no longer the one with this index.
    pub fn claim_samples(&mut self, index: Option<u64>, samples: u64, left: u64) -> Result<Option<Claim>, Halt> {
        self.grow_for_source(samples, 0)?;
        let claimed = self.claim(samples, 0, left)?;
        fault::point("server:claimed");
        let run = claimed.0;
        let claim = Claim::new(self.shared, claimed, left);
        if index.is_some_and(|index| index != run.index) {
            return Ok(None);
        }
        Ok(Some(claim))
    }

    /// `None` if there is no room now.
    pub fn claim_samples_if_possible(&mut self, samples: u64) -> Result<Option<Claim>, Halt> {
        // While samples are being filled, the log can't pass over others that nobody needs.
        if self.can_seek && self.shared.lock().machine.log().unneeded_later() > 0 {
            return Ok(None);
        }
        self.grow_for_source(samples, 0)?;
        let claimed = self.claim_now(samples, 0, samples)?;
        fault::point("server:claimed");
        Ok(claimed.map(|claimed| Claim::new(self.shared, claimed, samples)))
    }

    pub fn claim_batch(&mut self, len_bytes: u64) -> Result<Claim, Halt> {
        self.grow_for_source(1, len_bytes)?;
        let claimed = self.claim(1, len_bytes, 1)?;
        Ok(Claim::whole(self.shared, claimed, len_bytes))
    }

    fn end_epoch(&mut self, epoch: u64, length: EpochLength) -> Result<(), Halt> {
        if self.ring.is_none() && self.shared.lock().ring.is_none() {
            // A loader that goes on at an epoch's end has yielded it before.
            if self.shared.launch.resume.is_none() {
                tracing::warn!("feed {:?}: the loader yielded nothing in its first epoch", self.shared.name);
            }
            self.publish_empty()?;
        }
        self.shared.change(|state| state.machine.end_epoch(epoch, length, &self.shared.head));
        Ok(())
    }

    pub fn ring(&self) -> &Arc<Ring> {
        self.ring.as_ref().expect("samples are claimed only in a ring")
    }
}
