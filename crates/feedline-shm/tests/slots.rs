//! Parts of a ring that several threads fill: never two the same byte.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use feedline_shm::{
    Access, Claimable, HeadReader, HeadWriter, Hold, Layout, Mapping, RingWriter, SlotRange, page_size,
};
use proptest::prelude::*;

fn claimable(layout: Layout) -> Arc<Claimable> {
    Arc::new(Claimable::new(RingWriter::create(layout).unwrap()))
}

fn one_lane() -> Arc<Claimable> {
    claimable(Layout::new([page_size()]).unwrap())
}

fn range(position: u128, len_bytes: usize) -> [SlotRange; 1] {
    [SlotRange { lane: 0, position, len_bytes }]
}

#[test]
fn threads_fill_their_slots_at_once_and_a_reader_sees_all() {
    const THREADS: u64 = 4;
    const RUN: u64 = 64;
    let ring = claimable(Layout::new([page_size(), 2 * page_size()]).unwrap());
    // Across the ends of both lanes.
    let first = |thread: u64| u128::from(page_size() / 8 - 100 + thread * RUN);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let lane = |lane, stride: u64| SlotRange {
                lane,
                position: first(thread) * u128::from(stride),
                len_bytes: (RUN * stride) as usize,
            };
            let mut slots = ring.claim([lane(0, 8), lane(1, 16)]).expect("runs are apart");
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
        for sample in 0..u128::from(RUN) {
            let at = first(thread) + sample;
            let hold = Hold::Nobody(&reader);
            assert_eq!(mapping.read(0, at * 8, hold, 0), Some([thread as u8; 8]));
            assert_eq!(mapping.read(1, at * 16, hold, 0), Some([0x80 | thread as u8; 16]));
        }
    }
}

#[test]
fn what_is_claimed_can_be_claimed_again_once_it_is_dropped() {
    let ring = one_lane();
    let slots = ring.claim(range(0, 100)).unwrap();
    assert!(ring.claim(range(99, 1)).is_none());
    assert!(ring.claim(range(u128::from(page_size()), 1)).is_none(), "the same byte, a turn later");
    assert!(ring.claim(range(100, 1)).is_some());
    assert!(ring.claim(range(50, 0)).is_some(), "nothing is in nobody's way");
    drop(slots);
    assert!(ring.claim(range(99, 1)).is_some());
}

#[test]
fn a_claim_is_carried_over_to_another_ring() {
    let (old, new) = (one_lane(), claimable(Layout::new([4 * page_size()]).unwrap()));
    let at = u128::from(page_size()) * 3 - 5;
    let mut before = old.claim(range(at, 10)).unwrap();
    before.write(0, 0, b"0123456789");
    let mut after = new.claim(before.ranges().to_vec()).unwrap();
    after.copy_from(&mut before);
    assert_eq!(after.bytes_mut(0), b"0123456789");
}

#[test]
#[should_panic(expected = "longer than its lane")]
fn a_range_that_is_longer_than_its_lane_is_a_mistake() {
    one_lane().claim(range(0, page_size() as usize + 1));
}

#[test]
#[should_panic(expected = "one range for each lane")]
fn two_ranges_of_a_lane_are_a_mistake() {
    one_lane().claim([range(0, 1), range(8, 1)].concat());
}

proptest! {
    /// Byte by byte: a claim is granted only if none of its bytes is another's.
    #[test]
    fn no_byte_is_in_two_claims(claims in prop::collection::vec((0_u128..20_000, 0_usize..1000, any::<bool>()), 1..40)) {
        let ring = one_lane();
        let lane_bytes = u128::from(page_size());
        let mut held: Vec<(HashSet<u128>, _)> = Vec::new();
        for (position, len_bytes, drops) in claims {
            if drops && !held.is_empty() {
                held.swap_remove(position as usize % held.len());
            }
            let bytes: HashSet<u128> = (position..position + len_bytes as u128).map(|byte| byte % lane_bytes).collect();
            let is_free = held.iter().all(|(others, _)| bytes.is_disjoint(others));
            if let Some(slots) = ring.claim(range(position, len_bytes)) {
                prop_assert!(is_free);
                held.push((bytes, slots));
            }
        }
    }
}
