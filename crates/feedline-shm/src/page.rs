//! The shared words of [`crate::signal`], in memory that two processes map.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use feedline_protocol::page::{HeadPage, HeadView, MemberPage};
use feedline_protocol::{EpochLength, FeedState};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::mapping::{Access, Span};
use crate::signal::{CursorWords, HeadWords, WritableHeadWords};
use crate::{Memfd, Memory, RingError, page_size};

const _: () = assert!(size_of::<WritableHeadWords>() <= 4096);
const _: () = assert!(size_of::<CursorWords>() <= 4096);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The server has something to tell.
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
        self.memfd.fd()
    }
}

/// A consumer's end of the head page.
///
/// Its memory can't be written to, and safe code can't try: what compiles for the server's end
///
/// ```
/// fn publish(head: &feedline_shm::HeadWriter) {
///     head.publish(1);
/// }
/// ```
///
/// doesn't for this one, and neither gives the atomics away:
///
/// ```compile_fail,E0599
/// fn publish(head: &feedline_shm::HeadReader) {
///     head.publish(1);
/// }
/// ```
///
/// ```compile_fail,E0599
/// fn change(head: &feedline_shm::HeadReader) {
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
        self.memfd.fd()
    }
}

/// The server's state machine writes through this.
impl HeadPage for HeadWriter {
    fn publish(&self, head: u64) {
        (**self).publish(head);
    }

    fn end_epoch(&self, epoch: u64, end: u64) {
        (**self).end_epoch(epoch, end);
    }

    fn forget_before(&self, oldest: u64, fastest: u64) {
        (**self).forget_before(oldest, fastest);
    }

    fn set_length(&self, length: EpochLength) {
        (**self).set_length(length);
    }

    fn length(&self) -> EpochLength {
        (**self).length()
    }

    fn set_generation(&self, generation: u32) {
        (**self).set_generation(generation);
    }

    fn set_state(&self, state: FeedState) {
        (**self).set_state(state.word());
    }

    fn set_joined(&self, joined: u32) {
        (**self).set_joined(joined);
    }

    fn set_slowest(&self, epoch: u64) {
        (**self).set_slowest(epoch);
    }

    fn want(&self, sample: u64) {
        (**self).want(sample);
    }

    fn want_nothing(&self) {
        (**self).want_nothing();
    }

    fn announce(&self, is_anybody_waiting: impl FnOnce() -> bool) {
        self.advance_tick();
        if is_anybody_waiting() {
            self.wake_all();
        }
    }
}

/// A consumer's state machine reads through this.
impl HeadView for HeadReader {
    fn head(&self) -> u64 {
        (**self).head()
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        (**self).end_of(epoch)
    }

    fn ended(&self) -> u64 {
        (**self).ended()
    }

    fn oldest(&self) -> u64 {
        (**self).oldest()
    }

    fn fastest(&self) -> u64 {
        (**self).fastest()
    }

    fn generation(&self) -> u32 {
        (**self).generation()
    }

    fn state(&self) -> FeedState {
        FeedState::from_word((**self).state())
    }

    fn joined(&self) -> u32 {
        (**self).joined()
    }

    fn slowest(&self) -> u64 {
        (**self).slowest()
    }

    fn length(&self) -> EpochLength {
        (**self).length()
    }

    fn wanted(&self) -> u64 {
        (**self).wanted()
    }
}

/// The server's state machine reads a consumer's page through this.
impl MemberPage for CursorHandle {
    fn position(&self, join: u64) -> Option<(u64, u64)> {
        (**self).position(join)
    }

    fn is_waiting(&self) -> bool {
        (**self).is_waiting()
    }

    fn is_resting(&self) -> bool {
        (**self).is_resting()
    }

    fn cut_off(&self) -> bool {
        (**self).cut_off()
    }

    fn count(&self, join: u64) {
        (**self).count(join);
    }

    fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }

    fn leases(&self) -> u32 {
        self.leases.load(Ordering::Relaxed)
    }
}
