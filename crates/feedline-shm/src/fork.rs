//! Telling a process from its forked children, without a system call.
//!
//! A child inherits its parent's leases as bytes but not as obligations: it must never release them. And what the child
//! still sees must not change when the parent lets go, so live leases are made private just before a fork.
//! Some descriptors it had better not inherit at all: those are [`Unshared`]. Nor should it inherit a static's lock as some
//! thread held it: those are [`PerProcess`].

mod per_process;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Once, Weak};

use crate::mutex::{Mutex, MutexGuard};

pub use self::per_process::PerProcess;

static FORKS: AtomicU32 = AtomicU32::new(0);
static TABLES: Mutex<Vec<Weak<dyn Table>>> = Mutex::new(Vec::new());

/// A table of leases, as the process sees it.
pub(crate) trait Table: Send + Sync {
    /// Lets go of what its server waits for.
    fn release_under_pressure(&self);

    /// What has to be done in the parent before a child exists.
    fn before_fork(&self);
}

/// All tables of this process.
pub(crate) fn tables() -> Vec<Arc<dyn Table>> {
    let tables = TABLES.lock();
    tables.iter().filter_map(Weak::upgrade).collect()
}

pub(crate) fn register(table: Weak<dyn Table>) {
    install();
    let mut tables = TABLES.lock();
    tables.retain(|table| table.strong_count() > 0);
    tables.push(table);
}

thread_local! {
    static KEEPS_BATCHES: Cell<bool> = const { Cell::new(true) };
}

/// Whether the child of the fork that this thread is about to make may look at its parent's batches.
pub(crate) fn keeps_batches() -> bool {
    KEEPS_BATCHES.try_with(Cell::get).unwrap_or(true)
}

/// Runs `forks`, whose children on this thread never look at a batch of their parent: nothing is copied for them.
pub fn without_batches<T>(forks: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEEPS_BATCHES.with(|keeps| keeps.set(self.0));
        }
    }
    let _restore = Restore(KEEPS_BATCHES.with(|keeps| keeps.replace(false)));
    forks()
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    pub fn here() -> Self {
        install();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this still is that process, not a child of it.
    pub fn is_here(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

/// Has forks noticed from now on. Called when the extension is loaded: a child that was forked while another thread is at it,
/// for the first time, would wait for that thread for ever.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are `extern "C"` functions that live as long as the program. All three run on the thread that
        // forks: `prepare` takes a lock that the other two give back, so that no child inherits it locked.
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

type Guard = MutexGuard<'static, Vec<Weak<dyn Table>>>;

thread_local! {
    static HELD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    let tables = TABLES.lock();
    for table in tables.iter().filter_map(Weak::upgrade) {
        table.before_fork();
    }
    let _ = HELD.try_with(|held| held.replace(Some(tables)));
}

extern "C" fn parent() {
    let _ = HELD.try_with(RefCell::take);
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for slot in &UNSHARED {
        let fd = slot.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // SAFETY: the number is that of a descriptor inside an `Unshared`, which takes it out of the slot before it closes it,
            // and which, now that `FORKS` has changed, neither hands it out nor closes it in this process.
            unsafe { libc::close(fd) };
        }
    }
    parent();
}

const NONE: i32 = -1;
static UNSHARED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

/// A descriptor that forked children close at once.
///
/// A loader's workers outlive their parent by seconds when that is killed; a port that they listen on with it would stay
/// taken. Only the first 64 of a process are kept from its children.
#[derive(Debug)]
pub struct Unshared<T: AsFd> {
    inner: ManuallyDrop<T>,
    origin: Origin,
}

impl<T: AsFd> Unshared<T> {
    /// Keeps it to this process.
    pub fn new(inner: T) -> Self {
        let fd = inner.as_fd().as_raw_fd();
        let unshared = Self { inner: ManuallyDrop::new(inner), origin: Origin::here() };
        for slot in &UNSHARED {
            if slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        unshared
    }
}

impl<T: AsFd> Deref for Unshared<T> {
    type Target = T;

    /// # Panics
    ///
    /// In a forked child.
    fn deref(&self) -> &T {
        assert!(self.origin.is_here(), "a descriptor that was not inherited");
        &self.inner
    }
}

impl<T: AsFd> Drop for Unshared<T> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        let fd = self.inner.as_fd().as_raw_fd();
        for slot in &UNSHARED {
            if slot.compare_exchange(fd, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        // SAFETY: `self` is being dropped, and nothing else takes `inner` out.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}
