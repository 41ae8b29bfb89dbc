//! The owner with workers that are this test: what each does is written out.

mod claimed;

use std::sync::Arc;

use super::*;
use crate::pool::worker::{Assignment, Next, Worker};

const LEN: u64 = 8;

fn owner(workers: usize) -> Owner {
    Owner::new(Settings { workers, batches: 4, arena_bytes: 1 << 30, tries: 3 }).unwrap()
}

fn worker(owner: &Owner, number: usize) -> Worker {
    let ((board, workers, slots), (arena, len)) = (owner.board(), owner.arena());
    let fds = (board.try_clone_to_owned().unwrap(), arena.try_clone_to_owned().unwrap());
    Worker::open((fds.0, workers, slots), (fds.1, len), number).unwrap()
}

fn next(worker: &Worker) -> Assignment {
    match worker.next() {
        Next::Task(assignment) => assignment,
        other => panic!("no task but {other:?}"),
    }
}

fn keys(at: &Assignment) -> Vec<u64> {
    at.keys.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// A pool whose samples are their numbers.
fn described(workers: usize) -> Owner {
    let mut owner = owner(workers);
    owner.describe(Some((Lanes::new(vec![LEN]), b"numbers")));
    owner
}

fn fill(worker: &Worker, at: &Assignment) {
    let start = worker.starts(at, &Lanes::new(vec![LEN]))[0] + at.task.first * LEN;
    worker.write(start, &at.keys);
    worker.made(at, 1_000_000, 0, 0);
}

fn made(ready: Option<Ready>) -> Vec<u64> {
    match ready {
        Some(Ready::Made(made)) => {
            let bytes = made.bytes.copy(0, (made.samples * LEN) as usize).unwrap();
            bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
        }
        other => panic!("no batch but {other:?}"),
    }
}

#[test]
fn all_workers_fill_the_next_batch_together() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[5, 6]), 0);
    owner.offer(Keys::Numbers(&[7, 8]), 0);
    let (first, second) = (next(&one), next(&two));
    assert_eq!((keys(&first), keys(&second)), (vec![5], vec![6]));
    fill(&two, &second);
    assert!(owner.collect().is_none() && owner.take(true).is_none());
    fill(&one, &first);
    owner.collect();
    assert_eq!(made(owner.take(true)), [5, 6]);
}

#[test]
fn threads_of_the_owners_process_are_workers_like_others() {
    let mut owner = described(2);
    let (one, two) = (owner.thread(0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[5, 6]), 0);
    let (first, second) = (next(&one), next(&two));
    fill(&one, &first);
    fill(&two, &second);
    owner.collect();
    assert_eq!(made(owner.take(true)), [5, 6]);
    assert!(!one.is_closed());
    owner.close();
    assert!(one.is_closed());
}

#[test]
fn a_batch_that_is_given_up_keeps_its_memory_until_its_worker_has_finished() {
    let mut owner = described(2);
    let (stuck, other) = (owner.thread(0), owner.thread(1));
    let number = owner.offer(Keys::Numbers(&[1, 2]), 0).unwrap();
    let late = next(&stuck);
    assert!(owner.give_up(number) && !owner.give_up(number));
    assert_eq!(owner.in_flight(), 0);
    owner.offer(Keys::Numbers(&[3]), 0);
    let task = next(&other);
    owner.collect();
    assert_eq!(owner.abandoned.len(), 1);
    assert_eq!(keys(&task), [3], "what nobody had begun was taken back");
    assert_ne!(task.task.out, late.task.out);
    fill(&stuck, &late);
    fill(&other, &task);
    owner.collect();
    assert_eq!(made(owner.take(true)), [3]);
    assert!(owner.abandoned.is_empty(), "its memory may be used again");
}

#[test]
fn batches_come_in_order_unless_asked_otherwise() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    for number in 0..3 {
        owner.offer(Keys::Numbers(&[number]), 0);
    }
    let slow = next(&one);
    for _ in 0..2 {
        let at = next(&two);
        fill(&two, &at);
    }
    owner.collect();
    assert!(owner.take(true).is_none());
    assert_eq!((made(owner.take(false)), made(owner.take(false))), (vec![1], vec![2]));
    fill(&one, &slow);
    owner.collect();
    assert_eq!(made(owner.take(true)), [0]);
}

#[test]
fn what_a_dead_worker_had_is_done_by_another() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[3, 4]), 0);
    let (lost, other) = (next(&one), next(&two));
    fill(&two, &other);
    assert_eq!(owner.worker_died(0), Some(Died { number: 0, sample: 0, tries: 1 }));
    let again = next(&two);
    assert_eq!(keys(&again), keys(&lost));
    fill(&two, &again);
    owner.collect();
    assert_eq!(made(owner.take(true)), [3, 4]);
    assert_eq!(owner.worker_died(1), None, "it had nothing");
}

#[test]
fn a_sample_that_kills_its_workers_is_named() {
    let mut owner = described(1);
    let one = worker(&owner, 0);
    owner.offer(Keys::Numbers(&[9, 10]), 0);
    let at = next(&one);
    fill(&one, &at);
    for _ in 0..3 {
        assert_eq!(keys(&next(&one)), [10]);
        owner.worker_died(0);
    }
    owner.collect();
    assert!(matches!(owner.take(true), Some(Ready::Lost { number: 0, sample: 1, tries: 3 })));
}

#[test]
fn a_sample_that_does_not_fit_has_its_batch_made_whole() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[1, 2, 3]), 0);
    let (first, second) = (next(&one), next(&two));
    one.unfit(&first);
    owner.collect();
    assert!(matches!(two.next(), Next::Nothing), "the third is not dealt out any more");
    fill(&two, &second);
    owner.collect();
    let mut whole = next(&one);
    assert_eq!((whole.task.kind, keys(&whole)), (Kind::Whole, vec![1, 2, 3]));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            assert!(one.ask_for_memory(&mut whole, 5, || true));
            one.write(whole.task.out, b"batch");
            one.made(&whole, 1, 1, 5);
        });
        while !asking.is_finished() {
            let seen = owner.done();
            owner.collect();
            owner.wait(seen, 1, Duration::from_millis(10));
        }
    });
    owner.collect();
    let Some(Ready::Made(made)) = owner.take(true) else { panic!("it was made") };
    assert_eq!((made.lanes, made.bytes.to_vec()), (None, b"batch".to_vec()));
}

#[test]
fn an_error_comes_in_the_order_of_its_batch() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[1]), 0);
    owner.offer(Keys::Numbers(&[2]), 0);
    let (first, mut second) = (next(&one), next(&two));
    std::thread::scope(|scope| {
        let telling = scope.spawn(|| two.raised(&mut second, b"KeyError", || true));
        while !telling.is_finished() {
            let seen = owner.done();
            owner.collect();
            owner.wait(seen, 1, Duration::from_millis(10));
        }
    });
    owner.collect();
    assert!(owner.take(true).is_none());
    fill(&one, &first);
    owner.collect();
    assert_eq!(made(owner.take(true)), [1]);
    assert!(matches!(owner.take(true), Some(Ready::Raised { number: 1, message }) if message == b"KeyError"));
}

#[test]
fn the_first_sample_says_what_lanes_there_are() {
    let mut owner = owner(1);
    let one = worker(&owner, 0);
    owner.offer(Keys::Numbers(&[7]), 0);
    let mut at = next(&one);
    assert_eq!((at.task.lanes, at.task.out), (0, 0));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            assert!(one.ask_for_lanes(&mut at, b"a number", || true));
            let len = u64::from_le_bytes(one.read(at.task.lanes, 8).try_into().unwrap());
            assert_eq!(one.read(at.task.lanes + 8, len as usize), b"numbers");
            fill(&one, &at);
        });
        while !asking.is_finished() {
            let seen = owner.done();
            if let Some(Ask::Lanes(description)) = owner.collect() {
                assert_eq!(description, b"a number");
                owner.describe(Some((Lanes::new(vec![LEN]), b"numbers")));
            }
            owner.wait(seen, 1, Duration::from_millis(10));
        }
    });
    owner.collect();
    assert_eq!(made(owner.take(true)), [7]);
}

#[test]
fn what_is_abandoned_leaves_its_memory_when_the_last_worker_is_done() {
    let mut owner = described(1);
    let one = worker(&owner, 0);
    owner.offer(Keys::Numbers(&[1, 2]), 0);
    let at = next(&one);
    owner.abandon();
    assert_eq!((owner.in_flight(), owner.abandoned.len()), (0, 1), "a worker still writes to it");
    assert!(matches!(one.next(), Next::Nothing));
    fill(&one, &at);
    owner.collect();
    assert!(owner.abandoned.is_empty());
}

#[test]
fn a_worker_that_is_late_is_named_with_its_sample() {
    let mut owner = described(2);
    let one = worker(&owner, 1);
    owner.offer(Keys::Numbers(&[4, 5]), 0);
    let at = next(&one);
    one.begin(0);
    assert_eq!(owner.late(Duration::ZERO), [(1, 0, 0)]);
    assert_eq!(owner.late(Duration::from_secs(3600)), []);
    fill(&one, &at);
    assert_eq!(owner.late(Duration::ZERO), []);
}

#[test]
fn a_worker_that_retires_ends_after_its_task_and_what_was_spent_is_known() {
    let mut owner = described(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[5, 6]), 0);
    let (first, second) = (next(&one), next(&two));
    owner.retire(1, true);
    fill(&one, &first);
    two.made(&second, 2_000, 500, 0);
    assert!(matches!(two.next(), Next::Closed));
    assert_eq!(owner.workers_up(), 2);
    assert_eq!(owner.worker_died(1), None);
    assert_eq!(owner.workers_up(), 1);
    owner.collect();
    let spent = owner.spent();
    assert_eq!((spent.samples, spent.runs, spent.busy_nanos, spent.cpu_nanos), (2, 2, 1_002_000, 500));
    owner.retire(1, false);
    owner.offer(Keys::Numbers(&[7]), 0);
    assert_eq!(keys(&next(&worker(&owner, 1))), vec![7]);
}

#[test]
fn a_run_that_was_taken_before_the_lanes_were_known_has_its_place_when_they_are() {
    let mut owner = owner(2);
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    owner.offer(Keys::Numbers(&[5, 6]), 0);
    let (mut first, mut second) = (next(&one), next(&two));
    assert_eq!((one.lanes(&mut first), second.task.out), (0, 0));
    // The first worker's question is answered before the second one looks for the lanes.
    owner.describe(Some((Lanes::new(vec![LEN]), b"numbers")));
    assert_ne!(two.lanes(&mut second), 0);
    one.lanes(&mut first);
    fill(&one, &first);
    fill(&two, &second);
    owner.collect();
    assert_eq!(made(owner.take(true)), [5, 6]);
}
