//! A lock that Python's threads take with the GIL in hand.
//!
//! So a thread that holds it may not ask for the GIL, or for any lock whose holder might: it is a leaf in the order of locks. Its
//! data
//! is reached only inside of a closure, which can't bring a GIL token along, and every path from native code back to Python
//! ([`crate::errors::act`], [`crate::logging`]) asks [`assert_none_held`] first.

use std::cell::Cell;

use feedline_shm::Mutex;
use pyo3::marker::Ungil;

thread_local! {
    static IS_HELD: Cell<bool> = const { Cell::new(false) };
}

pub struct LeafLock<T>(Mutex<T>);

/// This thread holds a leaf lock until this is dropped.
struct Held;

impl Held {
    fn begin() -> Self {
        assert!(!IS_HELD.replace(true), "a leaf lock is the last that a thread takes");
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        IS_HELD.set(false);
    }
}

impl<T> LeafLock<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Reads or changes the data. Brief: other threads wait, perhaps with the GIL.
    pub fn with<R>(&self, access: impl FnOnce(&mut T) -> R + Ungil) -> R {
        let _held = Held::begin();
        access(&mut self.0.lock())
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Called before this thread asks for the GIL.
pub fn assert_none_held() {
    assert!(!IS_HELD.get(), "a thread that holds a leaf lock must not ask for the GIL");
}
