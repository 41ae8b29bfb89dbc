//! The controller with a simulated pool under virtual time: its settled rate is compared with that of every fixed number.

mod simulation;

use self::simulation::{Cost, Job, Pool, Scene};
use super::*;

const LATENCY: Cost = Cost { cpu_millis: 0.2, sleep_millis: 20.0 };
const COMPUTE: Cost = Cost { cpu_millis: 4.0, sleep_millis: 0.0 };
const MIXED: Cost = Cost { cpu_millis: 2.0, sleep_millis: 6.0 };

/// Takes whatever there is.
fn taker() -> Job {
    Job { from_secs: 0.0, to_secs: f64::MAX, step_millis: 0.0, cpu_share: 0.0 }
}

fn trainer(step_millis: f64) -> Job {
    Job { step_millis, ..taker() }
}

fn scene(cores: f64, cost: Cost, jobs: Vec<Job>) -> Scene {
    Scene { cores, cost, jobs, seed: 1 }
}

/// The rates from `from_secs` on, of the best fixed number and of the controller; and the controller's last size.
fn compared(scene: &Scene, from_secs: f64, to_secs: f64) -> (usize, f64, usize, f64) {
    let limits = Limits::of_cores(scene.cores);
    let numbers = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let fixed = numbers.into_iter().filter(|&workers| workers <= limits.most).map(|workers| {
        let mut pool = Pool::new(scene, workers, from_secs - 2.0);
        (workers, pool.rate(from_secs, to_secs, |_| workers))
    });
    let (best, best_rate) = fixed.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let mut controller = Controller::new(limits);
    let mut pool = Pool::new(scene, controller.workers(), 0.0);
    let rate = pool.rate(from_secs, to_secs, |window| controller.observe(window));
    (best, best_rate, controller.workers(), rate)
}

/// The settled rate is within a tenth of the best fixed number's; the last size is returned.
fn assert_close(name: &str, scene: &Scene, from_secs: f64) -> usize {
    let (best, best_rate, workers, rate) = compared(scene, from_secs, from_secs + 5.0);
    println!("{name}: {rate:.0}/s with {workers} workers, {best_rate:.0}/s with {best} fixed: {:.3}", rate / best_rate);
    assert!(
        rate >= 0.9 * best_rate,
        "{name}: {rate:.0}/s with {workers} workers, but {best_rate:.0}/s with {best} fixed"
    );
    workers
}

#[test]
fn samples_that_compute_get_a_worker_for_each_core() {
    assert_eq!(assert_close("2 cores, compute", &scene(2.0, COMPUTE, vec![taker()]), 20.0), 2);
    assert_eq!(assert_close("8 cores, compute", &scene(8.0, COMPUTE, vec![taker()]), 20.0), 8);
}

#[test]
fn samples_that_sleep_get_many_workers() {
    assert!(assert_close("2 cores, sleep", &scene(2.0, LATENCY, vec![taker()]), 20.0) >= 29);
}

#[test]
fn samples_that_do_both_get_as_many_as_use_the_quota() {
    let workers = assert_close("2 cores, both", &scene(2.0, MIXED, vec![taker()]), 20.0);
    assert!((7..=16).contains(&workers), "{workers} workers");
}

#[test]
fn a_quota_of_one_core_gets_one_worker() {
    assert_eq!(assert_close("1 core, compute", &scene(1.0, COMPUTE, vec![taker()]), 20.0), 1);
    assert!(assert_close("half a core, both", &scene(0.5, MIXED, vec![taker()]), 20.0) <= 4);
}

#[test]
fn a_slow_trainer_gets_few_workers() {
    // A batch of 16 costs 64 ms of CPU.
    assert_eq!(assert_close("slow trainer", &scene(4.0, COMPUTE, vec![trainer(200.0)]), 20.0), 1);
    let sleeping = assert_close("slow trainer, sleep", &scene(4.0, LATENCY, vec![trainer(100.0)]), 30.0);
    assert!((4..=6).contains(&sleeping), "{sleeping} workers");
}

#[test]
fn the_pool_follows_jobs_that_come() {
    // The second job is slow, and uses a core for itself.
    let late = Job { from_secs: 40.0, step_millis: 150.0, cpu_share: 1.0, ..taker() };
    let workers = assert_close("a slow job comes", &scene(2.0, LATENCY, vec![taker(), late]), 70.0);
    assert!(workers <= 6, "{workers} workers");
}

#[test]
fn the_pool_follows_jobs_that_go() {
    let slow = Job { to_secs: 40.0, ..trainer(400.0) };
    let workers = assert_close("a slow job goes", &scene(2.0, LATENCY, vec![slow, taker()]), 70.0);
    assert!(workers >= 29, "{workers} workers");
    let slow = Job { to_secs: 40.0, ..trainer(400.0) };
    assert_eq!(assert_close("a slow job goes, compute", &scene(2.0, COMPUTE, vec![slow, taker()]), 60.0), 2);
}

#[test]
fn whatever_is_measured_the_number_stays_within_its_limits() {
    let mut random = simulation::Random(7);
    for _ in 0..300 {
        let limits = Limits::of_cores(0.1 + 100.0 * random.share());
        let mut controller = Controller::new(limits);
        for _ in 0..300 {
            let secs = 0.3 + random.share();
            let workers = controller.workers();
            let (samples, part) = ((random.share() * 1e4) as u64, random.share());
            let busy_secs = secs * workers as f64 * random.share();
            let window =
                Window { workers, secs, samples, waited_secs: secs * part, busy_secs, cpu_secs: busy_secs * part };
            let wished = controller.observe(window);
            assert!((1..=limits.most).contains(&wished), "{wished} of {limits:?}");
        }
    }
}

#[test]
fn random_datasets_and_trainers_come_close_to_the_best_fixed_number() {
    let mut random = simulation::Random(11);
    for number in 0..6 {
        let cost = Cost { cpu_millis: 0.2 + 5.0 * random.share(), sleep_millis: 30.0 * random.share().powi(2) };
        let job = if number % 3 == 0 { trainer(20.0 + 300.0 * random.share()) } else { taker() };
        let scene = Scene { cores: [1.0, 2.0, 4.0][number % 3], cost, jobs: vec![job], seed: number as u64 };
        assert_close(&format!("{cost:?} for {job:?}"), &scene, 30.0);
    }
}

#[test]
fn windows_of_another_size_do_not_count() {
    let mut controller = Controller::new(Limits::of_cores(2.0));
    let window = Window { workers: 1, secs: 1.0, samples: 10, waited_secs: 1.0, busy_secs: 1.0, cpu_secs: 0.0 };
    (0..50).for_each(|_| assert_eq!(controller.observe(window), 2));
    assert_eq!(controller.reason(), Reason::Starting);
}

#[test]
fn what_the_system_refuses_is_not_tried_again() {
    let mut controller = Controller::new(Limits::of_cores(2.0));
    let sleeping = |workers| Window {
        workers,
        secs: 1.0,
        samples: 10 * workers as u64,
        waited_secs: 1.0,
        busy_secs: workers as f64,
        cpu_secs: 0.0,
    };
    (0..WINDOWS).for_each(|_| _ = controller.observe(sleeping(2)));
    assert_eq!((controller.workers(), controller.reason()), (4, Reason::Trying { from: 2 }));
    assert_eq!(controller.refused(3), 3);
    (0..100).for_each(|_| assert_eq!(controller.observe(sleeping(3)), 3));
    assert_eq!(controller.reason(), Reason::Refused);
    assert_eq!(controller.refused(0), 1, "a pool without workers would make nothing");
}

#[test]
fn what_brings_nothing_is_tried_less_and_less_often() {
    // A lock: one sample at a time, however many workers there are.
    let mut controller = Controller::new(Limits::of_cores(2.0));
    let mut tries = Vec::new();
    for number in 0..2000 {
        let workers = controller.workers();
        let window =
            Window { workers, secs: 1.0, samples: 100, waited_secs: 1.0, busy_secs: workers as f64, cpu_secs: 0.1 };
        if controller.observe(window) > 2 && workers <= 2 {
            tries.push(number);
        }
    }
    assert!((4..=9).contains(&tries.len()), "{tries:?}");
    let pauses: Vec<i32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] >= pair[0]), "{pauses:?}");
}
