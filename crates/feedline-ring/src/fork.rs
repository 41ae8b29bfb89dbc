//! Telling a process from its forked children, without a system call.
//!
//! A child inherits its parent's leases as bytes but not as obligations: it must never release them. And what the child
//! still sees must not change when the parent lets go, so live leases are made private just before a fork.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

static FORKS: AtomicU32 = AtomicU32::new(0);
static TABLES: Mutex<Vec<Weak<dyn Table>>> = Mutex::new(Vec::new());

/// A table of leases, as the process sees it.
pub(crate) trait Table: Send + Sync {
    /// Lets go of what its server waits for.
    fn relieve(&self);

    /// What has to be done in the parent before a child exists.
    fn before_fork(&self);
}

/// All tables of this process.
pub(crate) fn tables() -> Vec<Arc<dyn Table>> {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.iter().filter_map(Weak::upgrade).collect()
}

pub(crate) fn register(table: Weak<dyn Table>) {
    install();
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|table| table.strong_count() > 0);
    tables.push(table);
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

fn install() {
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
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
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
    parent();
}
