//! Consumers that are slow, stand still, or need a larger ring.

use super::*;

/// One that is in the way moves now and then, while another starves.
#[test]
fn a_slow_consumer_is_named_once() {
    let mut feed = Feed::new(options(), 8);
    let slow = feed.join(1, Entry::EpochStart, None, at(0));
    let fast = feed.join(2, Entry::EpochStart, None, at(0));
    feed.server.begin_epoch(0, &feed.head);
    feed.append_all(at(0));
    fast.position.set(Some((0, 8)));
    fast.cursor.set(8);
    fast.is_waiting.set(true);
    feed.server.take_notices();
    let mut told = Vec::new();
    for tenth in 1..40 {
        let now = Time::new(Duration::from_millis(100 * tenth));
        while feed.append(now) {}
        told.extend(feed.server.take_notices().into_iter().map(|notice| (tenth, notice)));
    }
    assert_eq!(told, [(11, Notice::Lagging { pid: 1, behind: 8, by_epochs: false })]);
    slow.is_resting.set(true);
    assert_eq!(feed.server.take_notices(), []);
}

#[test]
fn whoever_the_ring_can_not_grow_for_is_told_once() {
    let mut feed = Feed::new(options(), 8);
    for (id, batch_size) in [(1, Some(8)), (2, Some(9))] {
        feed.attach(id);
        feed.server.join(id, Join::new(1, batch_size, START), &feed.head, || u64::MAX, at(0)).expect("it may");
    }
    feed.server.admit(&feed.head);
    feed.server.refuse_larger("no memory");
    let refused = Answer::Refused(crate::message::Refusal::NoRing("no memory".into()));
    assert_eq!(feed.server.deliver(), [(2, Delivery::Answer(refused.clone()))]);
    feed.server.refuse_larger("no memory");
    assert_eq!(feed.server.deliver(), []);
    feed.server.refuse(&[1], "no memory");
    assert_eq!(feed.server.deliver(), [(1, Delivery::Answer(refused))]);
}

/// It broke off while it waited, and never heard.
#[test]
fn whoever_was_refused_and_joins_again_is_told_again() {
    let mut feed = Feed::new(options(), 8);
    feed.attach(1);
    let join = |feed: &mut Feed, number| {
        feed.server.join(1, Join::new(number, Some(9), START), &feed.head, || u64::MAX, at(0)).expect("it may");
        feed.server.refuse_larger("no memory");
    };
    join(&mut feed, 1);
    feed.server.leave(1, &feed.head, at(0));
    join(&mut feed, 2);
    let refused = Answer::Refused(crate::message::Refusal::NoRing("no memory".into()));
    assert_eq!(feed.server.deliver(), [(1, Delivery::Answer(refused))]);
}

#[test]
fn a_ring_goes_to_those_who_read() {
    let mut feed = Feed::new(options(), 8);
    let pages: Vec<_> = (1..=3).map(|id| feed.join(id, START, None, at(0))).collect();
    feed.attach(4);
    feed.server.leave(3, &feed.head, at(0));
    pages[1].is_resting.set(true);
    assert_eq!(feed.server.deliver(), []);
    feed.install(Size { capacity: 20, window: 12, ..Size::default() });
    assert_eq!((feed.server.log().size().window, feed.head.generation.get()), (12, 1));
    assert_eq!(feed.server.deliver(), [(1, Delivery::Ring)]);
    pages[1].is_resting.set(false);
    assert_eq!(feed.server.deliver(), [(2, Delivery::Ring)]);
    feed.server.join(3, Join::new(2, None, START), &feed.head, || 0, at(0)).expect("it may");
    let (deliveries, _) = feed.server.admit(&feed.head);
    assert!(matches!(deliveries[..], [(3, Delivery::Ring), (3, Delivery::Answer(_))]));
}

#[test]
fn only_those_who_hold_something_need_a_ring_to_be_detached() {
    let mut feed = Feed::new(options(), 8);
    let page = feed.join(1, START, None, at(0));
    let stalled = [Stalled { id: 1, position: 0, is_resting: false }];
    assert!(feed.server.needs_ring_to_detach(&stalled), "it may be cutting a batch right now");
    page.is_resting.set(true);
    assert!(!feed.server.needs_ring_to_detach(&stalled));
    page.leases.set(1);
    assert!(feed.server.needs_ring_to_detach(&stalled));
    assert!(!feed.server.detach(&stalled, false, &feed.head, at(0)));
    assert!(!feed.server.needs_ring_to_detach(&[Stalled { id: 2, position: 0, is_resting: false }]));
}

/// Between the decision and the detaching, a ring is prepared: a consumer that has finished its epoch meanwhile stays.
#[test]
fn whoever_has_finished_an_epoch_meanwhile_is_not_detached() {
    let mut feed = Feed::new(options(), 8);
    let page = feed.join(1, START, None, at(0));
    feed.server.begin_epoch(0, &feed.head);
    let stalled = [Stalled { id: 1, position: 0, is_resting: false }];
    page.is_resting.set(true);
    assert!(!feed.server.detach(&stalled, true, &feed.head, at(0)));
    page.is_resting.set(false);
    assert!(feed.server.detach(&stalled, true, &feed.head, at(0)));
}

/// With `drop_last`, a consumer of the source's own batches takes a smaller one only when another follows it.
#[test]
fn who_waits_to_see_whether_a_batch_is_the_last_starves() {
    let mut feed = Feed::new(options(), 4);
    feed.server.members.source_batch = 2;
    let (resting, waiting) = (feed.join(1, START, None, at(0)), feed.join(2, START, None, at(0)));
    feed.server.begin_epoch(0, &feed.head);
    assert_eq!(feed.append_all(at(0)), 4);
    resting.position.set(Some((0, 0)));
    resting.is_resting.set(true);
    waiting.position.set(Some((0, 3)));
    waiting.cursor.set(3);
    waiting.is_waiting.set(true);
    assert_eq!(detached(feed.server.claim(2, 0, &feed.head, at(1))), []);
    let stalled = detached(feed.server.claim(2, 0, &feed.head, at(3)));
    assert_eq!(stalled, [Stalled { id: 1, position: 0, is_resting: true }]);
}

/// Two jobs evaluate for longer than the stall time. Whoever goes on second is not taken for one that stood still all the while.
#[test]
fn who_wakes_up_from_a_rest_has_just_moved() {
    let mut feed = Feed::new(options(), 4);
    let (first, second) = (feed.join(1, START, None, at(0)), feed.join(2, START, None, at(0)));
    feed.server.begin_epoch(0, &feed.head);
    assert_eq!(feed.append_all(at(0)), 4);
    for resting in [&first, &second] {
        resting.position.set(Some((0, 0)));
        resting.is_resting.set(true);
    }
    for secs in 1..=30 {
        assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(secs))), []);
    }
    first.is_resting.set(false);
    first.position.set(Some((0, 4)));
    first.cursor.set(4);
    first.is_waiting.set(true);
    second.is_resting.set(false);
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(31))), []);
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(39))), []);
    let stalled = detached(feed.server.claim(1, 0, &feed.head, at(40)));
    assert_eq!(stalled, [Stalled { id: 2, position: 0, is_resting: false }]);
}
