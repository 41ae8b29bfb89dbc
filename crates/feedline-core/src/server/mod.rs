//! A feed's server: it owns the name, the ring and the log.
//!
//! ```text
//! run()  (the caller's thread)       control  (a thread of its own)
//!   source ──▶ Producer ──▶ ring       socket ──▶ joins, leaves, deaths
//!                 └────────── State ───────┘      (one mutex; never held while copying or sleeping)
//! ```
//!
//! `producer` appends, `room` waits and cuts off, `replace` makes rings; `control` talks to consumers, `door` lets them in,
//! `watchdog` notices a source that hangs, `attendance` that nobody is there; `members` is what both threads know of consumers, `returning` of those who had
//! another server before, `ranks` of those who belong together. `stats` looks at all of it, with `meter`'s clocks and the
//! last `events`; `outlets` hands that to Prometheus and to a file.

mod attendance;
mod control;
mod door;
mod events;
mod members;
mod meter;
mod outlets;
mod producer;
mod ranks;
mod replace;
mod returning;
mod room;
mod shape;
mod stats;
mod watchdog;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_ring::fork::Origin;
use feedline_ring::log::Log;
pub use feedline_ring::log::{Lag, MOST_EPOCHS_AHEAD, Policy};
use feedline_ring::signal::UNKNOWN;
use feedline_ring::{Doorbell, HeadWriter};

use self::events::Events;
use self::members::Members;
use self::meter::{Doing, Meter, Stamps};
use self::outlets::Opened;
use self::ranks::Ranks;
use self::returning::Returning;
use self::shape::PublishedRing;
use self::stats::stats;
use self::watchdog::Watch;
use crate::access::Allow;
use crate::error::{Error, Failure, FailureKind};
use crate::metrics::Outlet;
use crate::names::HeldName;
use crate::source::{Mark, Source};

pub use self::attendance::Attendance;
pub use self::events::Event;
pub use self::shape::{History, RingSize};
pub(crate) use self::shape::{layout, strides};
pub use self::stats::{ConsumerStats, ServerStats};
pub use self::watchdog::Ask;

/// What a head page's state word means.
pub(crate) mod state {
    pub const RUNNING: u32 = 0;
    /// Every epoch is produced.
    pub const ENDED: u32 = 1;
    /// The loader or the server failed; what was published stays good.
    pub const FAILED: u32 = 2;
    /// Somebody stopped the server.
    pub const STOPPED: u32 = 3;
}

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

/// Where a server is in its life.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Starting,
    Running,
    /// All epochs are produced; consumers are finishing.
    Draining,
    /// Over, as planned.
    Ended,
    /// Over, by a failure or a stop.
    Broken(Failure),
}

impl Phase {
    /// Over by a failure, which those who come now should hear of.
    fn has_failed(&self) -> bool {
        matches!(self, Self::Broken(failure) if failure.kind != FailureKind::Stopped)
    }
}

struct State {
    phase: Phase,
    /// The name is to be given back.
    is_closing: bool,
    log: Log,
    ring: Option<Arc<PublishedRing>>,
    members: Members,
    /// Those who come back after an earlier server died.
    returning: Returning,
    /// Those who share epochs and are not all here yet.
    ranks: Ranks,
    /// How long a place is held for them.
    patience: Duration,
    /// Since when all who are here wait for a later epoch.
    waited_for: Option<Since>,
    /// A window in samples that somebody needs.
    grow_to: u64,
    batches: u64,
    bytes: u64,
    /// When samples were published.
    stamps: Stamps,
    /// What happened lately.
    events: Events,
}

impl State {
    /// Takes over what consumers report.
    fn refresh(&mut self) {
        self.members.refresh(&mut self.log);
        self.returning.look(&mut self.log);
        self.ranks.look(&mut self.log, self.patience);
    }
}

/// How long those who come back with a saved place have to come back together.
const COMING_BACK: Duration = Duration::from_millis(500);

impl State {
    /// All who are here wait for a later epoch: whether it may be begun. Who comes back may be the first of several, and another
    /// may need an earlier one.
    fn has_settled(&mut self) -> bool {
        let since = *self.waited_for.get_or_insert_with(Since::now);
        let may_be_needed = self.log.is_wanted_by_number() || self.returning.may_need(self.log.epoch());
        self.returning.is_waiting() || !may_be_needed || since.is_over(COMING_BACK)
    }
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

    /// Tells consumers that something in the head page changed.
    fn announce(&self, state: &State) {
        if self.head.announce(state.members.pages()) {
            self.head.wake_all();
        }
    }

    /// Lets consumers know how many they are: should this server die, the next one waits for that many. Who was not told its place
    /// has none to come back to, and is not waited for.
    fn tell_joined(&self, state: &State) {
        let joined = u32::try_from(state.members.placed()).unwrap_or(u32::MAX);
        self.head.set_joined(joined.max(state.returning.expected()));
    }

    /// Ends the feed before its time; the first reason counts.
    fn break_off(&self, failure: Failure) {
        if !self.origin.is_here() {
            return;
        }
        let mut state = self.lock();
        if matches!(state.phase, Phase::Ended | Phase::Broken(_)) {
            return;
        }
        let (word, kind) = match failure.kind {
            FailureKind::Stopped => (state::STOPPED, "stopped"),
            _ => (state::FAILED, "failed"),
        };
        state.events.note(kind, None, &failure.message);
        state.phase = Phase::Broken(failure);
        self.head.set_state(word);
        self.announce(&state);
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
        let held = HeldName::take(name)?;
        let opened = Opened::new(&options)?;
        let mut log = Log::new(options.policy);
        if let Some(Mark { epoch, index }) = options.resume {
            log.resume(epoch, index);
        }
        let resumed = options.resume.map(|at| at.epoch);
        let patience = options.stall_timeout;
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
                phase: Phase::Starting,
                is_closing: false,
                log,
                ring: None,
                members: Members::default(),
                returning: Returning::new(resumed),
                ranks: Ranks::new(name),
                patience,
                waited_for: None,
                grow_to: 0,
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
            Ok(()) => {
                let mut state = self.shared.lock();
                if !matches!(state.phase, Phase::Broken(_)) {
                    state.phase = Phase::Ended;
                }
            }
            Err(failure) => self.shared.break_off(failure.clone()),
        }
        if self.shared.lock().phase.has_failed() {
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
        let failure = match &self.shared.lock().phase {
            Phase::Broken(failure) if failure.kind == FailureKind::Stuck => failure.clone(),
            _ => return None,
        };
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

/// A moment and how long ago it was: for policies that count time.
#[derive(Clone, Copy, Debug)]
struct Since(Instant);

impl Since {
    fn now() -> Self {
        Self(Instant::now())
    }

    fn is_over(self, limit: Duration) -> bool {
        self.0.elapsed() >= limit
    }
}
