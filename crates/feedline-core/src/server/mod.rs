//! A feed's server: it owns the name, the ring and the log.
//!
//! ```text
//! run()  (the caller's thread)       control  (a thread of its own)
//!   source ──▶ Producer ──▶ ring       socket ──▶ joins, leaves, deaths
//!                 └────────── State ───────┘      (one mutex; never held while copying or sleeping)
//! ```
//!
//! What is decided is decided by `feedline_protocol::server`, the state machine in `State`. `producer` appends, `backpressure` waits
//! for room, `replace` makes rings; `control` talks to consumers, `admission` lets them in, `watchdog` notices a source that hangs,
//! `attendance` that nobody is there. `notices` words what happened. `stats` looks at all of it, with `meter`'s clocks and the last
//! `events`; `outlets` hands that to Prometheus and to a file.

mod admission;
mod attendance;
mod backpressure;
mod control;
mod events;
mod members;
mod meter;
mod notices;
mod outlets;
mod producer;
mod replace;
mod shape;
mod stats;
mod watchdog;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use feedline_protocol::log::{Lag, MOST_EPOCHS_AHEAD, Policy};
use feedline_protocol::server::{self as protocol, Phase};
use feedline_protocol::{Mark, UNKNOWN};
use feedline_shm::fork::Origin;
use feedline_shm::peer::Peer;
use feedline_shm::{Doorbell, HeadWriter};

use self::events::Events;
use self::members::Page;
use self::meter::{Doing, Meter, Stamps};
use self::outlets::Opened;
use self::shape::PublishedRing;
use self::stats::stats;
use self::watchdog::Watch;
use crate::access::Allow;
use crate::error::{Error, Failure, FailureKind};
use crate::metrics::Outlet;
use crate::names::HeldName;
use crate::source::Source;

pub use self::attendance::Attendance;
pub use self::shape::{History, RingSize};
pub use self::watchdog::Ask;
use crate::stats::ServerStats;
use crate::wire::MAX_ORDER;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many epochs; without end if `None`.
    pub epochs: Option<u64>,
    /// The epoch's length in samples, where the source can't tell.
    pub samples: Option<u64>,
    /// How many consumers must have asked before the first sample is handed out.
    pub wait_for: u32,
    /// The ring's size, or what fits the first batch.
    pub ring: Option<RingSize>,
    /// How much is kept behind the ring.
    pub history: History,
    /// A folder for it, where memory isn't enough.
    pub history_dir: Option<PathBuf>,
    /// What happens to samples that some have not read yet.
    pub policy: Policy,
    /// Where an earlier server of this feed stopped; the source goes on from there.
    pub resume: Option<Mark>,
    /// The run of a shared feed that this server begins or goes on with (`names::runs`).
    pub run: Option<u64>,
    /// What an epoch's order depends on, beside the epoch, in a few words: servers that say the same yield an epoch in the same
    /// order. Empty: nobody can tell.
    pub order: String,
    /// How long a consumer that stands still may hold up the others.
    pub stall_timeout: Duration,
    /// End this long after the last consumer left.
    pub linger: Option<Duration>,
    /// How long to wait for the first one; `None`: without end.
    pub first_consumer: Option<Duration>,
    /// Who is attached; shared with the other feeds of this process that are to end together with this one.
    pub attendance: Attendance,
    /// Never cut.
    pub whole_batches: bool,
    /// Warn when the source has not come back for this long.
    pub loader_warn: Option<Duration>,
    /// Fail when it has not come back for this long.
    pub loader_timeout: Option<Duration>,
    /// Who else may attach.
    pub allow: Allow,
    /// Answer Prometheus on this port of 127.0.0.1; 0 picks a free one.
    pub metrics_port: Option<u16>,
    /// Append a line of JSON to this file now and then.
    pub metrics_file: Option<PathBuf>,
    /// How long from one line to the next.
    pub metrics_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epochs: None,
            samples: None,
            wait_for: 1,
            ring: None,
            history: History::Default,
            history_dir: None,
            policy: Policy::default(),
            resume: None,
            run: None,
            order: String::new(),
            stall_timeout: Duration::from_secs(60),
            linger: None,
            first_consumer: None,
            attendance: Attendance::default(),
            whole_batches: false,
            loader_warn: Some(Duration::from_secs(30)),
            loader_timeout: None,
            allow: Allow::default(),
            metrics_port: None,
            metrics_file: None,
            metrics_interval: Duration::from_secs(5),
        }
    }
}

type Machine = protocol::Server<Page, Peer>;

struct State {
    machine: Machine,
    /// Why the feed ended before its time, if it did.
    failure: Option<Failure>,
    /// The name is to be given back.
    is_closing: bool,
    ring: Option<Arc<PublishedRing>>,
    batches: u64,
    bytes: u64,
    /// When samples were published.
    stamps: Stamps,
    /// What happened lately.
    events: Events,
}

struct Shared {
    name: String,
    options: Options,
    head: HeadWriter,
    /// Wakes the control thread.
    control_bell: Doorbell,
    /// Wakes the producer.
    producer_bell: Doorbell,
    /// Whether the source is being asked for something, and how to find out where it hangs.
    watch: Watch,
    /// Where the producer's time goes.
    meter: Meter,
    /// The process that serves: a forked child has neither the threads nor the name, but it shares the head page.
    origin: Origin,
    metrics_port: Option<u16>,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the state machine do something, under the lock, and hands on what it has to say.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let outcome = change(&mut state);
        if state.machine.has_notices() {
            self.report(&mut state);
        }
        outcome
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
        state.events.note(if is_failure { "failed" } else { "stopped" }, None, &failure.message);
        state.failure = Some(failure);
        self.control_bell.ring();
        self.producer_bell.ring();
    }
}

/// Breaks the feed off when it is dropped: on the way of a panic.
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
    outlets: Mutex<Vec<Outlet>>,
}

impl Server {
    /// Takes the name and begins to listen.
    pub fn bind(name: &str, options: Options) -> Result<Self, Error> {
        if options.order.len() > MAX_ORDER {
            return Err(Error::Invalid(format!(
                "an order is named in {MAX_ORDER} bytes at most, not {:?}",
                options.order
            )));
        }
        let held = HeldName::take(name)?;
        let opened = Opened::new(&options)?;
        let machine = Machine::new(protocol::Options {
            policy: options.policy,
            wait_for: options.wait_for,
            stall_timeout: options.stall_timeout,
            resume: options.resume,
        });
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            options,
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
                batches: 0,
                bytes: 0,
                stamps: Stamps::default(),
                events: Events::default(),
            }),
        });
        let control = control::start(Arc::clone(&shared), held)?;
        let mut server = Self { shared, control: Mutex::new(Some(control)), outlets: Mutex::default() };
        server.outlets = opened.start(&server.shared)?.into();
        Ok(server)
    }

    /// Serves a source, on this thread, until its epochs are done and read, or somebody stops the server.
    ///
    /// A feed that fails keeps its name, and whoever attaches is told why, until [`Self::stop`]: a consumer may come a moment
    /// later, and should hear of the failure, not that there is no such feed. `poll` is called at least ten times a second while it sleeps; an error from it ends the feed.
    pub fn run(&self, source: &mut dyn Source, poll: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        // Whatever a source does to this thread, nobody waits for a feed without a producer.
        let guard = BreakOff(&self.shared);
        self.shared.watch.begin();
        let outcome = producer::run(&self.shared, source, poll);
        self.shared.meter.turn(Doing::Nothing);
        std::mem::forget(guard);
        match &outcome {
            Ok(()) => self.shared.lock().machine.end(),
            Err(failure) => self.shared.break_off(failure.clone()),
        }
        if self.shared.lock().machine.phase() == Phase::Failed {
            self.close_outlets();
        } else {
            self.close();
        }
        outcome
    }

    /// Gives a way to ask where the source is while it hangs. It is called on a thread of its own.
    pub fn set_ask(&self, ask: Arc<Ask>) {
        self.shared.watch.set_ask(ask);
    }

    /// Why the feed has given up on a source that is perhaps still in its call, if it has. The name is free then.
    pub fn gave_up(&self) -> Option<Failure> {
        // A forked child may have inherited the lock as somebody held it.
        if !self.shared.origin.is_here() {
            return None;
        }
        let failure = self.shared.lock().failure.clone().filter(|failure| failure.kind == FailureKind::Stuck)?;
        self.close();
        Some(failure)
    }

    /// Ends the feed; consumers are told `why`. Returns when the name is free.
    pub fn stop(&self, why: &str) {
        self.request_stop(why);
        self.close();
    }

    /// As [`Self::stop`], without waiting.
    pub fn request_stop(&self, why: &str) {
        self.shared.break_off(Failure::new(FailureKind::Stopped, why.to_owned()));
    }

    /// Ends the feed because something failed around it; if it has ended already, nothing changes. The name stays taken, as when
    /// [`Self::run`] fails.
    pub fn fail(&self, failure: Failure) {
        self.shared.break_off(failure);
    }

    /// Whether this is the process that serves. A forked child of it has the server's memory, and perhaps locks that nobody gives
    /// back there: it may only drop it.
    pub fn is_here(&self) -> bool {
        self.shared.origin.is_here()
    }

    /// For other feeds of this process that are to end together with this one.
    pub fn attendance(&self) -> Attendance {
        self.shared.options.attendance.clone()
    }

    /// How things stand.
    pub fn stats(&self) -> ServerStats {
        stats(&self.shared)
    }

    /// An epoch's length in samples, once known.
    pub fn samples_per_epoch(&self) -> Option<u64> {
        Some(self.shared.head.length().samples).filter(|&samples| samples != UNKNOWN)
    }

    /// Lets the control thread say goodbye, and waits for it.
    fn close(&self) {
        if !self.shared.origin.is_here() {
            return;
        }
        self.shared.lock().is_closing = true;
        self.shared.control_bell.ring();
        // Whoever comes second waits for all of it too: a process that ended meanwhile would leave its socket behind.
        self.close_outlets();
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(control) = control.take() {
            let _ = control.join();
        }
    }
}

impl Server {
    /// The last line of a file tells how it ended, and who was there.
    fn close_outlets(&self) {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop("the server was closed");
    }
}
