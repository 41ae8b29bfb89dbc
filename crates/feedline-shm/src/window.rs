//! Bytes that a tensor may point at, and what keeps them there.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A contiguous range of bytes, valid and unchanging (but for its owner's own writes) while any clone lives.
#[derive(Clone)]
pub struct Window {
    start: NonNull<u8>,
    len_bytes: usize,
    writable: bool,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are owned by `keep`, which is Send and Sync; the pointer is only handed on.
unsafe impl Send for Window {}
// SAFETY: as above; shared access through `Window` only reads.
unsafe impl Sync for Window {}

impl Window {
    /// `start` must be valid for `len_bytes` as long as `keep` lives: only this crate makes windows.
    pub(crate) fn new(start: NonNull<u8>, len_bytes: usize, writable: bool, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { start, len_bytes, writable, keep }
    }

    /// Where the bytes begin.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether the owner may write into them (privately).
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn part(&self, offset_bytes: usize, len_bytes: usize) -> Self {
        assert!(offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes), "a part lies inside");
        // SAFETY: the offset is at most the length, so the result is within or one past the same allocation.
        let start = unsafe { self.start.add(offset_bytes) };
        Self { start, len_bytes, writable: self.writable, keep: Arc::clone(&self.keep) }
    }

    /// A copy of a part, made without a look at it. `None` if the part is not inside.
    pub fn copy(&self, offset_bytes: usize, len_bytes: usize) -> Option<Vec<u8>> {
        if offset_bytes.checked_add(len_bytes)? > self.len_bytes {
            return None;
        }
        let mut bytes = vec![0; len_bytes];
        self.copy_into(offset_bytes, &mut bytes);
        Some(bytes)
    }

    /// Fills `out` with the bytes from an offset on. There is no `&[u8]` of them to be had: a tensor over the same bytes may
    /// be written to at any time, by any process that has it.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn copy_into(&self, offset_bytes: usize, out: &mut [u8]) {
        assert!(offset_bytes.checked_add(out.len()).is_some_and(|end| end <= self.len_bytes), "a part lies inside");
        // SAFETY: the part lies inside (just checked).
        let from = unsafe { self.start.add(offset_bytes) };
        // SAFETY:
        // - Mapped: `keep` holds the mapping or the buffer. Apart: `out` is borrowed mutably, and nobody borrows from windows.
        // - No reference is made to the shared bytes, so that one who writes there regardless harms the copy alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
    }

    /// The bytes, for consumers in Rust.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        self.copy_into(0, &mut bytes);
        bytes
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("len_bytes", &self.len_bytes).field("writable", &self.writable).finish()
    }
}
