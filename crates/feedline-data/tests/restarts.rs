//! A job that is restarted again and again, with other ranks, batch sizes and workers, and loses processes on the way, reads what one
//! reads that nobody disturbs: sample by sample, draws included, by a hash chain.
//!
//! The plan, its steps and slices, and the pools are the real ones. Workers are driven by hand, in an order that a seed gives.

use std::collections::VecDeque;

use feedline_data::pool::owner::Keys;
use feedline_data::pool::worker::{Assignment, Next};
use feedline_data::pool::{Lanes, Owner, Ready, Settings, Worker};
use feedline_protocol::plan::order::{Parts, Weighted};
use feedline_protocol::plan::steps::slice;
use feedline_protocol::plan::{self, Key, Mixture, Order, Plan, PlannedEpoch, Steps};

const CHANGES: u64 = 10_000;
const LEN: u64 = 8;

/// Numbers that a seed gives, one after the other.
struct Random(Key, u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.1 += 1;
        self.0.number(self.1) % limit
    }
}

/// What a checkpoint holds, and the chain of all samples up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    epoch: u64,
    consumed: u64,
    chain: Key,
}

impl State {
    fn taken(self, sample: u64, draw: u64) -> Self {
        Self { consumed: self.consumed + 1, chain: self.chain.with(self.epoch).with(sample).with(draw), ..self }
    }

    fn over(self, samples: u64) -> Self {
        if self.consumed < samples { self } else { Self { epoch: self.epoch + 1, consumed: 0, ..self } }
    }
}

/// A pool whose workers are this test.
struct Pool {
    owner: Owner,
    workers: Vec<(Worker, Option<Assignment>)>,
    /// Samples of tasks that nobody has taken.
    posted: u64,
}

impl Pool {
    fn new(workers: usize, batches: usize) -> Self {
        let settings = Settings { workers, batches, arena_bytes: 1 << 26, tries: u32::MAX };
        let mut owner = Owner::new(settings).unwrap();
        owner.describe(Some((Lanes::new(vec![LEN, LEN]), b"a number and a draw")));
        let open = |number| {
            let ((board, workers, slots), (arena, len)) = (owner.board(), owner.arena());
            let fds = (board.try_clone_to_owned().unwrap(), arena.try_clone_to_owned().unwrap());
            (Worker::open((fds.0, workers, slots), (fds.1, len), number).unwrap(), None)
        };
        Self { workers: (0..workers).map(open).collect(), owner, posted: 0 }
    }

    fn offer(&mut self, numbers: &[u64], epoch: u64) {
        self.owner.offer(Keys::Numbers(numbers), epoch).unwrap();
        self.posted += numbers.len() as u64;
    }

    /// The next batch: numbers and draws. Workers take, finish and lose runs as chance has it.
    fn take(&mut self, seed: u64, random: &mut Random) -> Vec<(u64, u64)> {
        loop {
            self.owner.collect();
            match self.owner.take(true) {
                Some(Ready::Made(made)) => {
                    let (starts, len) = Lanes::new(vec![LEN, LEN]).places(made.samples);
                    let bytes = made.bytes.copy(0, len as usize).unwrap();
                    let word = |at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
                    return (0..made.samples)
                        .map(|at| (word(starts[0] + at * LEN), word(starts[1] + at * LEN)))
                        .collect();
                }
                Some(other) => panic!("no batch but {other:?}"),
                None => self.work(seed, random),
            }
        }
    }

    fn work(&mut self, seed: u64, random: &mut Random) {
        let number = random.below(self.workers.len() as u64) as usize;
        let (worker, in_hand) = &mut self.workers[number];
        match in_hand.take() {
            None if self.posted > 0 => {
                let Next::Task(at) = worker.next() else { panic!("there is a task") };
                self.posted -= at.task.samples;
                *in_hand = Some(at);
            }
            None => {}
            Some(at) if random.below(10) == 0 => {
                // Killed, perhaps after it had written some of its samples.
                let some = random.below(at.task.samples + 1);
                write(worker, &at, seed, some);
                assert!(self.owner.worker_died(number).is_some());
                self.posted += at.task.samples;
            }
            Some(at) => {
                write(worker, &at, seed, at.task.samples);
                worker.made(&at, random.below(4_000_000), 0, 0);
            }
        }
    }
}

fn write(worker: &Worker, at: &Assignment, seed: u64, samples: u64) {
    let starts = worker.starts(at, &Lanes::new(vec![LEN, LEN]));
    for (place, key) in (at.task.first..).zip(at.keys.as_chunks::<8>().0.iter().take(samples as usize)) {
        let draw = plan::draw(seed, at.task.epoch, u64::from_le_bytes(*key));
        worker.begin(place - at.task.first);
        worker.write(starts[0] + place * LEN, &key[..]);
        worker.write(starts[1] + place * LEN, &draw.to_le_bytes()[..]);
    }
}

/// One rank: its pool, and the steps that it has dealt out.
struct Rank {
    pool: Pool,
    dealt: VecDeque<std::ops::Range<u64>>,
    /// Up to where.
    until: u64,
}

/// One start of the job, until it ends or is killed; returns what its last checkpoint holds.
fn start(plan: &Plan, state: State, random: &mut Random) -> State {
    let epoch = plan.epoch(state.epoch);
    let left = epoch.samples() - state.consumed;
    let world = (1 + random.below(4)).min(left) as u32;
    let drop_last = false;
    let steps = Steps { samples: epoch.samples(), batch_size: 1 + random.below(12), world: world.into(), drop_last };
    let (workers, ahead) = (1 + random.below(3) as usize, 1 + random.below(4) as usize);
    let rank = |_| Rank { pool: Pool::new(workers, ahead), dealt: VecDeque::new(), until: state.consumed };
    let mut ranks: Vec<Rank> = (0..world).map(rank).collect();
    let (mut now, mut saved) = (state, state);
    let (every, most) = (1 + random.below(4), random.below(10));
    for step in 1..=most {
        let Some(taken) = take_step(plan.seed(), &epoch, steps, ahead, (&mut ranks, now), random) else { break };
        now = taken;
        if step % every == 0 {
            saved = now;
        }
    }
    let is_killed = random.below(2) == 0;
    (if is_killed { saved } else { now }).over(epoch.samples())
}

fn take_step(
    seed: u64,
    epoch: &PlannedEpoch,
    steps: Steps,
    ahead: usize,
    (ranks, mut now): (&mut [Rank], State),
    random: &mut Random,
) -> Option<State> {
    let world = ranks.len() as u32;
    let mut step = None;
    for (number, rank) in (0..).zip(ranks.iter_mut()) {
        while rank.dealt.len() < ahead {
            let Some(next) = steps.next(rank.until).unwrap() else { break };
            let numbers: Vec<u64> = slice(next.clone(), number, world).map(|at| epoch.at(at).sample).collect();
            rank.pool.offer(&numbers, now.epoch);
            rank.until = next.end;
            rank.dealt.push_back(next);
        }
        let mine = rank.dealt.pop_front()?;
        assert_eq!(*step.get_or_insert(mine.clone()), mine, "all ranks are at the same step");
        for (sample, draw) in rank.pool.take(seed, random) {
            now = now.taken(sample, draw);
        }
    }
    assert_eq!(Some(now.consumed), step.map(|step| step.end), "a state counts the samples of all ranks");
    Some(now)
}

fn orders() -> Vec<Order> {
    let weights: Vec<f64> = (0..61).map(|number| f64::from(number % 5)).collect();
    let parts = || Parts::new([(40, Order::Shuffled(40)), (21, Order::Sequential(13))]);
    let mixture = Mixture::new(parts(), &[3.0, 1.0], 47).unwrap();
    let mixture = (1..40).fold(mixture, |mixture, change| mixture.then(change * 331, &[1.0, change as f64]).unwrap());
    vec![
        Order::Shuffled(97),
        Order::Sequential(61),
        Order::Weighted(Weighted::new(weights.clone().into(), 70, true).unwrap()),
        Order::Weighted(Weighted::new(weights.into(), 40, false).unwrap()),
        Order::Subset { samples: (0..50).map(|at| at * 7 % 61).collect(), order: Box::new(Order::Shuffled(50)) },
        Order::Concatenation(parts()),
        Order::Mixture(mixture),
    ]
}

#[test]
fn ten_thousand_restarts_read_what_one_run_reads() {
    let orders = orders();
    let each = CHANGES.div_ceil(orders.len() as u64);
    for (seed, order) in (1..).zip(orders) {
        let plan = Plan::new(seed, order);
        let mut random = Random(Key::new(seed), 0);
        let first = State { epoch: 0, consumed: 0, chain: Key::new(0) };
        let (mut state, mut undisturbed) = (first, first);
        for change in 0..each {
            state = start(&plan, state, &mut random);
            while (undisturbed.epoch, undisturbed.consumed) < (state.epoch, state.consumed) {
                let epoch = plan.epoch(undisturbed.epoch);
                let end = if undisturbed.epoch < state.epoch { epoch.samples() } else { state.consumed };
                for at in undisturbed.consumed..end {
                    let place = epoch.at(at);
                    undisturbed = undisturbed.taken(place.sample, place.draw);
                }
                undisturbed = undisturbed.over(epoch.samples());
            }
            assert_eq!(state, undisturbed, "{} (seed {seed}), change {change}", plan.order());
        }
        assert!(state.epoch > 20, "{}: {} epochs", plan.order(), state.epoch);
    }
}
