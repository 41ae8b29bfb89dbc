//! Whether the ranks of one job have read the same steps: they begin with the same sample, each step is cut into one slice for
//! each, without a gap and without an overlap, and all of them have equally many in an epoch.

use std::collections::BTreeMap;

use feedline_protocol::Mark;
use feedline_protocol::consumer::Config;
use feedline_protocol::shard::{Shard, own_step};

use crate::scenario::{Feed, Scenario};

/// All that the ranks of a scenario have read.
#[derive(Default)]
pub struct RankJudge {
    epochs: BTreeMap<(usize, u64), Epoch>,
    /// The epoch that each rank of a start of the job began with.
    begun: BTreeMap<usize, BTreeMap<u32, u64>>,
    /// Starts of the job whose ranks may begin apart: one of them died, or the server did, before all of them had a place.
    apart: Vec<usize>,
    /// Where a start of the job was told to begin.
    loaded: BTreeMap<usize, Mark>,
}

/// What the ranks of one start of a job have read of one epoch.
#[derive(Default)]
struct Epoch {
    /// The slices of each rank, one for each step.
    slices: BTreeMap<u32, Vec<(u64, u64)>>,
    /// How many steps each rank had that has come to the end.
    over: BTreeMap<u32, usize>,
}

impl RankJudge {
    pub fn new(scenario: &Scenario) -> Self {
        let mut ranks = scenario.consumers.iter().filter(|job| job.config.shard.is_some());
        let loaded = ranks.next().and_then(|job| job.loads);
        Self { loaded: loaded.map(|mark| (0, mark)).into_iter().collect(), ..Self::default() }
    }

    pub fn may_begin_apart(&mut self, run: usize) {
        self.apart.push(run);
    }

    pub fn loads(&mut self, run: usize, mark: Mark) {
        self.loaded.insert(run, mark);
    }

    /// All ranks begin with the same epoch.
    fn begins(&mut self, run: usize, rank: u32, epoch: u64) -> Result<(), String> {
        let begun = self.begun.entry(run).or_default();
        let own = *begun.entry(rank).or_insert(epoch);
        match begun.iter().find(|&(_, &other)| other != own) {
            Some((other, first)) if !self.apart.contains(&run) => {
                Err(format!("rank {rank} began with epoch {own}, and rank {other} with {first}"))
            }
            _ => Ok(()),
        }
    }

    /// A rank was handed its slice of a step, and would save this place.
    pub fn batch(
        &mut self,
        run: usize,
        epoch: u64,
        (first, until): (u64, u64),
        saved: Mark,
        config: &Config,
        feed: &Feed,
    ) -> Result<(), String> {
        let Some(shard) = config.shard else { return Ok(()) };
        let (rank, world) = (shard.rank, shard.world);
        self.begins(run, rank, epoch)?;
        let is_apart = self.apart.contains(&run);
        let loaded = self.loaded.get(&run).copied();
        let read = self.epochs.entry((run, epoch)).or_default();
        let slices = read.slices.entry(rank).or_default();
        if slices.last().is_some_and(|&(_, last)| first < last) {
            return Err(format!("rank {rank} had sample {first} of epoch {epoch} again"));
        }
        let step = slices.len();
        slices.push((first, until));
        if read.over.contains_key(&rank) {
            return Err(format!("rank {rank} goes on in epoch {epoch} after its end"));
        }
        judge_size(step, until - first, slices, config)?;
        let next = Mark { epoch: epoch + 1, index: 0 };
        let rest = feed.length(epoch).saturating_sub(until);
        let is_saved = match saved == next {
            // The ranks after it have no more of the step than it has.
            true => rest <= leaves_out(config, feed) + u64::from(world - 1 - rank) * (until - first),
            false => saved.epoch == epoch && saved.index >= until && (rank + 1 < world || saved.index == until),
        };
        if !is_saved {
            return Err(format!("rank {rank} had {first}..{until} of epoch {epoch}, and would save {saved:?}"));
        }
        if is_apart {
            return Ok(());
        }
        let slice_of = |rank: u32, step: usize| read.slices.get(&rank).and_then(|slices| slices.get(step)).copied();
        let before = match (rank, step) {
            (1.., _) => slice_of(rank - 1, step),
            (0, 1..) => slice_of(world - 1, step - 1),
            (0, 0) => Some((0, loaded.filter(|mark| mark.epoch == epoch).map_or(0, |mark| mark.index))),
        };
        let after = if rank + 1 < world { slice_of(rank + 1, step) } else { slice_of(0, step + 1) };
        let is_even =
            |one: (u64, u64), next: (u64, u64)| matches!((one.1 - one.0) as i64 - (next.1 - next.0) as i64, 0 | 1);
        let fits = before.is_none_or(|before| before.1 == first) && after.is_none_or(|after| after.0 == until);
        let is_fair = (rank == 0 || before.is_none_or(|before| is_even(before, (first, until))))
            && (rank + 1 == world || after.is_none_or(|after| is_even((first, until), after)));
        if fits && is_fair {
            return Ok(());
        }
        Err(format!(
            "rank {rank} had {first}..{until} as step {step} of epoch {epoch}, between {before:?} and {after:?} of its neighbours"
        ))
    }

    /// A rank has come to the end of an epoch.
    pub fn epoch_over(&mut self, run: usize, epoch: u64, config: &Config, feed: &Feed) -> Result<(), String> {
        let Some(shard) = config.shard else { return Ok(()) };
        self.begins(run, shard.rank, epoch)?;
        let read = self.epochs.entry((run, epoch)).or_default();
        let slices = read.slices.get(&shard.rank).map_or(&[][..], Vec::as_slice);
        read.over.insert(shard.rank, slices.len());
        if let Some((other, steps)) = read.over.iter().find(|&(_, &steps)| steps != slices.len()) {
            let own = slices.len();
            return Err(format!("rank {} had {own} batches of epoch {epoch}, and rank {other} {steps}", shard.rank));
        }
        let length = feed.length(epoch);
        let had = slices.last().map_or(0, |&(_, until)| until);
        if shard.rank + 1 == shard.world && length.saturating_sub(had) > leaves_out(config, feed) {
            return Err(format!("the ranks' epoch {epoch} of {length} samples ended at {had}"));
        }
        Ok(())
    }
}

/// The most samples at an epoch's end that no rank gets.
fn leaves_out(config: &Config, feed: &Feed) -> u64 {
    let world = config.shard.map_or(1, Shard::world);
    let own = if feed.is_cut { own_step(feed.source_batch, world) } else { world };
    match (config.drop_last || !feed.is_cut, config.step_size().filter(|_| feed.is_cut)) {
        (false, _) => 0,
        (true, step) => step.unwrap_or(own) - 1,
    }
}

/// Steps are of the size that was asked for; what is too little for another step joins the last one.
fn judge_size(step: usize, len: u64, slices: &[(u64, u64)], config: &Config) -> Result<(), String> {
    let Some(size) = config.batch_size else { return Ok(()) };
    let before = step.checked_sub(1).map(|before| slices[before]);
    let is_last_before = before.is_some_and(|(first, until)| until - first != size);
    if len > size + 1 || is_last_before || (config.drop_last && len != size) {
        return Err(format!("a rank's slice of {len} where {size} were asked for: {slices:?}"));
    }
    Ok(())
}
