//! A cursor on a feed.
//!
//! ```text
//! attach ──▶ Attached ──first next()──▶ Joined ──next()──▶ batch, batch, …, end of epoch ──┐
//!                ▲                        ▲ └──────────────── the next epoch ◀─────────────┘
//!                └── leave(), detached ───┘
//! ```
//!
//! `link` is the connection to the server, `view` the ring in this process, `pressure` what to do when our own leases hold
//! up the log, `report` what others may ask of a consumer.

mod link;
mod pressure;
mod report;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_ring::fork::Origin;
use feedline_ring::signal::UNKNOWN;
use feedline_ring::{HeadReader, LeaseTable, Waited};

use self::link::{Link, News};
use self::pressure::Pressure;
pub use self::report::{ConsumerStats, EpochLength};
use self::view::View;
use crate::batch::Received;
use crate::error::Error;
use crate::schema::Schema;
use crate::server::state;
use crate::wire::{JoinAt, Reply, Request};

/// The longest sleep without a look at the server and at the caller's hook.
const SLICE: Duration = Duration::from_millis(100);
/// How soon to look again when the server waits for room while we wait for data.
const PRESSED_SLICE: Duration = Duration::from_millis(5);

/// How a consumer takes its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In place; a write makes a private copy of the page.
    Cow,
    /// Copied out.
    Copy,
    /// In place; a write is a crash.
    ReadOnly,
}

/// What a consumer wants.
#[derive(Clone, Debug)]
pub struct Config {
    /// The feed's name.
    pub name: String,
    /// `None` for the source's own batches.
    pub batch_size: Option<u64>,
    /// Leave out an epoch's last batch if it is smaller.
    pub drop_last: bool,
    /// Where to begin.
    pub entry: JoinAt,
    /// How long to wait for the feed and its first batch.
    pub timeout: Duration,
    /// How to take batches.
    pub mode: Mode,
}

/// The caller's hook: called whenever a wait is interrupted, and at least ten times a second; an error ends the wait.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// A consumer of one feed. Dropping it lets go of everything; batches that are still alive keep their bytes.
pub struct Consumer {
    config: Config,
    link: Link,
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
    /// Whether something of the epoch was handed out.
    in_epoch: bool,
    stats: ConsumerStats,
    looked: Instant,
    origin: Origin,
}

/// What there is to take.
enum Look {
    /// A batch up to this sample.
    Batch(u64),
    /// The epoch ended at this sample.
    EpochOver(u64),
    Nothing,
}

impl Consumer {
    /// Finds a feed and learns its schema. Takes no cursor yet: nobody waits for us.
    pub fn attach(config: Config, check: Check<'_>) -> Result<Self, Error> {
        if config.batch_size == Some(0) {
            return Err(Error::BatchSize("a batch has at least one sample, not 0".into()));
        }
        let (link, welcome) = Link::open(&config.name, config.timeout, check)?;
        let head = Arc::new(welcome.head);
        let table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        let view = View::new(welcome.ring, welcome.memory, config.mode, &config.name)?;
        let consumer = Self {
            stats: ConsumerStats { server_pid: link.server_pid(), ..ConsumerStats::default() },
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
            in_epoch: false,
            looked: Instant::now(),
            origin: Origin::here(),
        };
        consumer.check_batch_size()?;
        consumer.report_mode();
        Ok(consumer)
    }

    fn check_batch_size(&self) -> Result<(), Error> {
        let Some(batch_size) = self.config.batch_size else { return Ok(()) };
        let samples = self.head.length().samples;
        self.view.check_batch_size(&self.config.name, batch_size, samples)
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
        EpochLength::new(&self.head, batch_size, self.config.drop_last, source_batch)
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
            epoch: self.epoch,
            mode: self.view.mode(),
            leases: self.table.live() as u64,
            kept: self.table.kept(),
            remaps: self.view.remaps(),
            ..self.stats.clone()
        }
    }

    /// The next batch, or `None` at an epoch's end; the call after that begins the next epoch.
    pub fn next(&mut self, check: Check<'_>) -> Result<Option<Received>, Error> {
        if !self.is_here() {
            return Err(Error::Invalid(
                "this iterator belongs to the parent process; iterate the feed anew in the child".into(),
            ));
        }
        if !self.table.page().wake() {
            // The server's word of it is on the way, and comes before the answer to our next join.
            self.joined = false;
        }
        if self.looked.elapsed() >= SLICE {
            self.glance()?;
        }
        self.pressure.relieve(&self.head, &self.table);
        if self.pressure.is_hoarder(&self.table) {
            self.view.copy_from_now_on("it keeps its batches", &self.config.name);
            self.report_mode();
        }
        let mut slice = PRESSED_SLICE;
        loop {
            // At first, and when the server detached us between two epochs.
            if !self.joined {
                self.join(check)?;
            }
            match self.look()? {
                Look::Batch(end) => return self.take(end).map(Some),
                Look::EpochOver(end) => {
                    self.epoch += 1;
                    self.cursor = Some(end);
                    self.in_epoch = false;
                    self.table.advance(self.epoch, end);
                    self.table.page().rest();
                    return Ok(None);
                }
                Look::Nothing => self.wait(slice, check)?,
            }
            slice = SLICE;
        }
    }

    /// Gives the cursor back. Batches that are still alive keep their bytes.
    pub fn leave(&mut self) {
        if (self.joined || self.joining) && self.is_here() {
            while self.table.keep_oldest() {}
            self.joined = false;
            self.joining = false;
            self.in_epoch = false;
            let _ = self.link.send(&Request::Leave);
        }
    }

    fn join(&mut self, check: Check<'_>) -> Result<(), Error> {
        if !self.joining {
            self.joins += 1;
            let (batch_size, entry) = (self.config.batch_size, self.config.entry);
            self.link.send(&Request::Join { number: self.joins, batch_size, entry })?;
            self.joining = true;
        }
        let began = Instant::now();
        let mut told = false;
        loop {
            match self.link.wait_news(check)? {
                // An older number answers a join that was interrupted and taken back.
                Some(News::Reply(Reply::Joined { number, epoch, sample }, _)) if number == self.joins => {
                    self.joined = true;
                    self.joining = false;
                    self.epoch = epoch;
                    self.cursor = sample;
                    self.table.enter(number, epoch, sample.unwrap_or(0));
                    return Ok(());
                }
                Some(news) => self.hear(news)?,
                None => {}
            }
            if !told && began.elapsed() > Duration::from_secs(30) {
                told = true;
                tracing::warn!(
                    "feed {:?} waits for more consumers (wait_for) before it hands out its first sample",
                    self.config.name
                );
            }
        }
    }

    /// What there is to take, without waiting.
    fn look(&mut self) -> Result<Look, Error> {
        let head = self.head.head();
        if self.head.generation() != self.view.generation() {
            self.adopt_ring()?;
            if !self.joined {
                return Ok(Look::Nothing);
            }
        }
        let cursor = match self.cursor {
            Some(cursor) => cursor,
            None => match self.epoch.checked_sub(1).map_or(0, |before| self.head.end_of(before)) {
                UNKNOWN => return Ok(Look::Nothing),
                start => {
                    self.table.advance(self.epoch, start);
                    *self.cursor.insert(start)
                }
            },
        };
        let end = self.head.end_of(self.epoch);
        if self.head.generation() != self.view.generation() {
            // We were away for long, and perhaps detached: the entry may be another epoch's by now.
            return self.look();
        }
        let there = head.min(end);
        let want = match self.config.batch_size {
            Some(size) => size,
            None if cursor < there => self.view.source_batch_at(cursor),
            None => 1,
        };
        let is_tail = self.config.batch_size.is_none() && self.config.drop_last && want < self.view.source_batch();
        // A smaller batch may be the epoch's last: it is not if something follows it.
        let may_be_last = cursor + want == if end == UNKNOWN { head } else { end };
        if there.saturating_sub(cursor) >= want && !(is_tail && may_be_last) {
            return Ok(Look::Batch(cursor + want));
        }
        if end == UNKNOWN || head < end {
            return Ok(Look::Nothing);
        }
        Ok(if cursor < end && !self.config.drop_last { Look::Batch(end) } else { Look::EpochOver(end) })
    }

    fn take(&mut self, end: u64) -> Result<Received, Error> {
        let first = self.cursor.expect("a batch was seen at the cursor");
        let was = self.view.mode();
        let received = self.view.take(&self.table, first, end, self.epoch, &self.config.name)?;
        if self.view.mode() != was {
            self.report_mode();
        }
        self.cursor = Some(end);
        self.in_epoch = true;
        self.pressure.handed_out(first);
        self.stats.batches += 1;
        self.stats.samples += end - first;
        self.table.page().batches.store(self.stats.batches, Ordering::Relaxed);
        Ok(received)
    }

    /// Sleeps until the server has news, the hook objects, or a slice of time is over.
    fn wait(&mut self, pressed: Duration, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        let (tick, server_waits) = self.table.page().prepare_wait(&self.head);
        if server_waits {
            self.table.bell().ring();
        }
        let over = self.head.state();
        let waited = match self.look() {
            Ok(Look::Nothing) if over == state::RUNNING => {
                let slice = if server_waits { pressed } else { SLICE };
                Ok(self.head.wait(tick, slice))
            }
            Ok(Look::Nothing) => Err(self.why_over(over)),
            Ok(_) => Ok(Waited::Woken),
            Err(error) => Err(error),
        };
        self.table.page().end_wait();
        self.stats.waited += began.elapsed();
        self.table.page().waited_nanos.store(self.stats.waited.as_nanos() as u64, Ordering::Relaxed);
        if waited? != Waited::Woken {
            check()?;
            self.glance()?;
            self.pressure.relieve_all();
        }
        Ok(())
    }

    /// Looks whether the server lives and has said something.
    fn glance(&mut self) -> Result<(), Error> {
        self.looked = Instant::now();
        if self.head.state() == state::STOPPED {
            return Err(self.why_over(state::STOPPED));
        }
        while let Some(news) = self.link.news() {
            let is_last = matches!(news, News::Lost);
            self.hear(news)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn hear(&mut self, news: News) -> Result<(), Error> {
        let name = &self.config.name;
        match news {
            News::Reply(Reply::Ring(info), memory) => {
                self.view.adopt(info, memory, name)?;
                // It may be the first real one, after an epoch of nothing.
                self.check_batch_size()
            }
            News::Reply(Reply::Detached { stalled_secs }, _) => {
                self.joined = false;
                if !std::mem::take(&mut self.in_epoch) {
                    return Ok(());
                }
                Err(Error::Stalled(format!(
                    "this consumer (pid {}) held up feed {name:?} for {stalled_secs} s and was detached\n  \
                     iterate again to join the feed anew, or give the server a longer stall_timeout_secs",
                    std::process::id(),
                )))
            }
            News::Reply(Reply::Refused { why, batch_size: true }, _) => Err(Error::BatchSize(format!(
                "feed {name:?} cannot give batches of {}: {why}",
                self.config.batch_size.unwrap_or(0),
            ))),
            News::Reply(Reply::Refused { why, .. }, _) => Err(Error::Protocol(why)),
            // These are acted on when all that was published has been read: the head page says when.
            News::Reply(Reply::Failed(_) | Reply::Ended, _) => Ok(()),
            News::Reply(..) => Ok(()),
            // A server that is over has told us so in the head page, and what it published stays readable.
            News::Lost if matches!(self.head.state(), state::ENDED | state::FAILED) => {
                if self.joined {
                    Ok(())
                } else {
                    Err(self.why_over(self.head.state()))
                }
            }
            News::Lost if self.head.state() == state::STOPPED => Err(self.why_over(state::STOPPED)),
            News::Lost => Err(self.link.lost_error(name)),
        }
    }

    /// The ring was replaced: its memory is on the way, or here.
    fn adopt_ring(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        while self.view.generation() != self.head.generation() {
            match self.link.wait_news(&mut || Ok(()))? {
                Some(news) => self.hear(news)?,
                None if began.elapsed() > Duration::from_secs(10) => {
                    return Err(Error::ServerLost(format!(
                        "feed {:?} announced a new ring and did not send it",
                        self.config.name
                    )));
                }
                None => {}
            }
            if !self.joined {
                return Ok(());
            }
        }
        Ok(())
    }

    fn why_over(&mut self, over: u32) -> Error {
        if over == state::ENDED {
            return Error::Ended { name: self.config.name.clone() };
        }
        let failure = self.link.failure();
        let (name, pid) = (&self.config.name, self.link.server_pid());
        match (over, failure) {
            (state::FAILED, Some(failure)) => Error::Failed(failure),
            (_, Some(failure)) => {
                Error::ServerLost(format!("feed {name:?} (pid {pid}) was stopped: {}", failure.message))
            }
            _ => self.link.lost_error(name),
        }
    }

    fn report_mode(&self) {
        let mode = crate::server::mode_number(self.view.mode());
        self.table.page().mode.store(mode, Ordering::Relaxed);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // The server takes the closed socket for a leave; batches that are still alive must not change then.
        if self.is_here() {
            while self.table.keep_oldest() {}
        }
    }
}
