//! Every interleaving of one server, the threads that fill its claims, and one consumer on a ring of one or two slots.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p feedline-shm --test loom_model --release
//! ```
//!
//! The slots are cells that loom watches: a write while the consumer may read, or a read of what was not published, is
//! an error. So is a sleep from which nobody wakes: loom reports it as a deadlock. The futex and the doorbell are modelled
//! by what they promise; the words and the order in which they are touched are the real ones of `signal`.
#![cfg(loom)]

use feedline_protocol::UNKNOWN;
use feedline_protocol::log::{Committed, Log, Policy, Size, Transfer};
use feedline_protocol::message::Entry;
use feedline_shm::signal::{CursorWords, HeadWords, WritableHeadWords};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

struct Slot(UnsafeCell<u64>);

// SAFETY: loom checks each access; that they never overlap is what this test is about.
#[allow(unsafe_code)]
unsafe impl Sync for Slot {}

/// Sleeping on the tick: the kernel compares and sleeps in one step.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    wake: Condvar,
}

impl Futex {
    fn wait(&self, head: &HeadWords, tick: u32) {
        let guard = self.lock.lock().unwrap();
        if head.tick() == tick {
            drop(self.wake.wait(guard).unwrap());
        }
    }

    fn wake_all(&self) {
        let _guard = self.lock.lock().unwrap();
        self.wake.notify_all();
    }
}

/// An eventfd: a ring is remembered until it is heard.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.wake.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.wake.wait(rung).unwrap();
        }
        *rung = false;
    }
}

struct Shared {
    head: WritableHeadWords,
    page: CursorWords,
    futex: Futex,
    bell: Bell,
    slots: Vec<Slot>,
}

impl Shared {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            head: WritableHeadWords::default(),
            page: CursorWords::default(),
            futex: Futex::default(),
            bell: Bell::default(),
            slots: (0..capacity).map(|_| Slot(UnsafeCell::new(u64::MAX))).collect(),
        })
    }

    fn announce(&self) {
        self.head.advance_tick();
        if self.page.is_waiting() {
            self.futex.wake_all();
        }
    }
}

fn new_log(capacity: usize) -> Log {
    let mut log = Log::new(Policy::default());
    log.shape(Size { capacity: capacity as u64, window: capacity as u64, ..Size::default() });
    log.begin_epoch(0);
    log.join(0, Entry::EpochStart).unwrap();
    log
}

/// Claims a sample, or announces what it waits for, and looks again.
fn claim(shared: &Shared, log: &mut Log) -> Option<u64> {
    if let Some(run) = log.claim(1, 0) {
        return Some(run.first);
    }
    shared.head.want(log.in_the_way(1, 0).first().map_or(UNKNOWN, |one| one.wanted));
    let (epoch, released) = shared.page.position(0).unwrap();
    log.advance(0, epoch, released);
    log.claim(1, 0).map(|run| run.first)
}

fn fill(shared: &Shared, sample: u64) {
    let slot = &shared.slots[(sample % shared.slots.len() as u64) as usize];
    // SAFETY: claimed; loom checks that nobody else touches it.
    #[allow(unsafe_code)]
    slot.0.with_mut(|cell| unsafe { *cell = sample });
}

fn commit(shared: &Shared, log: &mut Log, sample: u64) {
    if log.commit(sample) == Committed::Published {
        shared.head.publish(log.head());
        shared.announce();
    }
}

/// As `server::producer` does it for a source of batches: claim or sleep, fill, commit; then end the epoch.
fn produce(shared: &Shared, samples: u64) {
    let mut log = new_log(shared.slots.len());
    for sample in 0..samples {
        while claim(shared, &mut log).is_none() {
            shared.bell.wait();
        }
        shared.head.want_nothing();
        fill(shared, sample);
        commit(shared, &mut log, sample);
    }
    shared.head.end_epoch(0, samples);
    shared.announce();
}

/// What the producer and those who fill its claims share, under the server's lock.
struct State {
    log: Log,
    producer_sleeps: bool,
}

/// A thread that fills claims, and the claim that it was given.
#[derive(Default)]
struct Filler {
    claim: Mutex<Option<u64>>,
    bell: Bell,
}

/// As `server::claim` does it: fill without the lock, commit under it, wake the producer if it sleeps.
fn work(shared: &Shared, state: &Mutex<State>, filler: &Filler, claims: u64) {
    for _ in 0..claims {
        filler.bell.wait();
        let sample = filler.claim.lock().unwrap().take().expect("a claim came before the bell");
        fill(shared, sample);
        let mut state = state.lock().unwrap();
        commit(shared, &mut state.log, sample);
        if state.producer_sleeps {
            shared.bell.ring();
        }
    }
}

/// As `server::producer` does it for a source that has its claims filled by others: claim or sleep, hand out; at the end wait until
/// all is filled.
fn produce_with(shared: &Shared, state: &Mutex<State>, fillers: &[Filler], samples: u64) {
    let locked = |step: &mut dyn FnMut(&mut Log) -> bool| {
        let mut state = state.lock().unwrap();
        let is_done = step(&mut state.log);
        state.producer_sleeps = !is_done;
        is_done
    };
    for sample in 0..samples {
        while !locked(&mut |log| claim(shared, log).is_some()) {
            shared.bell.wait();
        }
        shared.head.want_nothing();
        let filler = &fillers[(sample % fillers.len() as u64) as usize];
        *filler.claim.lock().unwrap() = Some(sample);
        filler.bell.ring();
    }
    while !locked(&mut |log| !log.is_filling()) {
        shared.bell.wait();
    }
    shared.head.end_epoch(0, samples);
    shared.announce();
}

/// As `consumer` does it: look, or announce the sleep, look again, sleep; read; release.
fn consume(shared: &Shared, samples: u64, rings_when_starved: bool) {
    let mut cursor = 0;
    loop {
        let look = || {
            let head = shared.head.head();
            let end = shared.head.end_of(0);
            (head.min(end) > cursor, end != UNKNOWN && cursor >= end)
        };
        let (there, over) = look();
        if over {
            assert_eq!(cursor, samples);
            return;
        }
        if !there {
            let (tick, server_waits) = shared.page.prepare_wait(&shared.head);
            if server_waits && rings_when_starved {
                shared.bell.ring();
            }
            if look() == (false, false) {
                shared.futex.wait(&shared.head, tick);
            }
            shared.page.end_wait();
            continue;
        }
        let slot = &shared.slots[(cursor % shared.slots.len() as u64) as usize];
        // SAFETY: published and not released; loom checks that nobody writes it.
        #[allow(unsafe_code)]
        slot.0.with(|cell| assert_eq!(unsafe { *cell }, cursor));
        cursor += 1;
        if shared.page.release(&shared.head, 0, cursor) {
            shared.bell.ring();
        }
    }
}

fn check(capacity: usize, samples: u64, rings_when_starved: bool) {
    let mut model = loom::model::Builder::new();
    // Two forced switches find every lost wake-up that we could plant; LOOM_MAX_PREEMPTIONS=3 takes a minute more.
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(move || {
        let shared = Shared::new(capacity);
        let server = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || produce(&shared, samples))
        };
        consume(&shared, samples, rings_when_starved);
        server.join().unwrap();
    });
}

#[test]
fn a_ring_of_one_slot() {
    check(1, 2, true);
}

#[test]
fn a_ring_of_two_slots() {
    check(2, 3, true);
}

/// A consumer that starves rings too, and would hide a release that was not heard.
#[test]
fn a_release_alone_is_heard() {
    check(1, 2, false);
}

/// Two threads fill two claims at once, and commit them in either order.
#[test]
fn claims_that_two_threads_fill() {
    const SAMPLES: u64 = 2;
    let mut model = loom::model::Builder::new();
    // Four threads: two forced switches take minutes.
    model.preemption_bound = model.preemption_bound.or(Some(1));
    model.check(|| {
        let shared = Shared::new(SAMPLES as usize);
        let state = Arc::new(Mutex::new(State { log: new_log(SAMPLES as usize), producer_sleeps: false }));
        let fillers = Arc::new([Filler::default(), Filler::default()]);
        let mut threads: Vec<_> = (0..2)
            .map(|number| {
                let (shared, state, fillers) = (Arc::clone(&shared), Arc::clone(&state), Arc::clone(&fillers));
                thread::spawn(move || work(&shared, &state, &fillers[number], SAMPLES / 2))
            })
            .collect();
        let producer = Arc::clone(&shared);
        threads.push(thread::spawn(move || produce_with(&producer, &state, &*fillers, SAMPLES)));
        consume(&shared, SAMPLES, true);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// One thread fills one claim after the other, in a ring of one slot: the producer sleeps until the consumer releases it.
#[test]
fn claims_that_another_thread_fills() {
    const SAMPLES: u64 = 2;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(|| {
        let shared = Shared::new(1);
        let state = Arc::new(Mutex::new(State { log: new_log(1), producer_sleeps: false }));
        let fillers = Arc::new([Filler::default()]);
        let filler = {
            let (shared, state, fillers) = (Arc::clone(&shared), Arc::clone(&state), Arc::clone(&fillers));
            thread::spawn(move || work(&shared, &state, &fillers[0], SAMPLES))
        };
        let producer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || produce_with(&shared, &state, &*fillers, SAMPLES))
        };
        consume(&shared, SAMPLES, true);
        filler.join().unwrap();
        producer.join().unwrap();
    });
}

/// What claims are granted in, one slot for each sample.
type Ring = Arc<Vec<Slot>>;

/// The log and the ring in use, under the server's lock.
struct Replaced {
    log: Log,
    ring: Ring,
}

fn ring(samples: u64) -> Ring {
    Arc::new((0..samples).map(|_| Slot(UnsafeCell::new(u64::MAX))).collect())
}

fn read(ring: &Ring, sample: u64) -> u64 {
    // SAFETY: published, or filled and not published; loom checks that nobody writes it.
    #[allow(unsafe_code)]
    ring[sample as usize].0.with(|cell| unsafe { *cell })
}

fn write(ring: &Ring, sample: u64, value: u64) {
    // SAFETY: claimed, or in a ring that nobody knows; loom checks that nobody else touches it.
    #[allow(unsafe_code)]
    ring[sample as usize].0.with_mut(|cell| unsafe { *cell = value });
}

/// As `server::claim` does it: fills the ring in which the sample was claimed, and takes it along if that was replaced meanwhile.
fn fill_and_carry(state: &Mutex<Replaced>, mut claimed_in: Ring, sample: u64) {
    write(&claimed_in, sample, sample);
    let mut locked = state.lock().unwrap();
    while !Arc::ptr_eq(&locked.ring, &claimed_in) {
        let carried = Arc::clone(&locked.ring);
        drop(locked);
        write(&carried, sample, read(&claimed_in, sample));
        claimed_in = carried;
        locked = state.lock().unwrap();
    }
    locked.log.commit(sample);
}

/// As `server::replace` does it: copies what is filled, without the lock, until nothing new is; then makes the ring known.
fn replace(state: &Mutex<Replaced>, samples: u64) {
    let (new, mut transfer) = (ring(samples), Transfer::default());
    loop {
        let (rest, old) = {
            let mut locked = state.lock().unwrap();
            let rest = transfer.rest(&locked.log);
            if rest.is_empty() {
                locked.ring = new;
                return;
            }
            (rest, Arc::clone(&locked.ring))
        };
        rest.into_iter().flatten().for_each(|sample| write(&new, sample, read(&old, sample)));
    }
}

/// Two claims are filled while their ring is replaced. Whatever is published stands in the ring in use.
#[test]
fn a_ring_that_is_replaced_under_open_claims() {
    const SAMPLES: u64 = 2;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(|| {
        let mut log = new_log(SAMPLES as usize);
        (0..SAMPLES).for_each(|sample| assert_eq!(log.claim(1, 0).map(|run| run.first), Some(sample)));
        let first = ring(SAMPLES);
        let state = Arc::new(Mutex::new(Replaced { log, ring: Arc::clone(&first) }));
        let mut threads: Vec<_> = (0..SAMPLES)
            .map(|sample| {
                let (state, claimed_in) = (Arc::clone(&state), Arc::clone(&first));
                thread::spawn(move || fill_and_carry(&state, claimed_in, sample))
            })
            .collect();
        let replaced = Arc::clone(&state);
        threads.push(thread::spawn(move || replace(&replaced, SAMPLES)));
        let is_intact = || {
            let (ring, head) = {
                let locked = state.lock().unwrap();
                (Arc::clone(&locked.ring), locked.log.head())
            };
            (0..head).for_each(|sample| assert_eq!(read(&ring, sample), sample));
            head
        };
        is_intact();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(is_intact(), SAMPLES);
    });
}
