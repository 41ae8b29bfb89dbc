//! What a process knows of itself, behind a lock that no forked child inherits.
//!
//! A child gets its parent's memory as it was at the fork: the parent's table, and its lock, perhaps held by a thread that the
//! child doesn't have. So a table belongs to the process that made it: a child finds it of another [`Origin`], leaves it where
//! it is, and begins with one of its own.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::Origin;
use crate::mutex::{Mutex, MutexGuard};

/// A `Mutex` for statics that is free, and holds `T::default()`, at the beginning of every process.
#[derive(Debug)]
pub struct PerProcess<T> {
    current: AtomicPtr<Table<T>>,
}

#[derive(Debug)]
struct Table<T> {
    origin: Origin,
    contents: Mutex<T>,
}

impl<T: Default + Send + 'static> PerProcess<T> {
    /// Nothing is allocated before the first use.
    #[expect(clippy::new_without_default, reason = "it is made where a static is")]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's own. What a parent process had in it is never freed: its threads may have been at it.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        let mut found = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a table that came from `Box::into_raw` below.
            // - Initialised: the pointer was stored with Release after the box was filled, and loaded with Acquire.
            // - Never freed and never handed out mutably once it was stored, so shared references to it last for ever.
            // - `T: Send` makes the `Mutex`, and with it the table, fit to be shared between threads.
            if let Some(table) = unsafe { found.as_ref() }
                && table.origin.is_here()
            {
                return table.contents.lock();
            }
            let made = Box::into_raw(Box::new(Table { origin: Origin::here(), contents: Mutex::new(T::default()) }));
            found = match self.current.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: `made` came from `Box::into_raw` just now, and was not stored: nobody else has it.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a forked child finds: exits with 0 if `check` holds there.
    fn in_a_child(check: fn() -> bool) -> i32 {
        // SAFETY: the child only takes a lock, allocates (glibc's allocator is made fit for it by `fork` itself) and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = i32::from(!check());
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `status` outlives the call, which writes an int there.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(waited, pid);
        status
    }

    #[test]
    fn a_child_finds_it_free_and_empty_while_the_parent_holds_it() {
        static NAMES: PerProcess<Vec<u32>> = PerProcess::new();
        let mut held = NAMES.lock();
        held.push(1);
        let status = in_a_child(|| {
            let mut own = NAMES.lock();
            own.push(2);
            *own == [2]
        });
        assert_eq!(status, 0);
        assert_eq!(*held, [1]);
        drop(held);
        assert_eq!(*NAMES.lock(), [1]);
    }

    #[test]
    fn threads_that_come_first_together_share_one() {
        static COUNT: PerProcess<u32> = PerProcess::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| *COUNT.lock() += 1);
            }
        });
        assert_eq!(*COUNT.lock(), 8);
    }
}
