//! All epochs are written, and the server waits until they are read.

use std::ops::RangeInclusive;

use super::*;

impl Feed {
    /// The server waits for its readers and looks ten times a second. Whether all epochs are read at the end of that time; before,
    /// they are not.
    fn is_read_after(&mut self, epochs: u64, secs: RangeInclusive<u64>) -> bool {
        let mut is_read = |tenths: u64| {
            let now = Time::new(Duration::from_millis(100 * tenths));
            self.server.is_read(epochs, &self.head, now)
        };
        let (first, last) = (10 * secs.start(), 10 * secs.end());
        (first..last).for_each(|tenths| assert!(!is_read(tenths), "too early, after {tenths} tenths of a second"));
        is_read(last)
    }
}

#[test]
fn a_feed_ends_when_all_have_read_it_or_stand_still() {
    let mut feed = Feed::new(options(), 10);
    let page = feed.join(1, Entry::EpochStart, None, at(0));
    feed.epoch(5, at(0));
    assert!(!feed.is_read_after(1, 1..=10));
    assert_eq!(feed.head.wanted.get(), 0);
    page.position.set(Some((0, 3)));
    assert!(!feed.is_read_after(1, 10..=19), "it has moved");
    assert!(feed.is_read_after(1, 19..=20), "it stood still for as long as it may");
    page.position.set(Some((0, 5)));
    assert!(feed.is_read_after(1, 21..=21), "it has had everything");
    assert!(feed.server.disconnect(1, &Pid::default(), false, &feed.head, at(21)));
    assert!(feed.is_read_after(1, 21..=21), "and so had the one that is gone");
    let mut feed = Feed::new(options(), 10);
    feed.join(1, Entry::EpochStart, None, at(0));
    feed.epoch(5, at(0));
    feed.server.disconnect(1, &Pid::default(), false, &feed.head, at(1));
    assert!(!feed.is_read_after(1, 5..=10), "a job that crashed may come again");
    assert!(feed.is_read_after(1, 10..=11));
}

/// The log knows no position after the end of an epoch that is read again and again; the consumer's page does.
#[test]
fn whoever_reads_an_epoch_again_does_not_stand_still() {
    let policy = Policy { replay: true, ..Policy::default() };
    let mut feed = Feed::new(Options { policy, ..options() }, 20);
    let page = feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    for (secs, sample) in [(1..=9, 7), (9..=17, 8), (17..=26, 9)] {
        page.position.set(Some((1, sample)));
        assert!(!feed.is_read_after(3, secs), "it has moved");
    }
    assert!(feed.is_read_after(3, 26..=27), "it stood still for as long as it may");
}

/// Nobody asks it to let go of what it keeps any more.
#[test]
fn whoever_keeps_a_batch_and_takes_others_does_not_stand_still() {
    let mut feed = Feed::new(options(), 20);
    let page = feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    page.position.set(Some((0, 1)));
    for (secs, cursor) in [(1..=9, 2), (9..=17, 3), (17..=26, 4)] {
        page.cursor.set(cursor);
        assert!(!feed.is_read_after(1, secs), "it has moved");
    }
    assert!(feed.is_read_after(1, 26..=27), "it stood still for as long as it may");
}

/// A server that was stopped for longer than a consumer may stand still has not heard yet what it said meanwhile.
#[test]
fn time_in_which_the_server_was_stopped_does_not_count() {
    let mut feed = Feed::new(options(), 20);
    feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    assert!(!feed.is_read_after(1, 1..=9));
    assert!(!feed.is_read_after(1, 100..=101), "it may have asked for another cursor");
    feed.server.leave(1, &feed.head, at(200));
    assert!(!feed.is_read_after(1, 200..=209));
    assert!(!feed.is_read_after(1, 300..=300), "its next join may be on the way");
    assert!(feed.server.disconnect(1, &Pid(1, Default::default()), true, &feed.head, at(400)));
    assert!(!feed.is_read_after(1, 400..=409));
    assert!(!feed.is_read_after(1, 500..=500), "another job may have come");
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
    let policy = Policy { replay: true, ..Policy::default() };
    let mut feed = Feed::new(Options { policy, ..options() }, 8);
    let page = feed.join(1, START, None, at(0));
    page.is_resting.set(true);
    feed.install(Size { capacity: 20, window: 12, ..Size::default() });
    assert_eq!(feed.server.deliver(), []);
    let epoch = feed.server.begin_epoch(0, &feed.head).epoch;
    assert_eq!(feed.server.deliver(), []);
    feed.server.end_epoch(epoch, Default::default(), &feed.head);
    assert_eq!(feed.server.deliver(), [(1, Delivery::Ring)], "the one epoch is written");
}

#[test]
fn whoever_attached_has_a_moment_to_ask() {
    let mut feed = Feed::new(options(), 10);
    feed.attach(1);
    let have_asked = |feed: &mut Feed, tenths: u64| {
        let now = Time::new(Duration::from_millis(100 * tenths));
        feed.server.have_asked(&feed.head, now)
    };
    assert!((0..10).all(|tenths| !have_asked(&mut feed, tenths)));
    assert!(have_asked(&mut feed, 10));
    feed.attach(2);
    assert!(!have_asked(&mut feed, 0));
    feed.server.join(1, Join::new(1, None, START), &feed.head, || 0, at(0)).expect("it may");
    feed.server.join(2, Join::new(1, None, START), &feed.head, || 0, at(0)).expect("it may");
    assert!(have_asked(&mut feed, 0));
    let mut feed = Feed::new(options(), 10);
    feed.attach(1);
    assert!([0, 9, 90, 98].iter().all(|&tenths| !have_asked(&mut feed, tenths)), "the server was stopped");
}
