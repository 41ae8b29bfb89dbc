//! A cursor on a feed.
//!
//! `feedline_protocol::consumer`, the state machine, makes all decisions. `config` is what a consumer wants, `link` the
//! connection to the server, `events` what comes over it and what is waited for, `memory` what the state machine sees of the
//! shared
//! pages, `view` the ring in this process, `reconnect` how to go on with another server, `messages` the words for errors and
//! log lines, `report` what other threads may ask a consumer.

mod config;
mod events;
mod link;
mod memory;
mod messages;
mod reconnect;
mod report;
pub(crate) mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use feedline_protocol::consumer::Cut;
use feedline_protocol::consumer::{self as protocol, Available, Liveness, Next, Pressure, WithoutServer};
use feedline_protocol::page::HeadView;
pub use feedline_protocol::shard::Shard;
use feedline_protocol::{FeedState, Mark, Time};
use feedline_shm::fork::Origin;
use feedline_shm::{HeadReader, LeaseTable, fault};

pub use self::config::{Config, WhenMissing};
use self::link::Link;
pub(crate) use self::link::connect_to;
use self::memory::Memory;
use self::messages::Messages;
pub use self::messages::what_another_order_means;
use self::reconnect::Run;
pub use self::report::{ConsumerStats, EpochLength};
use self::view::View;
use crate::batch::Received;
use crate::error::Error;
use crate::explain::Explanation;
use crate::options::Name;
use crate::read_mode::CopiesBecause;
pub use crate::read_mode::Mode;
use crate::schema::Schema;
use crate::text;
use crate::wire::{Request, Stuck};

/// The longest sleep without checking the server and calling the caller's hook.
const SLICE: Duration = Duration::from_millis(100);
/// How soon to check again when the server waits for space while we wait for data.
const PRESSED_SLICE: Duration = Duration::from_millis(5);

/// The caller's hook: called whenever a wait is interrupted, and at least ten times a second; an error ends the wait.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// A consumer of one feed. Dropping it lets go of everything; batches that are still alive keep their bytes.
pub struct Consumer {
    config: Config,
    machine: protocol::Consumer,
    link: Link,
    liveness: Liveness,
    /// What the server reported about its loader, not logged yet.
    stuck: Option<Stuck>,
    head: Arc<HeadReader>,
    table: Arc<LeaseTable>,
    view: View,
    pressure: Pressure,
    run: Run,
    order: Arc<str>,
    stats: ConsumerStats,
    /// When the server was last checked.
    checked: Instant,
    clock: Clock,
    origin: Origin,
}

/// The clock of one consumer.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Time {
        Time::new(self.0.elapsed())
    }
}

impl Consumer {
    /// Finds a feed and reads its schema. Takes no cursor yet: nobody waits for us.
    pub fn attach(config: Config, check: Check<'_>) -> Result<Self, Error> {
        config.check()?;
        // A caller that starts a server itself knows what it waits for.
        let (link, welcome) = Link::open(&config, config.timeout, config.when_missing.is_some(), check)?;
        fault::point("consumer:attached");
        let head = Arc::new(welcome.head);
        let table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        let clock = Clock(Instant::now());
        let machine = protocol::Consumer::new(config.protocol(), welcome.ring.consumer_shape(), clock.now());
        let view = View::new(welcome.ring, welcome.memory, config.mode, &config.name)?;
        let consumer = Self {
            stats: ConsumerStats { server_pid: link.server_pid(), ..ConsumerStats::default() },
            liveness: Liveness::new(config.answer_timeout, clock.now()),
            stuck: None,
            run: Run::of(&config, welcome.run),
            order: welcome.order,
            machine,
            config,
            link,
            head,
            table,
            view,
            pressure: Pressure::default(),
            checked: clock.0,
            clock,
            origin: Origin::here(),
        };
        consumer.check_batch_size()?;
        consumer.check_lag()?;
        consumer.report_mode();
        Ok(consumer)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Calls the state machine with the memory that it may see, and logs what it reports.
    fn with_machine<T>(&mut self, call: impl FnOnce(&mut protocol::Consumer, &Memory<'_>) -> T) -> T {
        let memory = Memory { head: &self.head, table: &self.table, view: &self.view };
        let outcome = call(&mut self.machine, &memory);
        if self.machine.has_notices() {
            let notices = self.machine.take_notices();
            let messages = self.messages();
            notices.iter().for_each(|notice| messages.log(notice));
        }
        outcome
    }

    fn messages(&self) -> Messages<'_> {
        let why_whole = if let Schema::Whole { why } = self.view.schema() { Some(why.as_str()) } else { None };
        Messages {
            name: &self.config.name,
            config: self.machine.config(),
            is_cut: self.machine.shape().is_cut,
            why_whole,
        }
    }

    fn check_batch_size(&self) -> Result<(), Error> {
        let Some(batch_size) = self.machine.config().step_size() else { return Ok(()) };
        let samples = self.head.length().samples;
        self.view.check_batch_size(&self.config.name, batch_size, samples)
    }

    fn check_lag(&self) -> Result<(), Error> {
        if self.config.shard.is_some() && self.view.skips() {
            let what = text![
                format!("feed {:?} is served with ", self.config.name),
                Name::lag.of_value("skip"),
                ", and ranks that skip samples do not read the same epochs",
            ];
            return Err(Error::Invalid(Explanation::new(what).hint(text![
                "serve it with ",
                Name::lag.of_value("block"),
                " or ",
                Name::lag.of_value("history"),
                ", or attach without shard=",
            ])));
        }
        Ok(())
    }

    /// What the feed's batches look like.
    pub fn schema(&self) -> &Schema {
        self.view.schema()
    }

    /// How many batches an epoch has for this consumer, if that is known yet.
    pub fn batches_per_epoch(&self) -> Option<u64> {
        self.machine.batches_per_epoch(&*self.head)
    }

    /// The same, for threads that ask while the consumer is busy.
    pub fn epoch_length(&self) -> EpochLength {
        EpochLength::new(&self.head, self.machine.batch_count(), self.view.reported())
    }

    /// The consumer's leases, for threads that ask while the consumer is busy.
    pub fn leases(&self) -> Arc<LeaseTable> {
        Arc::clone(&self.table)
    }

    /// What an epoch's order depends on, besides the epoch's number, according to the server that is being read from.
    pub fn order(&self) -> Arc<str> {
        Arc::clone(&self.order)
    }

    /// The epoch that is being read, or is next.
    pub fn epoch(&self) -> u64 {
        self.machine.epoch()
    }

    /// Whether this is the process that attached, not a forked child of it.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Whether the feed can still give something; an error says why not.
    pub fn check(&mut self) -> Result<(), Error> {
        self.check_server()
    }

    /// The consumer's numbers.
    pub fn stats(&self) -> ConsumerStats {
        ConsumerStats {
            epoch: self.machine.wanted_epoch(),
            skipped: self.machine.skipped(),
            left_out: self.machine.left_out(),
            mode: self.view.mode(),
            leases: self.table.live() as u64,
            kept: self.table.kept(),
            remaps: self.view.remaps(),
            ..self.stats.clone()
        }
    }

    /// How many samples it has had so far.
    pub fn samples_taken(&self) -> u64 {
        self.stats.samples
    }

    /// The next sample that this consumer will get: where to go on after a crash.
    pub fn position(&self) -> Mark {
        self.machine.position(&*self.head)
    }

    /// Whether nothing of this epoch is left for us, as far as its length is known.
    pub fn has_read_all(&self) -> bool {
        self.machine.has_read_all(&*self.head)
    }

    /// Goes on there, with the next batch. If those samples are gone, asking for that batch reports it. A consumer that has read
    /// nothing loses nothing: if the first epoch's beginning is gone, it begins like a consumer that has just attached.
    pub fn resume_at(&mut self, mark: Mark) {
        let gives_back = self.machine.resume_at(mark);
        self.give_back(gives_back);
    }

    /// The loop over this epoch was left. A consumer that had all batches has finished the epoch, whether or not it asked for one
    /// more.
    pub fn stop(&mut self) {
        if self.is_here() {
            let gives_back = self.with_machine(|machine, memory| machine.stop(memory));
            self.give_back(gives_back);
        }
    }

    /// Gives the cursor back. Batches that are still alive keep their bytes.
    pub fn leave(&mut self) {
        if self.is_here() {
            let gives_back = self.machine.leave();
            self.give_back(gives_back);
        }
    }

    fn give_back(&mut self, gives_back: bool) {
        if gives_back && self.is_here() {
            while self.table.keep_oldest() {}
            fault::point("consumer:leaving");
            let _ = self.link.send(&Request::Leave);
            fault::point("consumer:left");
        }
    }

    /// The next batch, or `None` at an epoch's end; the call after that begins the next epoch.
    pub fn next(&mut self, check: Check<'_>) -> Result<Option<Received>, Error> {
        loop {
            match self.next_here(check) {
                Err(Error::ServerLost(why)) if !self.config.reconnect.is_zero() => {
                    match self.with_machine(|machine, memory| machine.without_server(memory)) {
                        WithoutServer::EpochOver => return Ok(None),
                        WithoutServer::Passed => {}
                        WithoutServer::Reconnect => self.reconnect(&why, check)?,
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn next_here(&mut self, check: Check<'_>) -> Result<Option<Received>, Error> {
        if !self.is_here() {
            return Err(Error::Invalid(
                "this iterator belongs to the parent process; iterate the feed anew in the child".into(),
            ));
        }
        self.with_machine(|machine, memory| machine.wake(memory));
        // While a join is under way, `await_answer` handles the answer.
        if !self.machine.is_joining() && self.checked.elapsed() >= SLICE {
            self.check_server()?;
        }
        self.release_under_pressure();
        let mut slice = PRESSED_SLICE;
        loop {
            let next = self.with_machine(|machine, memory| machine.next(memory));
            match next.map_err(|trouble| self.messages().error(trouble))? {
                Next::Join(join) => {
                    self.link.send(&Request::Join(join))?;
                    fault::point("consumer:join_sent");
                }
                Next::AwaitAnswer => self.await_answer(check)?,
                Next::AwaitRing => self.adopt_ring(check)?,
                Next::Take(cut) => {
                    fault::point("consumer:seen");
                    // Overwritten meanwhile: start again.
                    if let Some(received) = self.take(cut)? {
                        return Ok(Some(received));
                    }
                }
                Next::EpochOver => {
                    fault::point("consumer:epoch_over");
                    return Ok(None);
                }
                Next::Ended => return Err(self.why_over(FeedState::Ended)),
                Next::Wait => self.wait(slice, check)?,
            }
            slice = SLICE;
        }
    }

    /// What there is to take.
    fn available(&mut self) -> Result<Available, Error> {
        self.with_machine(|machine, memory| machine.available(memory)).map_err(|trouble| self.messages().error(trouble))
    }

    /// Releases what is older than a loop usually holds, if the server waits for it.
    fn release_under_pressure(&mut self) {
        if let Some(limit) = self.pressure.limit(self.head.wanted()) {
            while self.table.oldest().is_some_and(|first| first < limit) && self.table.keep_oldest() {}
        }
        if self.pressure.keeps_too_many(self.table.kept()) {
            self.view.copy_from_now_on(CopiesBecause::Keeps, "it keeps its batches", &self.config.name);
            self.report_mode();
        }
    }

    /// `None` if the batch was overwritten before it could be taken.
    fn take(&mut self, cut: Cut) -> Result<Option<Received>, Error> {
        let was = self.view.read_mode();
        let lead = self.machine.lead();
        self.with_machine(|machine, memory| machine.begin_take(cut, memory));
        let Cut { first, until, .. } = cut;
        let received = if self.view.skips() {
            let Some(received) = self.view.take_unguarded(&self.head, first, until)? else { return Ok(None) };
            received
        } else {
            self.view.take(&self.table, (first, until, lead), self.machine.epoch(), &self.config.name)?
        };
        self.with_machine(|machine, memory| machine.took(cut, memory));
        if self.view.read_mode() != was {
            self.report_mode();
        }
        fault::point("consumer:cut");
        self.pressure.handed_out(first + lead);
        self.stats.batches += 1;
        self.stats.samples += until - first;
        self.table.page().batches.store(self.stats.batches, Ordering::Relaxed);
        self.table.page().samples.store(self.stats.samples, Ordering::Relaxed);
        Ok(Some(received))
    }

    fn report_mode(&self) {
        self.table.page().mode.store(self.view.read_mode().number(), Ordering::Relaxed);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Batches that are still alive must not change when the server considers us gone.
        if self.is_here() {
            while self.table.keep_oldest() {}
            // Closing the socket would be enough; this tells the server that we did not crash.
            let _ = self.link.send(&Request::Bye);
        }
    }
}
