//! Where all who are here have asked for a later place of an epoch, the log goes there.

use super::*;

const LONG: u64 = 1000;

fn place(epoch: u64, index: u64) -> Entry {
    Entry::At { epoch, index }
}

impl Feed {
    fn pass_over(&mut self, now: Time) -> Option<u64> {
        self.server.pass_over(LONG, &self.head, now)
    }

    /// A second before the rest.
    fn begin(&mut self) {
        assert_eq!(self.server.may_begin_epoch(&self.head, Time::default()), EpochStart::Now);
        self.server.begin_epoch(0, &self.head);
    }
}

/// They have waited for the server, and are here as soon as there is one; or they come back to one that others have left.
#[test]
fn those_who_come_together_have_a_moment_for_it() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.join(1, place(0, 900), None, Time::default());
    assert_eq!(feed.pass_over(Time::default()), None);
    feed.join(2, place(0, 800), None, Time::default());
    assert_eq!(feed.pass_over(at(1)), Some(800));
    feed.server.leave(1, &feed.head, at(1));
    feed.server.leave(2, &feed.head, at(1));
    feed.join(3, place(0, 950), None, at(5));
    assert_eq!(feed.pass_over(at(5)), None);
    feed.join(4, place(0, 920), None, at(5));
    assert_eq!(feed.pass_over(at(6)), Some(920));
}

#[test]
fn the_log_goes_to_the_first_place_that_anybody_asked_for() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.append_all(at(1));
    assert_eq!(feed.pass_over(at(1)), None, "nobody is here");
    feed.join(1, place(0, 900), None, at(1));
    feed.join(2, place(0, 800), None, at(1));
    assert_eq!(feed.pass_over(at(1)), Some(800));
    assert_eq!((feed.server.log().head(), feed.server.log().oldest()), (800, 800));
    assert_eq!(feed.head.head.get(), 800);
    assert_eq!(feed.pass_over(at(1)), None, "one of them needs what comes now");
    assert!(feed.append(at(1)));
    assert_eq!(feed.server.log().locate(800), Some((0, 800)), "samples keep their numbers");
    // The one that is further on doesn't hold up the other, and is not left behind.
    assert_eq!(feed.append_all(at(1)), 820);
}

/// A newcomer would take what there is of the epoch for whole.
#[test]
fn who_comes_later_gets_the_next_epoch_or_learns_what_is_gone() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.append_all(at(1));
    feed.join(1, place(0, 500), None, at(1));
    assert_eq!(feed.pass_over(at(1)), Some(500));
    feed.join(2, Entry::EpochStart, None, at(1));
    assert_eq!(feed.server.log().cursor(2), Some((1, None)));
    let page = feed.attach(3);
    let join = Join::new(1, None, place(0, 499));
    feed.server.join(3, join, &feed.head, || u64::MAX, at(1)).unwrap();
    let gone = Answer::Gone { number: 1, epoch: 0, until: None };
    assert_eq!(feed.server.deliver(), [(3, Delivery::Answer(gone))]);
    drop(page);
}

#[test]
fn one_that_reads_from_where_the_log_is_keeps_it_there() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.join(1, place(0, 500), None, at(1));
    feed.join(2, Entry::EpochStart, None, at(1));
    assert_eq!(feed.pass_over(at(1)), None);
}

/// It may be about to ask for an earlier place. The epoch goes on meanwhile, as it does without all this.
#[test]
fn one_that_is_here_and_has_not_asked_is_waited_for() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.join(1, place(0, 500), None, at(1));
    feed.attach(2);
    assert_eq!(feed.pass_over(at(1)), None);
    assert!(feed.append(at(1)));
    assert_eq!(feed.pass_over(at(10)), None);
    assert_eq!(feed.pass_over(at(11)), Some(500), "after the time that others are waited for");
}

#[test]
fn those_who_are_on_their_way_back_are_waited_for() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.join(1, place(0, 500), back(2, true, 0), at(1));
    assert_eq!(feed.pass_over(at(1)), None);
    feed.join(2, place(0, 400), back(2, true, 0), at(1));
    assert_eq!(feed.pass_over(at(1)), Some(400));
}

#[test]
fn nobody_goes_on_before_as_many_are_here_as_the_server_waits_for() {
    let mut feed = Feed::new(Options { wait_for: 2, ..options() }, 20);
    feed.begin();
    feed.join(1, place(0, 500), None, at(1));
    assert_eq!(feed.pass_over(at(1)), None);
    feed.join(2, place(0, 600), None, at(1));
    assert_eq!(feed.pass_over(at(1)), Some(500));
}

#[test]
fn never_beyond_the_epoch_nor_over_what_is_being_filled() {
    let mut feed = Feed::new(options(), 20);
    feed.begin();
    feed.join(1, place(0, 5 * LONG), None, at(1));
    let Claim::Granted(run) = feed.server.claim(1, 0, &feed.head, at(1)) else { panic!("there is room") };
    assert_eq!(feed.pass_over(at(1)), None);
    feed.server.commit(run.first, &feed.head);
    assert_eq!(feed.pass_over(at(1)), Some(LONG));
    assert_eq!(feed.pass_over(at(1)), None);
}

#[test]
fn not_where_others_count_too() {
    for policy in [Policy { replay: true, ..Policy::default() }, Policy { lag: Lag::Skip, ..Policy::default() }] {
        let mut feed = Feed::new(Options { policy, ..options() }, 20);
        feed.begin();
        feed.join(1, place(0, 500), None, at(1));
        assert_eq!(feed.pass_over(at(1)), None);
    }
}

#[test]
fn a_later_epoch_is_begun_at_the_place_too() {
    let mut feed = Feed::new(options(), 20);
    feed.epoch(20, at(1));
    feed.join(1, place(3, 700), None, at(1));
    assert_eq!(feed.server.may_begin_epoch(&feed.head, at(1)), EpochStart::Wait(Wait::Sleep));
    assert_eq!(feed.server.may_begin_epoch(&feed.head, at(2)), EpochStart::Now);
    assert_eq!(feed.server.begin_epoch(0, &feed.head).epoch, 3);
    assert_eq!(feed.pass_over(at(2)), Some(700));
    assert_eq!(feed.server.log().head(), 720);
    assert_eq!(feed.server.log().locate(720), Some((3, 700)));
}
