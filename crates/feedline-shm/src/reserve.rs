//! Rings in reserve: memory that worker processes map before anybody knows how long a ring in it will be.
//!
//! ```text
//!  server                              forker                       workers, forked from it at any time
//!  create: memory without a length ══▶ map: addresses for the most ──▶ the same addresses
//!  take: its length, a ring, the seal                                   write(ring, lane, bytes)
//! ```
//!
//! A seal against new writers leaves the mappings that exist. So whoever is to write into a ring maps its memory when that has no length
//! yet, and touches nothing. The server gives it its length later, makes the ring, and seals it; nobody has to be told. Rings
//! are taken in order, each once: when there are none left, the server makes others, into which no worker writes.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::fs::fstat;
use rustix::process::{Resource, getrlimit};

use crate::mapping::Span;
use crate::{Memfd, Memory, Mutex, RingError, SourceBytes};

/// The server's end.
#[derive(Debug)]
pub struct Reserve {
    rings: Mutex<VecDeque<(u32, Memfd)>>,
    len_bytes: u64,
}

impl Reserve {
    /// Memory for so many rings, each with addresses for so many bytes. Fails where a process's addresses are limited: workers may
    /// need theirs for something else.
    pub fn create(rings: u32, len_bytes: u64) -> Result<Self, RingError> {
        if getrlimit(Resource::As).current.is_some() {
            let errno = rustix::io::Errno::NOMEM;
            return Err(RingError::memory("address space", len_bytes.saturating_mul(rings.into()))(errno));
        }
        let memory = |number| Ok((number, Memfd::create_sparse("feedline-ring", 0)?));
        let rings = (0..rings).map(memory).collect::<Result<VecDeque<_>, RingError>>()?;
        // Where there are no addresses for workers, it is better known now.
        let fds = rings.iter().map(|(_, memory)| memory.fd().try_clone_to_owned());
        let fds = fds
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| RingError::Os { what: "sharing a ring", source: rustix::io::Errno::MFILE })?;
        drop(ReservedRings::map(fds, len_bytes)?);
        Ok(Self { rings: rings.into(), len_bytes })
    }

    /// No ring in memory is longer than this: what the machine has.
    pub fn longest_ring() -> u64 {
        let info = rustix::system::sysinfo();
        let units = info.totalram.saturating_add(info.totalswap);
        units.saturating_mul(u64::from(info.mem_unit).max(1)).max(1 << 30)
    }

    /// The descriptors of those that are left, to hand to whoever maps them, and for how many bytes.
    pub fn descriptors(&self) -> (Vec<RawFd>, u64) {
        (self.rings.lock().iter().map(|(_, memory)| memory.fd().as_raw_fd()).collect(), self.len_bytes)
    }

    /// The next one, of this length, and its number. `None` if there is none left, or the length is too large for it.
    pub fn take(&self, len_bytes: u64) -> Option<Result<(u32, Memfd), RingError>> {
        if len_bytes > self.len_bytes {
            return None;
        }
        let (number, memory) = self.rings.lock().pop_front()?;
        Some(memory.with_length(len_bytes).map(|memory| (number, memory)))
    }
}

/// Where a claim stands in one lane of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanePlace {
    /// Where the lane begins in the ring's memory.
    pub start: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// Where in the lane the claim begins. What passes the lane's end goes on at its beginning.
    pub position: u64,
}

/// A worker's end.
#[derive(Debug)]
pub struct ReservedRings {
    /// `None` for those that are no longer used.
    rings: Mutex<Vec<Option<Span>>>,
    len_bytes: u64,
}

impl ReservedRings {
    /// Maps rings that their server has not taken yet.
    pub fn map(fds: Vec<OwnedFd>, len_bytes: u64) -> Result<Self, RingError> {
        let map = |fd: OwnedFd| {
            let stat = fstat(&fd).map_err(RingError::os("looking at shared memory"))?;
            if stat.st_size != 0 {
                let why = format!("{} bytes are there already", stat.st_size);
                return Err(RingError::BadDescriptor { what: "a ring in reserve", why });
            }
            Span::map_ahead(&fd, len_bytes).map(Some)
        };
        let rings = fds.into_iter().map(map).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { rings: rings.into(), len_bytes })
    }

    /// Copies bytes into a claim that its server has given to this process, from an offset in the claim on. False if this process
    /// has no such ring.
    ///
    /// # Panics
    /// If the lane is not inside the ring, or too short.
    pub fn write<'a>(&self, ring: u32, lane: LanePlace, offset_bytes: u64, bytes: impl Into<SourceBytes<'a>>) -> bool {
        let (bytes, LanePlace { start, len_bytes, position }) = (bytes.into(), lane);
        let end = start.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes) && bytes.len() as u64 <= len_bytes && len_bytes > 0,
            "{} bytes for {lane:?}",
            bytes.len()
        );
        let rings = self.rings.lock();
        let Some(Some(span)) = rings.get(ring as usize) else { return false };
        let at = ((u128::from(position) + u128::from(offset_bytes)) % u128::from(len_bytes)) as u64;
        let first = bytes.len().min((len_bytes - at) as usize);
        copy(bytes.as_ptr(), span.base(), start + at, first);
        // SAFETY: `first` is at most the length, so the result is within or one past the same allocation.
        let rest = unsafe { bytes.as_ptr().add(first) };
        copy(rest, span.base(), start, bytes.len() - first);
        true
    }

    /// Lets go of the rings before this one: nobody is given a claim in them any more.
    pub fn forget_before(&self, ring: u32) {
        self.rings.lock().iter_mut().take(ring as usize).for_each(|span| *span = None);
    }
}

/// Copies to a place of a ring that the caller has checked.
fn copy(from: *const u8, base: NonNull<u8>, offset: u64, len_bytes: usize) {
    // SAFETY: inside the mapping: the caller compared the lane with its length, and the bytes with the lane's.
    let to = unsafe { base.add(offset as usize) };
    // SAFETY:
    // - Readable: the contract of `SourceBytes`. Mapped: as above. There is memory: the server says where a claim is after it has
    //   given the ring its length, which is sealed.
    // - Apart: the source is no part of a ring, of which nobody here is told an address.
    // - No reference to these bytes is made here; the server reads them after it was told that they are written.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_ptr(), len_bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claimable, Layout, RingWriter, Span, page_size};

    const MOST: u64 = 1 << 30;

    fn reserve() -> (Reserve, ReservedRings) {
        let reserve = Reserve::create(2, MOST).unwrap();
        let rings = reserve.rings.lock();
        let fds = rings.iter().map(|(_, memory)| memory.fd().try_clone_to_owned().unwrap()).collect();
        drop(rings);
        (reserve, ReservedRings::map(fds, MOST).unwrap())
    }

    fn ring(reserve: &Reserve, pages: u64) -> Claimable {
        let layout = Layout::new([pages * page_size(), pages * page_size()]).unwrap();
        let (number, memory) = reserve.take(layout.len_bytes()).unwrap().unwrap();
        Claimable::in_reserve(RingWriter::on(Box::new(memory), layout).unwrap(), vec![1, 2], Some(number))
    }

    fn samples(first: u64, count: u64) -> Span {
        Span { samples: first..first + count, bytes: 0..0 }
    }

    #[test]
    fn what_was_mapped_ahead_writes_into_sealed_rings() {
        let (reserve, worker) = reserve();
        for number in 0..2 {
            let mut ring = ring(&reserve, 1 + u64::from(number));
            // The second lane's end is in the middle of it.
            let mut slots = ring.claim(samples(page_size() / 2 - 3, 6)).unwrap();
            assert_eq!(slots.reserved(), Some(number));
            for (lane, bytes) in [(0, &b"abcdef"[..]), (1, &b"ABCDEFGHIJKL"[..])] {
                let (one, other) = bytes.split_at(bytes.len() / 2 + lane);
                assert!(worker.write(number, slots.place_in_memory(lane), 0, one));
                assert!(worker.write(number, slots.place_in_memory(lane), one.len() as u64, other));
                assert_eq!(slots.bytes_mut(lane), bytes);
            }
        }
        assert!(reserve.take(1).is_none(), "each is taken once");
    }

    #[test]
    fn whoever_comes_after_the_seal_cannot_write() {
        let (reserve, _worker) = reserve();
        let late = reserve.rings.lock()[0].1.fd().try_clone_to_owned().unwrap();
        let ring = ring(&reserve, 1);
        let refused = ReservedRings::map(vec![late], MOST);
        assert!(matches!(refused, Err(RingError::BadDescriptor { .. })), "{refused:?}");
        let sealed = ring.memory().share().unwrap();
        assert!(matches!(crate::mapping::Span::map_ahead(&sealed, MOST), Err(RingError::Os { .. })));
    }

    #[test]
    fn a_ring_that_was_let_go_of_is_not_written_to() {
        let (reserve, worker) = reserve();
        let mut first = ring(&reserve, 1);
        worker.forget_before(1);
        let slots = first.claim(samples(0, 1)).unwrap();
        assert!(!worker.write(0, slots.place_in_memory(0), 0, b"x"));
        let mut second = ring(&reserve, 1);
        let slots = second.claim(samples(0, 1)).unwrap();
        assert!(worker.write(1, slots.place_in_memory(0), 0, b"x"));
    }

    #[test]
    fn a_ring_that_is_too_long_is_not_in_reserve() {
        assert!(Reserve::create(2, MOST).unwrap().take(MOST + 1).is_none());
    }

    #[test]
    #[should_panic(expected = "bytes for")]
    fn nothing_is_written_beyond_a_lane() {
        let (reserve, worker) = reserve();
        let mut ring = ring(&reserve, 1);
        let slots = ring.claim(samples(0, 1)).unwrap();
        let mut lane = slots.place_in_memory(0);
        lane.start = MOST;
        worker.write(0, lane, 0, b"x");
    }
}
