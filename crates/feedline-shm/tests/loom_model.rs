//! Every interleaving of one server and one consumer on a ring of one or two slots.
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
use feedline_protocol::log::{Log, Policy, Size};
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

/// As `server::producer` does it: claim or sleep, write, publish; then end the epoch.
fn produce(shared: &Shared, samples: u64) {
    let mut log = Log::new(Policy::default());
    let capacity = shared.slots.len() as u64;
    log.shape(Size { capacity, window: capacity, ..Size::default() });
    log.begin_epoch(0);
    log.join(0, Entry::EpochStart).unwrap();
    for sample in 0..samples {
        while log.claim(1, 0).is_none() {
            shared.head.want(log.in_the_way(1, 0)[0].wanted);
            let (epoch, released) = shared.page.position(0).unwrap();
            log.advance(0, epoch, released);
            if log.claim(1, 0).is_some() {
                break;
            }
            shared.bell.wait();
        }
        shared.head.want_nothing();
        let slot = &shared.slots[(sample % shared.slots.len() as u64) as usize];
        // SAFETY: claimed; loom checks that nobody reads it.
        #[allow(unsafe_code)]
        slot.0.with_mut(|cell| unsafe { *cell = sample });
        log.publish();
        shared.head.publish(log.head());
        shared.announce();
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
