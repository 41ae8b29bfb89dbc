//! The log against a ring that remembers what each slot holds.

use super::*;
use crate::message::{Entry, Place};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Claim(u64, u64),
    Commit(prop::sample::Index),
    GiveBack(prop::sample::Index),
    EndEpoch,
    Join(u64, Entry),
    Beside(u64, u64),
    Leave(u64),
    Read(u64, u64),
}

fn entry() -> impl Strategy<Value = Entry> {
    let at = (0_u64..4, 0_u64..60).prop_map(|(epoch, index)| Entry::At { epoch, index });
    let first = any::<bool>().prop_map(|else_newest| Entry::First { else_newest });
    prop_oneof![Just(Entry::EpochStart), Just(Entry::Newest), first, at]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_u64..9, 1_u64..900).prop_map(|(samples, bytes)| Step::Claim(samples, bytes)),
        4 => any::<prop::sample::Index>().prop_map(Step::Commit),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => Just(Step::EndEpoch),
        1 => (0_u64..4, entry()).prop_map(|(id, entry)| Step::Join(id, entry)),
        1 => (0_u64..4, 0_u64..4).prop_map(|(id, other)| Step::Beside(id, other)),
        1 => (0_u64..4).prop_map(Step::Leave),
        4 => (0_u64..4, 1_u64..9).prop_map(|(id, samples)| Step::Read(id, samples)),
    ]
}

/// A ring that remembers which sample each slot and byte holds, and who fills it.
struct Ring {
    slots: Vec<u64>,
    bytes: Vec<u64>,
    /// Runs that are being filled, with their lengths in bytes; as soon as they are claimed, their slots hold nothing.
    filling: Vec<(Run, u64)>,
}

const NOTHING: u64 = u64::MAX;

impl Ring {
    fn new(size: Size) -> Self {
        let of = |len: u64| vec![NOTHING; len as usize];
        Self { slots: of(size.capacity), bytes: of(size.byte_lane), filling: Vec::new() }
    }

    fn put(&mut self, (run, len_bytes): (Run, u64), is_filled: bool) {
        for sample in run.first..run.first + run.samples {
            let content = if is_filled { sample } else { NOTHING };
            let (slots, lane) = (self.slots.len(), self.bytes.len());
            self.slots[sample as usize % slots] = content;
            (run.byte_start..run.byte_start + len_bytes).for_each(|byte| self.bytes[byte as usize % lane] = content);
        }
    }

    fn claim(&mut self, run: Run, len_bytes: u64) -> Result<(), TestCaseError> {
        for (other, other_bytes) in &self.filling {
            let first = other.first.min(run.first);
            let last = (other.first + other.samples).max(run.first + run.samples);
            prop_assert!(last - first <= self.slots.len() as u64, "two claims share a slot");
            prop_assert!(other.first + other.samples <= run.first || run.first + run.samples <= other.first);
            let first = other.byte_start.min(run.byte_start);
            let last = (other.byte_start + other_bytes).max(run.byte_start + len_bytes);
            prop_assert!(last - first <= self.bytes.len() as u64, "two claims share a byte");
        }
        self.put((run, len_bytes), false);
        self.filling.push((run, len_bytes));
        Ok(())
    }
}

/// Runs the log against such a ring.
fn run(policy: Policy, size: Size, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let whole = size.byte_lane > 0;
    let mut log = Log::new(policy);
    log.shape(size);
    let mut ring = Ring::new(size);
    let mut readers: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    log.begin_epoch(0);
    for step in steps {
        match step {
            Step::Claim(samples, len) => {
                let (need, need_bytes) = if whole { (1, len) } else { (samples, 0) };
                let fastest = readers.values().flatten().max().copied();
                let is_full = policy.replay && log.claimed() + need > size.capacity;
                let Some(run) = (if is_full { None } else { log.claim(need, need_bytes) }) else { continue };
                ring.claim(run, need_bytes)?;
                if let Some(fastest) = fastest.filter(|_| policy.lag != Lag::History && !policy.replay) {
                    prop_assert!(fastest + size.capacity >= log.claimed());
                }
                if whole {
                    prop_assert_eq!(log.byte_start(run.first), Some(run.byte_start));
                    prop_assert_eq!(run.byte_start % ALIGN_BYTES, 0);
                }
            }
            Step::Commit(which) => {
                if ring.filling.is_empty() {
                    continue;
                }
                let claimed = ring.filling.remove(which.index(ring.filling.len()));
                ring.put(claimed, true);
                let before = log.head();
                let is_published = log.commit(claimed.0.first) == Committed::Published;
                prop_assert_eq!(is_published, log.head() > before);
                let is_published = |filling: &Run| filling.first < log.head();
                prop_assert!(!ring.filling.iter().any(|(run, _)| is_published(run)), "published before it is filled");
            }
            Step::GiveBack(which) => {
                if ring.filling.is_empty() {
                    continue;
                }
                let (run, _) = ring.filling.remove(which.index(ring.filling.len()));
                log.give_back(run.first);
                prop_assert!(log.head() <= run.first);
            }
            Step::EndEpoch => {
                if policy.replay || !log.can_begin_epoch() {
                    continue;
                }
                for claimed in std::mem::take(&mut ring.filling) {
                    ring.put(claimed, true);
                    log.commit(claimed.0.first);
                }
                prop_assert!(!log.is_filling());
                log.end_epoch();
                log.begin_epoch(0);
                for (&id, at) in &mut readers {
                    *at = at.or(log.cursor(id).and_then(|(_, released)| released));
                }
            }
            Step::Join(id, entry) => {
                log.leave(id);
                readers.remove(&id);
                let entrance = log.entrance();
                if let Ok(place) = log.join(id, entry) {
                    if entry == Entry::EpochStart {
                        prop_assert_eq!(entrance, place.sample.unwrap_or(log.head()));
                    }
                    prop_assert!(place.sample.is_none_or(|sample| sample >= log.oldest() && sample <= log.head()));
                    readers.insert(id, place.sample);
                }
            }
            Step::Beside(id, other) => {
                let there = readers.get(&other).copied();
                let place = log.join_beside(id, other);
                prop_assert_eq!(place.map(|place| place.sample), there);
                if let Some(at) = there {
                    readers.insert(id, at);
                }
            }
            Step::Leave(id) => {
                log.leave(id);
                readers.remove(&id);
            }
            Step::Read(id, samples) => {
                if let Some(Some(at)) = readers.get_mut(&id) {
                    *at = (*at + samples).min(log.head());
                    log.advance(id, log.epoch(), *at);
                }
            }
        }
        for at in readers.values().flatten() {
            let at = if policy.lag == Lag::Skip { (*at).max(log.oldest()) } else { *at };
            for sample in at..log.head() {
                prop_assert_eq!(ring.slots[sample as usize % ring.slots.len()], sample);
                if whole {
                    let byte = log.byte_start(sample).unwrap() as usize % ring.bytes.len();
                    prop_assert_eq!(ring.bytes[byte], sample);
                }
            }
        }
    }
    Ok(())
}

fn policy() -> impl Strategy<Value = Policy> {
    let lag = prop_oneof![Just(Lag::Block), Just(Lag::History), Just(Lag::Skip)];
    let ahead = prop_oneof![0_u64..4, Just(u64::MAX)];
    (lag, prop::bool::weighted(0.2), ahead).prop_map(|(lag, replay, epochs_ahead)| Policy { lag, replay, epochs_ahead })
}

proptest! {
    #[test]
    fn nothing_needed_is_overwritten(
        policy in policy(), steps in prop::collection::vec(step(), 1..300), window in 9_u64..40, history in 0_u64..40,
    ) {
        run(policy, Size { capacity: window + history, window, ..Size::default() }, steps)?;
    }

    #[test]
    fn nothing_needed_is_overwritten_in_bytes(
        lag in policy(), steps in prop::collection::vec(step(), 1..300), window in 9_u64..40, history in 0_u64..40,
        byte_window in (2_u64 << 10)..(4 << 10),
    ) {
        let policy = Policy { replay: false, ..lag };
        run(policy, Size { capacity: window + history, window, byte_lane: 4 << 10, byte_window }, steps)?;
    }
}

fn log(lag: Lag, window: u64, history: u64) -> Log {
    let mut log = Log::new(Policy { lag, ..Policy::default() });
    log.shape(Size { capacity: window + history, window, ..Size::default() });
    log.begin_epoch(0);
    log
}

/// Appends one by one, as far as it goes.
fn fill(log: &mut Log) -> u64 {
    while append(log) {}
    log.head()
}

/// Appends one, if there is room.
pub(super) fn append(log: &mut Log) -> bool {
    log.claim(1, 0).is_some_and(|run| log.commit(run.first) == Committed::Published)
}

#[test]
fn a_newcomer_gets_the_running_epoch_while_its_start_is_intact() {
    let mut log = log(Lag::Block, 10, 0);
    assert_eq!(log.join(1, Entry::EpochStart).unwrap().sample, Some(0));
    assert_eq!(fill(&mut log), 10);
    assert_eq!(log.join(2, Entry::EpochStart).unwrap().sample, Some(0));
    log.advance(1, 0, 5);
    assert!(log.claim(1, 0).is_none(), "full while one stands at 0");
    log.advance(2, 0, 5);
    assert!(append(&mut log));
    assert_eq!(log.join(3, Entry::EpochStart), Ok(Place { epoch: 1, sample: None, had: 0, start: 11 }));
    log.end_epoch();
    log.begin_epoch(0);
    assert_eq!(log.cursor(3), Some((1, Some(11))));
}

#[test]
fn a_late_joiner_reads_from_the_history_and_holds_up_nobody() {
    let mut log = log(Lag::Block, 10, 50);
    log.join(1, Entry::EpochStart).unwrap();
    assert_eq!(fill(&mut log), 10, "the window bounds those who began together");
    log.advance(1, 0, 10);
    assert_eq!(fill(&mut log), 20);
    log.join(2, Entry::EpochStart).unwrap();
    assert_eq!(log.cursor(2), Some((0, Some(0))));
    log.advance(1, 0, 40);
    log.advance(1, 0, 20);
    assert_eq!(fill(&mut log), 30, "the one in the history isn't waited for");
    log.advance(2, 0, 25);
    log.advance(1, 0, 30);
    assert_eq!(fill(&mut log), 35, "it has caught up, and counts like the others");
}

#[test]
fn one_that_reads_the_history_alone_does_not_use_it_up() {
    for lag in [Lag::Block, Lag::History] {
        let mut log = log(lag, 10, 50);
        log.join(1, Entry::EpochStart).unwrap();
        for released in [10, 20, 30, 40] {
            fill(&mut log);
            log.advance(1, 0, released);
        }
        assert_eq!(fill(&mut log), 50);
        log.join(2, Entry::EpochStart).unwrap();
        log.leave(1);
        for released in 0..=40 {
            log.advance(2, 0, released);
            assert_eq!(fill(&mut log), 50, "nobody needs more yet, at {released}");
        }
        log.join(3, Entry::At { epoch: 0, index: 0 }).expect("all of it is still there");
        log.leave(2);
        log.join(4, Entry::At { epoch: 1, index: 0 }).unwrap();
        assert_eq!(fill(&mut log), 60, "as far as the capacity allows, for one that waits for the next epoch");
    }
}

#[test]
fn with_history_the_slowest_may_be_the_whole_capacity_behind() {
    let mut log = log(Lag::History, 10, 50);
    log.join(1, Entry::EpochStart).unwrap();
    log.join(2, Entry::EpochStart).unwrap();
    assert_eq!(fill(&mut log), 10, "no further ahead of the fastest than the window");
    for released in [10, 20, 30, 40, 50] {
        log.advance(1, 0, released);
        assert_eq!(fill(&mut log), released + 10);
    }
    log.advance(1, 0, 60);
    assert_eq!(fill(&mut log), 60, "the slowest is the whole capacity behind");
    log.advance(2, 0, 1);
    assert_eq!(fill(&mut log), 61);
}

#[test]
fn with_skip_only_the_fastest_is_waited_for() {
    let mut log = log(Lag::Skip, 10, 5);
    log.join(1, Entry::EpochStart).unwrap();
    log.join(2, Entry::EpochStart).unwrap();
    assert_eq!(fill(&mut log), 10);
    log.advance(1, 0, 10);
    assert_eq!((log.fastest(), fill(&mut log)), (10, 20));
    assert_eq!(log.oldest(), 5, "the history is what is left for the slow");
    log.leave(1);
    assert_eq!(fill(&mut log), 20);
}

#[test]
fn one_that_comes_back_goes_on_or_learns_what_is_gone() {
    let mut log = log(Lag::Block, 10, 10);
    log.join(1, Entry::EpochStart).unwrap();
    for released in [10, 20, 30] {
        fill(&mut log);
        log.advance(1, 0, released);
    }
    assert_eq!(fill(&mut log), 40);
    let at = |epoch, index| Entry::At { epoch, index };
    assert_eq!(log.join(2, at(0, 25)), Ok(Place { epoch: 0, sample: Some(25), had: 0, start: 0 }));
    assert_eq!(log.join(3, at(0, 12)), Err(Gone { until: Some(20) }));
    assert_eq!(log.join(3, at(0, 45)), Ok(Place { epoch: 0, sample: Some(40), had: 5, start: 0 }));
    assert_eq!(log.join(4, at(3, 7)), Ok(Place { epoch: 3, sample: None, had: 7, start: 40 }));
    assert!(log.join(5, at(u64::MAX, u64::MAX)).is_ok());
    assert_eq!(log.join(6, Entry::EpochStart).map(|place| place.epoch), Ok(1));
    log.leave(5);
    log.leave(6);
    assert!(!log.is_abandoned());
    (1..4).for_each(|id| log.leave(id));
    assert!(log.is_abandoned() && log.is_wanted_by_number());
    log.abandon_epoch();
    assert!(log.jump());
    log.begin_epoch(0);
    assert_eq!(log.cursor(4), Some((3, Some(40))));
    assert_eq!(log.join(5, at(0, 39)), Err(Gone { until: None }), "an abandoned epoch has no end");
}

#[test]
fn nobody_comes_to_an_epoch_before_one_that_was_abandoned() {
    let mut log = log(Lag::Block, 20, 20);
    log.join(1, Entry::EpochStart).unwrap();
    fill(&mut log);
    log.end_epoch();
    log.begin_epoch(0);
    log.leave(1);
    log.join(2, Entry::At { epoch: 2, index: 0 }).unwrap();
    assert!(log.is_abandoned());
    log.abandon_epoch();
    log.begin_epoch(0);
    assert_eq!(log.cursor(2), Some((2, Some(20))));
    // All samples of epoch 0 are there, and what is there of epoch 1 would be taken for all of it.
    assert_eq!(log.join(3, Entry::At { epoch: 0, index: 0 }), Err(Gone { until: None }));
    assert_eq!(log.join(4, Entry::EpochStart).map(|place| place.epoch), Ok(2));
}

#[test]
fn one_that_has_read_nothing_yet_gets_the_first_epoch_or_what_a_newcomer_gets() {
    let first = |else_newest| Entry::First { else_newest };
    let mut log = log(Lag::Block, 10, 10);
    log.join(1, Entry::EpochStart).unwrap();
    fill(&mut log);
    log.advance(1, 0, 10);
    assert_eq!(fill(&mut log), 20);
    let start = Place { epoch: 0, sample: Some(0), had: 0, start: 0 };
    assert_eq!(log.join(2, first(false)), Ok(start));
    assert_eq!(log.join(2, first(true)), Ok(start));
    log.end_epoch();
    log.begin_epoch(0);
    log.advance(1, 1, 20);
    assert_eq!(log.join(2, first(false)), Ok(start), "an epoch that has ended, and is all there");
    log.leave(2);
    assert_eq!(fill(&mut log), 30);
    assert_eq!(log.join(2, Entry::At { epoch: 0, index: 0 }), Err(Gone { until: Some(10) }));
    let next = Place { epoch: 1, sample: Some(20), had: 0, start: 20 };
    assert_eq!(log.join(2, first(false)), Ok(next));
    assert_eq!(log.join(2, first(true)), Ok(Place { sample: Some(30), ..next }));
}

#[test]
fn a_log_goes_on_where_an_earlier_process_was() {
    let mut log = Log::new(Policy::default());
    log.resume(4, 100);
    log.shape(Size { capacity: 20, window: 20, ..Size::default() });
    log.begin_epoch(100);
    assert_eq!(fill(&mut log), 120, "with nobody there the window is filled");
    assert_eq!(log.locate(107), Some((4, 107)));
    let place = log.join(1, Entry::At { epoch: 4, index: 107 }).unwrap();
    assert_eq!(place, Place { epoch: 4, sample: Some(107), had: 0, start: 0 });
    assert_eq!(log.join(2, Entry::EpochStart).unwrap().epoch, 5);
    assert_eq!(log.join(3, Entry::At { epoch: 4, index: 99 }), Err(Gone { until: Some(100) }));
}

#[test]
fn with_nobody_there_the_log_fills_and_waits() {
    let mut log = log(Lag::History, 10, 7);
    assert_eq!(fill(&mut log), 10);
    log.join(1, Entry::EpochStart).unwrap();
    log.advance(1, 0, 10);
    assert_eq!(fill(&mut log), 20);
    log.leave(1);
    assert!(log.claim(2, 0).is_none(), "the epoch's start is gone: nobody could use more of it");
    assert_eq!(log.join(2, Entry::EpochStart).map(|place| (place.epoch, place.sample)), Ok((1, None)));
    assert!(log.is_abandoned());
}

#[test]
fn epochs_of_nothing_do_not_run_away() {
    let mut log = Log::new(Policy::default());
    log.join(1, Entry::EpochStart).unwrap();
    let mut begun = 0;
    while log.can_begin_epoch() {
        log.begin_epoch(0);
        log.end_epoch();
        begun += 1;
    }
    assert_eq!(begun, 3, "the first one's, and two more");
}

#[test]
fn nobody_can_ask_for_more_epochs_than_the_table_has_ends_for() {
    let mut log = Log::new(Policy { epochs_ahead: u64::MAX, ..Policy::default() });
    log.join(1, Entry::EpochStart).unwrap();
    for _ in 0..=MOST_EPOCHS_AHEAD {
        assert!(log.can_begin_epoch());
        log.begin_epoch(0);
        log.end_epoch();
    }
    assert!(!log.can_begin_epoch());
    assert_eq!(log.epochs_behind(), [(1, 0)]);
}
