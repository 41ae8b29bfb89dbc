//! The owner of a pool: deals out batches, collects them, and does again what a dead worker had.
//!
//! ```text
//!            offer                all runs finished
//!  (keys) ────────▶ Filling ─────────────────────────▶ Ready::Made
//!                     │ ▲  a worker raised ──────────▶ Ready::Raised     (once no worker writes to it any more)
//!                     │ │  died too often ───────────▶ Ready::Lost
//!                     └─┘ a sample has no place in the lanes: once more, whole
//! ```
//!
//! A batch may be given a place in a log ([`Claimed`]). If workers can write there, it is [`Ready::Filled`] instead of made.
//!
//! It starts no process and waits for none: whoever has the workers tells it who died.

mod batch;
mod places;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use feedline_shm::arena::{Arena, Extent};
use feedline_shm::board::{Board, now_nanos};
use feedline_shm::{RingError, Window};

use self::batch::{Batch, Step};
use super::claimed::Claimed;
use super::run_length::RunLength;
use super::spent::Spent;
use super::task::{ASKS_FOR_LANES, ASKS_FOR_MEMORY, Kind, LANES, NO_LANES, OUT, OUT_LEN, TELLS_OF_ERROR};
use super::{Lanes, MAILBOX_BYTES, Worker};

/// What a pool is made for.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// As many workers as there may ever be at once.
    pub workers: usize,
    /// As many batches as may be in flight.
    pub batches: usize,
    /// The arena's address space.
    pub arena_bytes: u64,
    /// How often a sample is tried whose workers die.
    pub tries: u32,
}

/// What is known of the samples.
#[derive(Debug)]
enum Known {
    Nothing,
    /// They have lanes; the description is there for workers.
    Lanes(Lanes, Extent),
    /// They have none.
    Whole,
}

/// Keys of a batch's samples.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// Their numbers.
    Numbers(&'a [u64]),
    /// A list that Python has pickled, and how long it is.
    Pickled(&'a [u8], u64),
}

/// The owner's end of a pool.
#[derive(Debug)]
pub struct Owner {
    board: Arc<Board>,
    arena: Arena,
    settings: Settings,
    known: Known,
    batches: VecDeque<Batch>,
    /// Batches that nobody wants any more, until no worker writes to them.
    abandoned: Vec<Batch>,
    run_length: RunLength,
    spent: Spent,
    /// How much memory a batch that travels whole may need.
    whole_len: u64,
    next_number: u64,
}

/// A batch that is done with.
#[derive(Debug)]
pub enum Ready {
    /// It was made.
    Made(Made),
    /// It was made, where it was claimed.
    Filled {
        /// Which batch.
        number: u64,
        /// How many samples it has.
        samples: u64,
        /// Its claim; no worker writes there any more.
        claimed: Claimed,
    },
    /// The dataset raised.
    Raised {
        /// Which batch.
        number: u64,
        /// What the worker says of it.
        message: Vec<u8>,
    },
    /// Its workers died, or were killed, again and again.
    Lost {
        /// Which batch.
        number: u64,
        /// Which of its samples the last one was at.
        sample: u64,
        /// How often it was tried.
        tries: u32,
    },
    /// The arena has no memory for it: too many batches are kept.
    NoMemory {
        /// Which batch.
        number: u64,
    },
}

/// A batch that was made.
#[derive(Debug)]
pub struct Made {
    /// Which one, counted from 0.
    pub number: u64,
    /// How many samples it has.
    pub samples: u64,
    /// Its bytes: in lanes, or as many as are used of them for one that travels whole.
    pub bytes: Window,
    /// `None` if it travels whole.
    pub lanes: Option<Lanes>,
    /// Its place in a log, if it was given one: it is to be copied there.
    pub claimed: Option<Claimed>,
}

/// What a worker wants of the owner's user.
#[derive(Debug)]
pub enum Ask {
    /// To say what lanes the samples have; the first one is described.
    Lanes(Vec<u8>),
}

/// A worker that died, and what it was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died {
    /// Which batch.
    pub number: u64,
    /// Which of its samples.
    pub sample: u64,
    /// How often this was tried, this time included.
    pub tries: u32,
}

impl Owner {
    /// A pool without workers yet.
    pub fn new(settings: Settings) -> Result<Self, RingError> {
        let slots = (settings.batches * 257).clamp(64, 1 << 14);
        let mailboxes = settings.workers as u64 * MAILBOX_BYTES;
        Ok(Self {
            board: Board::create(settings.workers, slots)?.into(),
            arena: Arena::create(settings.arena_bytes.max(2 * mailboxes + (1 << 20)), mailboxes)?,
            settings,
            known: Known::Nothing,
            batches: VecDeque::new(),
            abandoned: Vec::new(),
            run_length: RunLength::default(),
            spent: Spent::default(),
            whole_len: 0,
            next_number: 0,
        })
    }

    /// The board's descriptor, for how many workers it is, and how many slots it has.
    pub fn board(&self) -> (BorrowedFd<'_>, usize, usize) {
        (self.board.fd(), self.board.workers(), self.board.slots())
    }

    /// The arena's descriptor and length.
    pub fn arena(&self) -> (BorrowedFd<'_>, u64) {
        (self.arena.fd(), self.arena.len_bytes())
    }

    /// A worker that is a thread of this process.
    pub fn thread(&self, number: usize) -> Worker {
        Worker::beside(Arc::clone(&self.board), self.arena.writer(), number)
    }

    /// How many batches are in flight.
    pub fn in_flight(&self) -> usize {
        self.batches.len()
    }

    /// How many samples they have.
    pub fn samples_in_flight(&self) -> u64 {
        self.batches.iter().map(|batch| batch.samples).sum()
    }

    /// What a sample costs a worker, as far as is known.
    pub fn sample_nanos(&self) -> Option<u64> {
        self.run_length.sample_nanos()
    }

    /// Batches travel whole, whatever their samples look like.
    pub fn travel_whole(&mut self) {
        self.known = Known::Whole;
    }

    /// Deals out a batch; its number is returned. `None` if there is no memory for it.
    pub fn offer(&mut self, keys: Keys<'_>, epoch: u64) -> Option<u64> {
        self.offer_claimed(keys, epoch, None)
    }

    /// The same, with a place for it, and all before it have one.
    pub fn offer_claimed(&mut self, keys: Keys<'_>, epoch: u64, claimed: Option<Claimed>) -> Option<u64> {
        let number = self.next_number;
        let kind = if matches!(self.known, Known::Whole) { Kind::Whole } else { Kind::Cut };
        let mut batch = Batch::new(&self.arena, number, kind, keys, epoch)?;
        if let Some(claimed) = claimed {
            let tells = claimed.slots.as_ref().and_then(|slots| self.tell_place(kind, slots));
            batch.claim(claimed, tells);
        }
        self.next_number += 1;
        self.batches.push_back(batch);
        self.post();
        Some(number)
    }

    /// Posts what fits on the board.
    fn post(&mut self) {
        let mut posted = 0;
        for batch in &mut self.batches {
            let is_first = batch.is_unposted();
            if is_first && batch.out.is_none() {
                let len_bytes = match (batch.kind, &self.known) {
                    (Kind::Cut, Known::Lanes(lanes, _)) => Some(lanes.places(batch.samples).1.max(1)),
                    (Kind::Whole, _) if self.whole_len > 0 => Some(self.whole_len),
                    _ => None,
                };
                batch.out = len_bytes.and_then(|len_bytes| self.arena.allocate(len_bytes));
                if batch.kind == Kind::Cut && len_bytes.is_some() && batch.out.is_none() {
                    batch.has_no_memory();
                }
            }
            let lanes = match &self.known {
                Known::Nothing => 0,
                Known::Lanes(_, extent) => extent.offset(),
                Known::Whole => NO_LANES,
            };
            posted += batch.post(&self.board, self.run_length.of_batch(batch.samples), lanes);
            if !batch.is_posted() {
                break;
            }
        }
        if posted > 0 {
            self.board.announce(posted);
        }
    }

    /// Looks at what was finished and asked since, and goes on with it. What only the owner's user can answer is returned.
    pub fn collect(&mut self) -> Option<Ask> {
        for batch in self.batches.iter_mut().chain(&mut self.abandoned) {
            batch.collect(&self.board, &mut self.run_length, &mut self.spent);
        }
        self.abandoned.retain(|batch| !batch.is_settled());
        self.redo();
        let asked = self.questions();
        self.post();
        asked
    }

    /// Batches with a sample that has no place in the lanes are made again, whole; those that lost their place in the log, elsewhere.
    fn redo(&mut self) {
        for batch in self.batches.iter_mut().filter(|batch| batch.is_settled()) {
            if batch.is_unfit() {
                batch.restart_whole();
            } else if batch.is_unclaimed() {
                batch.restart_unclaimed();
            }
        }
    }

    fn questions(&mut self) -> Option<Ask> {
        for worker in 0..self.board.workers() {
            let Some((question, detail)) = self.board.question(worker) else { continue };
            let mailbox = || self.arena.read(worker as u64 * MAILBOX_BYTES, detail.min(MAILBOX_BYTES) as usize);
            match question {
                ASKS_FOR_LANES => {
                    if matches!(self.known, Known::Nothing) {
                        return Some(Ask::Lanes(mailbox()));
                    }
                }
                ASKS_FOR_MEMORY => self.grant(worker, detail),
                TELLS_OF_ERROR => {
                    let message = mailbox();
                    if let Some(batch) = self.batch_at(worker) {
                        batch.raised(message);
                    }
                }
                _ => {}
            }
            self.board.answer(worker);
        }
        None
    }

    /// The batch that a worker is at.
    fn batch_at(&mut self, worker: usize) -> Option<&mut Batch> {
        let ticket = self.board.at_work(worker)?.ticket;
        self.batches.iter_mut().chain(&mut self.abandoned).find(|batch| batch.has(ticket))
    }

    fn grant(&mut self, worker: usize, len_bytes: u64) {
        let Some(at) = self.board.at_work(worker) else { return };
        // The next ones may be somewhat longer.
        self.whole_len = self.whole_len.max(len_bytes + len_bytes / 4);
        let extent = self.arena.allocate(len_bytes);
        let Some(batch) = self.batch_at(worker) else { return };
        batch.out = extent;
        let (out, out_len) = batch.out.as_ref().map_or((0, 0), |out| (out.offset(), out.len_bytes()));
        self.board.change(at.ticket, OUT, out);
        self.board.change(at.ticket, OUT_LEN, out_len);
    }

    /// The samples have these lanes, which the description tells workers; or none. Those that asked go on.
    pub fn describe(&mut self, lanes: Option<(Lanes, &[u8])>) {
        self.known = match lanes {
            None => Known::Whole,
            Some((lanes, description)) => {
                let len = description.len() as u64;
                match self.arena.allocate(len + 8) {
                    None => Known::Whole,
                    Some(mut extent) => {
                        extent.write(0, &len.to_le_bytes());
                        extent.write(8, description);
                        Known::Lanes(lanes, extent)
                    }
                }
            }
        };
        let described = match &self.known {
            Known::Lanes(_, extent) => extent.offset(),
            _ => NO_LANES,
        };
        for batch in &mut self.batches {
            let mut described = described;
            if let Known::Lanes(lanes, _) = &self.known {
                batch.out = self.arena.allocate(lanes.places(batch.samples).1.max(1));
                if batch.out.is_none() {
                    batch.has_no_memory();
                    described = NO_LANES;
                }
            }
            let (out, out_len) = batch.out.as_ref().map_or((0, 0), |out| (out.offset(), out.len_bytes()));
            for ticket in batch.open_tickets() {
                self.board.change(ticket, OUT, out);
                self.board.change(ticket, OUT_LEN, out_len);
                self.board.change(ticket, LANES, described);
            }
        }
        for worker in 0..self.board.workers() {
            if matches!(self.board.question(worker), Some((ASKS_FOR_LANES, _))) {
                self.board.answer(worker);
            }
        }
    }

    /// The next batch that is done with: the oldest, or, out of order, whichever is.
    pub fn take(&mut self, in_order: bool) -> Option<Ready> {
        let looked_at = if in_order { 1 } else { self.batches.len() };
        let index = self.batches.iter().take(looked_at).position(Batch::is_settled)?;
        let batch = self.batches.remove(index)?;
        let number = batch.number;
        Some(match batch.into_step() {
            Step::Raised(message) => Ready::Raised { number, message },
            Step::Lost { sample, tries } => Ready::Lost { number, sample, tries },
            Step::NoMemory => Ready::NoMemory { number },
            Step::Filled { samples, claimed } => Ready::Filled { number, samples, claimed },
            Step::Made { samples, kind, out, len_bytes, claimed } => {
                let lanes = match (&self.known, kind) {
                    (Known::Lanes(lanes, _), Kind::Cut) => Some(lanes.clone()),
                    _ => None,
                };
                let window = out.window();
                let len_bytes = if lanes.is_some() { window.len_bytes() } else { len_bytes as usize };
                let bytes = window.part(0, len_bytes.min(window.len_bytes()));
                Ready::Made(Made { number, samples, bytes, lanes, claimed })
            }
        })
    }

    /// How many tasks the owner waits for before [`Self::take`] has something, at least.
    pub fn missing(&self, in_order: bool) -> u32 {
        let open = self.batches.iter().map(Batch::open);
        let missing = if in_order { self.batches.front().map(Batch::open) } else { open.min() };
        missing.unwrap_or(0).max(1) as u32
    }

    /// How many tasks were finished so far.
    pub fn done(&self) -> u32 {
        self.board.done()
    }

    /// Sleeps until so many tasks are finished beyond those seen, a worker asks something, or the time is over.
    pub fn wait(&mut self, seen: u32, more: u32, most: Duration) {
        let before = now_nanos();
        self.board.wait(seen, more, most);
        self.spent.waited_nanos += now_nanos().saturating_sub(before);
    }

    /// What went into samples so far, and how long they were waited for.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// How many workers have begun to ask for tasks, and have not died since.
    pub fn workers_up(&self) -> usize {
        self.board.workers_up()
    }

    /// Has a worker end before its next task, or no longer. Whoever has the workers says so when it has ended.
    pub fn retire(&self, worker: usize, is_to_end: bool) {
        self.board.retire(worker, is_to_end);
    }

    /// A worker is dead, and was reaped. What it had is done again, by another one, unless that was tried too often.
    pub fn worker_died(&mut self, worker: usize) -> Option<Died> {
        let part = self.board.at_work(worker).map_or(0, |at| at.part);
        self.board.forget_worker(worker);
        let mut died = None;
        let mut posted = 0;
        for batch in &mut self.batches {
            let again = batch.worker_died(&self.board, worker, part, self.settings.tries);
            posted += u32::from(again.is_some());
            died = died.or(again);
        }
        for batch in &mut self.abandoned {
            batch.worker_died(&self.board, worker, part, 1);
        }
        if posted > 0 {
            self.board.announce(posted);
        }
        died
    }

    /// The workers that have been at one sample for longer than this, with the batch and the sample.
    pub fn late(&self, most: Duration) -> Vec<(usize, u64, u64)> {
        let now = now_nanos();
        let is_late = |worker: usize| {
            let at = self.board.at_work(worker)?;
            let is_asking = self.board.question(worker).is_some();
            if is_asking || u128::from(now.saturating_sub(at.since_nanos)) <= most.as_nanos() {
                return None;
            }
            let batch = self.batches.iter().chain(&self.abandoned).find(|batch| batch.has(at.ticket))?;
            Some((worker, batch.number, batch.sample_of(at.ticket, at.part)))
        };
        (0..self.board.workers()).filter_map(is_late).collect()
    }

    /// Nobody wants this batch any more: a worker that can't be ended is at one of its samples. The batch keeps its memory until
    /// that worker has finished. False if it is not in flight.
    pub fn give_up(&mut self, number: u64) -> bool {
        let index = self.batches.iter().position(|batch| batch.number == number);
        let Some(mut batch) = index.and_then(|index| self.batches.remove(index)) else { return false };
        batch.withdraw(&self.board);
        self.abandoned.push(batch);
        true
    }

    /// Nobody wants what is in flight. Workers finish the samples that they are at.
    pub fn abandon(&mut self) {
        for mut batch in std::mem::take(&mut self.batches) {
            batch.withdraw(&self.board);
            self.abandoned.push(batch);
        }
        self.collect();
    }

    /// Workers end when they ask for the next task.
    pub fn close(&self) {
        self.board.close();
    }
}

#[cfg(test)]
mod tests;
