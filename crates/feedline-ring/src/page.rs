//! The shared words of [`crate::signal`], in memory that two processes map.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::mapping::{Access, Span};
use crate::signal::{CursorWords, HeadWords, WritableHeadWords};
use crate::{Memfd, RingError, page_size};

const _: () = assert!(size_of::<WritableHeadWords>() <= 4096);
const _: () = assert!(size_of::<CursorWords>() <= 4096);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The server has news.
    Woken,
    /// A signal arrived.
    Interrupted,
    /// The time is over.
    TimedOut,
}

/// The server's end of the head page.
#[derive(Debug)]
pub struct HeadWriter {
    memfd: Memfd,
    span: Span,
}

impl HeadWriter {
    /// A page that only this process can write to.
    pub fn create() -> Result<Self, RingError> {
        let mut memfd = Memfd::create("feedline-head", page_size())?;
        let span = Span::map(&memfd, Access::Writer)?;
        memfd.seal_writer()?;
        let head = Self { memfd, span };
        head.reset();
        Ok(head)
    }

    /// Wakes every consumer that sleeps on the tick.
    pub fn wake_all(&self) {
        let _ = futex::wake(self.futex(), futex::Flags::empty(), u32::MAX >> 1);
    }
}

impl Deref for HeadWriter {
    type Target = WritableHeadWords;

    fn deref(&self) -> &WritableHeadWords {
        // SAFETY: the page is mapped as long as `span` lives, zeroed (valid for atomics), aligned, and only atomics.
        unsafe { self.span.base().cast().as_ref() }
    }
}

impl AsFd for HeadWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

/// A consumer's end of the head page.
///
/// Its memory can't be written to, and safe code can't try: what compiles for the server's end
///
/// ```
/// fn publish(head: &feedline_ring::HeadWriter) {
///     head.publish(1);
/// }
/// ```
///
/// doesn't for this one, and neither gives the atomics away:
///
/// ```compile_fail,E0599
/// fn publish(head: &feedline_ring::HeadReader) {
///     head.publish(1);
/// }
/// ```
///
/// ```compile_fail,E0599
/// fn change(head: &feedline_ring::HeadReader) {
///     head.tick().store(1, std::sync::atomic::Ordering::Relaxed);
/// }
/// ```
#[derive(Debug)]
pub struct HeadReader {
    span: Span,
}

impl HeadReader {
    /// Maps a page that the server sent, read-only.
    pub fn accept(fd: OwnedFd) -> Result<Self, RingError> {
        let memfd = Memfd::accept(fd, "the head page", page_size())?;
        Ok(Self { span: Span::map(&memfd, Access::Reader)? })
    }

    /// Sleeps until the tick is no longer `tick`.
    pub fn wait(&self, tick: u32, timeout: Duration) -> Waited {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match futex::wait(self.futex(), futex::Flags::empty(), tick, Some(&timeout)) {
            Err(Errno::INTR) => Waited::Interrupted,
            Err(Errno::TIMEDOUT) => Waited::TimedOut,
            _ => Waited::Woken,
        }
    }
}

impl Deref for HeadReader {
    type Target = HeadWords;

    fn deref(&self) -> &HeadWords {
        // SAFETY: the page is mapped as long as `span` lives, aligned, only atomics. `HeadWords` issues only relaxed loads,
        // which are allowed on read-only memory, and lets nobody outside of this crate have an atomic to store to. The memfd
        // can't shrink (checked in `accept`).
        unsafe { self.span.base().cast().as_ref() }
    }
}

/// Either end of a consumer's own page.
#[derive(Debug)]
pub struct CursorHandle {
    memfd: Memfd,
    span: Span,
}

impl CursorHandle {
    /// A new page, made by the server, of a size that the consumer can't change.
    pub fn create() -> Result<Self, RingError> {
        let memfd = Memfd::create("feedline-cursor", page_size())?;
        memfd.seal_size()?;
        let span = Span::map(&memfd, Access::Writer)?;
        Ok(Self { memfd, span })
    }

    /// Maps the page that the server sent.
    pub fn accept(fd: OwnedFd) -> Result<Self, RingError> {
        let memfd = Memfd::accept(fd, "the cursor page", page_size())?;
        let span = Span::map(&memfd, Access::Writer)?;
        Ok(Self { memfd, span })
    }
}

impl Deref for CursorHandle {
    type Target = CursorWords;

    fn deref(&self) -> &CursorWords {
        // SAFETY: the page is mapped as long as `span` lives, aligned, only atomics; the memfd can't shrink.
        unsafe { self.span.base().cast().as_ref() }
    }
}

impl AsFd for CursorHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}
