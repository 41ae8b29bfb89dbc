//! Bytes that wait to be copied into a ring.

use std::fmt;
use std::marker::PhantomData;

/// Somebody else's bytes, to be copied and not to be looked at.
///
/// A loader's tensor is Python's: another thread of the loader may write to it at any time, which would break the promise of
/// a `&[u8]` that they don't change. A copy of bytes that change is a copy of bytes, whatever they are.
///
/// A slice can be lent as it is; an address needs a promise:
///
/// ```
/// let bytes = [1, 2, 3];
/// let lent = feedline_shm::SourceBytes::from(&bytes);
/// assert_eq!(lent.to_vec(), [1, 2, 3]);
/// ```
///
/// ```compile_fail,E0133
/// let bytes = [1, 2, 3];
/// let lent = feedline_shm::SourceBytes::new(bytes.as_ptr(), 3);
/// ```
#[derive(Clone, Copy)]
pub struct SourceBytes<'a> {
    start: *const u8,
    len_bytes: usize,
    owner: PhantomData<&'a ()>,
}

// SAFETY: the bytes are only read, and stay readable from any thread for 'a (`new`'s contract).
unsafe impl Send for SourceBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SourceBytes<'_> {}

impl SourceBytes<'_> {
    /// Bytes by their address.
    ///
    /// # Safety
    ///
    /// `start` must be valid for reading `len_bytes` initialised bytes, from any thread, throughout the lifetime that the
    /// caller gives the result. They may change meanwhile.
    pub unsafe fn new(start: *const u8, len_bytes: usize) -> Self {
        Self { start, len_bytes, owner: PhantomData }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Whether they are these, as far as they don't change meanwhile.
    pub fn is_equal(&self, other: &[u8]) -> bool {
        // SAFETY: both are readable for that length (`new`'s contract, or a slice). No reference to ours is made.
        self.len_bytes == other.len()
            && unsafe { libc::memcmp(self.start.cast(), other.as_ptr().cast(), self.len_bytes) } == 0
    }

    /// A copy in memory of our own.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len_bytes];
        // SAFETY: readable for that length (`new`'s contract, or a slice); `copy` is new, so the two are apart.
        unsafe { std::ptr::copy_nonoverlapping(self.start, copy.as_mut_ptr(), self.len_bytes) };
        copy
    }

    /// Copies them to the beginning of `out`.
    ///
    /// # Panics
    /// If they don't fit.
    pub(crate) fn copy_to(&self, out: &mut [u8]) {
        assert!(self.len_bytes <= out.len(), "{} bytes for a place of {}", self.len_bytes, out.len());
        // SAFETY: readable for that length (`new`'s contract, or a slice), and `out` is borrowed mutably, so the two are apart.
        unsafe { std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr(), self.len_bytes) };
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

impl<'a> From<&'a [u8]> for SourceBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len_bytes: bytes.len(), owner: PhantomData }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for SourceBytes<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u8>> for SourceBytes<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl fmt::Debug for SourceBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceBytes").field("len_bytes", &self.len_bytes).finish()
    }
}
