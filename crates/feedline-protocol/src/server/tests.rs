//! A server over pages that are plain numbers.

mod draining;
mod passing;
mod standing_still;

use super::*;
use crate::fakes::{Head, Page, Pid};
use crate::log::Committed;
use crate::log::Lag;
use crate::message::{Answer, Entry, Join, Others, UNKNOWN};

const STALL: Duration = Duration::from_secs(10);

fn at(secs: u64) -> Time {
    Time::new(Duration::from_secs(secs))
}

fn options() -> Options {
    Options { policy: Policy::default(), wait_for: 1, stall_timeout: STALL, resume: None }
}

/// A feed with a window of so many samples and a history of as many behind it.
struct Feed {
    server: Server<Page, Pid>,
    head: Head,
}

impl Feed {
    fn new(options: Options, window: u64) -> Self {
        let mut feed = Self { server: Server::new(options), head: Head::default() };
        let size = Size { capacity: 2 * window, window, ..Size::default() };
        feed.install(size);
        feed
    }

    fn install(&mut self, size: Size) {
        let generation = self.server.ring().map_or(0, |ring| ring.generation + 1);
        let ring =
            RingShape { generation, size, source_batch: 1, is_cut: true, is_placeholder: false, sample_bytes: 1 };
        self.server.install(ring, &self.head);
    }

    /// A consumer that has the feed's memory.
    fn attach(&mut self, id: u64) -> Page {
        let page = Page::default();
        self.server.attach(id, Page::clone(&page), Pid(id as u32, Default::default()), 0, at(0));
        page
    }

    fn join(&mut self, id: u64, entry: Entry, others: Option<Others>, now: Time) -> Page {
        let page = self.attach(id);
        let join = Join { others: [others, None], ..Join::new(1, None, entry) };
        self.server.join(id, join, &self.head, || u64::MAX, now).expect("it may join");
        self.server.admit(&self.head);
        page
    }

    /// Appends one sample. False if there is no room.
    fn append(&mut self, now: Time) -> bool {
        let claim = self.server.claim(1, 0, &self.head, now);
        let Claim::Granted(run) = claim else { return false };
        self.server.commit(run.first, &self.head) == Committed::Published
    }

    fn append_all(&mut self, now: Time) -> u64 {
        while self.append(now) {}
        self.server.log().head()
    }

    fn epoch(&mut self, samples: u64, now: Time) {
        assert_eq!(self.server.may_begin_epoch(&self.head, now), EpochStart::Now);
        let epoch = self.server.begin_epoch(0, &self.head).epoch;
        (0..samples).for_each(|_| assert!(self.append(now)));
        self.server.end_epoch(epoch, Default::default(), &self.head);
    }
}

const START: Entry = Entry::At { epoch: 0, index: 0 };

fn back(count: u32, is_one: bool, slowest: u64) -> Option<Others> {
    Some(Others { server: 1, count, is_one, slowest })
}

/// Whoever joins late in the history is the slowest at once, not only when something is written again.
#[test]
fn the_slowest_is_told_with_the_number_of_those_who_read() {
    let mut feed = Feed::new(options(), 20);
    let page = feed.join(1, START, None, at(0));
    feed.epoch(5, at(0));
    page.position.set(Some((1, 5)));
    feed.epoch(5, at(0));
    assert_eq!((feed.head.joined.get(), feed.head.slowest.get()), (1, 1));
    feed.join(2, START, None, at(0));
    assert_eq!((feed.head.joined.get(), feed.head.slowest.get()), (2, 0));
}

/// A newcomer is no substitute for one that is on its way back.
#[test]
fn newcomers_are_told_besides_those_who_come_back() {
    let mut feed = Feed::new(options(), 20);
    feed.join(1, START, back(2, true, 0), at(0));
    assert_eq!(feed.head.joined.get(), 2);
    feed.join(2, START, None, at(0));
    assert_eq!(feed.head.joined.get(), 3);
    feed.join(3, START, back(2, true, 0), at(0));
    assert_eq!(feed.head.joined.get(), 3);
}

/// Only those who surely were counted by the server that was lost stand for one of its consumers.
#[test]
fn whoever_was_not_counted_ends_no_wait() {
    let mut feed = Feed::new(options(), 20);
    feed.join(1, START, back(1, false, 0), at(0));
    assert!(feed.server.reconnecting.is_waiting(), "for the one that was counted");
    feed.join(2, START, back(1, true, 0), at(0));
    assert!(feed.server.reconnecting.is_waiting(), "it knows of nobody else, and tells nothing");
    feed.join(3, START, back(2, true, 0), at(0));
    feed.join(4, START, back(2, false, 0), at(0));
    assert!(feed.server.reconnecting.is_waiting());
    feed.join(5, START, back(2, true, 0), at(0));
    assert!(!feed.server.reconnecting.is_waiting());
}

/// Those who lost an earlier server, and never heard of the next one, are no substitute for one of its consumers.
#[test]
fn consumers_of_two_servers_that_were_lost_are_counted_apart() {
    let mut feed = Feed::new(options(), 20);
    let earlier = |is_one| back(2, is_one, 0).map(|others| Others { server: 2, ..others });
    feed.join(1, START, back(2, true, 0), at(0));
    feed.join(2, START, earlier(true), at(0));
    assert!(feed.server.reconnecting.is_waiting(), "for one of each");
    assert_eq!(feed.head.joined.get(), 4);
    feed.join(3, START, back(2, true, 0), at(0));
    assert!(feed.server.reconnecting.is_waiting());
    feed.join(4, START, earlier(true), at(0));
    assert!(!feed.server.reconnecting.is_waiting());
    assert_eq!(feed.head.joined.get(), 4);
}

/// The place of those on their way is held until the time is over.
#[test]
fn those_on_their_way_are_waited_for_once() {
    let mut feed = Feed::new(options(), 10);
    let page = feed.join(1, START, back(2, true, 0), at(0));
    feed.server.begin_epoch(0, &feed.head);
    assert_eq!(feed.append_all(at(0)), 10);
    page.position.set(Some((0, 10)));
    assert_eq!(feed.append_all(at(9)), 10, "the other one begins with the first sample");
    assert!(feed.append_all(at(10)) > 10);
    assert_eq!(feed.server.reconnecting.expected(), 0);
}

/// A consumer that reads while another waits for the next epoch to begin.
fn one_reads_and_one_waits() -> (Feed, Page, Page) {
    let mut feed = Feed::new(options(), 20);
    let reader = feed.join(1, Entry::EpochStart, None, at(0));
    feed.server.begin_epoch(0, &feed.head);
    let waiting = feed.join(2, Entry::At { epoch: 1, index: 0 }, None, at(0));
    waiting.is_waiting.set(true);
    feed.append_all(at(0));
    (feed, reader, waiting)
}

/// For the sake of a consumer that waits for its epoch, the log goes on as soon as there is just enough room.
#[test]
fn who_waits_for_an_epoch_is_not_kept_waiting_for_comfort() {
    let (mut feed, reader, _waiting) = one_reads_and_one_waits();
    assert_eq!(feed.server.log().head(), 20);
    reader.position.set(Some((0, 1)));
    reader.cursor.set(5);
    assert!(feed.append(at(1)), "one sample is free, and five would be comfortable");
    assert!(!feed.append(at(1)));
    assert_eq!(feed.head.wanted.get(), 2, "just enough for one more");
}

/// With nobody in want, the log waits until a quarter of the window is free.
#[test]
fn without_need_there_is_comfort() {
    let (mut feed, reader, waiting) = one_reads_and_one_waits();
    waiting.is_waiting.set(false);
    reader.cursor.set(20);
    reader.position.set(Some((0, 4)));
    assert!(!feed.append(at(1)));
    assert_eq!(feed.head.wanted.get(), 5);
    reader.position.set(Some((0, 5)));
    assert_eq!(feed.append_all(at(1)), 25);
}

fn detached(claim: Claim) -> Vec<Stalled> {
    if let Claim::Wait(Wait::Detach(stalled)) = claim { stalled } else { Vec::new() }
}

/// A consumer that rests holds up one that waits for its epoch for two seconds, and no longer.
#[test]
fn who_rests_does_not_hold_up_one_that_waits_for_an_epoch() {
    let (mut feed, reader, _waiting) = one_reads_and_one_waits();
    reader.is_resting.set(true);
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(1))), []);
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(2))), []);
    let stalled = detached(feed.server.claim(1, 0, &feed.head, at(3)));
    assert_eq!(stalled, [Stalled { id: 1, position: 0, is_resting: true }]);
    // It wakes up at the same moment.
    reader.wakes_up_first.set(true);
    assert!(!feed.server.detach(&stalled, true, &feed.head, at(3)));
    reader.wakes_up_first.set(false);
    assert!(feed.server.detach(&stalled, true, &feed.head, at(3)));
    assert_eq!(feed.server.take_notices().last(), Some(&Notice::Detached { pid: 1, is_resting: true }));
    assert_eq!(feed.server.deliver(), [(1, Delivery::Answer(Answer::Detached { stalled_secs: 10.0 }))]);
}

/// A consumer that was detached and joins again at the same place has only just come there.
#[test]
fn another_cursor_has_its_own_time() {
    let (mut feed, reader, _waiting) = one_reads_and_one_waits();
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(1))), []);
    let stalled = detached(feed.server.claim(1, 0, &feed.head, at(11)));
    assert!(feed.server.detach(&stalled, true, &feed.head, at(11)));
    reader.position.set(None);
    let join = Join::new(2, None, START);
    feed.server.join(1, join, &feed.head, || u64::MAX, at(11)).expect("it may join again");
    feed.server.admit(&feed.head);
    let claim = feed.server.claim(1, 0, &feed.head, at(12));
    assert_eq!(claim, Claim::Wait(Wait::Sleep));
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(21))), []);
    assert_eq!(detached(feed.server.claim(1, 0, &feed.head, at(22))), stalled);
}

#[test]
fn a_full_log_waits_for_those_who_fill_its_claims_and_then_for_its_consumers() {
    let mut feed = Feed::new(options(), 20);
    feed.join(1, Entry::EpochStart, None, at(0));
    feed.server.begin_epoch(0, &feed.head);
    let Claim::Granted(run) = feed.server.claim(20, 0, &feed.head, at(0)) else { panic!("there is room") };
    assert_eq!(feed.server.claim(1, 0, &feed.head, at(0)), Claim::Wait(Wait::ForSource));
    assert_eq!(feed.head.wanted.get(), UNKNOWN, "consumers can't help");
    feed.server.commit(run.first, &feed.head);
    assert_eq!(feed.server.claim(1, 0, &feed.head, at(0)), Claim::Wait(Wait::Sleep));
    assert_eq!(feed.head.wanted.get(), 5);
}

/// Somebody may still write where the next epoch would begin.
#[test]
fn an_epoch_waits_for_those_who_fill_claims_of_an_abandoned_one() {
    let mut feed = Feed::new(options(), 20);
    feed.server.begin_epoch(0, &feed.head);
    let Claim::Granted(run) = feed.server.claim(5, 0, &feed.head, at(0)) else { panic!("there is room") };
    feed.join(1, Entry::At { epoch: 1, index: 0 }, None, at(0));
    assert_eq!(feed.server.halted(&feed.head, at(0)), Ok(()), "another may come who needs this epoch");
    assert_eq!(feed.server.halted(&feed.head, at(1)), Err(Halt::Abandoned));
    assert_eq!(feed.server.may_begin_epoch(&feed.head, at(1)), EpochStart::Wait(Wait::ForSource));
    feed.server.give_back(run.first);
    assert_eq!(feed.server.may_begin_epoch(&feed.head, at(1)), EpochStart::Now);
}

#[test]
fn a_life_as_planned() {
    let (mut server, head) = (Server::<Page, Pid>::new(options()), Head::default());
    assert_eq!(server.phase(), Phase::Starting);
    assert!(server.ring().is_none() && server.members().is_empty());
    let mut feed = Feed { server, head };
    feed.install(Size { capacity: 10, window: 10, ..Size::default() });
    server = feed.server;
    assert_eq!((server.phase(), feed.head.generation.get()), (Phase::Running, 0));
    server.drain(&feed.head);
    assert_eq!((server.phase(), feed.head.state.get()), (Phase::Draining, FeedState::Ended));
    server.end();
    assert_eq!(server.phase(), Phase::Ended);
    assert!(!server.phase().is_broken());
    assert!(!server.break_off(true, &feed.head), "it is over");
    assert_eq!(feed.head.state.get(), FeedState::Ended);
}

#[test]
fn a_life_that_is_broken_off() {
    for (is_failure, phase, state) in
        [(true, Phase::Failed, FeedState::Failed), (false, Phase::Stopped, FeedState::Stopped)]
    {
        let mut feed = Feed::new(options(), 10);
        let page = feed.join(1, START, None, at(0));
        page.is_waiting.set(true);
        let wakes = feed.head.wakes.get();
        assert!(feed.server.break_off(is_failure, &feed.head));
        assert_eq!((feed.server.phase(), feed.head.state.get()), (phase, state));
        assert_eq!(feed.head.wakes.get(), wakes + 1);
        assert!(phase.is_broken() && !feed.server.break_off(!is_failure, &feed.head));
        assert!(feed.append(at(0)), "what has room is not asked for");
        assert_eq!(feed.server.halted(&feed.head, at(0)), Err(Halt::Stopped));
        assert_eq!(feed.server.may_begin_epoch(&feed.head, at(0)), EpochStart::Halted);
        feed.server.end();
        assert_eq!(feed.server.phase(), phase);
    }
}

#[test]
fn joins_that_no_consumer_sends() {
    let mut feed = Feed::new(options(), 10);
    let mut join = |id, join| feed.server.join(id, join, &feed.head, || u64::MAX, at(0));
    assert_eq!(join(1, Join::new(1, None, START)), Err(Violation::EarlyJoin));
    feed.join(1, START, None, at(0));
    let mut join = |id, join| feed.server.join(id, join, &feed.head, || u64::MAX, at(0));
    assert_eq!(join(1, Join::new(2, None, START)), Err(Violation::SecondJoin));
    let rank = Some(crate::message::Rank { group: 1, world: 2, rank: 0, is_rejoining: false });
    assert_eq!(join(1, Join { rank, ..Join::new(2, None, Entry::Newest) }), Err(Violation::ImpossibleRank));
    let rank = rank.map(|rank| crate::message::Rank { rank: 2, ..rank });
    assert_eq!(join(1, Join { rank, ..Join::new(2, None, START) }), Err(Violation::ImpossibleRank));
}

fn refusal(feed: &mut Feed, join: Join, free_bytes: u64) -> Option<Answer> {
    feed.attach(9);
    feed.server.join(9, join, &feed.head, || free_bytes, at(0)).expect("it may ask");
    match feed.server.deliver().pop() {
        Some((9, Delivery::Answer(answer))) => Some(answer),
        _ => None,
    }
}

#[test]
fn batches_that_do_not_fit_are_refused_or_make_room() {
    use crate::message::Refusal;
    let mut feed = Feed::new(options(), 10);
    assert_eq!(refusal(&mut feed, Join::new(1, Some(3), START), 0), None, "three of them fit");
    assert_eq!(feed.server.wanted_window(), 0);
    let too_large = Refusal::TooLarge { needed_bytes: 12, free_bytes: 11 };
    assert_eq!(refusal(&mut feed, Join::new(1, Some(4), START), 11), Some(Answer::Refused(too_large)));
    assert_eq!(refusal(&mut feed, Join::new(1, Some(4), START), 12), None);
    assert_eq!(feed.server.wanted_window(), 12);
    assert_eq!(feed.server.wanted_growth(1), Some(12));
    assert_eq!(feed.server.wanted_growth(1), None, "asked once for each wish");
    feed.head.length.set(crate::EpochLength { samples: 2, batches: 2, tail: 1 });
    assert_eq!(refusal(&mut feed, Join::new(1, Some(400), START), 0), None, "no batch has more than an epoch");
    let rank = Some(crate::message::Rank { group: 1, world: 5, rank: 0, is_rejoining: false });
    feed.head.length.set(crate::EpochLength::UNKNOWN);
    assert_eq!(refusal(&mut feed, Join { rank, ..Join::new(1, None, START) }, 20), None);
    assert_eq!(feed.server.wanted_window(), 20, "ranks look one step further ahead");
    let skip = Policy { lag: Lag::Skip, ..Policy::default() };
    let mut feed = Feed::new(Options { policy: skip, ..options() }, 10);
    let refused = Some(Answer::Refused(Refusal::RanksWithSkip));
    assert_eq!(refusal(&mut feed, Join { rank, ..Join::new(1, None, START) }, 20), refused);
}

#[test]
fn whole_batches_are_not_cut() {
    use crate::message::Refusal;
    let mut feed = Feed::new(options(), 10);
    let ring = RingShape { generation: 1, is_cut: false, ..*feed.server.ring().expect("there is one") };
    feed.server.install(ring, &feed.head);
    assert_eq!(refusal(&mut feed, Join::new(1, Some(2), START), 0), Some(Answer::Refused(Refusal::Whole)));
    assert_eq!(refusal(&mut feed, Join::new(1, None, START), 0), None);
}

#[test]
fn those_who_start_together_wait_for_each_other() {
    let mut feed = Feed::new(Options { wait_for: 2, ..options() }, 10);
    feed.join(1, Entry::EpochStart, None, at(0));
    assert!(!feed.server.members().has_begun() && feed.head.joined.get() == 0);
    assert!(feed.server.members().get(1).is_some_and(|member| member.is_joined() && !member.is_reading()));
    let counted =
        |feed: &Feed| [1, 2].map(|id| feed.server.members().get(id).map_or(0, |member| member.page.counted.get()));
    assert_eq!(counted(&feed), [0, 0]);
    feed.server.begin_epoch(0, &feed.head);
    feed.attach(2);
    feed.server.join(2, Join::new(1, Some(2), Entry::EpochStart), &feed.head, || u64::MAX, at(0)).expect("it may");
    let (deliveries, begins) = feed.server.admit(&feed.head);
    assert!(begins && feed.head.joined.get() == 2);
    assert_eq!(counted(&feed), [1, 1]);
    let place = crate::message::Place { epoch: 0, sample: Some(0), had: 0, start: 0 };
    let joined = Delivery::Answer(Answer::Joined { number: 1, place });
    assert_eq!(deliveries, [(1, joined.clone()), (2, joined)]);
    assert_eq!(feed.server.admit(&feed.head), (vec![], false));
    let told = [
        Notice::EpochBegan(0),
        Notice::Joined { pid: 1, epoch: 0, batch_size: None },
        Notice::Joined { pid: 2, epoch: 0, batch_size: Some(2) },
    ];
    assert!(feed.server.has_notices());
    assert_eq!(feed.server.take_notices(), told);
    assert!(!feed.server.has_notices());
}

#[test]
fn goings_are_told_by_how_they_happened() {
    let mut feed = Feed::new(options(), 10);
    let pages: Vec<_> = (1..=4).map(|id| feed.join(id, Entry::EpochStart, None, at(0))).collect();
    feed.server.take_notices();
    feed.server.leave(1, &feed.head, at(0));
    assert!(feed.server.members().get(1).is_some_and(|member| !member.is_joined()));
    assert_eq!(feed.head.joined.get(), 3);
    let pid = |id: u64| Pid(id as u32, Default::default());
    assert!(feed.server.disconnect(2, &pid(2), true, &feed.head, at(0)));
    pages[2].is_resting.set(true);
    assert!(feed.server.disconnect(3, &pid(3), false, &feed.head, at(0)));
    assert!(feed.server.disconnect(4, &pid(4), false, &feed.head, at(0)));
    assert!(!feed.server.disconnect(4, &pid(4), false, &feed.head, at(0)));
    let left = |pid| Notice::Left { pid };
    assert_eq!(feed.server.take_notices(), [left(1), left(2), left(3), Notice::Died { pid: 4 }]);
    assert_eq!((feed.head.joined.get(), feed.server.members().iter().count()), (0, 1));
    feed.server.expect(7, pid(7));
    assert_eq!(feed.server.members().expected().map(|(id, _)| id).collect::<Vec<_>>(), [7]);
    assert!(!feed.server.disconnect(7, &pid(7), false, &feed.head, at(0)));
    assert_eq!(feed.server.members().expected().count(), 0);
}

#[test]
fn an_epoch_of_another_length_than_announced_is_told() {
    let mut feed = Feed::new(options(), 10);
    feed.join(1, Entry::EpochStart, None, at(0));
    feed.head.length.set(crate::EpochLength { samples: 5, batches: 5, tail: 1 });
    feed.server.take_notices();
    for (samples, told) in [(5, None), (4, Some(Notice::EpochLength { epoch: 1, samples: 4, expected: 5 }))] {
        let epoch = feed.server.begin_epoch(0, &feed.head).epoch;
        feed.server.take_notices();
        let length = crate::EpochLength { samples, batches: samples, tail: 1 };
        feed.server.end_epoch(epoch, length, &feed.head);
        assert_eq!(feed.server.take_notices(), told.into_iter().collect::<Vec<_>>());
        assert_eq!(feed.head.length.get(), length);
    }
}

/// The decision ends the epoch: a consumer that comes a moment later must not be given a place in it.
#[test]
fn an_epoch_that_is_abandoned_is_over_at_once() {
    let mut feed = Feed::new(options(), 10);
    feed.join(1, Entry::EpochStart, None, at(0));
    feed.server.begin_epoch(0, &feed.head);
    assert!(feed.append(at(0)));
    let Claim::Granted(open) = feed.server.claim(1, 0, &feed.head, at(0)) else { panic!("there is room") };
    feed.server.leave(1, &feed.head, at(0));
    feed.join(2, Entry::At { epoch: 1, index: 0 }, None, at(0));
    feed.server.take_notices();
    assert_eq!(feed.server.halted(&feed.head, at(0)), Ok(()), "others may be on their way");
    assert_eq!(feed.server.halted(&feed.head, at(60)), Err(Halt::Abandoned));
    assert_eq!(feed.server.take_notices(), [Notice::EpochAbandoned(0)]);
    assert_eq!(feed.server.log().epoch(), 1);
    assert!(matches!(feed.server.may_begin_epoch(&feed.head, at(60)), EpochStart::Wait(_)), "somebody still writes");
    assert_eq!(feed.server.commit(open.first, &feed.head), Committed::Gone);
    assert_eq!(feed.server.may_begin_epoch(&feed.head, at(60)), EpochStart::Now);
    assert_eq!(feed.server.log().head(), 1);
}

#[test]
fn progress_tells_what_a_restart_would_need() {
    let mut feed = Feed::new(options(), 10);
    assert_eq!(feed.server.progress(at(0)), None);
    let page = feed.join(1, Entry::EpochStart, None, at(0));
    feed.epoch(5, at(0));
    page.position.set(Some((0, 3)));
    feed.server.begin_epoch(0, &feed.head);
    let mark = |epoch, index| Mark { epoch, index };
    let progress = Progress { head: mark(1, 0), oldest: mark(0, 0), needed: Some(mark(0, 3)) };
    assert_eq!(feed.server.progress(at(0)), Some(progress));
}
