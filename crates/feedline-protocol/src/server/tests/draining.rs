//! All epochs are written, and the server waits until they are read.

use super::*;

/// The log knows no position after the end of an epoch that is read again and again; the consumer's page does.
#[test]
fn whoever_reads_an_epoch_again_does_not_stand_still() {
    let policy = Policy { replay: true, ..Policy::default() };
    let mut feed = Feed::new(Options { policy, ..options() }, 20);
    let page = feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    for (secs, sample) in [(1, 7), (9, 8), (17, 9)] {
        page.position.set(Some((1, sample)));
        assert!(!feed.server.is_read(3, &feed.head, at(secs)), "it has moved");
    }
    assert!(!feed.server.is_read(3, &feed.head, at(26)));
    assert!(feed.server.is_read(3, &feed.head, at(27)), "it stood still for as long as it may");
}

/// Nobody asks it to let go of what it keeps any more.
#[test]
fn whoever_keeps_a_batch_and_takes_others_does_not_stand_still() {
    let mut feed = Feed::new(options(), 20);
    let page = feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    page.position.set(Some((0, 1)));
    for (secs, cursor) in [(1, 2), (9, 3), (17, 4)] {
        page.cursor.set(cursor);
        assert!(!feed.server.is_read(1, &feed.head, at(secs)), "it has moved");
    }
    assert!(feed.server.is_read(1, &feed.head, at(27)), "it stood still for as long as it may");
}

/// It reads on when it wakes up, though the server has not waited for it.
#[test]
fn a_ring_goes_to_those_who_rest_when_all_is_written() {
    let mut feed = Feed::new(options(), 8);
    let page = feed.join(1, START, None, at(0));
    page.is_resting.set(true);
    feed.install(Size { capacity: 20, window: 12, ..Size::default() });
    assert_eq!(feed.server.deliver(), []);
    feed.server.drain(&feed.head);
    assert_eq!(feed.server.deliver(), [(1, Delivery::Ring)]);
    assert_eq!(feed.server.deliver(), []);
}
