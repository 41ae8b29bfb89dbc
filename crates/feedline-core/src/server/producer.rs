//! The appending side: takes batches from the source, waits for room, copies, publishes.
//!
//! ```text
//! begin epoch ──▶ next ──▶ claim ──▶ copy ──▶ publish ─┐
//!      ▲            ▲        │ full: sleep on bells     │
//!      │            └────────┼──────────────────────────┘
//!      └── end, or nobody needs the rest
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_ring::RingWriter;
use feedline_ring::signal::EpochLength;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::shape::{PublishedRing, allocate, first_ring, strides};
use super::{Phase, Shared, Since, State, state};
use crate::batch::{Batch, Leaf};
use crate::error::{Error, Failure, FailureKind};
use crate::schema::{Mismatch, Schema};
use crate::source::Source;
use crate::whole::Encoded;
use crate::wire::RingInfo;

/// The longest sleep without a call of the caller's hook.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a consumer that has read an epoch and not asked for the next may hold up one that starves. It has nothing in hand
/// and loses nothing: it joins again when it asks.
const REST: Duration = Duration::from_secs(2);

/// Why appending stopped in the middle of an epoch.
enum Halt {
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
struct Ring {
    writer: RingWriter,
    info: RingInfo,
    strides: Vec<u64>,
}

struct Producer<'a> {
    shared: &'a Shared,
    ring: Option<Ring>,
    poll: Poll<'a>,
}

/// The caller's hook: called at least ten times a second while the server sleeps; an error ends the feed.
pub(super) type Poll<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// Serves all epochs, then waits until they are read.
pub(super) fn run(shared: &Shared, source: &mut dyn Source, poll: Poll<'_>) -> Result<(), Failure> {
    let length = source.length();
    let unknown = feedline_ring::signal::UNKNOWN;
    let samples = shared.options.samples.or(length.samples);
    shared.head.set_length(EpochLength {
        samples: samples.unwrap_or(unknown),
        batches: length.batches.unwrap_or(unknown),
        tail: unknown,
    });
    let mut producer = Producer { shared, ring: None, poll };
    match producer.epochs(source) {
        Ok(()) | Err(Halt::Abandoned | Halt::Stopped) => Ok(()),
        Err(Halt::Failed(failure)) => Err(failure),
    }
}

impl Producer<'_> {
    fn epochs(&mut self, source: &mut dyn Source) -> Result<(), Halt> {
        let (mut epoch, mut complete) = (0, 0);
        while self.shared.options.epochs.is_none_or(|epochs| complete < epochs) {
            self.wait_until(true, |state| state.log.can_begin_epoch())?;
            self.shared.lock().log.begin_epoch();
            source.begin(epoch)?;
            let length = self.epoch(source)?;
            self.end_epoch(epoch, length)?;
            epoch += 1;
            // An epoch that everybody left in the middle was nobody's.
            complete += u64::from(length.is_some());
        }
        {
            let mut state = self.shared.lock();
            if matches!(state.phase, Phase::Starting | Phase::Running) {
                state.phase = Phase::Draining;
            }
            self.shared.head.set_state(state::ENDED);
            self.shared.announce(&state);
            self.shared.control_bell.ring();
        }
        let patience = self.shared.options.stall_timeout;
        // Nobody is cut off any more: who is slow holds up nobody but us.
        self.wait_until(false, |state| state.members.are_done(&state.log, epoch, patience))
    }

    /// Appends one epoch: how long it was, or `None` if it was abandoned.
    fn epoch(&mut self, source: &mut dyn Source) -> Result<Option<EpochLength>, Halt> {
        let mut length = EpochLength::default();
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
                }
                None => return Ok(Some(length)),
            }
        }
    }

    fn next(&mut self, source: &mut dyn Source) -> Result<Option<u64>, Halt> {
        self.check()?;
        let Some(batch) = source.next()? else { return Ok(None) };
        let mismatch = |Mismatch(message)| Failure {
            kind: FailureKind::Schema,
            message: format!(
                "{message}\n  a feed's batches must keep their types and shapes; pad them to a fixed shape, or serve whole \
                 batches of any shape with whole_batches=True"
            ),
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
        if self.ring().info.capacity < 2 * samples {
            self.grow(4 * samples, 0, true)?;
        }
        self.claim(samples, 0)?;
        let shared = self.shared;
        let first = u128::from(shared.lock().log.head());
        let ring = self.ring_mut();
        let left: Vec<u8> = (1..=samples as u32).rev().flat_map(u32::to_le_bytes).collect();
        ring.writer.write(0, first * 4, &left);
        let mut bytes = 0;
        for (index, leaf) in batch.leaves.iter().enumerate() {
            let Leaf::Array(array) = leaf else { continue };
            let stride = u128::from(ring.strides[index + 1]);
            if stride > 0 {
                ring.writer.write(index + 1, first * stride, array.data);
                bytes += array.data.len() as u64;
            }
        }
        self.publish(bytes);
        Ok(())
    }

    fn append_whole(&mut self, batch: &Batch<'_>) -> Result<(), Halt> {
        let encoded = Encoded::new(batch);
        let len = encoded.len_bytes();
        if self.ring().info.byte_lane < 2 * len {
            let capacity = self.ring().info.capacity;
            self.grow(capacity, 4 * len, true)?;
        }
        let start = self.claim(1, len)?;
        let shared = self.shared;
        let sample = u128::from(shared.lock().log.head());
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
        state.log.publish();
        state.batches += 1;
        state.bytes += bytes;
        self.shared.head.publish(state.log.head());
        self.shared.announce(&state);
    }

    /// Decides the schema and makes the first ring.
    fn begin_feed(&mut self, batch: &Batch<'_>) -> Result<(), Halt> {
        let schema = Schema::of(batch, self.shared.options.whole_batches);
        let (samples, bytes) = match &schema {
            Schema::Cut { .. } => {
                let samples = schema.samples_in(batch).unwrap_or(0);
                (samples, samples.max(1).saturating_mul(strides(&schema).iter().sum()))
            }
            Schema::Whole { .. } => (1, Encoded::new(batch).len_bytes()),
        };
        let mut info = first_ring(&schema, self.shared.options.ring, samples, bytes)?;
        {
            let state = self.shared.lock();
            // Whoever is here already came while the feed was empty and got an empty ring.
            info.generation = state.ring.as_ref().map_or(0, |ring| ring.info.generation + 1);
            info.capacity = info.capacity.max(if matches!(schema, Schema::Cut { .. }) { state.grow_to } else { 0 });
        }
        if let Schema::Whole { .. } = &schema {
            // The unit is the batch.
            let batches = self.shared.head.length().batches;
            self.shared.head.set_length(EpochLength { samples: batches, batches, tail: 1 });
        }
        let writer = allocate(&info, bytes)?;
        self.install(writer, info);
        Ok(())
    }

    /// Makes a ring known: first its memory, then its number.
    fn install(&mut self, writer: RingWriter, info: RingInfo) {
        use std::os::fd::AsFd;
        let strides = strides(&info.schema);
        let len_bytes = writer.layout().len_bytes();
        let memory = writer.memfd().as_fd().try_clone_to_owned().expect("a descriptor of ours can be duplicated");
        let published = PublishedRing { info: info.clone(), memory: Arc::new(memory), len_bytes };
        {
            let mut state = self.shared.lock();
            if self.ring.is_some() {
                state.log.grow(info.capacity, info.byte_lane);
            } else {
                state.log.shape(info.capacity, (info.byte_lane > 0).then_some(info.byte_lane));
            }
            state.ring = Some(Arc::new(published));
            if state.phase == Phase::Starting {
                state.phase = Phase::Running;
            }
            self.shared.head.set_generation(info.generation);
            self.shared.announce(&state);
        }
        self.shared.control_bell.ring();
        self.ring = Some(Ring { writer, info, strides });
    }

    /// Replaces the ring by one of at least this capacity, with every intact sample in it.
    ///
    /// Nobody's view changes: old mappings keep the old memory, which is never written to again.
    fn grow(&mut self, capacity: u64, byte_lane: u64, must: bool) -> Result<(), Halt> {
        let (oldest, head) = {
            let state = self.shared.lock();
            (state.log.oldest(), state.log.head())
        };
        let old = self.ring();
        let mut info = old.info.clone();
        info.generation += 1;
        info.capacity = info.capacity.max(capacity);
        info.byte_lane = if info.byte_lane > 0 { info.byte_lane.max(byte_lane) } else { 0 };
        let mut writer = match allocate(&info, old.strides.iter().sum()) {
            Ok(writer) => writer,
            Err(error) if must => return Err(error.into()),
            Err(error) => {
                tracing::warn!("the ring of feed {:?} stays as it is: {error}", self.shared.name);
                return Ok(());
            }
        };
        for (lane, &stride) in old.strides.iter().enumerate().filter(|(_, stride)| **stride > 0) {
            let first = u128::from(oldest) * u128::from(stride);
            writer.copy_from(&old.writer, lane, first, (head - oldest) * stride);
        }
        let live = self.shared.lock().log.live_bytes();
        if let Some((start, end)) = live {
            writer.copy_from(&old.writer, 1, start.into(), end - start);
        }
        self.install(writer, info);
        Ok(())
    }

    fn end_epoch(&mut self, epoch: u64, length: Option<EpochLength>) -> Result<(), Halt> {
        let mut state = self.shared.lock();
        if self.ring.is_none() && state.ring.is_none() {
            drop(state);
            tracing::warn!("feed {:?}: the loader yielded nothing in its first epoch", self.shared.name);
            self.publish_empty()?;
            state = self.shared.lock();
        }
        let head = state.log.head();
        state.log.end_epoch();
        self.shared.head.end_epoch(epoch, head);
        let expected = self.shared.head.length().samples;
        if let Some(length) = length {
            self.shared.head.set_length(length);
        }
        self.shared.announce(&state);
        drop(state);
        match length {
            Some(EpochLength { samples, .. }) if expected != feedline_ring::signal::UNKNOWN && expected != samples => {
                let name = &self.shared.name;
                tracing::warn!("feed {name:?}: epoch {epoch} had {samples} samples where {expected} were expected");
            }
            _ => {}
        }
        Ok(())
    }

    /// A ring for a feed that has nothing in it yet, so that consumers can attach and see an empty epoch.
    fn publish_empty(&mut self) -> Result<(), Halt> {
        let schema = Schema::Whole { why: "the loader has yielded nothing yet".into() };
        let info = RingInfo { generation: 0, capacity: 1, byte_lane: 4096, source_batch: 1, schema };
        let writer = allocate(&info, 1)?;
        self.install(writer, info);
        self.ring = None;
        Ok(())
    }

    fn ring(&self) -> &Ring {
        self.ring.as_ref().expect("batches are appended only to a ring")
    }

    fn ring_mut(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("batches are appended only to a ring")
    }

    /// What has to be looked at before each batch.
    fn check(&mut self) -> Result<(), Halt> {
        let state = self.shared.lock();
        halted(&state)?;
        let wanted = state.grow_to;
        drop(state);
        self.grow_if_wanted(wanted)
    }

    fn grow_if_wanted(&mut self, wanted: u64) -> Result<(), Halt> {
        match &self.ring {
            Some(ring) if matches!(ring.info.schema, Schema::Cut { .. }) && wanted > ring.info.capacity => {
                self.shared.lock().grow_to = 0;
                self.grow(wanted, 0, false)
            }
            _ => Ok(()),
        }
    }

    /// Claims room for the next samples, waiting for it if need be.
    fn claim(&mut self, samples: u64, bytes: u64) -> Result<u64, Halt> {
        {
            let mut state = self.shared.lock();
            state.refresh();
            if let Some(start) = state.log.claim(samples, bytes) {
                return Ok(start);
            }
        }
        let began = Instant::now();
        let claimed = self.claim_slowly(samples, bytes);
        self.shared.head.want_nothing();
        self.shared.lock().waited += began.elapsed();
        claimed
    }

    /// The ring is full. Sleeps until a quarter of it is free, or somebody starves and there is just enough.
    fn claim_slowly(&mut self, samples: u64, bytes: u64) -> Result<u64, Halt> {
        let mut stall = Stall::default();
        loop {
            let (capacity, byte_lane) = (self.ring().info.capacity, self.ring().info.byte_lane);
            let mut state = self.shared.lock();
            halted(&state)?;
            let comfortable = state.log.wanted(samples.max(capacity / 4), bytes.max(byte_lane / 4));
            self.shared.head.want(comfortable.unwrap_or(feedline_ring::signal::UNKNOWN));
            state.refresh();
            let floor = state.log.slowest().map_or(u64::MAX, |(_, released)| released);
            let is_comfortable = comfortable.is_some_and(|wanted| floor >= wanted);
            if (is_comfortable || state.members.anybody_starves() || state.members.is_empty())
                && let Some(start) = state.log.claim(samples, bytes)
            {
                return Ok(start);
            }
            let wanted = state.grow_to;
            let needed = state.starved_of(capacity);
            let slowest = state.log.slowest();
            let stalled = stall.look(&state, slowest, self.shared.options.stall_timeout);
            let bells = state.bells();
            drop(state);
            if wanted > capacity || needed > capacity {
                self.grow_if_wanted(wanted.max(needed))?;
                continue;
            }
            if let Some(id) = stalled {
                self.detach(id)?;
                continue;
            }
            self.sleep(&bells)?;
        }
    }

    /// Cuts off a consumer that stands still. It may hold leases, so it keeps the old memory and the others move on to
    /// another ring.
    fn detach(&mut self, id: u64) -> Result<(), Halt> {
        let secs = self.shared.options.stall_timeout.as_secs_f64();
        let (pid, rests) = {
            let mut state = self.shared.lock();
            let rests = state.members.is_resting(id);
            let Some(member) = state.members.get_mut(id) else { return Ok(()) };
            if rests && !member.page.cut_off() {
                return Ok(());
            }
            member.joined = false;
            member.idle_since = Since::now();
            member.detached_after_secs = Some(secs);
            let pid = member.pid;
            state.log.leave(id);
            (pid, rests)
        };
        let name = &self.shared.name;
        if rests {
            tracing::info!("feed {name:?}: goes on without pid {pid}, which has not asked for its next epoch yet");
        } else {
            tracing::warn!("feed {name:?}: detached pid {pid}, which held up the others for {secs} s");
        }
        self.shared.control_bell.ring();
        match &self.ring {
            Some(ring) => self.grow(ring.info.capacity, 0, true),
            None => Ok(()),
        }
    }

    /// Waits for something that consumers bring about by reading on; one that doesn't can be cut off.
    fn wait_until(&mut self, cuts_off: bool, ready: impl Fn(&mut State) -> bool) -> Result<(), Halt> {
        let mut stall = Stall::default();
        loop {
            let mut state = self.shared.lock();
            if let Phase::Broken(_) = state.phase {
                self.shared.head.want_nothing();
                return Err(Halt::Stopped);
            }
            // Any release at all may be what we wait for.
            self.shared.head.want(0);
            state.refresh();
            if ready(&mut state) {
                self.shared.head.want_nothing();
                return Ok(());
            }
            let behind = state.log.furthest_behind();
            let stalled = stall.look(&state, behind, self.shared.options.stall_timeout);
            let bells = state.bells();
            drop(state);
            if let Some(id) = stalled.filter(|_| cuts_off) {
                self.detach(id)?;
                continue;
            }
            self.sleep(&bells)?;
        }
    }

    fn sleep(&mut self, bells: &[Arc<feedline_ring::Doorbell>]) -> Result<(), Halt> {
        let mut fds = vec![PollFd::new(&self.shared.producer_bell, PollFlags::IN)];
        fds.extend(bells.iter().map(|bell| PollFd::new(&**bell, PollFlags::IN)));
        let _ = poll(&mut fds, Some(&SLICE));
        self.shared.producer_bell.clear();
        bells.iter().for_each(|bell| bell.clear());
        (self.poll)().map_err(Halt::from)
    }
}

fn halted(state: &State) -> Result<(), Halt> {
    match state.phase {
        Phase::Broken(_) => Err(Halt::Stopped),
        _ if state.log.is_abandoned() => Err(Halt::Abandoned),
        _ => Ok(()),
    }
}

impl State {
    fn bells(&self) -> Vec<Arc<feedline_ring::Doorbell>> {
        self.members.values().map(|member| Arc::clone(&member.bell)).collect()
    }

    /// What the ring must hold for consumers that starve in front of a full one: its epoch turned out longer than announced.
    fn starved_of(&self, capacity: u64) -> u64 {
        let starved = self.members.values().filter(|member| member.joined && member.page.is_waiting());
        let largest = starved.filter_map(|member| member.batch_size).max().unwrap_or(0);
        if largest > capacity { capacity.saturating_mul(2).min(largest.saturating_mul(2)) } else { 0 }
    }
}

/// Notices when the slowest consumer doesn't move.
#[derive(Default)]
struct Stall {
    /// Who, where, and since when.
    seen: Option<(u64, u64, Instant)>,
    /// Since when it rests while another starves.
    resting: Option<Instant>,
}

impl Stall {
    /// Whether the one that holds up the log, at this position, should be cut off now.
    fn look(&mut self, state: &State, slowest: Option<(u64, u64)>, limit: Duration) -> Option<u64> {
        let (id, released) = slowest?;
        // Who waits for wait_for others stands still because it must.
        if !state.members.gate_open || !matches!(self.seen, Some((seen, at, _)) if seen == id && at == released) {
            *self = Self { seen: Some((id, released, Instant::now())), resting: None };
            return None;
        }
        if !state.members.is_resting(id) {
            self.resting = None;
            let (_, _, since) = self.seen?;
            return (since.elapsed() >= limit).then_some(id);
        }
        if !state.members.anybody_starves() {
            self.resting = None;
            return None;
        }
        let since = *self.resting.get_or_insert_with(Instant::now);
        (since.elapsed() >= REST.min(limit)).then_some(id)
    }
}
