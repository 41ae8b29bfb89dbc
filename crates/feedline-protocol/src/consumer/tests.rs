//! A consumer over pages that are plain numbers.

mod tails;
mod without_server;

use super::*;
use crate::fakes::Memory;
use crate::message::{Answer, EpochLength, Join, Others, Place};
use crate::page::{HeadPage, HeadView};

const NOW: Time = Time::new(Duration::ZERO);

fn config() -> Config {
    Config {
        batch_size: Some(4),
        shard: None,
        drop_last: false,
        entry: Entry::EpochStart,
        moves_on: false,
        epoch_timeout: Duration::from_secs(30),
    }
}

fn shape() -> Shape {
    Shape { generation: 0, is_cut: true, skips: false, replays: false, epochs: None, source_batch: 2 }
}

/// A consumer that was given this place, and what it sees.
fn joined(config: Config, shape: Shape, place: Place) -> (Consumer, Memory) {
    let (mut consumer, memory) = (Consumer::new(config, shape, NOW), Memory::default());
    let Ok(Next::Join(Join { number, .. })) = consumer.next(&memory) else { panic!("it asks for a place first") };
    consumer.handle_answer(Answer::Joined { number, place }, &memory, NOW).expect("a place that can be");
    (consumer, memory)
}

fn start() -> Place {
    Place { epoch: 0, sample: Some(0), had: 0, start: 0 }
}

fn take(consumer: &mut Consumer, memory: &Memory) -> Cut {
    match consumer.next(memory) {
        Ok(Next::Take(cut)) => {
            consumer.begin_take(cut, memory);
            consumer.took(cut, memory);
            cut
        }
        other => panic!("a batch was expected: {other:?}"),
    }
}

/// An epoch of eight samples that was read and finished before its end was known, under a server that waits for nobody.
fn finished_by_length() -> (Consumer, Memory) {
    let (mut consumer, memory) = joined(config(), Shape { skips: true, ..shape() }, start());
    memory.head.set_length(EpochLength { samples: 8, batches: 4, tail: 2 });
    memory.head.publish(8);
    take(&mut consumer, &memory);
    take(&mut consumer, &memory);
    assert!(!consumer.stop(&memory));
    assert_eq!(consumer.wanted_epoch(), 1);
    (consumer, memory)
}

/// What a consumer has done with is behind it once it has skipped: the rest of the epoch where it lands is its own.
#[test]
fn skipping_from_a_finished_epoch_leaves_nothing_out() {
    let (mut consumer, memory) = finished_by_length();
    (0..4).for_each(|epoch| memory.head.end_epoch(epoch, 8 * (epoch + 1)));
    memory.head.publish(40);
    memory.head.forget_before(36, 36);
    assert_eq!(take(&mut consumer, &memory), Cut { first: 36, until: 40, next: 40, is_last: false });
    assert_eq!(consumer.place(), Mark { epoch: 4, index: 8 });
    assert_eq!((consumer.skipped(), memory.skipped.get()), (28, 28));
    assert_eq!(consumer.take_notices(), [Notice::Skips(28)]);
}

/// Where epochs are short, their ends are forgotten before their samples are: an epoch whose end nobody knows is not over where
/// the consumer happens to stand.
#[test]
fn an_epoch_whose_end_was_forgotten_is_over_where_a_later_one_begins() {
    let (mut consumer, memory) = joined(config(), Shape { skips: true, ..shape() }, start());
    memory.head.publish(100);
    take(&mut consumer, &memory);
    // The first epoch has ten samples, those after it one each.
    (0..80).for_each(|epoch| memory.head.end_epoch(epoch, 10 + epoch));
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    // The ends from the 17th epoch's on are known.
    assert_eq!(memory.first_known(), 17);
    assert_eq!(consumer.place(), Mark { epoch: 18, index: 0 });
    assert_eq!(memory.advanced.get(), Some((18, 27)));
    assert_eq!(consumer.skipped(), 23);
    consumer.wake(&memory);
    assert_eq!(take(&mut consumer, &memory), Cut { first: 27, until: 28, next: 28, is_last: false });
    assert_eq!(consumer.place(), Mark { epoch: 18, index: 1 });
}

/// What the server at which it had its place said of the others, and what the last one did.
#[test]
fn it_tells_the_next_server_of_all_the_others() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.set_joined(3);
    memory.head.set_slowest(0);
    assert_eq!(consumer.reconnect(shape(), 1, &memory, 0), Some(Mark { epoch: 0, index: 0 }));
    let told = |consumer: &mut Consumer| match consumer.next(&Memory::default()) {
        Ok(Next::Join(join)) => join.others,
        other => panic!("it asks for its place: {other:?}"),
    };
    let first = Some(Others { server: 1, count: 3, is_one: true, slowest: 0 });
    assert_eq!(told(&mut consumer), [first, None]);
    // The next one dies before it has given it a place.
    let next = Memory::default();
    next.head.set_joined(1);
    next.head.set_slowest(0);
    consumer.reconnect(shape(), 2, &next, 0);
    assert_eq!(told(&mut consumer), [first, Some(Others { server: 2, count: 1, is_one: false, slowest: 0 })]);
    next.head.set_joined(5);
    consumer.reconnect(shape(), 3, &next, 0);
    assert_eq!(told(&mut consumer), [first, Some(Others { server: 3, count: 5, is_one: false, slowest: 0 })]);
}

/// It had asked, and broke off before it was answered: what it knows of the others, it alone may know.
#[test]
fn one_that_breaks_off_while_it_asks_still_tells_of_the_others() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.set_joined(3);
    memory.head.set_slowest(0);
    let _ = consumer.reconnect(shape(), 1, &memory, 0);
    let next = Memory::default();
    let told = |consumer: &mut Consumer| match consumer.next(&Memory::default()) {
        Ok(Next::Join(join)) => join.others,
        other => panic!("it asks for a place: {other:?}"),
    };
    let first = Some(Others { server: 1, count: 3, is_one: true, slowest: 0 });
    assert_eq!(told(&mut consumer), [first, None]);
    assert!(consumer.leave());
    // The same server is not told again, which would count it twice. The next one is, whether or not it had asked in between.
    assert_eq!(told(&mut consumer), [None; 2]);
    assert!(consumer.leave());
    next.head.set_joined(2);
    let _ = consumer.reconnect(shape(), 2, &next, 0);
    let second = |server| Some(Others { server, count: 2, is_one: false, slowest: 0 });
    assert_eq!(told(&mut consumer), [first, second(2)]);
    assert!(consumer.leave());
    assert_eq!(told(&mut consumer), [None; 2]);
    let _ = consumer.reconnect(shape(), 3, &next, 0);
    assert_eq!(told(&mut consumer), [first, second(3)]);
}

/// A consumer that had asked and was not answered may have been counted, or not: its page tells.
#[test]
fn one_that_was_not_answered_knows_whether_it_was_counted() {
    for (counted, is_one) in [(0, false), (1, true), (2, false)] {
        let (mut consumer, memory) = (Consumer::new(config(), shape(), NOW), Memory::default());
        assert!(matches!(consumer.next(&memory), Ok(Next::Join(Join { number: 1, .. }))));
        memory.head.set_joined(2);
        memory.head.set_slowest(4);
        assert_eq!(consumer.reconnect(shape(), 1, &memory, counted), None);
        let Ok(Next::Join(join)) = consumer.next(&memory) else { panic!("it asks again") };
        assert_eq!(join.others, [Some(Others { server: 1, count: 2, is_one, slowest: 4 }), None]);
    }
}

fn next_join(consumer: &mut Consumer, memory: &Memory) -> Join {
    match consumer.next(memory) {
        Ok(Next::Join(join)) => join,
        other => panic!("it asks for a place: {other:?}"),
    }
}

fn answer(consumer: &mut Consumer, memory: &Memory, place: Place) {
    let number = consumer.joins();
    consumer.handle_answer(Answer::Joined { number, place }, memory, NOW).expect("a place that can be");
}

#[test]
fn an_epoch_from_its_first_batch_to_its_end() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    assert_eq!(memory.entered.get(), Some((1, 0, 0)));
    assert_eq!((consumer.joins(), consumer.is_joined(), consumer.is_joining()), (1, true, false));
    assert_eq!(consumer.next(&memory), Ok(Next::Wait));
    memory.head.publish(4);
    assert_eq!(take(&mut consumer, &memory), Cut { first: 0, until: 4, next: 4, is_last: false });
    assert_eq!(consumer.position(&memory), Mark { epoch: 0, index: 4 });
    assert!(consumer.is_inside(&memory));
    memory.head.publish(6);
    assert_eq!(consumer.next(&memory), Ok(Next::Wait), "two samples may be the tail, or not");
    memory.head.end_epoch(0, 6);
    assert_eq!(take(&mut consumer, &memory), Cut { first: 4, until: 6, next: 6, is_last: false });
    assert!(consumer.has_read_all(&memory) && !consumer.is_inside(&memory));
    assert_eq!(consumer.position(&memory), Mark { epoch: 1, index: 0 });
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    assert_eq!((consumer.epoch(), consumer.wanted_epoch(), consumer.last_steps()), (1, 1, Some(2)));
    assert!(memory.rests.get());
    assert_eq!(memory.advanced.get(), Some((1, 6)));
    assert!(!consumer.has_notices());
}

#[test]
fn how_many_batches_there_are() {
    let (consumer, memory) = joined(config(), shape(), start());
    assert_eq!(consumer.batches_per_epoch(&memory), None);
    memory.head.set_length(EpochLength { samples: 10, batches: 5, tail: 2 });
    assert_eq!(consumer.batches_per_epoch(&memory), Some(3));
    let (whole, _) = joined(config(), Shape { is_cut: false, ..shape() }, start());
    assert_eq!(whole.batches_per_epoch(&memory), Some(5));
}

#[test]
fn a_head_that_can_not_be_is_refused() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(crate::message::FAR);
    assert_eq!(consumer.next(&memory), Err(Trouble::ImpossibleHead(crate::message::FAR)));
    let mut consumer = Consumer::new(config(), shape(), NOW);
    let number = next_join(&mut consumer, &memory).number;
    let place = Place { start: crate::message::FAR, ..start() };
    assert_eq!(consumer.handle_answer(Answer::Joined { number, place }, &memory, NOW), Err(Trouble::ImpossiblePlace));
}

#[test]
fn a_ring_that_is_not_here_yet_is_waited_for() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(4);
    memory.head.set_generation(1);
    assert_eq!(consumer.next(&memory), Ok(Next::AwaitRing));
    consumer.adopt(Shape { generation: 1, ..shape() });
    assert_eq!(consumer.shape().generation, 1);
    take(&mut consumer, &memory);
}

#[test]
fn an_epoch_that_was_broken_off_comes_again_and_that_is_said_once() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(12);
    for told in [vec![Notice::ReadsAgain(0)], vec![]] {
        take(&mut consumer, &memory);
        take(&mut consumer, &memory);
        assert!(consumer.stop(&memory), "the server is to be told");
        assert!(!consumer.is_joined());
        assert_eq!(next_join(&mut consumer, &memory).entry, Entry::EpochStart);
        answer(&mut consumer, &memory, start());
        assert_eq!(consumer.take_notices(), told);
    }
    take(&mut consumer, &memory);
    assert!(consumer.leave());
    assert!(!consumer.leave(), "it has no cursor");
    let mut consumer = Consumer::new(config(), shape(), NOW);
    assert!(!consumer.leave());
}

#[test]
fn a_look_at_one_batch_is_no_epoch_that_was_broken_off() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(12);
    take(&mut consumer, &memory);
    assert!(consumer.stop(&memory));
    next_join(&mut consumer, &memory);
    answer(&mut consumer, &memory, start());
    assert_eq!(consumer.take_notices(), []);
}

#[test]
fn a_loop_that_moves_on_asks_for_the_next_epoch() {
    let (mut consumer, memory) = joined(Config { moves_on: true, ..config() }, shape(), start());
    memory.head.publish(12);
    assert!(consumer.leave(), "it has begun nothing yet");
    assert_eq!(next_join(&mut consumer, &memory).entry, Entry::EpochStart);
    answer(&mut consumer, &memory, start());
    take(&mut consumer, &memory);
    assert!(consumer.stop(&memory));
    assert_eq!(consumer.place(), Mark { epoch: 1, index: 0 });
    assert_eq!(next_join(&mut consumer, &memory).entry, Entry::At { epoch: 1, index: 0 });
}

#[test]
fn a_saved_place_is_asked_for_by_its_number() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    assert!(consumer.resume_at(Mark { epoch: 2, index: 5 }));
    assert!(!consumer.is_inside(&memory), "it may go on in another order");
    let join = next_join(&mut consumer, &memory);
    assert_eq!((join.entry, join.number, consumer.epoch()), (Entry::At { epoch: 2, index: 5 }, 2, 2));
    assert_eq!(consumer.next(&memory), Ok(Next::AwaitAnswer));
    let old = Answer::Gone { number: 1, epoch: 2, until: None };
    assert_eq!(consumer.handle_answer(old, &memory, NOW), Ok(()));
    let gone = Answer::Gone { number: 2, epoch: 2, until: Some(7) };
    let lost = Lost { mark: Mark { epoch: 2, index: 5 }, until: Some(7), is_late_rank: false };
    assert_eq!(consumer.handle_answer(gone, &memory, NOW), Err(Trouble::Gone(lost)));
    // Nothing was read: it begins wherever it can.
    assert!(!consumer.resume_at(Mark { epoch: 0, index: 0 }));
    assert_eq!(next_join(&mut consumer, &memory).entry, Entry::First { else_newest: false });
    answer(&mut consumer, &memory, Place { epoch: 3, sample: None, ..start() });
    let told = [Notice::FirstEpochGone(3), Notice::WaitsForLaterEpoch { epoch: 3, running: 0 }];
    assert_eq!(consumer.take_notices(), told);
    assert!(!consumer.has_notices());
}

#[test]
fn a_place_at_an_epochs_end_is_the_next_ones_start() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    assert!(consumer.resume_at(Mark { epoch: 0, index: 8 }));
    next_join(&mut consumer, &memory);
    answer(&mut consumer, &memory, Place { epoch: 0, sample: Some(4), had: 4, start: 0 });
    assert_eq!(consumer.place(), Mark { epoch: 0, index: 8 });
    memory.head.publish(12);
    memory.head.end_epoch(0, 8);
    // What it had before is passed over, and so is the end.
    assert_eq!(take(&mut consumer, &memory), Cut { first: 8, until: 12, next: 12, is_last: false });
    assert_eq!(consumer.place(), Mark { epoch: 1, index: 4 });
}

#[test]
fn whoever_was_detached_in_the_middle_asks_for_its_place() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(12);
    take(&mut consumer, &memory);
    consumer.handle_answer(Answer::Detached { stalled_secs: 10.0 }, &memory, NOW).expect("no trouble yet");
    let join = next_join(&mut consumer, &memory);
    assert_eq!(join.entry, Entry::At { epoch: 0, index: 4 });
    let gone = Answer::Gone { number: join.number, epoch: 0, until: None };
    let lost = Some(Lost { mark: Mark { epoch: 0, index: 4 }, until: None, is_late_rank: false });
    assert_eq!(consumer.handle_answer(gone, &memory, NOW), Err(Trouble::Stalled { secs: 10.0, lost }));
    assert_eq!(consumer.lost_by_stalling(), None);
}

#[test]
fn whoever_was_detached_while_it_rested_joins_anew() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(4);
    memory.head.end_epoch(0, 4);
    take(&mut consumer, &memory);
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    memory.was_cut_off.set(true);
    consumer.wake(&memory);
    assert_eq!(next_join(&mut consumer, &memory).entry, Entry::EpochStart);
    assert_eq!(consumer.lost_by_stalling(), None, "it lost nothing");
}

/// Its epoch was abandoned after it had been detached, and the word of that is still on its way.
#[test]
fn where_an_epoch_was_abandoned_is_not_its_end() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(4);
    take(&mut consumer, &memory);
    memory.head.abandon_epoch(0, 4);
    assert_eq!(consumer.position(&memory), Mark { epoch: 0, index: 4 });
    assert!(consumer.is_inside(&memory));
    memory.head.set_length(EpochLength { samples: 2, batches: 1, tail: 2 });
    assert!(!consumer.has_read_all(&memory), "that is another epoch's length");
    assert_eq!(consumer.next(&memory), Ok(Next::Wait), "the server's word will come");
    assert_eq!((memory.start_of(1), memory.end_of(0)), (4, crate::page::ABANDONED));
}

#[test]
fn what_is_lost_with_the_feed_is_told_once() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(12);
    take(&mut consumer, &memory);
    memory.was_cut_off.set(true);
    consumer.wake(&memory);
    // The server's word of it comes later.
    consumer.handle_answer(Answer::Detached { stalled_secs: 10.0 }, &memory, NOW).expect("no trouble yet");
    assert_eq!(consumer.lost_by_stalling(), Some(Trouble::Stalled { secs: 10.0, lost: None }));
    assert_eq!(consumer.lost_by_stalling(), None);
}

#[test]
fn passes_over_an_epoch_that_is_replayed_are_counted_by_the_consumer() {
    let shape = Shape { replays: true, epochs: Some(2), ..shape() };
    let (mut consumer, memory) = joined(config(), shape, start());
    memory.head.publish(4);
    memory.head.end_epoch(0, 4);
    take(&mut consumer, &memory);
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    assert_eq!((consumer.epoch(), consumer.lead()), (1, 4));
    assert_eq!(memory.advanced.get(), Some((1, 4)));
    assert_eq!(take(&mut consumer, &memory), Cut { first: 0, until: 4, next: 4, is_last: false });
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    assert_eq!(consumer.next(&memory), Ok(Next::Ended));
}

#[test]
fn a_wait_for_an_epoch_is_told_and_has_an_end() {
    let (mut consumer, memory) = joined(config(), shape(), Place { epoch: 1, sample: None, ..start() });
    assert_eq!(consumer.next(&memory), Ok(Next::Wait));
    let checks = (0..=80).map(|half| consumer.check_epoch(&memory, Time::new(Duration::from_millis(500 * half))));
    let troubles: Vec<_> = checks.collect::<Vec<_>>().into_iter().filter_map(Result::err).collect();
    let waiting = Waiting { epoch: 1, running: 0, at: 0, length: None };
    assert_eq!(troubles.first(), Some(&Trouble::NoEndInSight(waiting)));
    assert!(consumer.has_notices());
    assert_eq!(consumer.take_notices(), [Notice::WaitsForEpoch(waiting)]);
    assert!(!consumer.has_notices());
    memory.head.end_epoch(0, 3);
    assert_eq!(consumer.next(&memory), Ok(Next::Wait));
    assert_eq!(consumer.place(), Mark { epoch: 1, index: 0 });
    assert_eq!(consumer.check_epoch(&memory, Time::new(Duration::from_secs(3600))), Ok(()), "it has begun");
}

#[test]
fn ranks_ask_for_the_batches_of_all_of_them() {
    let shard = Some(Shard { group: 7, world: 3, rank: 1 });
    let mut consumer = Consumer::new(Config { shard, ..config() }, shape(), NOW);
    assert_eq!(next_join(&mut consumer, &Memory::default()).batch_size, Some(12));
    assert_eq!(Config { batch_size: None, shard, ..config() }.step_size(), None);
}

/// Whoever leaves while its join is on its way keeps its epoch, and nothing else.
#[test]
fn a_join_that_is_withdrawn_leaves_the_epoch() {
    let (mut consumer, memory) = (Consumer::new(config(), shape(), NOW), Memory::default());
    assert!(!consumer.resume_at(Mark { epoch: 3, index: 5 }));
    next_join(&mut consumer, &memory);
    assert!(consumer.leave());
    assert_eq!(consumer.place(), Mark { epoch: 3, index: 0 });
    assert_eq!(next_join(&mut consumer, &memory).entry, Entry::EpochStart);
}

/// Ranks of two over batches that can't be cut.
fn whole_rank() -> (Consumer, Memory) {
    let shard = Some(Shard { group: 7, world: 2, rank: 1 });
    let config = Config { batch_size: None, shard, ..config() };
    joined(config, Shape { is_cut: false, source_batch: 1, ..shape() }, start())
}

#[test]
fn batches_that_are_too_few_for_all_ranks_are_left_out_and_counted() {
    let (mut consumer, memory) = whole_rank();
    memory.head.publish(3);
    memory.head.end_epoch(0, 3);
    assert_eq!(take(&mut consumer, &memory), Cut { first: 1, until: 2, next: 2, is_last: true });
    assert_eq!(consumer.position(&memory), Mark { epoch: 1, index: 0 });
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    memory.head.publish(6);
    memory.head.end_epoch(1, 6);
    take(&mut consumer, &memory);
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
    assert_eq!(consumer.left_out(), 2);
    assert_eq!(consumer.take_notices(), [Notice::LeftOut { batches: 1, epoch: 0 }]);
    memory.head.end_epoch(2, 7);
    memory.head.publish(7);
    assert_eq!(consumer.next(&memory), Err(Trouble::TooFew { epoch: 2, samples: 1 }));
}

#[test]
fn a_rank_goes_on_in_its_very_place() {
    let (mut consumer, memory) = whole_rank();
    memory.head.publish(8);
    take(&mut consumer, &memory);
    consumer.handle_answer(Answer::Detached { stalled_secs: 1.0 }, &memory, NOW).expect("no trouble yet");
    let join = next_join(&mut consumer, &memory);
    assert_eq!(join.entry, Entry::At { epoch: 0, index: 2 });
    assert!(join.rank.is_some_and(|rank| rank.is_rejoining));
    let (mut late, memory) = (Consumer::new(*consumer.config(), *consumer.shape(), NOW), Memory::default());
    let number = next_join(&mut late, &memory).number;
    let lost = Lost { mark: Mark { epoch: 4, index: 0 }, until: None, is_late_rank: true };
    let gone = Answer::Gone { number, epoch: 4, until: None };
    assert_eq!(late.handle_answer(gone, &memory, NOW), Err(Trouble::Gone(lost)));
}

#[test]
fn a_refusal_is_passed_on() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    let refused = consumer.handle_answer(Answer::Refused(Refusal::Whole), &memory, NOW);
    assert_eq!(refused, Err(Trouble::Refused(Refusal::Whole)));
}

/// A consumer that can't get at what is there must know whether it loses anything.
#[test]
fn what_is_left_in_the_log() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    assert!(!consumer.has_more(&memory));
    memory.head.publish(4);
    assert!(consumer.has_more(&memory));
    take(&mut consumer, &memory);
    memory.head.end_epoch(0, 4);
    assert!(!consumer.has_more(&memory));
    let (waiting, memory) = joined(config(), shape(), Place { epoch: 1, sample: None, had: 0, start: 0 });
    memory.head.publish(4);
    assert!(!waiting.has_more(&memory), "its epoch has not begun");
    memory.head.end_epoch(0, 4);
    assert!(!waiting.has_more(&memory));
    memory.head.publish(5);
    assert!(waiting.has_more(&memory));
    let (mut again, memory) = joined(config(), Shape { replays: true, epochs: Some(1), ..shape() }, start());
    memory.head.publish(4);
    memory.head.end_epoch(0, 4);
    assert!(again.has_more(&memory));
    take(&mut again, &memory);
    assert_eq!(again.next(&memory), Ok(Next::EpochOver));
    assert!(!again.has_more(&memory), "it has read it as often as it is read");
    assert!(!Consumer::new(config(), shape(), NOW).has_more(&memory), "it has no cursor");
}

/// The source yields more than it promised, and the consumer has stopped after what was promised.
#[test]
fn what_is_left_of_an_epoch_that_it_has_done_with_is_not_wanted() {
    for (replays, epochs) in [(false, None), (true, Some(1))] {
        let (mut consumer, memory) = joined(config(), Shape { replays, epochs, ..shape() }, start());
        memory.head.set_length(EpochLength { samples: 4, batches: 2, tail: 2 });
        memory.head.publish(4);
        take(&mut consumer, &memory);
        assert!(!consumer.stop(&memory));
        memory.head.publish(6);
        assert!(!consumer.has_more(&memory));
        memory.head.end_epoch(0, 6);
        assert!(!consumer.has_more(&memory));
        memory.head.publish(7);
        assert_eq!(consumer.has_more(&memory), !replays, "the next epoch has begun");
    }
}
