use feedline_core::stats::{PoolReason, PoolStats};
use proptest::prelude::*;

use super::*;

/// A feed that runs, with these shares of the source's time, for consumers that wait these shares of theirs.
struct Case {
    stats: ServerStats,
    rates: Rates,
    server: Process,
    workers: Vec<Process>,
    jobs: Vec<Job>,
    machine: Machine,
}

fn case(loading: f64, copying: f64, waiting: f64, waits: &[f64]) -> Case {
    let consumer = |id: usize| ConsumerStats {
        id: id as u64,
        job: id as u64,
        pid: 800 + id as u32,
        joined: true,
        batch_size: Some(32),
        ..ConsumerStats::default()
    };
    let job = |&wait_share: &f64| Job { seen_secs: 5.0, wait_share, ..Job::default() };
    Case {
        stats: ServerStats {
            state: "running".into(),
            lag: "block".into(),
            batches: 1000,
            samples: 32_000,
            ring_samples: 1024,
            ring_fill: 0.99,
            gate_open: true,
            wait_for: 1,
            loading_secs: 100.0,
            consumers: (0..waits.len()).map(consumer).collect(),
            ..ServerStats::default()
        },
        rates: Rates {
            window_secs: 5.0,
            bytes_per_sec: 2.1e8,
            loading_share: loading,
            copying_share: copying,
            waiting_share: waiting,
            ..Rates::default()
        },
        server: Process { pid: 700, state: 'S', ..Process::default() },
        workers: Vec::new(),
        jobs: waits.iter().map(job).collect(),
        machine: Machine { cores: 8, busy_share: 0.3, allowed_cores: 8.0, free_cores: 5.6, throttled_share: 0.0 },
    }
}

impl Case {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn workers(self, number: u32, cpu_cores: f64) -> Self {
        let worker = |index| Process { pid: 710 + index, state: 'R', cpu_cores, ..Process::default() };
        self.with(|case| case.workers = (0..number).map(worker).collect())
    }

    fn verdict(&self) -> Verdict {
        let mut jobs = self.jobs.clone();
        for (job, consumer) in jobs.iter_mut().zip(&self.stats.consumers) {
            job.process.pid = consumer.pid;
        }
        judge(&Evidence {
            stats: &self.stats,
            rates: &self.rates,
            server: &self.server,
            workers: &self.workers,
            jobs: &jobs,
            machine: &self.machine,
        })
    }

    #[track_caller]
    fn is(&self, kind: Kind, parts: &[&str]) {
        let verdict = self.verdict();
        assert_eq!(verdict.kind, kind, "{}", verdict.text);
        for part in parts {
            assert!(verdict.text.contains(part), "{part:?} is not in {:?}", verdict.text);
        }
    }
}

/// Four jobs that wait for a loader.
fn hungry() -> Case {
    case(0.97, 0.02, 0.01, &[0.6, 0.62, 0.61, 0.61])
}

#[test]
fn a_slow_loader_is_told_from_what_makes_it_slow() {
    let loader = Kind::LoaderBound;
    let jobs = "loader-bound: 4 jobs wait 61 % of the time for the loader; ";
    hungry().workers(2, 0.98).is(loader, &[jobs, "2 workers at 98 % CPU: add workers (5.6 of 8 cores are free)"]);
    let busy = |case: Case| case.with(|case| (case.machine.busy_share, case.machine.free_cores) = (0.99, 0.08));
    busy(hungry().workers(8, 0.97)).is(loader, &["8 workers at 97 % CPU, and all 8 cores are busy: add cores"]);
    let starved = |case: &mut Case| case.workers.iter_mut().for_each(|worker| worker.core_wait = 0.5);
    busy(hungry().workers(8, 0.4).with(starved)).is(
        loader,
        &["8 workers at 40 % CPU, and all 8 cores are busy, 4.7 of them with other processes: run those elsewhere, add"],
    );
    hungry().workers(4, 0.05).is(loader, &["4 workers at 5 % CPU: they wait for storage or network"]);
    // It doesn't matter how busy others keep the machine.
    busy(hungry().workers(4, 0.05)).is(loader, &["storage or network"]);
    busy(hungry()).is(loader, &["it waits for storage or network"]);
    hungry()
        .workers(4, 0.05)
        .with(|case| case.workers[2].disk_share = 0.8)
        .is(loader, &["state D, in 80 % of the samples", "storage or network"]);
    hungry()
        .workers(4, 0.2)
        .with(|case| case.server.cpu_cores = 0.99)
        .is(loader, &["while the server's process is at 99 %", "move it into the workers"]);
    hungry().workers(4, 0.65).is(loader, &["by turns; more workers"]);
    hungry()
        .with(|case| case.server.cpu_cores = 0.99)
        .is(loader, &["no workers", "99 % CPU: give it workers (num_workers="]);
    hungry().with(|case| case.server.cpu_cores = 0.02).is(loader, &["at 2 % CPU: it waits for storage or network"]);
    busy(hungry().with(|case| case.server.cpu_cores = 0.5))
        .is(loader, &["all 8 cores are busy, 7.4 of them with other"]);
    hungry()
        .workers(4, 0.9)
        .with(|case| case.workers[1].state = 'T')
        .is(loader, &["worker pid 711 is stopped (state T): kill -CONT 711"]);
    // Pinned, or in a container with half a core: its workers look idle and are not.
    hungry()
        .workers(2, 0.24)
        .with(|case| (case.machine.allowed_cores, case.machine.free_cores) = (0.5, 0.0))
        .with(|case| case.machine.throttled_share = 0.9)
        .is(loader, &["2 workers at 24 % CPU, and the 0.5 of 8 cores that it may use"]);
    // Pinned beside jobs that need all of it, on a machine with much to spare; and with storage that is slow.
    let pinned = |case: &mut Case| (case.machine.allowed_cores, case.machine.free_cores) = (2.0, 0.0);
    hungry().workers(2, 0.4).with(starved).with(pinned).is(loader, &["the 2.0 of 8 cores that it may use", "are busy"]);
    hungry().workers(2, 0.05).with(pinned).is(loader, &["storage or network"]);
    hungry()
        .workers(1, 0.99)
        .with(|case| (case.machine.allowed_cores, case.machine.free_cores) = (2.0, 0.9))
        .is(loader, &["add workers (0.9 of the 2.0 cores are free)"]);
    hungry().with(|case| case.stats.consumers[0].pid = 700).is(loader, &["in the process of a job"]);
}

#[test]
fn what_a_pool_has_found_out_is_no_longer_advised() {
    let loader = Kind::LoaderBound;
    let pool = |case: Case, why: PoolReason| {
        case.with(|case| {
            case.stats.pool = Some(PoolStats { workers: 2, wanted: 2, most: 32, why, ..PoolStats::default() })
        })
    };
    // A number that was given: more of them, if that helps.
    pool(hungry().workers(2, 0.98), PoolReason::Fixed).is(
        loader,
        &["2 workers at 98 % CPU: give it more workers than num_workers=2, or num_workers=\"auto\" (5.6 of 8 cores are free)"],
    );
    let fixed = pool(hungry().workers(2, 0.05), PoolReason::Fixed);
    fixed.is(loader, &["or more workers than num_workers=2, or num_workers=\"auto\", so that their waits overlap"]);
    let by_turns = pool(hungry().workers(2, 0.65), PoolReason::Fixed);
    by_turns.is(loader, &["more workers than num_workers=2, or num_workers=\"auto\" would do both at once"]);
    let busy = |case: Case| case.with(|case| (case.machine.busy_share, case.machine.free_cores) = (0.99, 0.08));
    let full = busy(pool(hungry().workers(8, 0.97), PoolReason::Fixed));
    full.is(loader, &["8 workers at 97 % CPU, and all 8 cores are busy: add cores"]);
    // A number that it has found: what that is limited by.
    let quota = PoolReason::UsesQuota { busy: 1.94, of: 2.0 };
    pool(hungry().workers(2, 0.97), quota).is(
        loader,
        &["uses up the 2.0 cores that it may use, and more workers would not help: give it more cores", "cheaper"],
    );
    busy(pool(hungry().workers(8, 0.97), quota)).is(loader, &["busy: add cores", "more workers would not help"]);
    let no_gain = PoolReason::NoGain { tried: 16, gain: 0.01 };
    pool(hungry().workers(13, 0.1), no_gain)
        .is(loader, &["the pool has tried 16, which was not faster", "faster storage"]);
    pool(hungry().workers(3, 0.7), no_gain).is(loader, &["not faster", "make the transforms cheaper"]);
    pool(hungry().workers(32, 0.1), PoolReason::Most)
        .is(loader, &["no more than 32 workers by itself: give a larger number (num_workers=), or use faster storage"]);
    pool(hungry().workers(2, 0.1), PoolReason::Refused).is(loader, &["raise its limits on processes and memory"]);
    for early in [PoolReason::Starting, PoolReason::Trying { from: 2 }] {
        pool(hungry().workers(2, 0.98), early).is(loader, &["still finding its number of workers"]);
    }
    pool(hungry().workers(1, 0.9), PoolReason::KeepsUp { waits: 0.01 }).is(loader, &["has kept up until now"]);
    // What matters more: a worker that is stopped, and a server that holds the workers up.
    let stopped = pool(hungry().workers(2, 0.1), no_gain).with(|case| case.workers[1].state = 'T');
    stopped.is(loader, &["kill -CONT 711"]);
    pool(hungry().workers(2, 0.1), no_gain)
        .with(|case| case.server.cpu_cores = 0.99)
        .is(loader, &["while the server's process is at 99 %"]);
    pool(hungry(), PoolReason::Starting).is(loader, &["its workers are not there yet"]);
}

#[test]
fn others_are_told_from_who_belongs_to_the_feed() {
    let busy = |number: usize, cpu_cores: f64| {
        case(0.3, 0.1, 0.5, &vec![0.4; number]).with(|case| {
            (case.machine.busy_share, case.machine.free_cores) = (1.0, 0.0);
            case.jobs.iter_mut().for_each(|job| job.process.cpu_cores = cpu_cores);
        })
    };
    let alone = "all 8 cores are busy: add cores, or use fewer jobs";
    busy(4, 1.9).is(Kind::Balanced, &[alone]);
    let crowded =
        "all 8 cores are busy, 6.0 of them with other processes: run those elsewhere, add cores, or use fewer jobs";
    busy(2, 1.0).is(Kind::Balanced, &[crowded]);
    // Four consumers in one process, which serves too.
    busy(4, 2.0)
        .with(|case| {
            case.stats.consumers.iter_mut().for_each(|consumer| consumer.pid = 700);
            case.server.cpu_cores = 2.0;
        })
        .is(Kind::Balanced, &[crowded]);
    // What a process in a container uses can't be seen.
    busy(2, 0.0).with(|case| case.stats.consumers[0].pid = 0).is(Kind::Balanced, &[alone]);
    busy(2, 0.0)
        .with(|case| case.machine.cores = 1)
        .is(Kind::Balanced, &["the one core is busy, 100 % of it with other processes"]);
}

#[test]
fn those_who_wait_are_counted() {
    case(0.98, 0.01, 0.0, &[0.5]).is(Kind::LoaderBound, &["1 job waits 50 %"]);
    case(0.98, 0.01, 0.0, &[0.5, 0.02, 0.0]).is(Kind::LoaderBound, &["1 of 3 jobs waits 50 %"]);
    // Ranks go at one pace: the rank that waits counts for the others, which wait for it.
    let ranks = case(0.98, 0.01, 0.0, &[0.0, 0.6, 0.01, 0.0]).with(|case| {
        for (rank, consumer) in case.stats.consumers.iter_mut().enumerate() {
            (consumer.job, consumer.rank) = (0, Some((rank as u32, 4)));
        }
    });
    ranks.is(Kind::LoaderBound, &["1 job waits 60 %"]);
}

#[test]
fn a_slow_consumer_is_named() {
    let held = || {
        case(0.2, 0.05, 0.75, &[0.0, 0.7, 0.72]).with(|case| {
            (case.stats.consumers[0].lag_samples, case.stats.consumers[0].lag_secs) = (1000, 40.0);
        })
    };
    let text =
        ["held back by pid 800: 2 of 3 jobs wait 71 %", "lag 40 s (1000 samples), ring full", "try lag='history'"];
    held().is(Kind::HeldBack, &text);
    assert_eq!(held().verdict().pid, Some(800));
    held().with(|case| case.jobs[0].process.state = 'T').is(Kind::HeldBack, &["stopped (state T): kill -CONT 800"]);
    held().with(|case| case.stats.consumers[0].resting = true).is(Kind::HeldBack, &["not asked for the next"]);
    let full = held().with(|case| (case.stats.lag, case.stats.history_bytes) = ("history".into(), 256_000_000));
    full.is(Kind::HeldBack, &["history full (256.0 MB); a larger history="]);
    let reads = full.with(|case| (case.stats.history_in_file, case.jobs[0].process.disk_bytes_per_sec) = (true, 3.2e7));
    reads.is(Kind::HeldBack, &["from the disk (32.0 MB/s)"]);
    let rank = held().with(|case| case.stats.consumers[0].rank = Some((0, 2)));
    rank.is(Kind::HeldBack, &["pid 800 (rank 0 of 2)"]);
    // A source that waits for a job is no slow loader, even if it mostly loads.
    held().with(|case| (case.rates.loading_share, case.rates.waiting_share) = (0.7, 0.25)).is(Kind::HeldBack, &[]);
    // No job waits for another: those that wait, wait for the loader.
    held().with(|case| case.stats.lag = "skip".into()).is(Kind::LoaderBound, &["2 of 3"]);
}

#[test]
fn copying_is_told_from_loading() {
    let copying = || case(0.1, 0.88, 0.0, &[0.5, 0.5]);
    copying().is(
        Kind::CopyBound,
        &["2 jobs wait 50 %", "takes 88 % of the source's time, at 210.0 MB/s", "smaller samples"],
    );
    let file = |cpu_cores: f64, core_wait: f64| {
        copying().with(|case| {
            case.stats.history_in_file = true;
            (case.server.cpu_cores, case.server.core_wait) = (cpu_cores, core_wait);
        })
    };
    file(0.2, 0.0)
        .is(Kind::DiskBound, &["the history's file takes 88 %", "at 210.0 MB/s", "faster disk", "no history_dir"]);
    // A process that computes meanwhile, or would if it could, doesn't wait for a disk.
    file(0.9, 0.0)
        .is(Kind::CopyBound, &["the history's file takes 88 %", "without waiting for the disk", "no history_dir"]);
    let busy = |case: &mut Case| case.machine.free_cores = 0.0;
    file(0.2, 0.6).with(busy).is(Kind::CopyBound, &["without waiting for the disk"]);
    file(0.2, 0.6).is(Kind::DiskBound, &[]);
    case(0.9, 0.1, 0.0, &[0.5]).with(|case| case.stats.history_in_file = true).is(Kind::LoaderBound, &[]);
}

#[test]
fn jobs_that_read_from_a_disk_are_named() {
    let reads = |file: bool, read: f64| {
        case(0.1, 0.0, 0.9, &[0.0, 0.0]).with(|case| {
            (case.stats.history_in_file, case.stats.bytes) = (file, 32_000_000);
            (case.jobs[0].samples_per_sec, case.jobs[0].process.disk_bytes_per_sec) = (1e5, read);
        })
    };
    let parts = ["disk-bound: 1 job reads what is kept from the disk, 32.0 MB/s", "faster disk"];
    reads(true, 3.2e7).is(Kind::DiskBound, &parts);
    reads(true, 3.2e7)
        .with(|case| (case.stats.replay, case.stats.all_written) = (true, true))
        .is(Kind::DiskBound, &parts);
    // Of the 100 MB that it takes.
    reads(true, 9e6).is(Kind::TrainersBound, &[]);
    reads(false, 3.2e7).is(Kind::TrainersBound, &[]);
}

#[test]
fn a_job_that_is_stopped_is_no_bottleneck_of_training() {
    let stopped = |case: &mut Case| case.jobs[0].process.state = 'T';
    case(0.0, 0.0, 1.0, &[0.0]).with(stopped).is(Kind::HeldBack, &["pid 800", "it is stopped", "kill -CONT 800"]);
    // If the loader goes on, or waits for another job, this job holds back nobody.
    let note = "pid 800 is stopped (state T): kill -CONT 800 lets it go on";
    case(0.9, 0.05, 0.05, &[0.0]).with(stopped).is(Kind::Balanced, &[note]);
    let two = || case(0.1, 0.0, 0.9, &[0.0, 0.0]).with(stopped);
    two().with(|case| case.stats.consumers[0].lag_samples = 900).is(Kind::HeldBack, &["pid 800", "waits for it"]);
    two().with(|case| case.stats.consumers[1].lag_samples = 900).is(Kind::TrainersBound, &[note]);
    two().with(|case| case.stats.lag = "skip".into()).is(Kind::TrainersBound, &[note]);
    let history = |used: u64| {
        move |case: &mut Case| {
            case.stats.lag = "history".into();
            (case.stats.history_used_samples, case.stats.history_samples) = (used, 9000);
        }
    };
    two().with(history(450)).is(Kind::TrainersBound, &[note]);
    two().with(history(8900)).is(Kind::HeldBack, &["the loader waits for it", "history full"]);
}

#[test]
fn a_loader_that_falls_behind_is_told_before_anybody_waits() {
    let ahead = |takes: f64, lag_samples: u64| {
        case(0.98, 0.01, 0.01, &[0.0]).workers(2, 0.98).with(move |case| {
            (case.rates.samples_per_sec, case.jobs[0].samples_per_sec) = (400.0, takes);
            case.stats.consumers[0].lag_samples = lag_samples;
        })
    };
    let parts = ["a job takes 660 samples/s and the loader yields 400", "lasts 1m40s", "2 workers at 98 % CPU: add"];
    ahead(660.0, 26_000).is(Kind::LoaderBound, &parts);
    ahead(410.0, 26_000).is(Kind::Balanced, &[]);
    // One batch of 2000 more or less, in five seconds.
    ahead(660.0, 26_000).with(|case| case.stats.consumers[0].batch_size = Some(2000)).is(Kind::Balanced, &[]);
    // Each of two ranks takes half of it.
    let ranks = ahead(330.0, 26_000).with(|case| case.stats.consumers[0].rank = Some((0, 2)));
    ranks.is(Kind::LoaderBound, &parts);
}

#[test]
fn who_loses_samples_is_named() {
    let slow = |case: &mut Case| {
        case.stats.lag = "skip".into();
        (case.jobs[1].skipped_per_sec, case.jobs[1].samples_per_sec) = (900.0, 100.0);
    };
    case(0.1, 0.0, 0.9, &[0.0, 0.0]).with(slow).is(Kind::HeldBack, &["pid 801", "loses 90 %", "lag='skip'"]);
}

#[test]
fn nothing_to_gain_is_said() {
    case(0.1, 0.05, 0.85, &[0.02, 0.0])
        .is(Kind::TrainersBound, &["nothing to gain here", "no job waits more than 2 %", "85 %"]);
    case(0.93, 0.05, 0.02, &[0.05, 0.01]).is(Kind::Balanced, &["no job waits more than 5 %", "busy 98 %"]);
    case(0.3, 0.1, 0.5, &[0.4, 0.4]).is(Kind::Balanced, &["2 jobs wait 40 %", "the loader 50 %"]);
    case(0.3, 0.1, 0.5, &[0.4, 0.4]).with(|case| case.stats.ring_samples = 64).is(Kind::Balanced, &["a larger ring="]);
    // A consumer that rests between epochs asks for nothing.
    case(0.1, 0.0, 0.9, &[0.0])
        .with(|case| case.stats.consumers[0].resting = true)
        .is(Kind::Quiet, &["between two epochs"]);
}

#[test]
fn what_cannot_be_judged_is_not() {
    let quiet = Kind::Quiet;
    case(0.0, 0.0, 1.0, &[])
        .with(|case| case.stats.ring_used_samples = 512)
        .is(quiet, &["nobody reads", "512 samples"]);
    case(0.0, 0.0, 1.0, &[])
        .with(|case| (case.stats.ring_used_samples, case.stats.whole_batches) = (16, true))
        .is(quiet, &["16 batches are ready"]);
    case(0.0, 0.0, 1.0, &[0.0]).with(|case| case.stats.consumers[0].joined = false).is(quiet, &["1 job is attached"]);
    hungry().with(|case| case.rates.window_secs = 0.0).is(quiet, &["measuring ..."]);
    hungry().with(|case| case.jobs.iter_mut().for_each(|job| job.seen_secs = 0.1)).is(quiet, &["measuring ..."]);
    let late = |id: usize| move |case: &mut Case| case.stats.consumers[id].epoch = 1;
    case(0.3, 0.1, 0.6, &[0.0, 0.99]).with(late(1)).is(Kind::TrainersBound, &["no job waits, the loader"]);
    case(0.3, 0.1, 0.6, &[0.99]).with(late(0)).is(quiet, &["waits for epoch 1"]);
    let gate = hungry().with(|case| (case.stats.gate_open, case.stats.wait_for) = (false, 6));
    gate.is(quiet, &["waits for 2 of 6 jobs: wait_for=6"]);
    let starting = |secs: f64| hungry().with(|case| (case.stats.batches, case.stats.loader_call_secs) = (0, secs));
    starting(12.0).is(quiet, &["starting: the loader has been at its first batch for 12 s"]);
    let awaited = starting(12.0).with(|case| case.stats.consumers.iter_mut().for_each(|one| one.waiting = true));
    awaited.is(quiet, &["first batch for 12 s, and 4 jobs wait for it"]);
    starting(0.0).is(quiet, &["starting"]);
    starting(300.0).is(Kind::Stuck, &["first batch for 5m00s", "0 % CPU", "stack"]);
}

#[test]
fn a_loader_that_does_not_come_back_is_stuck() {
    let stuck = |secs: f64| {
        hungry().workers(2, 0.0).with(|case| {
            (case.stats.loader_call_secs, case.stats.loading_secs) = (secs, 100.0 + secs);
            case.stats.consumers[0].waiting = true;
        })
    };
    stuck(45.0).is(Kind::Stuck, &["one batch for 45 s (0.1 s is usual)", "2 workers at 0 %"]);
    stuck(45.0).with(|case| case.workers[0].state = 'T').is(Kind::Stuck, &["worker pid 710 is stopped"]);
    stuck(5.0).is(Kind::LoaderBound, &[]);
    // If every batch takes that long, the loader is only slow.
    stuck(12.0).with(|case| case.stats.batches = 10).is(Kind::LoaderBound, &[]);
}

#[test]
fn what_is_not_seen_of_a_process_is_not_held_against_it() {
    let elsewhere = hungry().with(|case| {
        case.server.pid = 0;
        case.stats.consumers.iter_mut().for_each(|consumer| consumer.pid = 0);
    });
    elsewhere.is(Kind::LoaderBound, &["another pid namespace", "feedline top there"]);
    let stuck = elsewhere.with(|case| {
        case.stats.loader_call_secs = 40.0;
        case.stats.consumers[0].waiting = true;
    });
    stuck.is(Kind::Stuck, &["another pid namespace", "its log"]);
}

#[test]
fn an_end_is_an_end() {
    let state = |state: &str| hungry().with(|case| case.stats.state = state.into());
    state("ended").is(Kind::Quiet, &["ended"]);
    state("stopped").is(Kind::Quiet, &["stopped"]);
    let event =
        feedline_core::stats::Event { kind: "failed".into(), text: "ValueError: 7".into(), ..Default::default() };
    state("failed").with(|case| case.stats.events.push(event)).is(Kind::Failed, &["failed: ValueError: 7"]);
    let written = || hungry().with(|case| case.stats.all_written = true);
    written().with(|case| case.stats.consumers[2].lag_samples = 90).is(Kind::Loaded, &["4 jobs read, pid 802 has 90"]);
    written()
        .with(|case| case.stats.replay = true)
        .is(Kind::Loaded, &["all 32.0k samples are loaded", "nothing to load"]);
}

/// Any number at all, the odd ones more often.
fn number() -> impl Strategy<Value = f64> {
    let odd = prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), Just(1.0), Just(1e300)];
    prop_oneof![3 => 0.0..1.2, 1 => odd, 1 => any::<f64>()]
}

proptest! {
    #[test]
    fn whatever_the_numbers_are_the_words_are_words(
        shares in [number(), number(), number(), number(), number(), number()],
        waits in prop::collection::vec(number(), 0..6),
        workers in prop::collection::vec((number(), prop::char::any()), 0..4),
        (batches, lag, written, file, gate) in (any::<u64>(), 0..4usize, any::<bool>(), any::<bool>(), any::<bool>()),
        (cores, ring, state) in (any::<u32>(), any::<u64>(), 0..6usize),
    ) {
        let mut case = case(shares[0], shares[1], shares[2], &waits);
        case.stats.state = ["running", "running", "starting", "ended", "failed", ""][state].into();
        case.stats.lag = ["block", "history", "skip", ""][lag].into();
        (case.stats.batches, case.stats.ring_samples, case.stats.history_bytes) = (batches, ring, batches);
        (case.stats.all_written, case.stats.history_in_file, case.stats.gate_open) = (written, file, gate);
        (case.stats.loader_call_secs, case.stats.ring_fill, case.rates.bytes_per_sec) = (shares[3], shares[4], shares[5]);
        (case.server.cpu_cores, case.rates.window_secs) = (shares[4], shares[5]);
        let allowed_cores = shares[3].abs().max(0.0).min(f64::from(cores));
        let free_cores = shares[2].abs().max(0.0).min(allowed_cores);
        case.machine = Machine { cores, busy_share: shares[5], allowed_cores, free_cores, throttled_share: shares[0] };
        for (index, consumer) in case.stats.consumers.iter_mut().enumerate() {
            (consumer.lag_secs, consumer.lag_samples, consumer.job) = (shares[index % 6], batches, index as u64 / 2);
        }
        case.workers = workers
            .iter()
            .map(|&(cpu_cores, state)| Process { pid: 710, cpu_cores, disk_share: cpu_cores, state, ..Process::default() })
            .collect();
        let text = case.verdict().text;
        prop_assert!(!text.is_empty() && !text.contains('\n'));
        prop_assert!(!["NaN", "inf ", "-"].iter().any(|word| text.replace("-bound", "").replace("-CONT", "").contains(word)), "{}", text);
        // A share is one.
        for (at, _) in text.match_indices(" % of the time") {
            let share: f64 = text[..at].rsplit(' ').next().unwrap_or_default().parse().unwrap_or(-1.0);
            prop_assert!((0.0..=100.0).contains(&share), "{}", text);
        }
    }
}
