//! When there is room: for whoever reads, and, with nobody there, for whoever may come.

use super::tests::append;
use super::*;
use crate::message::Entry;

fn log(policy: Policy, size: Size) -> Log {
    let mut log = Log::new(policy);
    log.shape(size);
    log.begin_epoch(0);
    log
}

/// What is in the way of bytes is no more than the samples that stand there.
#[test]
fn bytes_are_wanted_one_sample_at_a_time() {
    let size = Size { capacity: 100, window: 100, byte_lane: 200, byte_window: 200 };
    let mut log = log(Policy::default(), size);
    log.join(1, Entry::EpochStart).expect("it begins there");
    for first in 0..3 {
        assert_eq!(log.claim(1, 64).map(|run| run.first), Some(first));
        log.commit(first);
    }
    let in_the_way = |wanted| [InTheWay { id: 1, released: 0, wanted }];
    assert_eq!(log.in_the_way(1, 64), in_the_way(1));
    assert_eq!(log.in_the_way(1, 128), in_the_way(2));
    assert_eq!(log.in_the_way(1, 200), in_the_way(3));
    assert_eq!(log.in_the_way(1, 8), []);
    assert_eq!(log.claim(1, 64), None);
    log.advance(1, 0, 1);
    assert_eq!(log.claim(1, 64).map(|run| run.byte_start), Some(192));
}

/// Epochs of four samples in a ring of four: those of the last one that was read are still there.
#[test]
fn with_nobody_there_the_epoch_that_was_read_last_is_completed() {
    let mut log = log(Policy::default(), Size { capacity: 4, window: 4, ..Size::default() });
    log.join(1, Entry::EpochStart).expect("it begins there");
    (0..4).for_each(|_| assert!(append(&mut log)));
    log.end_epoch();
    log.advance(1, 1, 4);
    log.begin_epoch(0);
    assert!(append(&mut log));
    assert_eq!(log.oldest(), 1, "the first epoch is being overwritten");
    log.leave(1);
    (0..3).for_each(|_| assert!(append(&mut log), "whoever comes begins with this epoch"));
    assert!(!append(&mut log), "and there is no room for more");
}

/// Nobody can begin with an epoch whose first samples are gone.
#[test]
fn with_nobody_there_an_epoch_that_is_not_whole_is_of_no_use() {
    let mut log = log(Policy::default(), Size { capacity: 4, window: 4, ..Size::default() });
    log.join(1, Entry::EpochStart).expect("it begins there");
    (0..4).for_each(|_| assert!(append(&mut log)));
    log.advance(1, 0, 2);
    assert!(append(&mut log));
    log.leave(1);
    assert!(!append(&mut log));
}

/// An epoch that is replayed is kept from its start, whichever pass over it somebody was in.
#[test]
fn with_nobody_there_an_epoch_that_is_replayed_is_completed() {
    let mut log = log(Policy { replay: true, ..Policy::default() }, Size { capacity: 8, window: 4, ..Size::default() });
    log.join(1, Entry::EpochStart).expect("it begins there");
    assert!(append(&mut log) && append(&mut log));
    log.advance(1, 1, 2);
    log.leave(1);
    assert!(append(&mut log));
}
