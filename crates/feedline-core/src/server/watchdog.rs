//! Notices a source that doesn't return, finds out where it hangs, and notifies the consumers.
//!
//! ```text
//! waiting for the source ──loader_warn──▶ ask ──▶ warn, notify consumers ──twice the time──▶ ask ──▶ …
//!         │                                                                         loader_timeout──▶ ask ──▶ the feed fails
//!         └── it came back: start anew
//! ```
//!
//! The server waits for its source while the source is in a call, and while threads of the source fill claims and nothing else
//! is left to do. Each claim that is committed or given back starts the time anew.
//!
//! A source can't be interrupted, and finding out where it is may need what it holds (Python's GIL). So a thread of its own
//! asks, never two at once, and its answer after a second is taken. The time inside the source counts whether or not a consumer
//! is attached; while none is, nothing is logged. A consumer that attaches later gets the warning at once. Giving up needs no consumer.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_shm::Mutex;

use super::Shared;
use super::meter::{Doing, Meter};
use crate::error::{Failure, FailureKind};
use crate::explain::Explanation;
use crate::limits::secs_text;
use crate::options::Name;
use crate::proc;
use crate::text;
use crate::wire::{Reply, Stuck};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(1);
/// Time in which the control thread itself did not run isn't the source's: the whole process was stopped.
const LONGEST_STEP: Duration = Duration::from_millis(500);
/// How many child processes are listed.
const MAX_CHILDREN: usize = 16;

/// Says where a source is, in one or more lines. It may report more than once; the last report counts.
pub type Ask = dyn Fn(&mut dyn FnMut(String)) + Send + Sync;

/// What the producer notes for the watchdog.
#[derive(Default)]
pub(super) struct Watch {
    /// Odd while the source is waited for.
    calls: AtomicU64,
    /// How many claims it has committed or given back.
    returned: AtomicU64,
    thread: AtomicI32,
    ask: Mutex<Option<Arc<Ask>>>,
}

impl Watch {
    pub fn set_ask(&self, ask: Arc<Ask>) {
        *self.ask.lock() = Some(ask);
    }

    /// This thread is the source's from now on.
    pub fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// The source is waited for until this is dropped.
    pub fn enter<'a>(&'a self, meter: &'a Meter) -> Inside<'a> {
        meter.turn(Doing::Loading);
        count(&self.calls);
        Inside { watch: self, meter }
    }

    /// The source has committed a claim, or given one back. Whoever counts has the state's lock.
    pub fn returned(&self) {
        count(&self.returned);
    }

    /// What was last heard of the source, and whether it is waited for.
    fn heard(&self) -> (Heard, bool) {
        let calls = self.calls.load(Ordering::Relaxed);
        let heard = Heard { calls, returned: self.returned.load(Ordering::Relaxed) };
        (heard, !calls.is_multiple_of(2))
    }
}

/// Counts what one thread at a time counts: an atomic addition would wait for all that this thread has written.
fn count(number: &AtomicU64) {
    number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// How often the source has come back, in one way or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    calls: u64,
    returned: u64,
}

pub(super) struct Inside<'a> {
    watch: &'a Watch,
    meter: &'a Meter,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        count(&self.watch.calls);
        self.meter.turn(Doing::Copying);
    }
}

/// The control thread's part.
pub(super) struct Watchdog {
    heard: Heard,
    /// How long nothing was heard of it while it was waited for, as seen in steps.
    inside: Duration,
    checked: Instant,
    /// When to warn about it next.
    warn_at: Option<Duration>,
    asking: Option<Asking>,
    /// The last warning about it, and which connections have been sent it.
    warning: Option<Stuck>,
    notified: BTreeSet<u64>,
    /// Connections that asked by themselves, and the answer for them.
    asked_by: BTreeSet<u64>,
    answer: Option<(BTreeSet<u64>, Stuck)>,
}

impl Watchdog {
    pub fn new() -> Self {
        Self {
            heard: Heard::default(),
            inside: Duration::ZERO,
            checked: Instant::now(),
            warn_at: None,
            asking: None,
            warning: None,
            notified: BTreeSet::new(),
            asked_by: BTreeSet::new(),
            answer: None,
        }
    }

    /// A consumer wants to know where the source is; it is answered if the source is being called.
    pub fn asked(&mut self, id: u64) {
        self.asked_by.insert(id);
    }

    /// The message that a consumer has to get now.
    pub fn reply_for(&mut self, id: u64) -> Option<Reply> {
        if let Some((ids, stuck)) = &mut self.answer
            && ids.remove(&id)
        {
            return Some(Reply::Stuck(stuck.clone()));
        }
        let stuck = self.warning.as_ref()?;
        self.notified.insert(id).then(|| Reply::Stuck(stuck.clone()))
    }

    /// Checks the source; `anybody` is attached. Returns a failure if the feed should give up on it.
    pub fn check(&mut self, shared: &Shared, anybody: bool) -> Option<Failure> {
        let step = self.checked.elapsed().min(LONGEST_STEP);
        self.checked = Instant::now();
        let (heard, is_waited_for) = shared.watch.heard();
        if heard != self.heard || !is_waited_for {
            self.start_anew(shared, heard);
            return None;
        }
        self.inside += step;
        let gives_up = shared.options.loader_timeout_secs.is_some_and(|limit| self.inside >= limit);
        let warns = anybody && self.warn_at.is_some_and(|at| self.inside >= at);
        if !gives_up && !warns && self.asked_by.is_empty() {
            return None;
        }
        let place = self.place(shared)?;
        let (name, pid, secs) = (&shared.name, std::process::id(), self.inside.as_secs_f64());
        if gives_up {
            let what = format!(
                "feed {name:?} gave up on its loader, which has not yielded a batch for {} s (server pid {pid})\n{place}",
                secs_text(secs),
            );
            let way_out =
                text!["if it may take that long, give the server a longer ", Name::loader_timeout_secs.named()];
            return Some(Failure::new(FailureKind::Stuck, Explanation::new(what).hint(way_out)));
        }
        let stuck = Stuck { secs, samples: shared.lock().machine.log().head(), place };
        self.answer = Some((std::mem::take(&mut self.asked_by), stuck.clone()));
        if warns {
            let (secs, place) = (secs_text(secs), &stuck.place);
            tracing::warn!("feed {name:?}: its loader has not yielded a batch for {secs} s (pid {pid})\n{place}");
            shared.lock().events.note("stuck", None, &format!("the loader has not yielded a batch for {secs} s"));
            self.warn_at = Some(self.inside * 2);
            self.warning = Some(stuck);
            self.notified.clear();
        }
        None
    }

    fn start_anew(&mut self, shared: &Shared, heard: Heard) {
        if self.warning.take().is_some() {
            let secs = secs_text(self.inside.as_secs_f64());
            tracing::info!("feed {:?}: its loader goes on, after {secs} s", shared.name);
        }
        self.heard = heard;
        self.inside = Duration::ZERO;
        self.warn_at = shared.options.loader_warn_secs;
        self.answer = None;
        self.asked_by.clear();
        self.notified.clear();
    }

    /// Where the source is, for a person; `None` while that is being found out.
    fn place(&mut self, shared: &Shared) -> Option<String> {
        let heard = self.heard;
        // An answer is valid for a second: a consumer that asks all the time keeps nobody busy.
        self.asking.take_if(|asking| {
            let is_used_up = asking.is_used && asking.began.elapsed() >= ANSWER;
            asking.is_done() && (is_used_up || asking.heard != heard)
        });
        let asking = self.asking.get_or_insert_with(|| Asking::start(shared, heard));
        if !asking.is_done() && asking.began.elapsed() < ANSWER {
            return None;
        }
        asking.is_used = true;
        let mut place = String::new();
        let said = asking.said.lock();
        for line in said.source.lines() {
            let _ = writeln!(place, "  {line}");
        }
        let tid = shared.watch.thread.load(Ordering::Relaxed);
        if let Some(thread) = proc::thread_text(tid) {
            let _ = writeln!(place, "  its thread {tid}: {thread}");
        }
        place += &said.children;
        Some(place.trim_end().to_owned())
    }

    /// At the end: gives a thread that asks its second, and no more.
    pub fn end(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        while !asking.is_done() && asking.began.elapsed() < ANSWER {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A question under way, or answered.
struct Asking {
    /// What was last heard of the source when it began.
    heard: Heard,
    began: Instant,
    said: Arc<Mutex<Said>>,
    is_used: bool,
    /// `None` if it could not be started.
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Said {
    source: String,
    children: String,
}

impl Asking {
    fn start(shared: &Shared, heard: Heard) -> Self {
        let ask = shared.watch.ask.lock().clone();
        let said = Arc::new(Mutex::new(Said::default()));
        let notes = Arc::clone(&said);
        let run = move || {
            let children = children_text();
            notes.lock().children = children;
            if let Some(ask) = ask {
                ask(&mut |text| notes.lock().source = text);
            }
        };
        let thread = std::thread::Builder::new().name("feedline-ask".into()).spawn(run).ok();
        Self { heard, began: Instant::now(), said, is_used: false, thread }
    }

    fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// The server's child processes: a loader's workers are among them.
fn children_text() -> String {
    let children = proc::children(std::process::id());
    let mut text = String::new();
    for &pid in children.iter().take(MAX_CHILDREN) {
        if let Some(process) = proc::process_text(pid) {
            let _ = writeln!(text, "    pid {pid}: {process}");
        }
    }
    if children.len() > MAX_CHILDREN {
        let _ = writeln!(text, "    and {} more", children.len() - MAX_CHILDREN);
    }
    if text.is_empty() { text } else { format!("  its server's child processes:\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_heard_of_when_its_call_ends_and_when_it_returns_a_claim() {
        let (watch, meter) = (Watch::default(), Meter::new());
        assert!(!watch.heard().1);
        let inside = watch.enter(&meter);
        let (called, is_waited_for) = watch.heard();
        assert!(is_waited_for);
        watch.returned();
        let (returned, is_waited_for) = watch.heard();
        assert!(is_waited_for && returned != called);
        drop(inside);
        let (ended, is_waited_for) = watch.heard();
        assert!(!is_waited_for && ended != returned);
    }
}
