//! A cursor on a feed.
//!
//! ```text
//! attach ──▶ Attached ──first next()──▶ Joined ──next()──▶ batch, batch, …, end of epoch ──┐
//!                ▲                        ▲ └──────────────── the next epoch ◀─────────────┘
//!                └── leave(), detached ───┘
//! ```
//!
//! `config` is what a consumer wants, `joining` how it gets and gives back its cursor, `look` what it finds there and takes,
//! `link` the connection to the server, `news` what comes over it, `patience` how long to wait for one that doesn't answer,
//! `epoch_wait` for an epoch that doesn't begin, `view` the ring in this process, `pressure` what to do when our own leases hold
//! up the log, `comeback` how to go on where one was, `run` whether another server goes on with what one had, `skip` how to
//! catch up where nobody waits for us, `shard` how the ranks of one job share an epoch, `report` what others may ask of a
//! consumer.

mod comeback;
mod config;
mod epoch_wait;
mod joining;
mod link;
mod look;
mod manner;
mod news;
mod patience;
mod pressure;
mod report;
mod run;
mod shard;
mod skip;
pub(crate) mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_ring::fork::Origin;
use feedline_ring::{HeadReader, LeaseTable, fault};

pub use self::config::{Config, Mode, WhenMissing};
use self::epoch_wait::EpochWait;
use self::link::Link;
pub(crate) use self::link::connect_to;
use self::look::Look;
use self::manner::CopiesBecause;
pub(crate) use self::manner::Manner;
use self::patience::Patience;
use self::pressure::Pressure;
pub use self::report::{ConsumerStats, EpochLength};
use self::run::Run;
pub use self::shard::Shard;
pub(crate) use self::shard::own_step;
use self::skip::Skips;
use self::view::View;
use crate::batch::Received;
use crate::error::Error;
use crate::schema::Schema;
use crate::server::state;
use crate::source::Mark;
use crate::wire::Request;

/// The longest sleep without a look at the server and at the caller's hook.
const SLICE: Duration = Duration::from_millis(100);
/// How soon to look again when the server waits for room while we wait for data.
const PRESSED_SLICE: Duration = Duration::from_millis(5);

/// No log gets this far: what a server counts with is believed up to here.
const FAR: u64 = 1 << 62;

/// The caller's hook: called whenever a wait is interrupted, and at least ten times a second; an error ends the wait.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// A consumer of one feed. Dropping it lets go of everything; batches that are still alive keep their bytes.
pub struct Consumer {
    config: Config,
    link: Link,
    patience: Patience,
    epoch_wait: EpochWait,
    head: Arc<HeadReader>,
    table: Arc<LeaseTable>,
    view: View,
    pressure: Pressure,
    joined: bool,
    /// A join was sent and not answered yet, and how many were sent.
    joining: bool,
    joins: u64,
    epoch: u64,
    /// `None` until the epoch has begun.
    cursor: Option<u64>,
    /// Where the epoch began, as far as that is known.
    start: u64,
    /// How many samples from the cursor on were had before.
    had: u64,
    /// What the table's positions are ahead of the log's: one epoch's length for each pass over a log that replays.
    lead: u64,
    /// Whether something of the epoch was handed out.
    in_epoch: bool,
    /// A rank has had its last batch of the epoch.
    is_last: bool,
    /// How many batches, if it was from the epoch's start on.
    taken: Option<u64>,
    /// And in the last epoch that was read from start to end.
    steps: Option<u64>,
    /// All of the epoch was handed out, and whoever asks next wants the next one; its end may not be known yet.
    is_finished: bool,
    /// We were told to go on at a place that may be an epoch's end: then it is the next one's beginning.
    may_be_over: bool,
    /// The epoch that was broken off, until the next join; and whether it was said that it comes again.
    broke_off: Option<u64>,
    told_again: bool,
    /// Where to go on, at the next join.
    resume: Option<Mark>,
    /// If another server was lost: how many consumers that one had, and the slowest's epoch.
    returning: (u32, u64),
    /// Our place was taken from us, and we ask for that one.
    comes_back: bool,
    /// We were cut off in the middle of an epoch, after standing still for so long.
    stalled_secs: Option<f64>,
    run: Run,
    skips: Skips,
    stats: ConsumerStats,
    looked: Instant,
    origin: Origin,
}

impl Consumer {
    /// Finds a feed and learns its schema. Takes no cursor yet: nobody waits for us.
    pub fn attach(config: Config, check: Check<'_>) -> Result<Self, Error> {
        config.check()?;
        // Whoever starts a server itself knows what it waits for.
        let (link, welcome) = Link::open(&config, config.timeout, config.when_missing.is_some(), check)?;
        fault::point("consumer:attached");
        let head = Arc::new(welcome.head);
        let table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        let view = View::new(welcome.ring, welcome.memory, config.mode, &config.name)?;
        let run = Run::of(&config, welcome.run);
        let consumer = Self {
            stats: ConsumerStats { server_pid: link.server_pid(), ..ConsumerStats::default() },
            patience: Patience::new(config.answer_timeout),
            epoch_wait: EpochWait::new(true),
            config,
            link,
            head,
            table,
            view,
            pressure: Pressure::default(),
            joined: false,
            joining: false,
            joins: 0,
            epoch: 0,
            cursor: None,
            start: 0,
            had: 0,
            lead: 0,
            in_epoch: false,
            is_last: false,
            taken: None,
            steps: None,
            is_finished: false,
            may_be_over: false,
            broke_off: None,
            told_again: false,
            resume: None,
            returning: (0, 0),
            comes_back: false,
            stalled_secs: None,
            run,
            skips: Skips::default(),
            looked: Instant::now(),
            origin: Origin::here(),
        };
        consumer.check_batch_size()?;
        consumer.check_lag()?;
        consumer.report_mode();
        Ok(consumer)
    }

    fn check_batch_size(&self) -> Result<(), Error> {
        let Some(batch_size) = self.config.step_size() else { return Ok(()) };
        let samples = self.head.length().samples;
        self.view.check_batch_size(&self.config.name, batch_size, samples)
    }

    fn check_lag(&self) -> Result<(), Error> {
        if self.config.shard.is_some() && self.view.skips() {
            return Err(Error::Invalid(format!(
                "feed {:?} is served with lag=\"skip\", and ranks that skip samples do not read the same epochs\n  \
                 serve it with lag=\"block\" or lag=\"history\", or attach without shard=",
                self.config.name,
            )));
        }
        Ok(())
    }

    /// What the feed's batches look like.
    pub fn schema(&self) -> &Schema {
        self.view.schema()
    }

    /// How many batches an epoch has for this consumer, if that is known yet.
    pub fn batches_per_epoch(&self) -> Option<u64> {
        self.epoch_length().batches()
    }

    /// The same, for whoever wants to ask while the consumer is busy.
    pub fn epoch_length(&self) -> EpochLength {
        let is_cut = self.view.is_cut();
        let batch_size = self.config.batch_size.filter(|_| is_cut);
        let source_batch = is_cut.then(|| self.view.source_batch());
        let shard = self.config.shard.map(|shard| (shard.world(), self.steps));
        EpochLength::new(&self.head, batch_size, self.config.drop_last, source_batch, self.view.told(), shard)
    }

    /// The consumer's leases, for whoever wants to ask while the consumer is busy.
    pub fn leases(&self) -> Arc<LeaseTable> {
        Arc::clone(&self.table)
    }

    /// The epoch that is being read, or is next.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether this is the process that attached, not a forked child of it.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Whether the feed can still give something, or why not.
    pub fn check(&mut self) -> Result<(), Error> {
        self.glance()
    }

    /// How things stand.
    pub fn stats(&self) -> ConsumerStats {
        ConsumerStats {
            epoch: self.epoch + u64::from(self.is_finished && self.resume.is_none()),
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

    /// The next batch, or `None` at an epoch's end; the call after that begins the next epoch.
    pub fn next(&mut self, check: Check<'_>) -> Result<Option<Received>, Error> {
        loop {
            match self.next_here(check) {
                Err(Error::ServerLost(why)) if !self.config.reconnect.is_zero() => {
                    // What is needed to know that the epoch is over is here still.
                    if self.joined {
                        match self.look(check) {
                            Ok(Look::EpochOver(end)) => {
                                if self.pass(end) {
                                    continue;
                                }
                                return Ok(None);
                            }
                            Err(Error::Interrupted) => return Err(Error::Interrupted),
                            _ => {}
                        }
                    }
                    self.reconnect(&why, check)?;
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
        self.wake();
        // While a join is out, its answer is for `join` to hear.
        if !self.joining && self.looked.elapsed() >= SLICE {
            self.glance()?;
        }
        self.pressure.relieve(&self.head, &self.table);
        if self.pressure.is_hoarder(&self.table) {
            self.view.copy_from_now_on(CopiesBecause::Keeps, "it keeps its batches", &self.config.name);
            self.report_mode();
        }
        let mut slice = PRESSED_SLICE;
        loop {
            // At first, and when the server detached us between two epochs.
            if !self.joined {
                self.join(check)?;
            }
            if self.view.replays() && self.view.epochs().is_some_and(|epochs| self.epoch >= epochs) {
                return Err(self.why_over(state::ENDED));
            }
            match self.look(check)? {
                // More than was promised: whoever asks now wants the next epoch.
                Look::Batch(cut) if self.is_finished => self.move_to(cut.next),
                Look::Batch(cut) => {
                    fault::point("consumer:seen");
                    // Overwritten meanwhile: look again.
                    let Some(received) = self.take(cut)? else { continue };
                    return Ok(Some(received));
                }
                Look::EpochOver(end) => {
                    let goes_on = self.pass(end);
                    fault::point("consumer:epoch_over");
                    if !goes_on {
                        return Ok(None);
                    }
                    self.wake();
                }
                Look::Nothing => self.wait(slice, check)?,
            }
            slice = SLICE;
        }
    }

    /// Asks for the next batch after a rest.
    fn wake(&mut self) {
        if !self.table.page().wake() {
            // The server's word of it is on the way, and comes before the answer to our next join.
            self.be_detached();
        }
    }

    /// The epoch is over. True if whoever asks had done with it before, and wants the next one.
    fn pass(&mut self, end: u64) -> bool {
        self.end_epoch(end);
        let is_finished = std::mem::take(&mut self.is_finished);
        std::mem::take(&mut self.may_be_over) || is_finished
    }

    fn end_epoch(&mut self, end: u64) {
        self.leave_out(end);
        self.steps = self.taken.or(self.steps);
        self.epoch += 1;
        self.in_epoch = false;
        self.taken = Some(0);
        self.had = 0;
        self.report_skipped();
        if self.view.replays() {
            self.lead += end;
            self.enter_epoch(0);
        } else {
            self.enter_epoch(end);
        }
        self.table.page().rest();
    }

    /// The epoch begins at this sample, and so do we.
    fn enter_epoch(&mut self, start: u64) {
        (self.cursor, self.start) = (Some(start), start);
        self.table.advance(self.epoch, start + self.lead);
    }

    /// Moves the cursor on without a batch.
    fn move_to(&mut self, cursor: u64) {
        self.cursor = Some(cursor);
        self.table.advance(self.epoch, cursor + self.lead);
    }

    /// The number in the log of the epoch that we read.
    fn epoch_in_log(&self) -> u64 {
        if self.view.replays() { 0 } else { self.epoch }
    }

    fn report_mode(&self) {
        self.table.page().mode.store(self.view.manner().number(), Ordering::Relaxed);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Batches that are still alive must not change when the server takes us for gone.
        if self.is_here() {
            while self.table.keep_oldest() {}
            // The closed socket would do; who says goodbye did not crash.
            let _ = self.link.send(&Request::Bye);
        }
    }
}
