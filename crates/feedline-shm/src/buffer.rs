//! Ordinary memory for batches that are copied out of the ring, reused from batch to batch.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::mutex::Mutex;
use crate::{Hold, Mapping, Window};

/// Buffers that are kept for reuse: what a training loop holds at once, and one more.
const KEPT: usize = 4;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached as bytes")] [u8; 64]);

type Shelf = Mutex<Vec<Vec<Line>>>;

/// Where buffers come from and go back to.
#[derive(Default)]
pub struct BufferPool {
    shelf: Arc<Shelf>,
}

struct Buffer {
    lines: Vec<Line>,
    shelf: Weak<Shelf>,
}

impl BufferPool {
    /// Copies ranges (lane, position, length) of samples from `first` on into memory of this process's own. `None` if they
    /// were not held in place: what was copied is then thrown away unseen.
    ///
    /// One copy; about 0.15 ms for each MB.
    pub fn copy(
        &self,
        mapping: &Mapping,
        ranges: &[(usize, u128, usize)],
        hold: Hold<'_>,
        first: u64,
    ) -> Option<Vec<Window>> {
        let padded = |len_bytes: usize| len_bytes.div_ceil(64);
        let total = ranges.iter().map(|&(_, _, len_bytes)| padded(len_bytes)).sum();
        let mut buffer = self.take(total);
        let base = NonNull::new(buffer.lines.as_mut_ptr().cast::<u8>()).expect("a Vec's pointer is never null");
        let mut offsets = Vec::with_capacity(ranges.len());
        let mut line = 0;
        for &(lane, position, len_bytes) in ranges {
            offsets.push(line * 64);
            let lines = &mut buffer.lines[line..line + padded(len_bytes)];
            // SAFETY: `Line` is 64 plain bytes without padding, so its slice is a byte slice 64 times as long.
            let bytes = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), lines.len() * 64) };
            mapping.copy_out(lane, position, &mut bytes[..len_bytes]);
            line += padded(len_bytes);
        }
        if !hold.was_in_place(first) {
            return None;
        }
        let keep = Arc::new(buffer);
        let window = |(offset, &(_, _, len_bytes)): (usize, &(usize, u128, usize))| {
            // SAFETY: the offset lies in the buffer, or one past it for an empty range.
            let start = unsafe { base.add(offset) };
            Window::new(start, len_bytes, true, keep.clone())
        };
        Some(offsets.into_iter().zip(ranges).map(window).collect())
    }

    fn take(&self, lines: usize) -> Buffer {
        let mut shelf = self.shelf.lock();
        let fits = shelf.iter().position(|kept| kept.len() == lines);
        let lines = fits.map_or_else(|| vec![Line([0; 64]); lines], |index| shelf.swap_remove(index));
        Buffer { lines, shelf: Arc::downgrade(&self.shelf) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(shelf) = self.shelf.upgrade() else { return };
        // try_lock: in a forked child the lock may be held by a thread that doesn't exist there.
        if let Some(mut shelf) = shelf.try_lock() {
            if shelf.len() == KEPT {
                shelf.remove(0);
            }
            shelf.push(std::mem::take(&mut self.lines));
        }
    }
}
