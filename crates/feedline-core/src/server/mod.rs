//! A feed's server: it owns the name, the ring and the log.
//!
//! ```text
//! run()  (the caller's thread)       control  (a thread of its own)
//!   source ──▶ Producer ──▶ ring       socket ──▶ joins, leaves, deaths
//!                 └────────── State ───────┘      (one mutex; never held while copying or sleeping)
//! ```
//!
//! `feedline_protocol::server`, the state machine in `State`, makes all decisions. `producer` has the source append, through an
//! `appender` that hands out each `claim`; `backpressure` waits for space, `replace` makes each `ring`; `control` talks to consumers,
//! `admission` accepts them, `watchdog` notices a source that hangs, `idle_shutdown` that nobody is attached. `notices` puts events into words.
//! `demand` tells a pool of workers how long jobs wait. `stats` collects all numbers, with `meter`'s clocks and the last `events`; `exporters` gives them to Prometheus and to a file.

mod admission;
mod appender;
mod backpressure;
mod claim;
mod control;
mod demand;
mod events;
mod exporters;
mod idle_shutdown;
mod members;
mod meter;
mod notices;
mod producer;
mod replace;
mod ring;
mod shape;
mod stats;
mod tally;
mod watchdog;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use feedline_shm::{Mutex, MutexGuard};

use feedline_protocol::server::{self as protocol, Phase};
use feedline_protocol::{Mark, UNKNOWN};
use feedline_shm::fork::Origin;
use feedline_shm::peer::Peer;
use feedline_shm::{Claimable, Doorbell, HeadWriter};

use self::events::Events;
use self::exporters::OpenExporters;
use self::members::Page;
use self::meter::{Doing, Meter, Stamps};
use self::ring::Ring;
use self::stats::stats;
use self::tally::Tally;
use self::watchdog::Watch;
use crate::error::{Error, Failure, FailureKind};
use crate::explain::Reader;
use crate::metrics::Exporter;
use crate::names::HeldName;
use crate::source::{BatchSource, FromBatches, Source};

pub use self::appender::{Appender, First};
pub use self::claim::Claim;
pub use self::idle_shutdown::IdleShutdown;
pub use self::watchdog::Ask;
pub use crate::options::{History, Options, RingSize};
use crate::stats::{PoolReport, ServerStats};
use crate::wire::MAX_ORDER;

/// What the program that starts a server sets beside the options: no user chooses it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Where an earlier server of this feed stopped; the source goes on from there.
    pub resume: Option<Mark>,
    /// The run of a shared feed that this server begins or goes on with (`names::runs`).
    pub run: Option<u64>,
    /// What an epoch's order depends on, besides the epoch's number, in a few words: servers that say the same yield an epoch in
    /// the same order. Empty: unknown.
    pub order: String,
    /// How long to wait for the first consumer; `None`: without end.
    pub first_consumer: Option<Duration>,
    /// Counts the consumers; shared with the other feeds of this process that are to end together with this one.
    pub idle_shutdown: IdleShutdown,
    /// How long from one line of the metrics' file to the next.
    pub metrics_interval: Duration,
    /// Who reads the log and the events.
    pub reader: Reader,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            resume: None,
            run: None,
            order: String::new(),
            first_consumer: None,
            idle_shutdown: IdleShutdown::default(),
            metrics_interval: Duration::from_secs(5),
            reader: Reader::default(),
        }
    }
}

type Machine = protocol::Server<Page, Peer>;

struct State {
    machine: Machine,
    /// Why the feed ended early, if it did.
    failure: Option<Failure>,
    /// The name is to be given back.
    is_closing: bool,
    ring: Option<Arc<Ring>>,
    /// The ring's memory, and who fills which part of it.
    slots: Option<Claimable>,
    /// The producer waits: a claim that is committed or given back must wake it.
    producer_sleeps: bool,
    /// Where the source's pool of workers leaves its numbers, if it has one.
    pool: Option<PoolReport>,
    /// What is published.
    tally: Tally,
    /// When samples were published.
    stamps: Stamps,
    /// What happened lately.
    events: Events,
}

impl State {
    /// The ring's memory, for whoever has got samples of the log.
    fn slots(&mut self) -> &mut Claimable {
        self.slots.as_mut().expect("samples are claimed only in a ring")
    }
}

struct Shared {
    name: String,
    options: Options,
    launch: Launch,
    head: HeadWriter,
    /// Wakes the control thread.
    control_bell: Doorbell,
    /// Wakes the producer.
    producer_bell: Doorbell,
    /// Whether the source is being called, and how to find out where it hangs.
    watch: Watch,
    /// What the producer spends its time on.
    meter: Meter,
    /// The process that serves: a forked child has neither the threads nor the name, but it shares the head page.
    origin: Origin,
    metrics_port: Option<u16>,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Calls the state machine, under the lock, and hands on what it reports.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let outcome = change(&mut state);
        if state.machine.has_notices() {
            self.report(&mut state);
        }
        outcome
    }

    /// A claim was committed or given back.
    fn returned(&self, state: &State) {
        self.watch.returned();
        if state.producer_sleeps {
            self.producer_bell.ring();
        }
    }

    /// Ends the feed before its time; the first reason counts.
    fn break_off(&self, failure: Failure) {
        if !self.origin.is_here() {
            return;
        }
        let mut state = self.lock();
        let is_failure = failure.kind != FailureKind::Stopped;
        if !state.machine.break_off(is_failure, &self.head) {
            return;
        }
        let text = failure.message.worded(self.launch.reader);
        state.events.note(if is_failure { "failed" } else { "stopped" }, None, &text);
        state.failure = Some(failure);
        self.control_bell.ring();
        self.producer_bell.ring();
    }
}

/// Breaks the feed off when it is dropped: when the thread panics.
struct BreakOff<'a>(&'a Shared);

impl Drop for BreakOff<'_> {
    fn drop(&mut self) {
        let message = "the server's loader thread panicked".to_owned();
        self.0.break_off(Failure::new(FailureKind::Server, message));
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    control: Mutex<Option<JoinHandle<()>>>,
    exporters: Mutex<Vec<Exporter>>,
}

impl Server {
    /// Takes the name and begins to listen.
    pub fn bind(name: &str, options: Options) -> Result<Self, Error> {
        Self::launch(name, options, Launch::default())
    }

    /// The same, with settings beside the options.
    pub fn launch(name: &str, options: Options, launch: Launch) -> Result<Self, Error> {
        if launch.order.len() > MAX_ORDER {
            let what = format!("an order is named in {MAX_ORDER} bytes at most, not {:?}", launch.order);
            return Err(Error::Invalid(what.into()));
        }
        let held = HeldName::take(name)?;
        let opened = OpenExporters::new(&options, launch.metrics_interval)?;
        let machine = Machine::new(protocol::Options {
            policy: options.policy(),
            wait_for: options.wait_for,
            stall_timeout: options.stall_timeout_secs,
            resume: launch.resume,
        });
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            options,
            launch,
            head: HeadWriter::create()?,
            control_bell: Doorbell::new()?,
            producer_bell: Doorbell::new()?,
            watch: Watch::default(),
            meter: Meter::new(),
            origin: Origin::here(),
            metrics_port: opened.port(),
            state: Mutex::new(State {
                machine,
                failure: None,
                is_closing: false,
                ring: None,
                slots: None,
                producer_sleeps: false,
                pool: None,
                tally: Tally::default(),
                stamps: Stamps::default(),
                events: Events::default(),
            }),
        });
        let control = control::start(Arc::clone(&shared), held)?;
        let mut server = Self { shared, control: Mutex::new(Some(control)), exporters: Mutex::default() };
        server.exporters = opened.start(&server.shared)?.into();
        Ok(server)
    }

    /// Serves a source, on this thread, until its epochs are done and read, or somebody stops the server.
    ///
    /// A feed that fails keeps its name until [`Self::stop`], and every consumer that attaches gets the failure: one that comes a
    /// moment later should learn of it, not that there is no such feed. `poll` is called at least ten times a second while
    /// it sleeps; an error from it ends the feed.
    pub fn run(&self, source: &mut dyn Source, poll: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        // Whatever a source does to this thread, no consumer waits for a feed without a producer.
        let guard = BreakOff(&self.shared);
        self.shared.watch.begin();
        let outcome = producer::run(&self.shared, source, poll);
        std::mem::forget(guard);
        // A child that its source has forked: another thread may have held the lock then.
        if !self.shared.origin.is_here() {
            return outcome;
        }
        self.shared.meter.turn(Doing::Nothing);
        match &outcome {
            Ok(()) => self.shared.lock().machine.end(),
            Err(failure) => self.shared.break_off(failure.clone()),
        }
        if self.shared.lock().machine.phase() == Phase::Failed {
            self.close_exporters();
        } else {
            self.close();
        }
        outcome
    }

    /// As [`Self::run`], for a source of batches.
    pub fn run_batches(
        &self,
        source: &mut dyn BatchSource,
        poll: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.run(&mut FromBatches::new(source), poll)
    }

    /// Gives a way to ask where the source is while it hangs. It is called on a thread of its own.
    pub fn set_ask(&self, ask: Arc<Ask>) {
        self.shared.watch.set_ask(ask);
    }

    /// Why the feed has given up on a source that is perhaps still in its call, if it has. The name is free then.
    pub fn gave_up(&self) -> Option<Failure> {
        // A forked child may have inherited the lock while another thread held it.
        if !self.shared.origin.is_here() {
            return None;
        }
        let failure = self.shared.lock().failure.clone().filter(|failure| failure.kind == FailureKind::Stuck)?;
        self.close();
        Some(failure)
    }

    /// Ends the feed; consumers get `why`. Returns when the name is free.
    pub fn stop(&self, why: &str) {
        self.request_stop(why);
        self.close();
    }

    /// As [`Self::stop`], without waiting.
    pub fn request_stop(&self, why: &str) {
        self.shared.break_off(Failure::new(FailureKind::Stopped, why));
    }

    /// Ends the feed because something around it failed; if it has ended already, nothing changes. The name stays taken, as when
    /// [`Self::run`] fails.
    pub fn fail(&self, failure: Failure) {
        self.shared.break_off(failure);
    }

    /// Whether this is the process that serves. A forked child of it has the server's memory, and perhaps locks that no thread of
    /// its own will ever unlock: it may only drop the server.
    pub fn is_here(&self) -> bool {
        self.shared.origin.is_here()
    }

    /// For other feeds of this process that are to end together with this one.
    pub fn idle_shutdown(&self) -> IdleShutdown {
        self.shared.launch.idle_shutdown.clone()
    }

    /// The feed's numbers.
    pub fn stats(&self) -> ServerStats {
        stats(&self.shared)
    }

    /// An epoch's length in samples, once known.
    pub fn samples_per_epoch(&self) -> Option<u64> {
        Some(self.shared.head.length().samples).filter(|&samples| samples != UNKNOWN)
    }

    /// Lets the control thread send its end notices, and waits for it.
    fn close(&self) {
        if !self.shared.origin.is_here() {
            return;
        }
        self.shared.lock().is_closing = true;
        self.shared.control_bell.ring();
        // A second caller waits for all of it too: a process that ended meanwhile would leave its socket behind.
        self.close_exporters();
        let mut control = self.control.lock();
        if let Some(control) = control.take() {
            let _ = control.join();
        }
    }
}

impl Server {
    /// The last line of a file says how it ended, and who was attached.
    fn close_exporters(&self) {
        self.exporters.lock().clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop("the server was closed");
    }
}
