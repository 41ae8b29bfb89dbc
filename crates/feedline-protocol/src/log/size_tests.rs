//! Sizes, and what the log tells of itself.

use super::*;
use crate::message::Entry;

const SIZE: Size = Size { capacity: 30, window: 20, byte_lane: 300, byte_window: 200 };

#[test]
fn a_wider_window_keeps_its_history() {
    assert_eq!(SIZE.widened(25, 260), Size { capacity: 35, window: 25, byte_lane: 360, byte_window: 260 });
    assert_eq!(SIZE.widened(10, 100), SIZE, "it never shrinks");
}

#[test]
fn a_deeper_history_keeps_its_window() {
    assert_eq!(SIZE.deepened(15, 150), Size { capacity: 35, byte_lane: 350, ..SIZE });
    assert_eq!(SIZE.deepened(5, 50), SIZE, "it never shrinks");
    let cut = Size { byte_lane: 0, byte_window: 0, ..SIZE };
    assert_eq!(
        cut.deepened(15, 150),
        Size { capacity: 35, ..cut },
        "where samples have one length, there is no byte lane"
    );
}

#[test]
fn the_table_has_an_end_for_every_epoch_that_somebody_may_be_in() {
    assert_eq!(MOST_EPOCHS_AHEAD + 3, EPOCH_ENDS);
}

#[test]
fn bytes_begin_at_multiples_of_the_alignment() {
    let mut log = Log::new(Policy::default());
    log.shape(SIZE);
    assert_eq!(log.bytes_of(0..1), None);
    log.begin_epoch(0);
    log.join(1, Entry::EpochStart).expect("it begins there");
    for (bytes, start) in [(10, 0), (64, 64), (1, 128)] {
        let run = log.claim(1, bytes).expect("there is room");
        assert_eq!(run.byte_start, start);
        log.commit(run.first);
    }
    assert_eq!((log.byte_start(0), log.byte_start(2), log.byte_start(3)), (Some(0), Some(128), None));
    assert_eq!(log.bytes_of(0..3), Some(0..129));
}

#[test]
fn samples_are_found_in_their_epochs() {
    let mut log = Log::new(Policy::default());
    log.shape(Size { capacity: 20, window: 20, ..Size::default() });
    assert_eq!(log.locate(0), None);
    log.begin_epoch(0);
    log.join(1, Entry::EpochStart).expect("it begins there");
    let run = log.claim(5, 0).expect("there is room");
    log.commit(run.first);
    log.end_epoch();
    log.begin_epoch(0);
    let run = log.claim(3, 0).expect("there is room");
    assert_eq!((run.first, run.index), (5, 0));
    log.commit(run.first);
    assert_eq!((log.locate(4), log.locate(5), log.locate(8)), (Some((0, 4)), Some((1, 0)), Some((1, 3))));
    assert_eq!((log.floor(), log.fastest(), log.needed()), (Some(0), 0, Some((0, 0))));
    log.advance(1, 1, 6);
    assert_eq!((log.floor(), log.fastest(), log.needed()), (Some(6), 6, Some((1, 1))));
    assert_eq!((log.slowest_epoch(), log.epoch(), log.head(), log.oldest()), (1, 1, 8, 0));
    assert!(!log.another_waits(1));
    log.join(2, Entry::At { epoch: 2, index: 0 }).expect("it waits");
    assert!(log.another_waits(1) && !log.another_waits(2));
    log.leave(1);
    assert_eq!((log.floor(), log.fastest()), (Some(8), 8));
}
