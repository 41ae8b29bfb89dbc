//! Batches with a place in a log: it is given back when no worker can write there any more, and once.

use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_shm::LanePlace;

use super::*;
use crate::pool::claimed::Slots;

/// Counts claims that were given back.
struct Given(Arc<AtomicUsize>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A log that gives places, in ring 3.
#[derive(Default)]
struct Log(Arc<AtomicUsize>);

impl Log {
    fn claim(&self, samples: u64) -> Claimed {
        let lanes = vec![LanePlace { start: 0, len_bytes: 4096, position: 40 }];
        Claimed { slots: Some(Slots { ring: 3, lanes }), ..self.claim_elsewhere(samples) }
    }

    /// Where workers can't write.
    fn claim_elsewhere(&self, samples: u64) -> Claimed {
        Claimed { samples, slots: None, claim: Box::new(Given(Arc::clone(&self.0))) }
    }

    fn returned(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn offer(owner: &mut Owner, log: &Log, numbers: &[u64]) {
    let claimed = log.claim(numbers.len() as u64);
    owner.offer_claimed(Keys::Numbers(numbers), 0, Some(claimed)).unwrap();
}

fn done(worker: &Worker, at: &Assignment) {
    worker.made(at, 1_000_000, 0, 0);
}

#[test]
fn workers_are_told_where_a_batch_stands_and_its_claim_comes_back_filled() {
    let (mut owner, log) = (described(2), Log::default());
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    offer(&mut owner, &log, &[5, 6]);
    let (first, second) = (next(&one), next(&two));
    for at in [&first, &second] {
        assert!(at.task.is_in_ring);
        let told = Slots::from_bytes(&one.read(at.task.out, at.task.out_len as usize));
        assert_eq!(told, Some((log.claim(2).slots.unwrap(), 3)));
    }
    let asked = log.returned();
    done(&two, &second);
    owner.collect();
    assert!(owner.take(true).is_none());
    done(&one, &first);
    owner.collect();
    let Some(Ready::Filled { number: 0, samples: 2, claimed }) = owner.take(true) else { panic!("it is filled") };
    assert_eq!((log.returned(), owner.is_filling()), (asked, false));
    drop(claimed);
    assert_eq!(log.returned(), asked + 1);
}

#[test]
fn a_claim_that_nobody_wants_is_given_back_when_its_last_worker_has_finished_or_was_reaped() {
    let (mut owner, log) = (described(2), Log::default());
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    offer(&mut owner, &log, &[1, 2, 3]);
    offer(&mut owner, &log, &[4]);
    let at = next(&one);
    let _killed = next(&two);
    owner.abandon();
    assert_eq!((log.returned(), owner.is_filling()), (1, true), "nobody was at the second batch");
    done(&one, &at);
    owner.collect();
    assert_eq!(log.returned(), 1);
    owner.worker_died(1);
    owner.collect();
    assert_eq!((log.returned(), owner.is_filling()), (2, false));
}

#[test]
fn a_run_of_a_dead_worker_is_written_into_the_same_place() {
    let (mut owner, log) = (described(2), Log::default());
    let (one, two) = (worker(&owner, 0), worker(&owner, 1));
    offer(&mut owner, &log, &[7]);
    let lost = next(&one);
    owner.worker_died(0);
    assert_eq!(log.returned(), 0);
    let again = next(&two);
    assert_eq!((again.task.out, again.task.is_in_ring), (lost.task.out, true));
    done(&two, &again);
    owner.collect();
    assert!(matches!(owner.take(true), Some(Ready::Filled { .. })));
}

#[test]
fn batches_that_lose_their_place_are_made_again_elsewhere_once_nobody_writes_there() {
    let (mut owner, log) = (described(1), Log::default());
    let one = worker(&owner, 0);
    offer(&mut owner, &log, &[1, 2]);
    let at = next(&one);
    assert!(owner.unclaim(), "a worker still writes");
    assert_eq!(log.returned(), 0);
    assert!(matches!(one.next(), Next::Nothing), "the second is not dealt out any more");
    done(&one, &at);
    assert!(!owner.unclaim());
    assert_eq!((log.returned(), owner.first_unclaimed()), (1, Some(2)));
    for _ in 0..2 {
        let at = next(&one);
        assert!(!at.task.is_in_ring);
        fill(&one, &at);
    }
    owner.collect();
    assert_eq!(made(owner.take(true)), [1, 2]);
}

#[test]
fn a_batch_whose_samples_do_not_fit_keeps_its_place() {
    let (mut owner, log) = (described(1), Log::default());
    let one = worker(&owner, 0);
    offer(&mut owner, &log, &[1]);
    one.unfit(&next(&one));
    owner.collect();
    let whole = next(&one);
    assert_eq!((whole.task.kind, whole.task.is_in_ring), (Kind::Whole, false));
    one.raised(&mut { whole }, b"nothing", || false);
    owner.collect();
    assert_eq!((log.returned(), owner.oldest_ring()), (0, None));
}

#[test]
fn a_place_may_come_later_or_be_none_that_workers_can_write_to() {
    let (mut owner, log) = (described(1), Log::default());
    let one = worker(&owner, 0);
    owner.offer(Keys::Numbers(&[1]), 0);
    owner.offer_claimed(Keys::Numbers(&[2]), 0, Some(log.claim_elsewhere(1)));
    assert_eq!(owner.first_unclaimed(), Some(1));
    owner.claim_first(log.claim(1));
    assert_eq!((owner.first_unclaimed(), owner.oldest_ring()), (None, None));
    for number in [1, 2] {
        let at = next(&one);
        assert!(!at.task.is_in_ring);
        fill(&one, &at);
        owner.collect();
        let Some(Ready::Made(made)) = owner.take(true) else { panic!("it was made") };
        assert_eq!((made.number, made.claimed.is_some()), (number - 1, true));
    }
    assert_eq!(log.returned(), 2);
}
