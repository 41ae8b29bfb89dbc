//! A cursor on a feed.
//!
//! ```text
//! attach ──▶ Attached ──first next()──▶ Joined ──next()──▶ batch, batch, …, end of epoch ──┐
//!                ▲                        ▲ └──────────────── the next epoch ◀─────────────┘
//!                └── leave(), detached ───┘
//! ```
//!
//! `link` is the connection to the server, `news` what comes over it, `patience` how long to wait for one that doesn't answer, `view` the ring in this
//! process, `pressure` what to do when our own leases hold up the log, `comeback` how to go on where one was, `skip` how to
//! catch up where nobody waits for us, `shard` how the ranks of one job share an epoch, `report` what others may ask of a
//! consumer.

mod comeback;
mod link;
mod news;
mod patience;
mod pressure;
mod report;
mod shard;
mod skip;
pub(crate) mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_ring::fork::Origin;
use feedline_ring::signal::UNKNOWN;
use feedline_ring::{HeadReader, LeaseTable, fault};

use self::link::{Link, News};
use self::patience::Patience;
use self::pressure::Pressure;
pub use self::report::{ConsumerStats, EpochLength};
pub use self::shard::Shard;
pub(crate) use self::shard::own_step;
use self::shard::{Ahead, Step};
use self::skip::Skips;
use self::view::View;
use crate::access::Allow;
use crate::batch::Received;
use crate::error::Error;
use crate::schema::Schema;
use crate::server::state;
use crate::source::Mark;
use crate::wire::{Join, JoinAt, MOST_RANKS, Rank, Reply, Request};

/// The longest sleep without a look at the server and at the caller's hook.
const SLICE: Duration = Duration::from_millis(100);
/// How soon to look again when the server waits for room while we wait for data.
const PRESSED_SLICE: Duration = Duration::from_millis(5);

/// No log gets this far: what a server counts with is believed up to here.
const FAR: u64 = 1 << 62;
/// How often to look again at a page that changes meanwhile.
const LOOKS: usize = 10_000;

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
    /// `None` for the source's own batches. Of one rank, where ranks share the feed.
    pub batch_size: Option<u64>,
    /// With whom it shares each epoch.
    pub shard: Option<Shard>,
    /// Leave out an epoch's last batch if it is smaller.
    pub drop_last: bool,
    /// Where to begin.
    pub entry: JoinAt,
    /// After breaking off an epoch: go on to the next one, instead of joining by the same rules.
    pub moves_on: bool,
    /// How long to wait for the feed and its first batch.
    pub timeout: Duration,
    /// How long a server that lives may leave a question unanswered; a second at least.
    pub answer_timeout: Duration,
    /// How to take batches.
    pub mode: Mode,
    /// How long to wait for another server when this one is lost.
    pub reconnect: Duration,
    /// Whose feed it may be, besides one's own and root's.
    pub allow: Allow,
    /// What to do while nobody serves it.
    pub when_missing: Option<WhenMissing>,
}

/// Called again and again while a feed is looked for and not there: may have it started. Doesn't wait; an error ends the search.
#[derive(Clone)]
pub struct WhenMissing(pub Arc<dyn Fn() -> Result<(), Error> + Send + Sync>);

impl std::fmt::Debug for WhenMissing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WhenMissing")
    }
}

impl Config {
    /// The source's own batches of a feed, in place, from an epoch's start.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batch_size: None,
            shard: None,
            drop_last: false,
            entry: JoinAt::EpochStart,
            moves_on: false,
            timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
            mode: Mode::Cow,
            reconnect: Duration::ZERO,
            allow: Allow::default(),
            when_missing: None,
        }
    }

    /// The batch size of all ranks together.
    fn step_size(&self) -> Option<u64> {
        let world = self.shard.map_or(1, Shard::world);
        self.batch_size.map(|size| size.saturating_mul(world))
    }

    /// Refuses what can't be, whatever the feed is.
    fn check(&self) -> Result<(), Error> {
        if self.batch_size == Some(0) {
            return Err(Error::BatchSize("a batch has at least one sample, not 0".into()));
        }
        match self.shard {
            Some(Shard { world, rank, .. }) if rank >= world || world > MOST_RANKS => {
                Err(Error::Invalid(format!("there is no rank {rank} of {world}")))
            }
            Some(_) if self.entry == JoinAt::Newest => {
                Err(Error::Invalid("ranks begin with an epoch, not with its newest sample".into()))
            }
            Some(Shard { world, .. }) if self.step_size() >= Some(FAR) => {
                let size = self.batch_size.unwrap_or(0);
                Err(Error::BatchSize(format!("a batch of {size} samples for each of {world} ranks is not possible")))
            }
            _ => Ok(()),
        }
    }
}

/// The caller's hook: called whenever a wait is interrupted, and at least ten times a second; an error ends the wait.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// A consumer of one feed. Dropping it lets go of everything; batches that are still alive keep their bytes.
pub struct Consumer {
    config: Config,
    link: Link,
    patience: Patience,
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
    skips: Skips,
    stats: ConsumerStats,
    looked: Instant,
    origin: Origin,
}

/// What there is to take.
enum Look {
    /// A batch.
    Batch(Cut),
    /// The epoch ended at this sample.
    EpochOver(u64),
    Nothing,
}

/// A batch that can be taken.
#[derive(Clone, Copy, Debug)]
struct Cut {
    first: u64,
    until: u64,
    /// Where the one after it begins: further on, if others share what lies around it.
    next: u64,
    /// None of this epoch comes after it. Told only where others share it.
    is_last: bool,
}

impl Consumer {
    /// Finds a feed and learns its schema. Takes no cursor yet: nobody waits for us.
    pub fn attach(config: Config, check: Check<'_>) -> Result<Self, Error> {
        config.check()?;
        let (link, welcome) = Link::open(&config, config.timeout, check)?;
        fault::point("consumer:attached");
        let head = Arc::new(welcome.head);
        let table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        let view = View::new(welcome.ring, welcome.memory, config.mode, &config.name)?;
        let consumer = Self {
            stats: ConsumerStats { server_pid: link.server_pid(), ..ConsumerStats::default() },
            patience: Patience::new(config.answer_timeout),
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
        EpochLength::new(&self.head, batch_size, self.config.drop_last, source_batch, shard)
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

    /// The next batch, or `None` at an epoch's end; the call after that begins the next epoch.
    pub fn next(&mut self, check: Check<'_>) -> Result<Option<Received>, Error> {
        loop {
            match self.next_here(check) {
                Err(Error::ServerLost(why)) if !self.config.reconnect.is_zero() => {
                    // What is needed to know that the epoch is over is here still.
                    if let (true, Ok(Look::EpochOver(end))) = (self.joined, self.look()) {
                        if self.pass(end) {
                            continue;
                        }
                        return Ok(None);
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
            if self.view.replays() && self.view.epochs().is_some_and(|epochs| self.epoch >= epochs) {
                return Err(self.why_over(state::ENDED));
            }
            match self.look()? {
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

    /// Whoever iterated has stopped. Who had all batches has finished the epoch, whether or not it asked for one more.
    pub fn stop(&mut self) {
        if self.has_read_all() && self.is_here() {
            match self.head.end_of(self.epoch_in_log()) {
                UNKNOWN => {
                    (self.is_finished, self.in_epoch) = (true, false);
                    self.table.page().rest();
                }
                end => self.end_epoch(end),
            }
        } else {
            self.leave();
        }
    }

    /// Gives the cursor back. Batches that are still alive keep their bytes.
    pub fn leave(&mut self) {
        if (self.joined || self.joining) && self.is_here() {
            while self.table.keep_oldest() {}
            self.joined = false;
            self.joining = false;
            (self.is_finished, self.may_be_over) = (false, false);
            (self.resume, self.comes_back) = (None, false);
            // A look at one batch is no epoch that was broken off.
            let began = std::mem::take(&mut self.in_epoch);
            self.broke_off = (began && self.taken != Some(1)).then_some(self.epoch);
            if self.view.replays() {
                // The next one to be read is another pass over the same epoch.
                self.epoch += u64::from(began);
            } else if began && self.config.moves_on {
                self.resume = Some(Mark { epoch: self.epoch + 1, index: 0 });
            }
            fault::point("consumer:leaving");
            let _ = self.link.send(&Request::Leave);
            fault::point("consumer:left");
        }
    }

    fn join(&mut self, check: Check<'_>) -> Result<(), Error> {
        if !self.joining {
            self.is_finished = false;
            self.joins += 1;
            let batch_size = self.config.step_size();
            let comes_back = self.comes_back;
            let rank = self.config.shard.map(|Shard { group, world, rank }| Rank { group, world, rank, comes_back });
            let at = |Mark { epoch, index }| JoinAt::At { epoch, index };
            let entry = self.resume.map_or(self.config.entry, at);
            let (returning, slowest) = self.returning;
            let join = Join { number: self.joins, batch_size, entry, returning, slowest, rank };
            self.link.send(&Request::Join(join))?;
            self.joining = true;
            fault::point("consumer:join_sent");
        }
        let began = Instant::now();
        let mut told = false;
        loop {
            match self.link.wait_news(check)? {
                // An older number answers a join that was interrupted and taken back.
                Some(News::Reply(Reply::Joined { number, epoch, sample, had, start }, _)) if number == self.joins => {
                    if [epoch, sample.unwrap_or(0), had, start].iter().any(|&number| number >= FAR) {
                        return Err(Error::Protocol("the server gave a place that cannot be".into()));
                    }
                    self.joined = true;
                    self.joining = false;
                    self.stalled_secs = None;
                    self.is_last &= self.comes_back;
                    (self.returning, self.comes_back) = ((0, 0), false);
                    let mark = self.resume.take();
                    if !self.view.replays() {
                        self.epoch = epoch;
                    } else if let Some(mark) = mark {
                        self.epoch = mark.epoch;
                    }
                    (self.cursor, self.start, self.had, self.lead) = (sample, start, had, 0);
                    self.taken = (had == 0 && sample.is_none_or(|sample| sample == start)).then_some(0);
                    self.table.enter(number, self.epoch, sample.unwrap_or(start));
                    self.report_wait();
                    self.report_again();
                    fault::point("consumer:joined");
                    return Ok(());
                }
                Some(News::Reply(Reply::Gone { number, epoch, until }, _)) if number == self.joins => {
                    self.joining = false;
                    return Err(self.gone(epoch, until));
                }
                Some(news) => self.hear(news)?,
                None => self.be_patient()?,
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
        for _ in 0..LOOKS {
            if let Some(look) = self.look_once()? {
                return Ok(look);
            }
        }
        Err(Error::Protocol(format!("the server of feed {:?} changes its mind without end", self.config.name)))
    }

    /// The same, or `None` if the server went on meanwhile.
    fn look_once(&mut self) -> Result<Option<Look>, Error> {
        let head = self.head.head();
        if head >= FAR {
            return Err(Error::Protocol(format!("the server of feed {:?} is at sample {head}", self.config.name)));
        }
        if self.head.generation() != self.view.generation() {
            self.adopt_ring()?;
            if !self.joined {
                return Ok(Some(Look::Nothing));
            }
        }
        if self.view.skips()
            && let Some(over) = self.skip(head)
        {
            return Ok(Some(over));
        }
        if self.cursor.is_none() {
            match self.epoch_in_log().checked_sub(1).map_or(0, |before| self.head.end_of(before)) {
                UNKNOWN => return Ok(Some(Look::Nothing)),
                start => self.enter_epoch(start),
            }
        }
        let mut cursor = self.cursor.expect("set just above");
        let end = self.head.end_of(self.epoch_in_log());
        if self.head.generation() != self.view.generation() {
            // We were away for long, and perhaps detached: the entry may be another epoch's by now.
            return Ok(None);
        }
        if self.view.skips() && self.epoch < self.head.first_known() {
            // It ended, and the log has gone on, while we looked.
            return Ok(None);
        }
        let there = head.min(end);
        if self.had > 0 && cursor < there {
            let had = self.had.min(there - cursor);
            (cursor, self.had) = (cursor + had, self.had - had);
            self.move_to(cursor);
        }
        if let Some(shard) = self.config.shard {
            let is_all = end != UNKNOWN && head >= end;
            return self.look_at_step(shard, Ahead { there: there.saturating_sub(cursor), is_all }, cursor).map(Some);
        }
        let want = match self.config.batch_size {
            Some(size) => size,
            None if cursor < there => {
                let want = self.view.source_batch_at(cursor);
                if self.view.skips() && self.head.oldest() > cursor {
                    return Ok(None);
                }
                want
            }
            None => 1,
        };
        let is_tail = self.config.batch_size.is_none() && self.config.drop_last && want < self.view.source_batch();
        // A smaller batch may be the epoch's last: it is not if something follows it.
        let may_be_last = cursor.saturating_add(want) == if end == UNKNOWN { head } else { end };
        if there.saturating_sub(cursor) >= want && !(is_tail && may_be_last) {
            let until = cursor + want;
            return Ok(Some(Look::Batch(Cut { first: cursor, until, next: until, is_last: false })));
        }
        if end == UNKNOWN || head < end {
            return Ok(Some(Look::Nothing));
        }
        let last = Cut { first: cursor, until: end, next: end, is_last: false };
        Ok(Some(if cursor < end && !self.config.drop_last { Look::Batch(last) } else { Look::EpochOver(end) }))
    }

    /// Our slice of the next step, which begins at the cursor.
    fn look_at_step(&mut self, shard: Shard, ahead: Ahead, cursor: u64) -> Result<Look, Error> {
        match self.step_at(shard, ahead, cursor) {
            Step::Take(samples) => {
                let (first, until) = shard.slice(samples);
                let (next, after) = (cursor + samples, Ahead { there: ahead.there - samples, ..ahead });
                let is_last = ahead.is_all && matches!(self.step_at(shard, after, next), Step::Over(_));
                Ok(Look::Batch(Cut { first: cursor + first, until: cursor + until, next, is_last }))
            }
            Step::Wait => Ok(Look::Nothing),
            Step::Over(left_out) => Ok(Look::EpochOver(cursor + left_out)),
            Step::TooFew(samples) => Err(self.too_few(samples, shard)),
        }
    }

    fn step_at(&self, shard: Shard, ahead: Ahead, cursor: u64) -> Step {
        let (world, drop_last) = (shard.world(), self.config.drop_last);
        match self.config.step_size() {
            Some(full) => shard::cut(ahead, full, world, drop_last),
            None if self.view.is_cut() => {
                let left_at = |at: u64| self.view.source_batch_at(cursor + at);
                shard::own(ahead, self.view.source_batch(), world, drop_last, left_at)
            }
            None => shard::whole(ahead, world, drop_last, cursor == self.start),
        }
    }

    /// `None` if the batch was overwritten before it could be taken.
    fn take(&mut self, Cut { first, until, next, is_last }: Cut) -> Result<Option<Received>, Error> {
        let was = self.view.mode();
        let received = if self.view.skips() {
            let Some(received) = self.view.take_unguarded(&self.head, first, until)? else { return Ok(None) };
            self.table.advance(self.epoch, until);
            received
        } else {
            // What other ranks take before us and after us is not ours to hold.
            if self.cursor != Some(first) {
                self.table.advance(self.epoch, first + self.lead);
            }
            let received = self.view.take(&self.table, (first, until, self.lead), self.epoch, &self.config.name)?;
            if until != next {
                self.table.advance(self.epoch, next + self.lead);
            }
            received
        };
        if self.view.mode() != was {
            self.report_mode();
        }
        fault::point("consumer:cut");
        (self.cursor, self.is_last) = (Some(next), is_last);
        (self.in_epoch, self.is_finished, self.may_be_over) = (true, false, false);
        self.taken = self.taken.map(|taken| taken + 1);
        self.pressure.handed_out(first + self.lead);
        self.stats.batches += 1;
        self.stats.samples += until - first;
        self.table.page().batches.store(self.stats.batches, Ordering::Relaxed);
        Ok(Some(received))
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
