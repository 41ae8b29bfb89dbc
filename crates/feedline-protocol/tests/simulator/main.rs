//! The real state machines of servers and consumers under virtual time, thousands of schedules from seeds.
//!
//! `SCHEDULES=20000000 FIRST=7 cargo test --release -p feedline-protocol --test simulator -- --nocapture` runs others than `make test`
//! does. A schedule that goes wrong is shrunk, and told as a history; `SEED=n` tells any; `ALL=1` lists all that go wrong.

mod consumer;
mod fillers;
mod judge;
mod memory;
mod pages;
mod ring;
mod rng;
mod scenario;
mod server;
mod shrink;
mod state_file;
mod wire;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scenario::Scenario;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn every_schedule_keeps_the_promises() {
    if let Some(seed) = number("SEED") {
        let verdict = world::run(&Scenario::new(seed), true);
        println!("{:#?}\n{}", Scenario::new(seed), verdict.history.join("\n"));
        assert_eq!(verdict.violation, None);
        return;
    }
    let (first, count) = (number("FIRST").unwrap_or(1), number("SCHEDULES").unwrap_or(2_000));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (steps, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let lists_all = number("ALL").is_some();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (steps, failed) = (&steps, &failed);
            scope.spawn(move || {
                let mut seed = first + thread;
                while seed < first + count && (lists_all || failed.load(Ordering::Relaxed) == u64::MAX) {
                    let verdict = world::run(&Scenario::new(seed), false);
                    steps.fetch_add(verdict.steps, Ordering::Relaxed);
                    if let Some(violation) = verdict.violation {
                        failed.fetch_min(seed, Ordering::Relaxed);
                        if lists_all {
                            println!("seed {seed}: {violation}");
                        }
                    }
                    seed += threads;
                }
            });
        }
    });
    let failed = failed.into_inner();
    if failed != u64::MAX {
        panic!("{}", shrink::report(&Scenario::new(failed)));
    }
    println!("{count} schedules, {} steps, no violation", steps.into_inner());
}
