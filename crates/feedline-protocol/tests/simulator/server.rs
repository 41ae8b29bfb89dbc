//! A server's process: the state machine, driven as `feedline-core` drives it, over simulated memory.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::consumer::Shape;
use feedline_protocol::log::{Lag, Size};
use feedline_protocol::page::HeadPage;
use feedline_protocol::server::{Claim, Delivery, EpochStart, Halt, Options, Phase, RingShape, Server, Stalled, Wait};
use feedline_protocol::{EpochLength, Time, UNKNOWN};

use crate::pages::{CursorPage, Head, PageReader};
use crate::ring::{Ring, Sample};
use crate::rng::Rng;
use crate::scenario::Feed;
use crate::wire::{Pid, ToConsumer, ToServer, Wire};

pub type Machine = Server<PageReader, Pid>;

/// The longest sleep of either thread.
const SLICE: Duration = Duration::from_millis(100);

pub struct ServerProcess {
    pub machine: Machine,
    pub head: Rc<Head>,
    pub stopped_until: Duration,
    pub producer_at: Duration,
    pub control_at: Duration,
    feed: Feed,
    ring: Option<Rc<Ring>>,
    task: Task,
    /// Epochs that were read or skipped, and the one after the last that was written.
    complete: u64,
    next_epoch: u64,
    links: BTreeMap<u64, Link>,
    next_id: u64,
    rng: Rc<Rng>,
}

struct Link {
    wire: Rc<Wire>,
    pid: Pid,
    stage: Stage,
    says_bye: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    Attached,
}

/// What the appending thread is at.
#[derive(Clone, Copy, Debug)]
enum Task {
    BeginEpoch,
    /// The source's next batch, which begins with this sample of the epoch.
    Load {
        epoch: u64,
        index: u64,
    },
    Claim {
        epoch: u64,
        index: u64,
        samples: u64,
        bytes: u64,
    },
    /// Claimed, and not written yet.
    Write {
        epoch: u64,
        index: u64,
        samples: u64,
        bytes: u64,
        start: u64,
    },
    Drain,
    Over,
}

impl ServerProcess {
    pub fn new(feed: &Feed, rng: &Rc<Rng>, now: Duration) -> Self {
        let machine = Machine::new(Options {
            policy: feed.policy,
            wait_for: feed.wait_for,
            stall_timeout: feed.stall_timeout,
            resume: None,
        });
        let head = Rc::new(Head::default());
        let samples = feed.length(0);
        head.set_length(if feed.tells_length {
            let (samples, batches) =
                if feed.is_cut { (samples, samples.div_ceil(feed.source_batch)) } else { (samples, samples) };
            EpochLength { samples, batches, tail: UNKNOWN }
        } else {
            EpochLength::UNKNOWN
        });
        Self {
            machine,
            head,
            stopped_until: Duration::ZERO,
            producer_at: now,
            control_at: now,
            feed: feed.clone(),
            ring: None,
            task: Task::BeginEpoch,
            complete: 0,
            next_epoch: 0,
            links: BTreeMap::new(),
            next_id: 0,
            rng: Rc::clone(rng),
        }
    }

    pub fn connect(&mut self, wire: &Rc<Wire>, pid: &Pid) {
        let link = Link { wire: Rc::clone(wire), pid: pid.clone(), stage: Stage::New, says_bye: false };
        self.links.insert(self.next_id, link);
        self.next_id += 1;
    }

    /// Everybody learns that it is gone.
    pub fn hang_up(&self) {
        for link in self.links.values() {
            link.wire.is_server_there.set(false);
        }
    }

    pub fn is_over(&self) -> bool {
        self.machine.phase() == Phase::Ended
    }

    fn shape(&self, generation: u32, is_placeholder: bool) -> Shape {
        Shape {
            generation,
            is_cut: self.feed.is_cut && !is_placeholder,
            skips: self.feed.policy.lag == Lag::Skip && !self.feed.policy.replay,
            replays: self.feed.policy.replay,
            epochs: self.feed.epochs,
            source_batch: if is_placeholder { 1 } else { self.feed.source_batch },
        }
    }

    fn install(&mut self, ring: Ring, is_placeholder: bool) {
        let shape = RingShape {
            generation: ring.shape.generation,
            size: ring.size,
            source_batch: ring.shape.source_batch,
            is_cut: ring.shape.is_cut,
            is_placeholder,
            sample_bytes: 1,
        };
        self.ring = Some(Rc::new(ring));
        self.machine.install(shape, &*self.head);
        self.control_at = Duration::ZERO;
    }

    fn first_ring(&mut self) {
        let generation = self.ring.as_ref().map_or(0, |ring| ring.shape.generation + 1);
        let Feed { window, history, policy, is_cut, .. } = self.feed;
        let window = if is_cut { window.max(self.machine.wanted_window()) } else { window };
        let mut size = Size { capacity: window + history, window, ..Size::default() };
        if policy.lag == Lag::Skip {
            size.capacity = 2 * window;
        }
        if policy.replay {
            size.capacity = size.capacity.max(self.feed.length(0) + self.feed.source_batch);
        }
        if !is_cut {
            size.byte_window = (size.window * 128).max(1024);
            size.byte_lane = (size.byte_window + (size.capacity - size.window) * 320).next_multiple_of(64);
            if policy.replay {
                size.byte_lane += size.capacity * 320;
            }
        }
        let ring = Ring::new(size, self.shape(generation, false));
        self.install(ring, false);
    }

    /// Another ring with all that is intact; `None` if there is no memory.
    fn prepare(&self, size: Size) -> Option<Ring> {
        let old = self.ring.as_ref().filter(|_| !self.feed.is_short_of_memory)?;
        let log = self.machine.log();
        let shape = Shape { generation: old.shape.generation + 1, ..old.shape };
        Some(Ring::grown(old, size, shape, log.oldest(), log.head()))
    }

    fn wait(&mut self, wait: Wait, now: Duration) {
        self.producer_at = now;
        match wait {
            Wait::Sleep => self.producer_at = now + SLICE,
            Wait::GrowFor(window) => match self.prepare(self.machine.log().size().widened(window, 0)) {
                Some(ring) => self.install(ring, false),
                None => self.machine.refuse_larger("no memory"),
            },
            Wait::GrowForRanks(ranks) => {
                let size = self.machine.log().size();
                match self.prepare(size.widened(size.window * 2, size.byte_window * 2)) {
                    Some(ring) => self.install(ring, false),
                    None => self.machine.refuse(&ranks, "no memory"),
                }
            }
            Wait::Detach(stalled) => {
                if !self.detach(&stalled, now) {
                    self.producer_at = now + SLICE;
                }
            }
        }
    }

    fn detach(&mut self, stalled: &[Stalled], now: Duration) -> bool {
        let has_ring = if self.machine.needs_ring_to_detach(stalled) {
            let Some(ring) = self.prepare(self.machine.log().size()) else { return false };
            self.install(ring, false);
            true
        } else {
            self.ring.as_ref().is_none_or(|ring| ring.size.capacity == 1)
        };
        let any = self.machine.detach(stalled, has_ring, &*self.head, Time::new(now));
        self.control_at = now;
        any
    }

    /// The appending thread runs until it waits, or has done one thing.
    pub fn produce(&mut self, now: Duration) {
        let time = Time::new(now);
        self.producer_at = now + Duration::from_micros(self.rng.below(20));
        match self.task {
            Task::BeginEpoch => {
                if self.feed.epochs.is_some_and(|epochs| self.complete >= epochs) {
                    self.machine.drain(&*self.head);
                    self.task = Task::Drain;
                    return;
                }
                match self.machine.may_begin_epoch(&*self.head, time) {
                    EpochStart::Now => self.begin_epoch(),
                    EpochStart::Wait(wait) => self.wait(wait, now),
                    EpochStart::Halted => self.task = Task::Over,
                }
            }
            Task::Load { epoch, index } => {
                if let Err(halt) = self.machine.halted(time) {
                    return self.halt(halt, epoch);
                }
                if let Some(window) = self.machine.wanted_growth(1) {
                    return self.wait(Wait::GrowFor(window), now);
                }
                self.load(epoch, index, now);
            }
            Task::Claim { epoch, index, samples, bytes } => {
                match self.machine.claim(samples, bytes, &*self.head, time) {
                    Claim::Granted(start) => self.task = Task::Write { epoch, index, samples, bytes, start },
                    Claim::Wait(wait) => self.wait(wait, now),
                    Claim::Halted(halt) => self.halt(halt, epoch),
                }
            }
            Task::Write { epoch, index, samples, bytes, start } => self.write(epoch, index, samples, bytes, start),
            Task::Drain => {
                let epochs = if self.feed.policy.replay { self.feed.epochs } else { Some(self.next_epoch) };
                if epochs.is_some_and(|epochs| self.machine.is_read(epochs, &*self.head, time)) {
                    self.machine.drain(&*self.head);
                    self.machine.end();
                    self.task = Task::Over;
                } else {
                    self.producer_at = now + SLICE;
                }
            }
            Task::Over => self.producer_at = now + SLICE,
        }
    }

    fn begin_epoch(&mut self) {
        let begun = self.machine.begin_epoch(0, &*self.head);
        if begun.is_wanted_by_number {
            self.complete = self.complete.max(begun.epoch);
            if self.feed.epochs.is_some_and(|epochs| self.complete >= epochs) {
                self.machine.drain(&*self.head);
                self.task = Task::Drain;
                return;
            }
        }
        self.task = Task::Load { epoch: begun.epoch, index: 0 };
    }

    fn load(&mut self, epoch: u64, index: u64, now: Duration) {
        let length = self.feed.length(epoch);
        if index == length {
            return self.end_epoch(epoch, true);
        }
        if self.ring.as_ref().is_none_or(|ring| ring.size.capacity == 1) {
            self.first_ring();
        }
        let samples = if self.feed.is_cut { self.feed.source_batch.min(length - index) } else { 1 };
        let bytes = if self.feed.is_cut { 0 } else { self.rng.within(1, 256) };
        self.task = Task::Claim { epoch, index, samples, bytes };
        self.producer_at = now + Duration::from_micros(self.rng.below(2 * self.feed.load_micros + 1));
    }

    fn write(&mut self, epoch: u64, index: u64, samples: u64, bytes: u64, start: u64) {
        let ring = self.ring.as_ref().expect("claimed in it");
        let head = self.machine.log().head();
        for at in 0..samples {
            let sample = Sample { epoch, index: index + at, left: samples - at };
            ring.put(head + at, sample, start, bytes);
        }
        self.machine.publish(&*self.head);
        self.machine.announce(&*self.head);
        self.task = Task::Load { epoch, index: index + samples };
    }

    fn halt(&mut self, halt: Halt, epoch: u64) {
        match halt {
            Halt::Abandoned => self.end_epoch(epoch, false),
            Halt::Stopped => self.task = Task::Over,
        }
    }

    fn end_epoch(&mut self, epoch: u64, is_complete: bool) {
        if self.ring.is_none() {
            let size = Size { capacity: 1, window: 1, byte_lane: 4096, byte_window: 4096 };
            let ring = Ring::new(size, self.shape(0, true));
            self.install(ring, true);
        }
        let Feed { source_batch, is_cut, .. } = self.feed;
        let samples = self.feed.length(epoch);
        let size = if is_cut { source_batch } else { 1 };
        let tail = if samples == 0 { 0 } else { (samples - 1) % size + 1 };
        let length = is_complete.then_some(EpochLength { samples, batches: samples.div_ceil(size), tail });
        self.machine.end_epoch(epoch, length, &*self.head);
        self.next_epoch = epoch + 1;
        self.complete += u64::from(is_complete);
        self.task = if self.feed.policy.replay { Task::Drain } else { Task::BeginEpoch };
    }

    /// The thread that talks to consumers has one round. Says what a consumer did that none may.
    pub fn converse(&mut self, now: Duration) -> Result<(), String> {
        self.control_at = now + SLICE;
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            self.hear(id, now)?;
        }
        if self.machine.reap() {
            self.producer_at = now;
        }
        let deliveries = self.machine.deliver();
        self.send_all(deliveries, now);
        if let Some(ring) = self.ring.clone() {
            self.welcome(&ring, now);
        }
        let (deliveries, begins) = self.machine.admit(&*self.head);
        if begins {
            self.producer_at = now;
        }
        self.send_all(deliveries, now);
        Ok(())
    }

    fn hear(&mut self, id: u64, now: Duration) -> Result<(), String> {
        let time = Time::new(now);
        loop {
            let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
            let Some(message) = link.wire.to_server.receive(now) else {
                let is_gone = !link.wire.is_consumer_there.get() && link.wire.to_server.is_empty();
                if is_gone && let Some(link) = self.links.remove(&id) {
                    self.machine.disconnect(id, &link.pid, link.says_bye, &*self.head, time);
                    self.producer_at = now;
                }
                return Ok(());
            };
            match message {
                ToServer::Hello => {
                    link.stage = Stage::Waiting;
                    self.machine.expect(id, link.pid.clone());
                }
                ToServer::Join(join) => {
                    let joined = self.machine.join(id, join, &*self.head, || u64::MAX, time);
                    joined.map_err(|violation| format!("a consumer was turned away: {violation:?} {join:?}"))?;
                    self.producer_at = now;
                }
                ToServer::Leave => {
                    self.machine.leave(id, &*self.head, time);
                    self.producer_at = now;
                }
                ToServer::Bye => link.says_bye = true,
            }
        }
    }

    fn welcome(&mut self, ring: &Rc<Ring>, now: Duration) {
        for (&id, link) in self.links.iter_mut().filter(|(_, link)| link.stage == Stage::Waiting) {
            let page = Rc::new(CursorPage::default());
            let message = ToConsumer::Welcome(Rc::clone(&self.head), Rc::clone(&page), Rc::clone(ring));
            link.wire.to_consumer.send(message, now + delay(&self.rng));
            link.stage = Stage::Attached;
            let page = PageReader::new(&page, &self.rng);
            self.machine.attach(id, page, link.pid.clone(), ring.shape.generation, Time::new(now));
        }
    }

    fn send_all(&mut self, deliveries: Vec<(u64, Delivery)>, now: Duration) {
        for (id, delivery) in deliveries {
            let Some(link) = self.links.get(&id) else { continue };
            let message = match delivery {
                Delivery::Answer(answer) => ToConsumer::Answer(answer),
                Delivery::Ring => ToConsumer::Ring(Rc::clone(self.ring.as_ref().expect("there is one"))),
            };
            link.wire.to_consumer.send(message, now + delay(&self.rng));
        }
    }

    /// When a message for it arrives.
    pub fn next_message(&self) -> Option<Duration> {
        self.links.values().filter_map(|link| link.wire.to_server.next()).min()
    }
}

/// How long a message takes.
pub fn delay(rng: &Rng) -> Duration {
    Duration::from_micros(if rng.one_in(4) { rng.below(5000) } else { rng.below(50) })
}
