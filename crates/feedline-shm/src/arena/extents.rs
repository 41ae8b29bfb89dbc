//! Which parts of an arena are in use. Plain numbers.
//!
//! Lengths are rounded up to one of four for each power of two, so that batches of about the same length use each other's memory.
//! What was freed last is allocated first: its pages are in the caches.

use std::collections::HashMap;

/// Whole pages, so that each can be made private or be given back on its own.
const PAGE: u64 = 4096;
/// Free extents of one length that keep their memory; the pages of others are given back.
const KEPT: usize = 32;

/// What became of an extent that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// It may be allocated again.
    Kept,
    /// So too, but there are many: its pages are better given back.
    Surplus { offset: u64, len_bytes: u64 },
    /// It has to be mapped again first.
    Private { offset: u64, len_bytes: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Filling,
    Lent,
    /// Lent, and its addresses have pages of their own.
    Private,
}

#[derive(Debug)]
pub(super) struct Extents {
    /// Where nothing was allocated yet.
    top: u64,
    end: u64,
    used: HashMap<u64, (u64, Use)>,
    free: HashMap<u64, Vec<u64>>,
}

impl Extents {
    pub fn new(start: u64, end: u64) -> Self {
        Self { top: start.next_multiple_of(PAGE), end, used: HashMap::new(), free: HashMap::new() }
    }

    pub fn allocate(&mut self, len_bytes: u64) -> Option<u64> {
        let len_bytes = rounded(len_bytes)?;
        let again = self.free.get_mut(&len_bytes).and_then(Vec::pop);
        let offset = match again {
            Some(offset) => offset,
            None => {
                let end = self.top.checked_add(len_bytes).filter(|&end| end <= self.end)?;
                std::mem::replace(&mut self.top, end)
            }
        };
        self.used.insert(offset, (len_bytes, Use::Filling));
        Some(offset)
    }

    /// Tensors point at it from now on.
    pub fn lend(&mut self, offset: u64) {
        if let Some((_, used)) = self.used.get_mut(&offset) {
            *used = Use::Lent;
        }
    }

    /// What tensors point at, of the shared pages.
    pub fn lent(&self) -> Vec<(u64, u64)> {
        let lent = self.used.iter().filter(|(_, (_, used))| *used == Use::Lent);
        lent.map(|(&offset, &(len_bytes, _))| (offset, len_bytes)).collect()
    }

    pub fn made_private(&mut self, offset: u64) {
        if let Some((_, used)) = self.used.get_mut(&offset) {
            *used = Use::Private;
        }
    }

    pub fn free(&mut self, offset: u64) -> Freed {
        let Some(&(len_bytes, used)) = self.used.get(&offset) else { return Freed::Kept };
        if used == Use::Private {
            return Freed::Private { offset, len_bytes };
        }
        self.release(offset, len_bytes)
    }

    /// After [`Freed::Private`]: its addresses have the shared pages again.
    pub fn mapped_again(&mut self, offset: u64) {
        if let Some(&(len_bytes, _)) = self.used.get(&offset) {
            self.release(offset, len_bytes);
        }
    }

    fn release(&mut self, offset: u64, len_bytes: u64) -> Freed {
        self.used.remove(&offset);
        let free = self.free.entry(len_bytes).or_default();
        if free.len() < KEPT {
            free.push(offset);
            return Freed::Kept;
        }
        // Behind those that have their memory.
        free.insert(0, offset);
        Freed::Surplus { offset, len_bytes }
    }
}

/// `None` if no arena is that long.
fn rounded(len_bytes: u64) -> Option<u64> {
    let pages = len_bytes.max(1).checked_add(PAGE - 1)? / PAGE;
    let step = (1 << (63 - pages.leading_zeros()).saturating_sub(2)).max(1);
    pages.checked_next_multiple_of(step)?.checked_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_by_a_quarter_at_most() {
        for len_bytes in (1..1 << 24).step_by(4093) {
            let rounded = rounded(len_bytes).unwrap();
            assert!(rounded >= len_bytes && rounded.is_multiple_of(PAGE));
            assert!(rounded <= len_bytes + len_bytes / 4 + PAGE, "{rounded} for {len_bytes}");
        }
        assert_eq!(rounded(u64::MAX), None);
    }

    #[test]
    fn no_two_overlap_and_what_is_free_is_used_again() {
        let mut extents = Extents::new(1, 100 * PAGE);
        let places: Vec<u64> = (0..9).map(|_| extents.allocate(3 * PAGE).unwrap()).collect();
        assert!(places.is_sorted_by(|one, other| one + 3 * PAGE <= *other) && places[0] == PAGE);
        assert_eq!(extents.free(places[4]), Freed::Kept);
        assert_eq!(extents.allocate(3 * PAGE), Some(places[4]));
        assert_eq!(extents.allocate(100 * PAGE), None);
    }

    #[test]
    fn private_ones_are_free_once_they_are_mapped_again() {
        let mut extents = Extents::new(0, 100 * PAGE);
        let place = extents.allocate(PAGE).unwrap();
        extents.lend(place);
        assert_eq!(extents.lent(), [(place, PAGE)]);
        extents.made_private(place);
        assert_eq!(extents.lent(), []);
        assert_eq!(extents.free(place), Freed::Private { offset: place, len_bytes: PAGE });
        assert_ne!(extents.allocate(PAGE), Some(place));
        extents.mapped_again(place);
        assert_eq!(extents.allocate(PAGE), Some(place));
    }

    #[test]
    fn of_many_free_ones_some_give_their_memory_back() {
        let mut extents = Extents::new(0, 1 << 30);
        let places: Vec<u64> = (0..KEPT + 5).map(|_| extents.allocate(PAGE).unwrap()).collect();
        let surplus = places.iter().filter(|&&place| extents.free(place) != Freed::Kept).count();
        assert_eq!(surplus, 5);
    }
}
