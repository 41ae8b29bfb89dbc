//! A worker's side of the board: takes tasks, writes samples into their slots, says what became of them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use feedline_shm::arena::ArenaWriter;
use feedline_shm::board::Board;
use feedline_shm::{ReservedRings, RingError, SourceBytes};

use super::claimed::Slots;
use super::task::{self, Outcome, Task};
use super::{Lanes, MAILBOX_BYTES};

/// How long a worker sleeps before it looks around.
const NAP: Duration = Duration::from_millis(100);

/// What a worker has: a process, or a thread of the owner's.
#[derive(Debug)]
pub struct Worker {
    board: Arc<Board>,
    arena: ArenaWriter,
    /// Rings that it may be told to write into.
    rings: Option<Arc<ReservedRings>>,
    number: usize,
}

/// Where the lanes of a batch begin.
#[derive(Debug)]
pub enum Places {
    /// In the arena, each at an offset.
    Arena(Vec<u64>),
    /// In a ring.
    Ring(Slots),
}

/// A task in a worker's hands.
#[derive(Debug)]
pub struct Assignment {
    ticket: u64,
    /// What it says.
    pub task: Task,
    /// The keys of its samples.
    pub keys: Vec<u8>,
}

/// What came of waiting for a task.
#[derive(Debug)]
pub enum Next {
    /// A task.
    Task(Assignment),
    /// None yet; look around and ask again.
    Nothing,
    /// Nothing more will come, for this worker at least.
    Closed,
}

impl Worker {
    /// Opens a pool by its descriptors.
    pub fn open(
        (board, workers, slots): (OwnedFd, usize, usize),
        (arena, arena_bytes): (OwnedFd, u64),
        number: usize,
    ) -> Result<Self, RingError> {
        let (board, arena) = (Board::open(board, workers, slots)?, ArenaWriter::open(arena, arena_bytes)?);
        Ok(Self { board: Arc::new(board), arena, rings: None, number })
    }

    /// The same worker, which has rings mapped.
    #[must_use]
    pub fn with_rings(self, rings: Option<Arc<ReservedRings>>) -> Self {
        Self { rings, ..self }
    }

    /// A worker that is a thread of the owner's process.
    pub(super) fn beside(board: Arc<Board>, arena: ArenaWriter, number: usize) -> Self {
        Self { board, arena, rings: None, number }
    }

    /// Whether the pool was closed.
    pub fn is_closed(&self) -> bool {
        self.board.is_closed()
    }

    /// The next task; waits for a tenth of a second at most.
    pub fn next(&self) -> Next {
        if self.board.is_closed() || self.board.is_retired(self.number) {
            return Next::Closed;
        }
        match self.board.take(self.number) {
            Some((ticket, words)) => {
                let task = Task::from_words(words);
                let keys = self.arena.read(task.keys, task.keys_len as usize);
                Next::Task(Assignment { ticket, task, keys })
            }
            None if self.board.wait_for_task(NAP) => Next::Closed,
            None => Next::Nothing,
        }
    }

    /// Begins the sample with this number in the task.
    pub fn begin(&self, sample: u64) {
        self.board.begin_part(self.number, sample);
    }

    /// Where the lanes are described, as the owner says now; with them comes where the batch stands.
    pub fn lanes(&self, at: &mut Assignment) -> u64 {
        let word = |word| self.board.task_word(at.ticket, word);
        // The lanes first: the owner says them last, so whoever sees them sees the rest.
        let lanes = word(task::LANES);
        let (out, out_len) = (word(task::OUT), word(task::OUT_LEN));
        at.task = Task { out, out_len, lanes, ..at.task };
        lanes
    }

    /// Describes a sample to the owner, which says where the lanes are. False if the pool was closed.
    pub fn ask_for_lanes(&self, at: &mut Assignment, description: &[u8], poll: impl FnMut() -> bool) -> bool {
        let len_bytes = self.tell(description);
        self.ask(at, task::ASKS_FOR_LANES, len_bytes, poll)
    }

    /// Asks for so much memory for a batch that travels whole. False if the pool was closed.
    pub fn ask_for_memory(&self, at: &mut Assignment, len_bytes: u64, poll: impl FnMut() -> bool) -> bool {
        self.ask(at, task::ASKS_FOR_MEMORY, len_bytes, poll)
    }

    fn ask(&self, at: &mut Assignment, question: u32, detail: u64, poll: impl FnMut() -> bool) -> bool {
        let is_answered = self.board.ask(self.number, question, detail, poll);
        self.lanes(at);
        // The time until the answer was the owner's.
        self.board.begin_part(self.number, self.board.at_work(self.number).map_or(0, |at| at.part));
        is_answered
    }

    /// Copies bytes of the arena, as a description that the owner wrote there.
    pub fn read(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        self.arena.read(offset, len_bytes)
    }

    /// Where the lanes of an assignment's batch begin in the arena.
    pub fn starts(&self, at: &Assignment, lanes: &Lanes) -> Vec<u64> {
        let (starts, _) = lanes.places(at.task.batch);
        starts.into_iter().map(|start| at.task.out + start).collect()
    }

    /// Where the lanes of an assignment's batch begin; `None` if this worker can't write there.
    pub fn places(&self, at: &Assignment, lanes: &Lanes) -> Option<Places> {
        if !at.task.is_in_ring {
            return Some(Places::Arena(self.starts(at, lanes)));
        }
        let (slots, oldest) = Slots::from_bytes(&self.arena.read(at.task.out, at.task.out_len as usize))?;
        self.rings.as_ref()?.forget_before(oldest);
        (slots.lanes.len() == lanes.strides().len()).then_some(Places::Ring(slots))
    }

    /// Copies a sample's part into its slot. False if this worker can't write there.
    pub fn write_slot<'a>(
        &self,
        places: &Places,
        (lane, stride): (usize, u64),
        slot: u64,
        bytes: impl Into<SourceBytes<'a>>,
    ) -> bool {
        match places {
            Places::Arena(starts) => {
                self.write(starts[lane] + slot * stride, bytes);
                true
            }
            Places::Ring(Slots { ring, lanes }) => {
                self.rings.as_ref().is_some_and(|rings| rings.write(*ring, lanes[lane], slot * stride, bytes))
            }
        }
    }

    /// Copies bytes to a place in the arena that belongs to the task in hand.
    pub fn write<'a>(&self, offset: u64, bytes: impl Into<SourceBytes<'a>>) {
        self.arena.write(offset, bytes);
    }

    /// Leaves a message in the mailbox, cut short if it is too long.
    fn tell(&self, message: &[u8]) -> u64 {
        let message = &message[..message.len().min(MAILBOX_BYTES as usize)];
        self.arena.write(self.number as u64 * MAILBOX_BYTES, message);
        message.len() as u64
    }

    /// The task was made, in so many nanoseconds, of which the CPU worked so many.
    pub fn made(&self, at: &Assignment, nanos: u64, cpu_nanos: u64, len_bytes: u64) {
        self.board.finish(self.number, at.ticket, Outcome::Made { nanos, cpu_nanos, len_bytes }.to_words(), false);
    }

    /// The dataset raised; the message says what.
    pub fn raised(&self, at: &mut Assignment, message: &[u8], poll: impl FnMut() -> bool) {
        let len_bytes = self.tell(message);
        self.ask(at, task::TELLS_OF_ERROR, len_bytes, poll);
        self.board.finish(self.number, at.ticket, Outcome::Raised.to_words(), true);
    }

    /// A sample has no place in the lanes.
    pub fn unfit(&self, at: &Assignment) {
        self.board.finish(self.number, at.ticket, Outcome::Unfit.to_words(), true);
    }
}
