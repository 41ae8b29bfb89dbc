//! A board of tasks in shared memory: one owner posts them, many worker processes take and finish them.
//!
//! ```text
//!  owner                 the board                       workers
//!  post ──▶ Ready(t) ──take──▶ Taken(t, worker) ──finish──▶ Done(t, worker) ──clear──▶ Empty
//!              ▲                    │ the worker died and was reaped
//!              └──── post_again ────┘
//! ```
//!
//! A ticket t stands in slot t modulo the number of slots. A task is some words that mean nothing here. Workers take the oldest
//! ticket that is ready; `next` is where they begin to look, no more than a hint. No word is a lock: a worker may be killed
//! between any two instructions, and what it had taken still carries its number.
//!
//! Every sleep is announced, fenced and checked again before it begins, and every change is made, fenced, and then the announcements
//! are read, as in [`signal`](crate::signal): no wake-up is lost. All sleeps end by themselves after the given time as well.
//!
//! The words are shared with processes that run a user's code. They are atomics and are checked by whoever reads them: garbage there
//! gives wrong answers, and nothing worse.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use crate::{Memfd, Memory, RingError};

/// Words of a task.
pub const TASK_WORDS: usize = 10;
/// Words of what became of it.
pub const OUTCOME_WORDS: usize = 4;

const EMPTY: u64 = 0;
const READY: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;
const WORKER_BITS: u32 = 16;
const PHASE_BITS: u32 = 2;

/// The worker has begun to ask for tasks.
const IS_UP: u32 = 1;
/// It is to end before its next task.
const RETIRES: u32 = 2;

#[repr(C)]
struct Header {
    /// How many tickets were posted.
    posted: AtomicU64,
    /// No ticket before this one is ready, unless it was posted again a moment ago.
    next: AtomicU64,
    /// Changes with each post; what workers sleep on.
    ready: AtomicU32,
    /// How many workers sleep, or are about to.
    sleepers: AtomicU32,
    /// How many tasks were finished; what the owner sleeps on.
    done: AtomicU32,
    /// The owner sleeps until `done` is this, or a worker asks for it; meaningful while `is_waiting`.
    wanted: AtomicU32,
    is_waiting: AtomicU32,
    is_closed: AtomicU32,
}

#[repr(C)]
struct WorkerWords {
    /// The ticket that it works on, plus one; 0 for none.
    ticket: AtomicU64,
    /// Which of the task's parts.
    part: AtomicU64,
    /// Since when, on the clock that all processes share.
    since_nanos: AtomicU64,
    /// Of the question.
    detail: AtomicU64,
    /// A question to the owner, 0 for none; what the worker sleeps on until it is answered.
    question: AtomicU32,
    /// `IS_UP`, `RETIRES`.
    presence: AtomicU32,
}

#[repr(C)]
struct Slot {
    state: AtomicU64,
    task: [AtomicU64; TASK_WORDS],
    outcome: [AtomicU64; OUTCOME_WORDS],
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtWork {
    /// Its task.
    pub ticket: u64,
    /// Which part of it.
    pub part: u64,
    /// Since when, in nanoseconds of the monotonic clock.
    pub since_nanos: u64,
}

/// A task that was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Who did it.
    pub worker: usize,
    /// What the worker says of it.
    pub outcome: [u64; OUTCOME_WORDS],
}

/// A process's end of a board.
#[derive(Debug)]
pub struct Board {
    memory: Memfd,
    base: NonNull<u8>,
    workers: usize,
    slots: usize,
}

// SAFETY: only an address of atomics, which any thread may use.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

fn state(ticket: u64, worker: usize, phase: u64) -> u64 {
    (ticket << WORKER_BITS | worker as u64) << PHASE_BITS | phase
}

fn phase(state: u64) -> u64 {
    state & ((1 << PHASE_BITS) - 1)
}

fn worker(state: u64) -> usize {
    (state >> PHASE_BITS & ((1 << WORKER_BITS) - 1)) as usize
}

/// Now, on the clock that all processes of a machine share.
pub fn now_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time that this process has spent.
pub fn cpu_nanos() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

impl Board {
    /// For so many workers and open tasks.
    pub fn create(workers: usize, slots: usize) -> Result<Self, RingError> {
        assert!(workers < 1 << WORKER_BITS && slots > 0, "{workers} workers, {slots} slots");
        let memory = Memfd::create("feedline-board", len_bytes(workers, slots))?;
        memory.seal_size()?;
        Self::map(memory, workers, slots)
    }

    /// The same board in a worker's process.
    pub fn open(fd: OwnedFd, workers: usize, slots: usize) -> Result<Self, RingError> {
        Self::map(Memfd::accept(fd, "the board", len_bytes(workers, slots))?, workers, slots)
    }

    fn map(memory: Memfd, workers: usize, slots: usize) -> Result<Self, RingError> {
        let len_bytes = memory.len_bytes() as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(null_mut(), len_bytes, access, MapFlags::SHARED, memory.fd(), 0) };
        let base = base.map_err(RingError::memory("the board", len_bytes as u64))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { memory, base, workers, slots })
    }

    /// To hand to workers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// For how many workers it is.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many tasks may be open.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with it, aligned to a page, lives as long as `self`, and is atomics throughout.
        unsafe { self.base.cast().as_ref() }
    }

    fn worker_words(&self, worker: usize) -> &WorkerWords {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        let offset = size_of::<Header>() + worker * size_of::<WorkerWords>();
        // SAFETY: inside the mapping: `len_bytes` counts a header and so many workers before the slots.
        let words = unsafe { self.base.add(offset) };
        // SAFETY: aligned to 8 bytes, as all sizes are; lives as long as `self`, atomics throughout.
        unsafe { words.cast().as_ref() }
    }

    fn slot(&self, ticket: u64) -> &Slot {
        let index = (ticket % self.slots as u64) as usize;
        let workers = self.workers * size_of::<WorkerWords>();
        let offset = size_of::<Header>() + workers + index * size_of::<Slot>();
        // SAFETY: inside the mapping: `len_bytes` counts so many slots behind the workers.
        let slot = unsafe { self.base.add(offset) };
        // SAFETY: aligned to 8 bytes, as all sizes are; lives as long as `self`, atomics throughout.
        unsafe { slot.cast().as_ref() }
    }
}

fn len_bytes(workers: usize, slots: usize) -> u64 {
    let len = size_of::<Header>() + workers * size_of::<WorkerWords>() + slots * size_of::<Slot>();
    (len as u64).next_multiple_of(crate::page_size())
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every reference into it borrows from `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.memory.len_bytes() as usize) };
    }
}

fn sleep(word: &AtomicU32, seen: u32, most: Duration) {
    let timeout = futex::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // Whatever ends it, the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

fn wake(word: &AtomicU32, how_many: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), how_many);
}

/// The owner's side.
impl Board {
    /// Posts a task for whoever takes it first; workers that sleep learn of it by [`Self::announce`]. `None` if the board is full.
    pub fn post(&self, task: [u64; TASK_WORDS]) -> Option<u64> {
        let header = self.header();
        let ticket = header.posted.load(Ordering::Relaxed);
        let slot = self.slot(ticket);
        if phase(slot.state.load(Ordering::Acquire)) != EMPTY {
            return None;
        }
        slot.task.iter().zip(task).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        // Release: whoever sees the ticket ready sees its words. Partner: the acquire in `take`.
        slot.state.store(state(ticket, 0, READY), Ordering::Release);
        header.posted.store(ticket + 1, Ordering::Release);
        Some(ticket)
    }

    /// Changes a word of a task whose worker waits for an answer.
    pub fn change(&self, ticket: u64, word: usize, value: u64) {
        self.slot(ticket).task[word].store(value, Ordering::Release);
    }

    /// Has a task done again that a worker had taken. The worker is dead, and was reaped: it can't write any more.
    pub fn post_again(&self, ticket: u64) {
        let header = self.header();
        self.slot(ticket).state.store(state(ticket, 0, READY), Ordering::Release);
        header.next.fetch_min(ticket, Ordering::AcqRel);
    }

    /// Wakes as many workers as there is work for.
    pub fn announce(&self, tasks: u32) {
        let header = self.header();
        header.ready.fetch_add(1, Ordering::Relaxed);
        // Partner: the fence in `wait_for_task`.
        fence(Ordering::SeqCst);
        if tasks > 0 && header.sleepers.load(Ordering::Relaxed) > 0 {
            wake(&header.ready, tasks);
        }
    }

    /// What became of a task. `None` while it is not done.
    pub fn finished(&self, ticket: u64) -> Option<Finished> {
        let slot = self.slot(ticket);
        // Acquire: with it come the outcome and all that the worker wrote elsewhere. Partner: the release in `finish`.
        let now = slot.state.load(Ordering::Acquire);
        if now != state(ticket, worker(now), DONE) {
            return None;
        }
        let outcome = std::array::from_fn(|word| slot.outcome[word].load(Ordering::Relaxed));
        Some(Finished { worker: worker(now), outcome })
    }

    /// Which worker has a task.
    pub fn taken_by(&self, ticket: u64) -> Option<usize> {
        let now = self.slot(ticket).state.load(Ordering::Acquire);
        (now == state(ticket, worker(now), TAKEN)).then(|| worker(now))
    }

    /// A finished task was seen to, or one that is to be forgotten: its slot is free.
    pub fn clear(&self, ticket: u64) {
        self.slot(ticket).state.store(EMPTY, Ordering::Release);
    }

    /// Takes a task back that no worker has begun. False if one has.
    pub fn withdraw(&self, ticket: u64) -> bool {
        let slot = self.slot(ticket);
        let ready = state(ticket, 0, READY);
        slot.state.compare_exchange(ready, EMPTY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// How many tasks were finished so far, for [`Self::wait`].
    pub fn done(&self) -> u32 {
        self.header().done.load(Ordering::Acquire)
    }

    /// Sleeps until `more` tasks are finished beyond the `seen` ones, a worker asks for the owner, or the time is over.
    pub fn wait(&self, seen: u32, more: u32, most: Duration) {
        let header = self.header();
        header.wanted.store(seen.wrapping_add(more), Ordering::Relaxed);
        header.is_waiting.store(1, Ordering::Relaxed);
        // Partner: the fence in `finish`.
        fence(Ordering::SeqCst);
        let now = header.done.load(Ordering::Relaxed);
        if !has_reached(now, seen.wrapping_add(more))
            && !(0..self.workers).any(|worker| self.question(worker).is_some())
        {
            sleep(&header.done, now, most);
        }
        header.is_waiting.store(0, Ordering::Relaxed);
    }

    /// What a worker asks, and a number that belongs to it.
    pub fn question(&self, worker: usize) -> Option<(u32, u64)> {
        let words = self.worker_words(worker);
        let question = words.question.load(Ordering::Acquire);
        (question != 0).then(|| (question, words.detail.load(Ordering::Relaxed)))
    }

    /// Lets a worker go on that asked.
    pub fn answer(&self, worker: usize) {
        let words = self.worker_words(worker);
        words.question.store(0, Ordering::Release);
        wake(&words.question, 1);
    }

    /// What a worker is at.
    pub fn at_work(&self, worker: usize) -> Option<AtWork> {
        let words = self.worker_words(worker);
        let ticket = words.ticket.load(Ordering::Acquire).checked_sub(1)?;
        let (part, since_nanos) = (words.part.load(Ordering::Relaxed), words.since_nanos.load(Ordering::Relaxed));
        Some(AtWork { ticket, part, since_nanos })
    }

    /// Forgets what a worker was at: it is dead.
    pub fn forget_worker(&self, worker: usize) {
        let words = self.worker_words(worker);
        words.ticket.store(0, Ordering::Release);
        words.question.store(0, Ordering::Release);
        words.presence.fetch_and(!IS_UP, Ordering::AcqRel);
    }

    /// How many workers have begun to ask for tasks, and have not died since.
    pub fn workers_up(&self) -> usize {
        let is_up = |&worker: &usize| self.worker_words(worker).presence.load(Ordering::Acquire) & IS_UP != 0;
        (0..self.workers).filter(is_up).count()
    }

    /// Has a worker end before its next task, or no longer. One that sleeps sees it when it next looks around.
    pub fn retire(&self, worker: usize, is_to_end: bool) {
        let presence = &self.worker_words(worker).presence;
        if is_to_end {
            presence.fetch_or(RETIRES, Ordering::AcqRel);
        } else {
            presence.fetch_and(!RETIRES, Ordering::AcqRel);
        }
    }

    /// Nothing more is posted: workers end when they ask for a task.
    pub fn close(&self) {
        let header = self.header();
        header.is_closed.store(1, Ordering::Release);
        header.ready.fetch_add(1, Ordering::SeqCst);
        wake(&header.ready, u32::MAX >> 1);
    }
}

/// Whether a counter that wraps around has come to `wanted`.
fn has_reached(now: u32, wanted: u32) -> bool {
    now.wrapping_sub(wanted) < 1 << 31
}

/// A worker's side.
impl Board {
    /// Notes that a worker is there; whether it is to end.
    pub fn is_retired(&self, worker: usize) -> bool {
        let presence = &self.worker_words(worker).presence;
        if presence.load(Ordering::Acquire) & IS_UP == 0 {
            presence.fetch_or(IS_UP, Ordering::AcqRel);
        }
        presence.load(Ordering::Acquire) & RETIRES != 0
    }

    /// Takes the oldest task that is ready.
    pub fn take(&self, worker: usize) -> Option<(u64, [u64; TASK_WORDS])> {
        let header = self.header();
        loop {
            let ticket = header.next.load(Ordering::Acquire);
            if ticket >= header.posted.load(Ordering::Acquire) {
                return None;
            }
            let slot = self.slot(ticket);
            let (ready, taken) = (state(ticket, 0, READY), state(ticket, worker, TAKEN));
            let words = self.worker_words(worker);
            // Said before it is taken: a worker that is killed right after must be known to have it.
            words.since_nanos.store(now_nanos(), Ordering::Relaxed);
            words.part.store(0, Ordering::Relaxed);
            words.ticket.store(ticket + 1, Ordering::Release);
            // Acquire: with it come the task's words.
            let is_ours = slot.state.compare_exchange(ready, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            let _ = header.next.compare_exchange(ticket, ticket + 1, Ordering::AcqRel, Ordering::Relaxed);
            if is_ours {
                return Some((ticket, std::array::from_fn(|word| slot.task[word].load(Ordering::Relaxed))));
            }
            words.ticket.store(0, Ordering::Release);
        }
    }

    /// Sleeps until something was posted, or the time is over. True if the board is closed.
    pub fn wait_for_task(&self, most: Duration) -> bool {
        let header = self.header();
        let seen = header.ready.load(Ordering::Acquire);
        header.sleepers.fetch_add(1, Ordering::Relaxed);
        // Partner: the fence in `announce`.
        fence(Ordering::SeqCst);
        let is_empty = header.next.load(Ordering::Relaxed) >= header.posted.load(Ordering::Relaxed);
        if is_empty && !self.is_closed() {
            sleep(&header.ready, seen, most);
        }
        header.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.is_closed()
    }

    /// Whether the owner posts nothing more.
    pub fn is_closed(&self) -> bool {
        self.header().is_closed.load(Ordering::Acquire) != 0
    }

    /// Notes that a worker begins a part of its task.
    pub fn begin_part(&self, worker: usize, part: u64) {
        let words = self.worker_words(worker);
        words.part.store(part, Ordering::Relaxed);
        words.since_nanos.store(now_nanos(), Ordering::Relaxed);
    }

    /// A word of a task, which the owner may have changed since it was taken.
    pub fn task_word(&self, ticket: u64, word: usize) -> u64 {
        self.slot(ticket).task[word].load(Ordering::Acquire)
    }

    /// The task is done. `is_urgent`: the owner is woken whatever else it waits for.
    pub fn finish(&self, worker: usize, ticket: u64, outcome: [u64; OUTCOME_WORDS], is_urgent: bool) {
        let (header, slot) = (self.header(), self.slot(ticket));
        slot.outcome.iter().zip(outcome).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        // Release: partner of the acquire in `finished`.
        slot.state.store(state(ticket, worker, DONE), Ordering::Release);
        self.worker_words(worker).ticket.store(0, Ordering::Release);
        let done = header.done.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.wake_owner(done, is_urgent);
    }

    fn wake_owner(&self, done: u32, is_urgent: bool) {
        let header = self.header();
        // Partner: the fence in `wait`.
        fence(Ordering::SeqCst);
        if header.is_waiting.load(Ordering::Relaxed) != 0
            && (is_urgent || has_reached(done, header.wanted.load(Ordering::Relaxed)))
        {
            wake(&header.done, 1);
        }
    }

    /// Asks the owner something, and sleeps until it has answered. False if the board was closed meanwhile.
    ///
    /// `poll` is called at least ten times a second; if it returns false, so does this.
    pub fn ask(&self, worker: usize, question: u32, detail: u64, mut poll: impl FnMut() -> bool) -> bool {
        let words = self.worker_words(worker);
        words.detail.store(detail, Ordering::Relaxed);
        words.question.store(question, Ordering::Release);
        // A change of the word that the owner sleeps on, so that it doesn't go to sleep over the question.
        let done = self.header().done.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.wake_owner(done, true);
        while words.question.load(Ordering::Acquire) == question {
            if self.is_closed() || !poll() {
                return false;
            }
            sleep(&words.question, question, Duration::from_millis(100));
        }
        true
    }
}

#[cfg(test)]
mod tests;
