//! A mutex without poisoning: a thread that panics ends what it was doing, and the others go on.
//!
//! It is the standard library's, one futex word: in a forked child it is free if no thread of the parent held it. Not
//! `parking_lot`'s, which keeps all waiting threads of a process in one table: a child inherits that table with the threads
//! that it doesn't have, and hangs in a lock that nobody holds.

pub use std::sync::MutexGuard;
use std::sync::{PoisonError, TryLockError};

/// See the module.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if it is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Without locking: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}
