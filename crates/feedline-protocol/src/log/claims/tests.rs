use crate::log::{Committed, Log, Policy, Size};
use crate::message::Entry;

/// A log with one consumer at its start.
fn log(size: Size) -> Log {
    let mut log = Log::new(Policy::default());
    log.shape(size);
    log.begin_epoch(0);
    log.join(1, Entry::EpochStart).unwrap();
    log
}

fn of_samples(window: u64) -> Log {
    log(Size { capacity: window, window, ..Size::default() })
}

fn publishes(log: &mut Log, first: u64) -> bool {
    log.commit(first) == Committed::Published
}

#[test]
fn runs_are_published_in_order_whatever_the_order_in_which_they_are_filled() {
    let mut log = of_samples(10);
    let firsts: Vec<u64> = (0..3).map(|_| log.claim(2, 0).unwrap().first).collect();
    assert_eq!(firsts, [0, 2, 4]);
    assert!(!publishes(&mut log, 4));
    assert!(!publishes(&mut log, 2));
    assert_eq!((log.head(), log.is_filling()), (0, true));
    assert!(publishes(&mut log, 0));
    assert_eq!((log.head(), log.is_filling()), (6, false));
}

#[test]
fn a_run_is_committed_once() {
    let mut log = of_samples(10);
    log.claim(2, 0).unwrap();
    log.claim(2, 0).unwrap();
    assert!(!publishes(&mut log, 2));
    assert!(!publishes(&mut log, 2));
    assert!(!publishes(&mut log, 1), "no run begins there");
    assert!(publishes(&mut log, 0));
    assert!(!publishes(&mut log, 0));
    assert_eq!(log.head(), 4);
}

#[test]
fn what_is_being_filled_takes_room() {
    let mut log = of_samples(10);
    log.claim(6, 0).unwrap();
    assert!(log.claim(5, 0).is_none());
    assert_eq!(log.claim(4, 0).unwrap().first, 6);
    assert_eq!(log.in_the_way(1, 0)[0].wanted, 1);
}

#[test]
fn the_newest_run_is_given_back_as_if_it_had_never_been_claimed() {
    let mut log = of_samples(10);
    log.claim(2, 0).unwrap();
    log.claim(3, 0).unwrap();
    log.give_back(2);
    assert_eq!(log.claim(4, 0).unwrap().first, 2);
}

#[test]
fn nothing_is_published_behind_a_run_that_was_given_back() {
    let mut log = of_samples(20);
    for _ in 0..4 {
        log.claim(2, 0).unwrap();
    }
    assert!(!publishes(&mut log, 4), "filled before the run in front of it is given back");
    log.give_back(2);
    assert!(log.claim(1, 0).is_none(), "somebody still writes behind it");
    assert!(publishes(&mut log, 0), "what is before it is published");
    assert_eq!(log.head(), 2);
    assert_eq!(log.commit(6), Committed::Gone);
    assert_eq!((log.head(), log.is_filling()), (2, false));
    assert_eq!(log.claim(1, 0).unwrap().first, 2);
}

#[test]
fn the_earliest_of_several_that_are_given_back_counts() {
    let mut log = of_samples(20);
    for _ in 0..4 {
        log.claim(2, 0).unwrap();
    }
    log.give_back(6);
    log.give_back(2);
    assert!(log.claim(1, 0).is_none(), "the third is still being filled");
    log.give_back(4);
    assert_eq!(log.claim(1, 0).unwrap().first, 2);
    assert!(publishes(&mut log, 0));
    assert_eq!(log.head(), 2);
}

#[test]
fn the_byte_lane_goes_back_too() {
    let mut log = log(Size { capacity: 10, window: 10, byte_lane: 1024, byte_window: 1024 });
    assert_eq!(log.claim(1, 100).unwrap().byte_start, 0);
    assert_eq!(log.claim(1, 100).unwrap().byte_start, 128);
    assert_eq!(log.claim(1, 100).unwrap().byte_start, 256);
    assert!(publishes(&mut log, 0));
    assert_eq!((log.bytes_of(0..1), log.bytes_of(1..3)), (Some(0..128), Some(128..356)));
    log.give_back(1);
    log.give_back(2);
    assert_eq!((log.bytes_of(0..1), log.bytes_of(1..1)), (Some(0..100), None));
    assert_eq!(log.byte_start(1), None);
    assert_eq!(log.claim(1, 896).unwrap().byte_start, 128, "and so does the room");
}
