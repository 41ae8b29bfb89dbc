//! What a schedule is made of, drawn from a seed: a feed, its consumers, and the faults that are injected.

use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::consumer::Config;
use feedline_protocol::log::{Lag, Policy};
use feedline_protocol::message::Entry;
use feedline_protocol::shard::Shard;

use crate::rng::Rng;

/// A schedule. The same one always runs alike.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub feed: Feed,
    pub consumers: Vec<Job>,
    /// From then on no fault is injected, and everybody must make progress.
    pub calm: Duration,
    pub faults: Vec<(Duration, Fault)>,
}

/// A feed, and what its source yields.
#[derive(Clone, Debug)]
pub struct Feed {
    pub policy: Policy,
    pub wait_for: u32,
    pub stall_timeout: Duration,
    pub window: u64,
    pub history: u64,
    pub is_cut: bool,
    /// Samples of the source's batches; the last of an epoch may have fewer.
    pub source_batch: u64,
    /// How many samples the epochs have, one after the other, again and again.
    pub lengths: Vec<u64>,
    /// The source tells how long its first epoch is.
    pub tells_length: bool,
    pub epochs: Option<u64>,
    /// Larger rings can't be made.
    pub is_short_of_memory: bool,
    /// How long the source takes for a batch.
    pub load_micros: u64,
    /// How many batches it fills at once.
    pub fillers: usize,
    /// One claim in so many is given back; none if 0.
    pub gives_back: u64,
    /// Its server keeps a `state_file`.
    pub keeps_state: bool,
}

impl Feed {
    pub fn length(&self, epoch: u64) -> u64 {
        let epoch = if self.policy.replay { 0 } else { epoch };
        self.lengths[(epoch % self.lengths.len() as u64) as usize]
    }
}

/// A consumer, and what it does with its batches.
#[derive(Clone, Debug)]
pub struct Job {
    pub config: Config,
    pub starts: Duration,
    /// The place that it goes on from, as from the checkpoint of an earlier run.
    pub loads: Option<Mark>,
    /// How long it computes with a batch.
    pub think_micros: u64,
    /// How many batches it keeps.
    pub keeps: usize,
    /// One batch in so many is kept for good; none if 0.
    pub keeps_for_good: u64,
    /// How long it pauses, at least, between some of its epochs.
    pub rests: Duration,
    /// One epoch in so many is broken off; never if 0.
    pub breaks_off: u64,
    /// It waits for another server when one is lost.
    pub reconnects: bool,
}

/// A fault that is injected into a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillConsumer(usize),
    StopConsumer(usize, Duration),
    /// A killed one comes back, with the place that it saved last, or without.
    RestartConsumer(usize, bool),
    /// It loads the place that it is at, as from a checkpoint.
    ReloadConsumer(usize),
    /// All ranks are killed and started again, each within this time, from a checkpoint or without.
    RestartRanks(Duration, bool),
    KillServer(Duration),
    StopServer(Duration),
}

const MOST_CONSUMERS: u64 = 4;

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let rng = Rng::new(seed);
        let replay = rng.one_in(8);
        let lag = if replay { Lag::Block } else { rng.pick(&[Lag::Block, Lag::Block, Lag::History, Lag::Skip]) };
        let is_cut = !rng.one_in(4);
        let source_batch = if is_cut { rng.within(1, 6) } else { 1 };
        // Short epochs that come fast: a consumer can be many of them behind; and under `Lag::Skip` so many that their ends are
        // forgotten while their samples are still there.
        let is_tiny = lag == Lag::Skip && is_cut && rng.one_in(4);
        let is_rapid = is_tiny || rng.one_in(8);
        let longest = if is_tiny { 3 } else { rng.pick(if is_rapid { &[4] } else { &[8, 20, 60] }) };
        let shortest = longest.min(4) / if is_rapid { 2 } else { 1 };
        let length = |_| if rng.one_in(10) { 0 } else { rng.within(shortest, longest) };
        let lengths = (0..rng.within(1, 3)).map(length).collect();
        let window = if is_tiny { rng.within(60, 120) } else { rng.within(2 * source_batch, 4 * source_batch + 20) };
        let count = rng.within(1, MOST_CONSUMERS);
        let mut feed = Feed {
            policy: Policy { lag, replay, epochs_ahead: rng.within(1, 3) },
            wait_for: if rng.one_in(4) { rng.within(1, count) as u32 } else { 1 },
            stall_timeout: Duration::from_millis(rng.pick(&[500, 1000, 2000])),
            window,
            history: if rng.one_in(2) { rng.within(0, 2 * longest) } else { 0 },
            is_cut,
            source_batch,
            lengths,
            tells_length: rng.one_in(2),
            epochs: if rng.one_in(3) { Some(rng.within(1, 5)) } else { None },
            is_short_of_memory: rng.one_in(10),
            load_micros: if is_tiny {
                100
            } else if is_rapid {
                300
            } else {
                rng.pick(&[1000, 5000, 30_000])
            },
            fillers: rng.pick(&[1, 1, 2, 5]),
            gives_back: rng.pick(&[0, 0, 10]),
            keeps_state: !replay && rng.one_in(4),
        };
        let mut consumers: Vec<Job> = (0..count).map(|_| job(&rng, &feed)).collect();
        if is_rapid {
            let paces = if is_tiny { [100, 100, 40_000] } else { [300, 300, 80_000] };
            consumers.iter_mut().for_each(|job| job.think_micros = job.think_micros.min(rng.pick(&paces)));
        }
        share_among_ranks(&rng, &feed, &mut consumers);
        // Where everything is quick, hundreds of epochs pass in a second.
        let calm = Duration::from_millis(if is_rapid { 1000 } else { 2500 });
        let mut faults: Vec<_> = (0..rng.pick(&[0, 1, 2, 3, 6])).map(|_| fault(&rng, calm, consumers.len())).collect();
        // What seldom comes together by itself.
        match rng.below(8) {
            0 => load_places(&rng, &feed, &mut consumers),
            1 if consumers.len() > 2 => faults = lose_two_servers(&rng, calm, &mut consumers),
            2 if !replay && rng.one_in(4) => load_slowly(&rng, &mut feed, &mut consumers),
            _ => {}
        }
        Self { seed, feed, consumers, calm, faults }
    }
}

/// Jobs that were checkpointed in different epochs are started again, nearly at once.
fn load_places(rng: &Rng, feed: &Feed, consumers: &mut [Job]) {
    let place = || {
        let epoch = rng.below(feed.epochs.unwrap_or(4).min(4));
        Mark { epoch, index: rng.below(feed.length(epoch) + 1) }
    };
    // All ranks of a job have the same checkpoint.
    let of_ranks = place();
    for job in consumers {
        job.loads = if job.config.shard.is_some() { Some(of_ranks) } else { (!rng.one_in(4)).then(place) };
        job.starts = Duration::from_micros(rng.below(600_000));
    }
}

/// Epochs take so long that whoever comes late waits for the next one for longer than it keeps silent.
fn load_slowly(rng: &Rng, feed: &mut Feed, consumers: &mut [Job]) {
    (feed.load_micros, feed.fillers, feed.gives_back) = (200_000, 1, 0);
    feed.lengths = vec![50 * feed.source_batch];
    for job in consumers {
        job.starts = Duration::from_millis(rng.below(4000));
        job.breaks_off = 0;
    }
}

/// The second consumer stands still while the server is lost twice, and the third comes for the first time in between.
fn lose_two_servers(rng: &Rng, calm: Duration, consumers: &mut [Job]) -> Vec<(Duration, Fault)> {
    let millis = Duration::from_millis;
    let first = calm.mul_f64(rng.within(8, 40) as f64 / 100.0);
    let second = first + millis(rng.within(60, 400));
    consumers.iter_mut().for_each(|job| job.reconnects = true);
    consumers[..2].iter_mut().for_each(|job| job.starts = millis(rng.below(100)));
    consumers[2].starts = first + millis(rng.below(200));
    let stop = (first - millis(1), Fault::StopConsumer(1, millis(rng.pick(&[300, 900]))));
    vec![stop, (first, Fault::KillServer(millis(1))), (second, Fault::KillServer(millis(1)))]
}

fn job(rng: &Rng, feed: &Feed) -> Job {
    let batch_size = (feed.is_cut && !rng.one_in(4)).then(|| rng.within(1, 12));
    let config = Config {
        batch_size,
        shard: None,
        drop_last: rng.one_in(4),
        entry: if rng.one_in(6) { Entry::Newest } else { Entry::EpochStart },
        moves_on: rng.one_in(4),
        epoch_timeout: Duration::from_secs(30),
    };
    Job {
        config,
        starts: if rng.one_in(2) { Duration::ZERO } else { Duration::from_micros(rng.below(1_500_000)) },
        loads: None,
        think_micros: rng.pick(&[2000, 10_000, 80_000, 400_000]),
        keeps: rng.pick(&[0, 0, 1, 2, 5]),
        keeps_for_good: rng.pick(&[0, 0, 0, 4]),
        rests: if rng.one_in(4) { feed.stall_timeout * rng.pick(&[1, 1, 1, 4]) } else { Duration::ZERO },
        breaks_off: rng.pick(&[0, 0, 0, 3]),
        reconnects: !rng.one_in(4),
    }
}

/// Makes some consumers the ranks of one job.
fn share_among_ranks(rng: &Rng, feed: &Feed, consumers: &mut [Job]) {
    if consumers.len() < 2 || feed.policy.lag == Lag::Skip || !rng.one_in(3) {
        return;
    }
    let world = rng.within(2, consumers.len() as u64) as u32;
    let first = consumers[0].config;
    for (rank, job) in consumers.iter_mut().take(world as usize).enumerate() {
        let shard = Some(Shard { group: 7, world, rank: rank as u32 });
        job.config = Config { shard, entry: Entry::EpochStart, moves_on: false, ..first };
        // Ranks do the same.
        job.breaks_off = 0;
    }
}

fn fault(rng: &Rng, calm: Duration, consumers: usize) -> (Duration, Fault) {
    let at = Duration::from_micros(rng.below(calm.as_micros() as u64 * 4 / 5));
    let which = rng.below(consumers as u64) as usize;
    let secs = Duration::from_millis(rng.pick(&[50, 300, 900, 2500]));
    let fault = match rng.below(13) {
        0..3 => Fault::KillConsumer(which),
        3 if rng.one_in(8) => Fault::StopConsumer(which, Duration::from_secs(8)),
        3..6 => Fault::StopConsumer(which, secs),
        6 => Fault::RestartConsumer(which, rng.one_in(2)),
        7 => Fault::ReloadConsumer(which),
        8..11 => Fault::KillServer(Duration::from_millis(rng.pick(&[1, 100, 1500]))),
        11 => Fault::StopServer(secs),
        _ => Fault::RestartRanks(Duration::from_millis(rng.pick(&[5, 400])), rng.one_in(2)),
    };
    (at, fault)
}

impl Fault {
    /// The consumer that it is injected into.
    pub fn consumer(self) -> Option<usize> {
        match self {
            Self::KillConsumer(number)
            | Self::StopConsumer(number, _)
            | Self::RestartConsumer(number, _)
            | Self::ReloadConsumer(number) => Some(number),
            Self::RestartRanks(..) | Self::KillServer(_) | Self::StopServer(_) => None,
        }
    }
}
