//! Parts of a ring that several threads fill: never two the same byte.

use std::collections::HashSet;
use std::ops::Range;
use std::thread;

use feedline_shm::{Access, Claimable, HeadReader, HeadWriter, Hold, Layout, Mapping, RingWriter, Span, page_size};
use proptest::prelude::*;

fn claimable(layout: Layout, strides: &[u64]) -> Claimable {
    Claimable::new(RingWriter::create(layout).unwrap(), strides.to_vec())
}

/// A sample is one byte.
fn one_lane() -> Claimable {
    claimable(Layout::new([page_size()]).unwrap(), &[1])
}

fn samples(first: u64, count: u64) -> Span {
    Span { samples: first..first + count, bytes: 0..0 }
}

#[test]
fn threads_fill_their_slots_at_once_and_a_reader_sees_all() {
    const THREADS: u64 = 4;
    const RUN: u64 = 64;
    let mut ring = claimable(Layout::new([page_size(), 2 * page_size()]).unwrap(), &[8, 16]);
    // Across the ends of both lanes.
    let first = |thread: u64| page_size() / 8 - 100 + thread * RUN;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut slots = ring.claim(samples(first(thread), RUN)).expect("runs are apart");
            scope.spawn(move || {
                slots.bytes_mut(0).fill(thread as u8);
                slots.bytes_mut(1).fill(0x80 | thread as u8);
            });
        }
    });
    let mapping = Mapping::new(ring.memory(), ring.layout(), Access::Reader).unwrap();
    let head = HeadWriter::create().unwrap();
    let reader = HeadReader::accept(rustix::io::dup(&head).unwrap()).unwrap();
    for thread in 0..THREADS {
        for sample in 0..RUN {
            let at = u128::from(first(thread) + sample);
            let hold = Hold::Nobody(&reader);
            assert_eq!(mapping.read(0, at * 8, hold, 0), Some([thread as u8; 8]));
            assert_eq!(mapping.read(1, at * 16, hold, 0), Some([0x80 | thread as u8; 16]));
        }
    }
}

#[test]
fn what_is_claimed_can_be_claimed_again_once_it_is_free() {
    let mut ring = one_lane();
    let slots = ring.claim(samples(0, 100)).unwrap();
    assert!(ring.claim(samples(99, 1)).is_none());
    assert!(ring.claim(samples(page_size(), 1)).is_none(), "the same byte, a turn later");
    assert!(ring.claim(samples(100, 1)).is_some());
    assert!(ring.claim(samples(50, 0)).is_some(), "nothing is in nobody's way");
    ring.free(slots);
    assert!(ring.claim(samples(99, 1)).is_some());
    assert!(ring.claim(samples(100, 1)).is_none(), "what was dropped is never free again");
}

#[test]
fn a_claim_is_carried_over_to_another_ring() {
    let layout = |pages| Layout::new([pages * page_size(), page_size()]).unwrap();
    let (mut old, mut new) = (claimable(layout(1), &[2]), claimable(layout(4), &[2]));
    let mut slots = old.claim(Span { samples: 3000..3005, bytes: 77..80 }).unwrap();
    slots.write(0, 0, b"0123456789");
    slots.write(1, 0, b"abc");
    let mut carried = new.claim(slots.span().clone()).unwrap();
    carried.copy_from(&mut slots);
    assert_eq!(carried.bytes_mut(0), b"0123456789");
    assert_eq!(carried.bytes_mut(1), b"abc");
    assert!(old.has(&slots) && !old.has(&carried));
    new.free(slots);
    assert!(new.claim(carried.span().clone()).is_none(), "only the other ring's were let go of");
}

#[test]
#[should_panic(expected = "longer than its lane")]
fn more_samples_than_a_lane_holds_are_a_mistake() {
    one_lane().claim(samples(0, page_size() + 1));
}

#[test]
#[should_panic(expected = "longer than its lane")]
fn bytes_without_a_byte_lane_are_a_mistake() {
    one_lane().claim(Span { samples: 0..1, bytes: 0..1 });
}

#[test]
#[should_panic(expected = "at most one lane")]
fn a_ring_has_one_byte_lane_at_most() {
    claimable(Layout::new([page_size(), page_size(), page_size()]).unwrap(), &[8]);
}

proptest! {
    /// Byte by byte, in each lane: a claim is granted only if none of its bytes is another's.
    #[test]
    fn no_byte_is_in_two_claims(
        strides in prop::collection::vec(0_u64..50, 1..3),
        claims in prop::collection::vec((0_u64..2000, 0_u64..80, 0_u64..20_000, 0_u64..1000, any::<bool>()), 1..40),
    ) {
        let lanes = vec![page_size(); strides.len() + 1];
        let mut ring = claimable(Layout::new(lanes).unwrap(), &strides);
        let mut held: Vec<(HashSet<(usize, u64)>, _)> = Vec::new();
        for (first, count, start, len_bytes, drops) in claims {
            if drops && !held.is_empty() {
                let (_, slots) = held.swap_remove(first as usize % held.len());
                ring.free(slots);
            }
            let count = if strides.iter().all(|&stride| stride == 0) { 0 } else { count };
            let in_lane = |lane, bytes: Range<u64>| bytes.map(move |byte| (lane, byte % page_size()));
            let fixed = strides.iter().enumerate();
            let fixed = fixed.flat_map(|(lane, stride)| in_lane(lane, first * stride..(first + count) * stride));
            let bytes: HashSet<_> = fixed.chain(in_lane(strides.len(), start..start + len_bytes)).collect();
            let is_free = held.iter().all(|(others, _)| bytes.is_disjoint(others));
            if let Some(slots) = ring.claim(Span { samples: first..first + count, bytes: start..start + len_bytes }) {
                prop_assert!(is_free);
                held.push((bytes, slots));
            }
        }
    }
}
