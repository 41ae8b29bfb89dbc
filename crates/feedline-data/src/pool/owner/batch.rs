//! A batch in flight: its runs, and what became of each.

use feedline_shm::arena::{Arena, Extent};
use feedline_shm::board::Board;

use super::{Died, Keys};
use crate::pool::claimed::Claimed;
use crate::pool::run_length::RunLength;
use crate::pool::spent::Spent;
use crate::pool::task::{Kind, Outcome, Task};

const KEY_BYTES: u64 = 8;

#[derive(Debug)]
pub(super) struct Batch {
    pub number: u64,
    pub samples: u64,
    pub kind: Kind,
    /// Its memory; or, if it stands in a ring, what tells workers where.
    pub out: Option<Extent>,
    /// Its place in the log, if there is one.
    claimed: Option<Claimed>,
    /// Workers write it into its slots.
    is_in_ring: bool,
    epoch: u64,
    keys: Extent,
    keys_len: u64,
    has_pickled_keys: bool,
    /// How many samples are in runs.
    posted: u64,
    runs: Vec<Run>,
    /// Runs that are posted, and not finished.
    open: usize,
    trouble: Option<Trouble>,
    len_bytes: u64,
}

#[derive(Debug)]
struct Run {
    ticket: u64,
    first: u64,
    samples: u64,
    is_open: bool,
    tries: u32,
}

#[derive(Debug)]
enum Trouble {
    Unfit,
    /// Its claim is to be given back.
    Unclaimed,
    Raised(Vec<u8>),
    Lost {
        sample: u64,
        tries: u32,
    },
    NoMemory,
}

/// What became of a batch.
pub(super) enum Step {
    Made {
        samples: u64,
        kind: Kind,
        out: Extent,
        len_bytes: u64,
        claimed: Option<Claimed>,
    },
    /// Where it is published.
    Filled {
        samples: u64,
        claimed: Claimed,
    },
    Raised(Vec<u8>),
    Lost {
        sample: u64,
        tries: u32,
    },
    NoMemory,
}

impl Batch {
    pub fn new(arena: &Arena, number: u64, kind: Kind, keys: Keys<'_>, epoch: u64) -> Option<Self> {
        let (bytes, samples, has_pickled_keys) = match keys {
            Keys::Numbers(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                (std::borrow::Cow::Owned(bytes), numbers.len() as u64, false)
            }
            Keys::Pickled(bytes, samples) => (std::borrow::Cow::Borrowed(bytes), samples, true),
        };
        let mut extent = arena.allocate(bytes.len() as u64)?;
        extent.write(0, &*bytes);
        Some(Self {
            number,
            samples,
            kind,
            out: None,
            claimed: None,
            is_in_ring: false,
            epoch,
            keys: extent,
            keys_len: bytes.len() as u64,
            has_pickled_keys,
            posted: 0,
            runs: Vec::new(),
            open: 0,
            trouble: None,
            len_bytes: 0,
        })
    }

    /// Takes over its place in the log. `tells` is what workers are told of that, if they write there.
    pub fn claim(&mut self, claimed: Claimed, tells: Option<Extent>) {
        if let Some(tells) = tells {
            (self.out, self.is_in_ring) = (Some(tells), true);
        }
        self.claimed = Some(claimed);
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub fn is_claimed(&self) -> bool {
        self.claimed.is_some()
    }

    /// The ring that workers write it into.
    pub fn ring(&self) -> Option<u32> {
        self.claimed.as_ref()?.slots.as_ref().filter(|_| self.is_in_ring).map(|slots| slots.ring)
    }

    /// Gives its place in the log back: at once, if no worker writes there, or as soon as none does. What was made of it is made again.
    pub fn unclaim(&mut self, board: &Board) {
        if !self.is_in_ring {
            self.claimed = None;
        } else if self.trouble.is_none() {
            self.trouble = Some(Trouble::Unclaimed);
            self.withdraw(board);
        }
        if self.is_settled() && self.trouble.is_some() {
            self.claimed = None;
        }
    }

    pub fn is_unclaimed(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Unclaimed))
    }

    pub fn is_unposted(&self) -> bool {
        self.posted == 0
    }

    pub fn is_posted(&self) -> bool {
        self.posted == self.samples || self.trouble.is_some()
    }

    /// Posts runs of so many samples, as far as the board has room; how many is returned.
    pub fn post(&mut self, board: &Board, run: u64, lanes: u64) -> u32 {
        let mut posted = 0;
        while !self.is_posted() {
            let first = self.posted;
            let samples = if self.kind == Kind::Whole { self.samples } else { run.min(self.samples - first) };
            let (keys, keys_len) = if self.has_pickled_keys {
                (self.keys.offset(), self.keys_len)
            } else {
                (self.keys.offset() + first * KEY_BYTES, samples * KEY_BYTES)
            };
            let task = Task {
                kind: self.kind,
                has_pickled_keys: self.has_pickled_keys,
                is_in_ring: self.is_in_ring,
                keys,
                keys_len,
                samples,
                first,
                batch: self.samples,
                epoch: self.epoch,
                out: self.out.as_ref().map_or(0, Extent::offset),
                out_len: self.out.as_ref().map_or(0, Extent::len_bytes),
                lanes,
            };
            let Some(ticket) = board.post(task.to_words()) else { break };
            self.runs.push(Run { ticket, first, samples, is_open: true, tries: 0 });
            self.posted += samples;
            self.open += 1;
            posted += 1;
        }
        posted
    }

    pub fn has(&self, ticket: u64) -> bool {
        self.run(ticket).is_some()
    }

    fn run(&self, ticket: u64) -> Option<&Run> {
        self.runs.iter().find(|run| run.ticket == ticket && run.is_open)
    }

    /// The number in the batch of a task's part.
    pub fn sample_of(&self, ticket: u64, part: u64) -> u64 {
        self.run(ticket).map_or(0, |run| run.first + part.min(run.samples.saturating_sub(1)))
    }

    pub fn open_tickets(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().filter(|run| run.is_open).map(|run| run.ticket)
    }

    /// How many of its tasks are not finished.
    pub fn open(&self) -> usize {
        self.open
    }

    /// No worker writes to it, and none will.
    pub fn is_settled(&self) -> bool {
        self.open == 0 && self.is_posted()
    }

    pub fn is_unfit(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Unfit))
    }

    /// Looks at which runs are finished.
    pub fn collect(&mut self, board: &Board, run_length: &mut RunLength, spent: &mut Spent) {
        for run in self.runs.iter_mut().filter(|run| run.is_open) {
            let Some(finished) = board.finished(run.ticket) else { continue };
            board.clear(run.ticket);
            run.is_open = false;
            self.open -= 1;
            match Outcome::from_words(finished.outcome) {
                Outcome::Made { nanos, cpu_nanos, len_bytes } => {
                    spent.note(run.samples, nanos, cpu_nanos);
                    if self.kind == Kind::Cut {
                        run_length.note(run.samples, nanos);
                    }
                    self.len_bytes = len_bytes;
                }
                Outcome::Unfit => drop(self.trouble.get_or_insert(Trouble::Unfit)),
                // The message came before.
                Outcome::Raised => drop(self.trouble.get_or_insert(Trouble::Raised(Vec::new()))),
            }
        }
        if self.trouble.is_some() && self.open > 0 {
            self.withdraw(board);
        }
    }

    /// The dataset raised, in the first of its runs that did.
    pub fn raised(&mut self, message: Vec<u8>) {
        if !matches!(self.trouble, Some(Trouble::Raised(_))) {
            self.trouble = Some(Trouble::Raised(message));
        }
    }

    /// There is no memory for it.
    pub fn has_no_memory(&mut self) {
        self.trouble = Some(Trouble::NoMemory);
    }

    /// Takes back what no worker has begun; nothing more is posted.
    pub fn withdraw(&mut self, board: &Board) {
        for run in self.runs.iter_mut().filter(|run| run.is_open) {
            if board.withdraw(run.ticket) {
                run.is_open = false;
                self.open -= 1;
            }
        }
        self.samples = if self.trouble.is_none() { self.posted } else { self.samples };
    }

    /// Once more from the beginning, by one worker.
    pub fn restart_whole(&mut self) {
        self.kind = Kind::Whole;
        self.restart();
    }

    /// Once more from the beginning, without a place in the log.
    pub fn restart_unclaimed(&mut self) {
        self.claimed = None;
        self.restart();
    }

    fn restart(&mut self) {
        (self.trouble, self.out, self.is_in_ring, self.posted) = (None, None, false, 0);
        self.runs.clear();
    }

    /// A worker died: posts its run again. `None` if it had none of this batch.
    pub fn worker_died(&mut self, board: &Board, worker: usize, part: u64, most_tries: u32) -> Option<Died> {
        let run = self.runs.iter_mut().find(|run| run.is_open && board.taken_by(run.ticket) == Some(worker))?;
        run.tries += 1;
        let (sample, tries) = (run.first + part.min(run.samples.saturating_sub(1)), run.tries);
        if tries < most_tries {
            board.post_again(run.ticket);
        } else {
            board.clear(run.ticket);
            run.is_open = false;
            self.open -= 1;
            self.trouble.get_or_insert(Trouble::Lost { sample, tries });
            self.withdraw(board);
        }
        Some(Died { number: self.number, sample, tries })
    }

    /// # Panics
    /// If it is not settled, or is to be made again.
    pub fn into_step(self) -> Step {
        match self.trouble {
            Some(Trouble::Raised(message)) => Step::Raised(message),
            Some(Trouble::Lost { sample, tries }) => Step::Lost { sample, tries },
            Some(Trouble::NoMemory) => Step::NoMemory,
            Some(Trouble::Unfit | Trouble::Unclaimed) => unreachable!("it is made again"),
            None if self.is_in_ring => {
                let claimed = self.claimed.expect("what stands in a ring has a claim");
                Step::Filled { samples: self.samples, claimed }
            }
            None => {
                let out = self.out.expect("a batch that was made has memory");
                let Self { samples, kind, len_bytes, claimed, .. } = self;
                Step::Made { samples, kind, out, len_bytes, claimed }
            }
        }
    }
}
