//! A server's process: the state machine, driven as `feedline-core` drives it, over simulated memory.

mod conversation;
mod judged;
mod returns;

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::consumer::Shape;
use feedline_protocol::log::{Committed, Lag, Run, Size, Transfer};
use feedline_protocol::page::HeadPage;
use feedline_protocol::server::{Claim, EpochStart, Halt, Options, Phase, RingShape, Server, Stalled, Wait};
use feedline_protocol::{EpochLength, Mark, Time, UNKNOWN};

pub use self::returns::Servers;
use self::returns::{Jump, Returns};
use crate::fillers::Filler;
use crate::pages::{Head, PageReader};
use crate::ring::Ring;
use crate::rng::Rng;
use crate::scenario::Feed;
use crate::state_file::StateFile;
use crate::wire::{Pid, Wire};

pub type Machine = Server<PageReader, Pid>;

/// The longest sleep of either thread.
const SLICE: Duration = Duration::from_millis(100);

/// What a consumer wrote longer ago than this is seen.
pub const LATEST_SIGHT: Duration = Duration::from_millis(10);

pub struct ServerProcess {
    /// Counts the servers of a schedule.
    pub number: u32,
    pub machine: Machine,
    pub head: Rc<Head>,
    pub stopped_until: Duration,
    pub producer_at: Duration,
    /// When the appending thread last ran.
    produced: Duration,
    pub control_at: Duration,
    feed: Feed,
    ring: Option<Rc<Ring>>,
    replacing: Option<Replacing>,
    task: Task,
    fillers: Vec<Filler>,
    /// A claim was given back: the source goes on from this sample of the epoch.
    goes_back_to: Option<u64>,
    /// Epochs that were read or skipped, and the one after the last that was written.
    complete: u64,
    next_epoch: u64,
    /// In the order in which they came.
    links: Vec<Link>,
    next_id: u64,
    /// Where an earlier server stopped, and how much of that epoch is still to be said to be had.
    resume: Option<Mark>,
    had: u64,
    state_file: Option<StateFile>,
    returns: Returns,
    /// It has abandoned an epoch, or passed over one that nobody wanted.
    has_passed_over: bool,
    rng: Rc<Rng>,
}

/// A ring that is being prepared.
struct Replacing {
    ring: Ring,
    transfer: Transfer,
    detaches: Vec<Stalled>,
}

struct Link {
    id: u64,
    wire: Rc<Wire>,
    pid: Pid,
    stage: Stage,
    /// When it was let in, or gave its place back.
    idle_since: Duration,
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
    /// All of this epoch is claimed; what is being filled is waited for.
    EndEpoch {
        epoch: u64,
    },
    Drain,
    Over,
}

impl ServerProcess {
    pub fn new(number: u32, feed: &Feed, rng: &Rc<Rng>, now: Duration, resume: Option<Mark>) -> Self {
        let machine = Machine::new(Options {
            policy: feed.policy,
            wait_for: feed.wait_for,
            stall_timeout: feed.stall_timeout,
            resume,
        });
        let head = Rc::new(Head::new(number));
        let samples = feed.length(0);
        head.set_length(if feed.tells_length {
            let (samples, batches) =
                if feed.is_cut { (samples, samples.div_ceil(feed.source_batch)) } else { (samples, samples) };
            EpochLength { samples, batches, tail: UNKNOWN }
        } else {
            EpochLength::UNKNOWN
        });
        Self {
            number,
            machine,
            head,
            stopped_until: Duration::ZERO,
            producer_at: now,
            produced: now,
            control_at: now,
            feed: feed.clone(),
            ring: None,
            replacing: None,
            task: Task::BeginEpoch,
            fillers: Vec::new(),
            goes_back_to: None,
            complete: resume.map_or(0, |at| at.epoch),
            next_epoch: resume.map_or(0, |at| at.epoch),
            links: Vec::new(),
            next_id: 0,
            resume,
            had: resume.map_or(0, |at| at.index),
            state_file: feed.keeps_state.then(|| StateFile::new(resume)),
            returns: Returns::default(),
            has_passed_over: false,
            rng: Rc::clone(rng),
        }
    }

    pub fn connect(&mut self, wire: &Rc<Wire>, pid: &Pid) {
        let (id, wire) = (self.next_id, Rc::clone(wire));
        self.links.push(Link {
            id,
            wire,
            pid: pid.clone(),
            stage: Stage::New,
            idle_since: Duration::ZERO,
            says_bye: false,
        });
        self.next_id += 1;
    }

    /// Everybody learns that it is gone.
    pub fn hang_up(&self) {
        for link in &self.links {
            link.wire.is_server_there.set(false);
        }
    }

    /// What it leaves behind for the next one.
    pub fn state(&self) -> Option<Mark> {
        self.state_file.as_ref()?.written
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

    /// Begins to replace the ring. False if there is no memory.
    fn replace(&mut self, size: Size, detaches: Vec<Stalled>) -> bool {
        let Some(old) = self.ring.as_ref().filter(|_| !self.feed.is_short_of_memory) else { return false };
        let shape = Shape { generation: old.shape.generation + 1, ..old.shape };
        let (ring, transfer) = (Ring::new(size, shape), Transfer::default());
        self.replacing = Some(Replacing { ring, transfer, detaches });
        true
    }

    /// Copies what is there, and installs the ring once nothing came meanwhile.
    fn go_on_replacing(&mut self, mut replacing: Replacing, now: Duration) {
        let rest = replacing.transfer.rest(self.machine.log());
        if !rest.is_empty() {
            let old = self.ring.as_ref().expect("one is replaced");
            rest.into_iter().for_each(|run| replacing.ring.copy_from(old, run));
            self.producer_at = now + Duration::from_micros(self.rng.below(5000));
            self.replacing = Some(replacing);
            return;
        }
        self.install(replacing.ring, false);
        if !replacing.detaches.is_empty() {
            self.machine.detach(&replacing.detaches, true, &*self.head, Time::new(now));
            self.control_at = now;
        }
    }

    fn wait(&mut self, wait: Wait, now: Duration) {
        self.producer_at = now;
        let size = self.machine.log().size();
        match wait {
            Wait::Sleep | Wait::ForSource => self.producer_at = now + SLICE,
            Wait::GrowFor(window) => {
                if !self.replace(size.widened(window, 0), Vec::new()) {
                    self.machine.refuse_larger("no memory");
                }
            }
            Wait::GrowForRanks(ranks) => {
                if !self.replace(size.widened(size.window * 2, size.byte_window * 2), Vec::new()) {
                    self.machine.refuse(&ranks, "no memory");
                }
            }
            Wait::Detach(stalled) if self.machine.needs_ring_to_detach(&stalled) => {
                if !self.replace(size, stalled) {
                    self.producer_at = now + SLICE;
                }
            }
            Wait::Detach(stalled) => {
                let has_ring = self.ring.as_ref().is_none_or(|ring| ring.size.capacity == 1);
                if !self.machine.detach(&stalled, has_ring, &*self.head, Time::new(now)) {
                    self.producer_at = now + SLICE;
                }
                self.control_at = now;
            }
        }
    }

    /// The appending thread runs until it waits, or has done one thing.
    pub fn produce(&mut self, now: Duration) {
        let time = Time::new(now);
        self.see_what_is_old(now);
        self.producer_at = now + Duration::from_micros(self.rng.below(20));
        if let Some(replacing) = self.replacing.take() {
            return self.go_on_replacing(replacing, now);
        }
        match self.task {
            Task::BeginEpoch => {
                if self.feed.epochs.is_some_and(|epochs| self.complete >= epochs) {
                    self.machine.drain(&*self.head);
                    self.task = Task::Drain;
                    return;
                }
                match self.machine.may_begin_epoch(&*self.head, time) {
                    EpochStart::Now => self.begin_epoch(now),
                    EpochStart::Wait(wait) => self.wait(wait, now),
                    EpochStart::Halted => self.task = Task::Over,
                }
            }
            Task::Load { epoch, index } => {
                if let Err(halt) = self.machine.halted(&*self.head, time) {
                    return self.halt(halt, epoch, now);
                }
                if let Some(window) = self.machine.wanted_growth(1) {
                    return self.wait(Wait::GrowFor(window), now);
                }
                self.load(epoch, index, now);
            }
            Task::Claim { epoch, index, .. } if self.goes_back_to.is_some() => self.go_back(epoch, index),
            Task::Claim { .. } if self.fillers.len() == self.feed.fillers => self.producer_at = now + SLICE,
            Task::Claim { epoch, index, samples, bytes } => {
                match self.machine.claim(samples, bytes, &*self.head, time) {
                    Claim::Granted(run) => {
                        self.begin_to_fill(run, epoch, index, bytes, now);
                        // Others may run before it goes on.
                        if !self.rng.one_in(4) {
                            self.produce(now);
                        }
                    }
                    Claim::Wait(wait) => self.wait(wait, now),
                    Claim::Halted(halt) => self.halt(halt, epoch, now),
                }
            }
            Task::EndEpoch { epoch } if self.goes_back_to.is_some() => self.go_back(epoch, u64::MAX),
            Task::EndEpoch { .. } if !self.fillers.is_empty() => self.producer_at = now + SLICE,
            Task::EndEpoch { epoch } => self.end_epoch(epoch),
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

    /// No store stays unseen for as long as a thread sleeps.
    fn see_what_is_old(&mut self, now: Duration) {
        if now.saturating_sub(self.produced) > LATEST_SIGHT {
            self.machine.members().values().for_each(|member| member.page.see_all());
        }
        self.produced = now;
    }

    fn begin_epoch(&mut self, now: Duration) {
        self.goes_back_to = None;
        let had = std::mem::take(&mut self.had);
        let first_asked = self.first_asked();
        let begun = self.machine.begin_epoch(had, &*self.head);
        self.has_passed_over |= begun.epoch > self.next_epoch;
        if begun.epoch > self.next_epoch && begun.is_wanted_by_number {
            self.returns.jumps.push(Jump { over: self.next_epoch..begun.epoch, at: now, first_asked });
        }
        if begun.is_wanted_by_number {
            self.complete = self.complete.max(begun.epoch);
            if self.feed.epochs.is_some_and(|epochs| self.complete >= epochs) {
                self.machine.drain(&*self.head);
                self.task = Task::Drain;
                return;
            }
        }
        // The source goes on in the middle of the epoch that it was in, and begins any other at its start.
        let index = if self.resume.is_some_and(|at| at.epoch == begun.epoch) { had } else { 0 };
        if self.state_file.is_some() {
            self.note_state();
        }
        self.task = Task::Load { epoch: begun.epoch, index };
    }

    fn note_state(&mut self) {
        let progress = self.machine.progress(Time::default());
        if let (Some(progress), Some(file)) = (progress, &mut self.state_file) {
            file.mark(progress, &self.rng);
        }
    }

    fn load(&mut self, epoch: u64, index: u64, now: Duration) {
        let length = self.feed.length(epoch);
        if index == length {
            self.task = Task::EndEpoch { epoch };
            return;
        }
        if self.ring.as_ref().is_none_or(|ring| ring.size.capacity == 1) {
            self.first_ring();
        }
        let samples = if self.feed.is_cut { self.feed.source_batch.min(length - index) } else { 1 };
        let bytes = if self.feed.is_cut { 0 } else { self.rng.within(1, 256) };
        self.task = Task::Claim { epoch, index, samples, bytes };
        self.producer_at = now + Duration::from_micros(self.rng.below(2 * self.feed.load_micros + 1));
    }

    fn begin_to_fill(&mut self, run: Run, epoch: u64, index: u64, len_bytes: u64, now: Duration) {
        let ring = Rc::clone(self.ring.as_ref().expect("claimed in it"));
        let until = now + Duration::from_micros(self.rng.below(self.feed.fillers as u64 * self.feed.load_micros + 20));
        let gives_up = self.feed.gives_back > 0 && self.rng.one_in(self.feed.gives_back);
        self.fillers.push(Filler { run, epoch, index, len_bytes, until, gives_up, ring }.begin());
        self.task = Task::Load { epoch, index: index + run.samples };
    }

    /// Claims were given back. Those behind one that the source has gone back to already change nothing.
    fn go_back(&mut self, epoch: u64, index: u64) {
        let earliest = self.goes_back_to.take().unwrap_or(index);
        self.task = Task::Load { epoch, index: index.min(earliest) };
    }

    /// When the next filler is done.
    pub fn next_filled(&self) -> Option<Duration> {
        self.fillers.iter().map(|filler| filler.until).min()
    }

    /// A filler is done, or gives up: true if it does.
    pub fn fill(&mut self, now: Duration) -> bool {
        let Some(which) = self.fillers.iter().position(|filler| filler.until <= now) else { return false };
        let filler = self.fillers.swap_remove(which);
        if filler.gives_up {
            self.machine.give_back(filler.run.first);
            self.goes_back_to = Some(self.goes_back_to.map_or(filler.index, |index| index.min(filler.index)));
        } else {
            filler.finish(self.ring.as_ref().expect("claimed in it"));
            if self.machine.commit(filler.run.first, &*self.head) == Committed::Published {
                self.machine.announce(&*self.head);
                if self.state_file.is_some() {
                    self.note_state();
                }
            }
        }
        self.producer_at = now;
        filler.gives_up
    }

    fn halt(&mut self, halt: Halt, epoch: u64, now: Duration) {
        match halt {
            Halt::Abandoned => {
                self.has_passed_over = true;
                if self.machine.log().is_wanted_by_number() {
                    let first_asked = self.first_asked();
                    self.returns.jumps.push(Jump { over: epoch..epoch + 1, at: now, first_asked });
                }
                self.next_epoch = epoch + 1;
                self.task = Task::BeginEpoch;
            }
            Halt::Stopped => self.task = Task::Over,
        }
    }

    fn end_epoch(&mut self, epoch: u64) {
        if self.ring.is_none() {
            let size = Size { capacity: 1, window: 1, byte_lane: 4096, byte_window: 4096 };
            let ring = Ring::new(size, self.shape(0, true));
            self.install(ring, true);
        }
        let Feed { source_batch, is_cut, .. } = self.feed;
        let samples = self.feed.length(epoch);
        let size = if is_cut { source_batch } else { 1 };
        let tail = if samples == 0 { 0 } else { (samples - 1) % size + 1 };
        let length = match self.resume {
            // Of an epoch that began before this server, it has counted only a part.
            Some(Mark { epoch: resumed, index: 1.. }) if resumed == epoch => self.head.length(),
            _ => EpochLength { samples, batches: samples.div_ceil(size), tail },
        };
        self.machine.end_epoch(epoch, length, &*self.head);
        self.next_epoch = epoch + 1;
        self.complete += 1;
        self.task = if self.feed.policy.replay { Task::Drain } else { Task::BeginEpoch };
    }
}

/// How long a message takes.
pub fn delay(rng: &Rng) -> Duration {
    let longest = match rng.below(64) {
        0 => 200_000,
        1..16 => 5000,
        _ => 50,
    };
    Duration::from_micros(rng.below(longest))
}
