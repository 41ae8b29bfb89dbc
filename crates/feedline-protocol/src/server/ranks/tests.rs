//! Rounds over a log, with processes that are only numbers.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::fakes::Pid as Watched;
use crate::log::{Policy, Size};
use proptest::prelude::*;

const TIMEOUT: Duration = Duration::from_secs(3600);

/// A process that is gone when its connection is.
#[derive(Clone)]
struct Pid(u32);

impl Process for Pid {
    fn pid(&self) -> u32 {
        self.0
    }

    fn is_dead(&self) -> bool {
        false
    }

    fn is_watched(&self) -> bool {
        false
    }
}

/// Each time another connection.
fn process(pid: u32) -> Peer<Pid> {
    thread_local!(static CONNECTIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let connection = CONNECTIONS.get();
    CONNECTIONS.set(connection + 1);
    Peer { connection, process: Pid(pid) }
}

/// The reading of a clock that stands still.
const NOW: Time = Time::new(Duration::ZERO);

fn rank(rank: u32) -> Rank {
    Rank { group: 7, world: 2, rank, is_rejoining: false }
}

fn log() -> Log {
    let mut log = Log::new(Policy::default());
    log.shape(Size { capacity: 20, window: 20, ..Size::default() });
    log.begin_epoch(0);
    log
}

fn fill(log: &mut Log) -> u64 {
    while let Some(run) = log.claim(1, 0) {
        log.commit(run.first);
    }
    log.head()
}

/// Those who are not consumers.
fn holders(log: &Log, made: u64) -> usize {
    (0..made).filter(|&number| log.cursor(FIRST_HOLDER - number).is_some()).count()
}

#[test]
fn the_second_rank_begins_where_the_first_did() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    let first = ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &process(1), NOW).ok().unwrap();
    log.advance(0, 0, 15);
    assert_eq!(fill(&mut log), 20, "the place is held");
    assert!(ranks.is_waiting(&log));
    assert_eq!(ranks.join(&mut log, 1, rank(1), Entry::EpochStart, &process(2), NOW).ok().unwrap(), first);
    assert!(!ranks.is_waiting(&log) && ranks.rounds.is_empty());
    log.advance(1, 0, 12);
    assert_eq!(fill(&mut log), 32, "and no longer");
}

#[test]
fn the_next_joins_belong_together_too() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    let one = process(1);
    let mut join = |log: &mut Log, id, number, peer: &Peer<Pid>| {
        log.leave(id);
        ranks.join(log, id, rank(number), Entry::EpochStart, peer, NOW).ok().unwrap().epoch
    };
    fill(&mut log);
    assert_eq!(join(&mut log, 0, 0, &one), 0);
    // It breaks off, and the epoch goes on for the other rank.
    assert_eq!(join(&mut log, 0, 0, &one), 0, "its beginning is still there");
    log.end_epoch();
    log.begin_epoch(0);
    assert_eq!(join(&mut log, 0, 0, &one), 0, "somebody is still there");
    let two = process(2);
    assert_eq!([0, 1, 2].map(|_| join(&mut log, 1, 1, &two)), [0, 0, 0]);
    assert!(ranks.rounds.is_empty());
}

#[test]
fn other_jobs_and_other_places_are_other_rounds() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    let at = Entry::At { epoch: 0, index: 5 };
    assert!(ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &process(1), NOW).is_ok());
    assert!(ranks.join(&mut log, 1, Rank { group: 8, ..rank(1) }, Entry::EpochStart, &process(2), NOW).is_ok());
    assert!(ranks.join(&mut log, 2, Rank { world: 3, ..rank(1) }, Entry::EpochStart, &process(3), NOW).is_ok());
    assert!(ranks.join(&mut log, 3, rank(1), at, &process(4), NOW).is_ok());
    assert_eq!(ranks.rounds.len(), 4);
    log.advance(3, 0, 9);
    assert_eq!(ranks.join(&mut log, 4, rank(0), at, &process(5), NOW).ok().unwrap().sample, Some(5));
    assert_eq!(ranks.rounds.len(), 3);
}

#[test]
fn whoever_comes_when_nobody_waits_any_more_finds_the_place_or_that_it_is_gone() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    assert!(ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &process(1), NOW).is_ok());
    ranks.expire(&mut log, Duration::ZERO, NOW, &mut Vec::new());
    assert!(!ranks.is_waiting(&log));
    log.advance(0, 0, 15);
    fill(&mut log);
    let late = ranks.join(&mut log, 1, rank(1), Entry::EpochStart, &process(2), NOW).err().unwrap();
    assert_eq!((late.epoch, late.until), (0, Some(15)));
    assert!(ranks.rounds.is_empty(), "its next join belongs to another round");
}

#[test]
fn a_place_in_an_epoch_to_come_is_held_however_long_that_takes() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    assert!(log.join(9, Entry::EpochStart).is_ok());
    fill(&mut log);
    log.advance(9, 0, 10);
    fill(&mut log);
    let place = ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &process(1), NOW).ok().unwrap();
    assert_eq!((place.epoch, place.sample), (1, None));
    ranks.expire(&mut log, Duration::ZERO, NOW, &mut Vec::new());
    log.end_epoch();
    log.begin_epoch(0);
    log.advance(9, 1, 30);
    ranks.expire(&mut log, TIMEOUT, NOW, &mut Vec::new());
    fill(&mut log);
    let beside = ranks.join(&mut log, 1, rank(1), Entry::EpochStart, &process(2), NOW).ok().unwrap();
    assert_eq!((beside.epoch, beside.sample, beside.start), (1, Some(30), 30));
}

#[test]
fn a_job_started_again_is_not_paired_with_its_former_self() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    let dead = process(1);
    assert!(ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &dead, NOW).is_ok());
    log.leave(0);
    ranks.disconnected(&mut log, &dead);
    assert!(ranks.rounds.is_empty() && log.floor().is_none());
    assert!(ranks.join(&mut log, 1, rank(1), Entry::EpochStart, &process(2), NOW).is_ok());
    assert_eq!(ranks.rounds.len(), 1);
}

/// Rank 0 has read epoch 0, is in the next one, and ends; rank 1 has not come. `gone` samples of epoch 0 are overwritten.
fn half_read(gone: u64) -> (Log, Ranks<Watched>) {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    let peer = Peer { connection: 0, process: Watched(1, Rc::default()) };
    assert!(ranks.join(&mut log, 0, rank(0), Entry::EpochStart, &peer, NOW).is_ok());
    log.end_epoch();
    log.begin_epoch(0);
    log.advance(0, 1, 20);
    ranks.leaves(0, 1);
    if gone > 0 {
        ranks.expire(&mut log, Duration::ZERO, NOW, &mut Vec::new());
        log.claim(gone, 0).expect("there is room");
    }
    log.leave(0);
    peer.process.1.set(true);
    assert!(!ranks.reap(&mut log), "its part was read");
    (log, ranks)
}

fn start(ranks: &mut Ranks<Watched>, log: &mut Log, number: u32) -> Result<Place, TooLate> {
    let id = u64::from(number) + 10;
    let peer = Peer { connection: id, process: Watched(number + 10, Rc::default()) };
    ranks.join(log, id, rank(number), Entry::EpochStart, &peer, NOW)
}

#[test]
fn a_late_rank_and_all_of_its_start_find_a_round_that_was_half_read() {
    let (mut log, mut ranks) = half_read(0);
    let late = start(&mut ranks, &mut log, 1).ok().unwrap();
    assert_eq!((late.epoch, late.sample), (0, Some(0)));
    assert!(ranks.is_waiting(&log), "the others of its start may come");
    log.advance(11, 0, 15);
    assert_eq!(start(&mut ranks, &mut log, 0).ok().unwrap(), late);
    assert!(ranks.rounds.is_empty() && !ranks.is_waiting(&log));
}

#[test]
fn a_rank_that_comes_again_ends_the_rounds_of_its_former_start() {
    let (mut log, mut ranks) = half_read(0);
    let place = start(&mut ranks, &mut log, 0).ok().unwrap();
    assert_eq!(ranks.rounds.len(), 1, "its own");
    assert_eq!(start(&mut ranks, &mut log, 1).ok().unwrap(), place);
    assert!(ranks.rounds.is_empty() && !ranks.is_waiting(&log));
}

#[test]
fn a_join_that_arrives_after_its_process_has_ended_is_part_of_no_round() {
    let (mut log, mut ranks) = (log(), Ranks::default());
    fill(&mut log);
    let place = start(&mut ranks, &mut log, 0).ok().unwrap();
    let ended = Peer { connection: 5, process: Watched(5, Rc::new(Cell::new(true))) };
    assert!(ranks.join(&mut log, 5, rank(1), Entry::EpochStart, &ended, NOW).is_ok());
    assert!(ranks.is_waiting(&log) && !ranks.reap(&mut log), "for the one that lives");
    assert_eq!(start(&mut ranks, &mut log, 1).ok().unwrap(), place);
    assert!(ranks.rounds.is_empty());
}

#[test]
fn a_half_read_round_whose_place_is_gone_is_no_bar() {
    let (mut log, mut ranks) = half_read(5);
    let place = start(&mut ranks, &mut log, 1).ok().unwrap();
    assert_eq!(place.epoch, 1);
    assert_eq!(start(&mut ranks, &mut log, 0).ok().unwrap().epoch, 1);
    assert!(ranks.rounds.is_empty());
}

proptest! {
    /// Whatever ranks say and whenever they die: as many cursors hold places as rounds say, few of one process, none at last.
    #[test]
    fn no_place_is_held_for_nobody(
        steps in prop::collection::vec((0_u32..6, 0_u64..2, 1_u32..4, 0_u32..4, 0_u8..10), 1..200),
    ) {
        let (mut log, mut ranks) = (log(), Ranks::default());
        let mut processes: Vec<Peer<Pid>> = (0..6).map(process).collect();
        for (pid, group, world, number, what) in steps {
            let peer = processes[pid as usize].clone();
            match what {
                0 => {
                    log.leave(pid.into());
                    ranks.disconnected(&mut log, &peer);
                    processes[pid as usize] = process(pid);
                }
                1 => log.leave(pid.into()),
                2 => { fill(&mut log); }
                3 => {
                    if log.can_begin_epoch() {
                        log.end_epoch();
                        log.begin_epoch(0);
                    }
                }
                4 => ranks.expire(&mut log, Duration::ZERO, NOW, &mut Vec::new()),
                _ => {
                    let rank = Rank { group, world, rank: number, is_rejoining: false };
                    if !rank.is_possible() {
                        continue;
                    }
                    log.leave(pid.into());
                    let entry = if what > 5 { Entry::EpochStart } else { Entry::At { epoch: group, index: 3 } };
                    let _ = ranks.join(&mut log, pid.into(), rank, entry, &peer, NOW);
                }
            }
            let held = ranks.rounds.iter().filter(|round| round.holder.is_some()).count();
            prop_assert_eq!(held, holders(&log, ranks.holders));
            for pid in 0..6 {
                prop_assert!(ranks.rounds.iter().filter(|round| round.pid == pid).count() <= MOST_OF_ONE);
            }
        }
        for peer in &processes {
            log.leave(peer.process.0.into());
            ranks.disconnected(&mut log, peer);
        }
        prop_assert!(ranks.rounds.is_empty() && log.floor().is_none());
    }
}
