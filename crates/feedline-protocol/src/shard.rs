//! How the ranks of one data-parallel job share an epoch. Pure numbers.
//!
//! ```text
//!        step            step          last step
//!  ├──────┬──────┼──────┬──────┼───────┬──────┤ end      two ranks, batch_size=6, 26 samples
//!    rank 0 rank 1 rank 0 rank 1 rank 0 rank 1
//!      6      6      6      6      1      1
//! ```
//!
//! A step is a run of samples that all ranks take together, each its slice of it. Ranks read at different moments and never
//! ask each other, so what a step is may depend only on what all of them will see alike: samples, and the epoch's true end.
//! A tail that is too small for everybody joins the step before it. A step is handed out once it is known whether another
//! follows: so those who stop after the last one, and ask for no more, know that it was.

use std::fmt;

/// One of the processes of a data-parallel job, which together read each epoch once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The same number for all ranks of one job.
    pub group: u64,
    /// How many there are.
    pub world: u32,
    /// Which one this is, from 0 on.
    pub rank: u32,
}

impl Shard {
    /// As a number to count samples with.
    pub fn world(self) -> u64 {
        u64::from(self.world)
    }

    /// This rank's part of a step of so many samples: where it begins and ends. The first ranks get what can't be divided.
    pub(crate) fn slice(self, samples: u64) -> (u64, u64) {
        let (share, extra) = (samples / self.world(), samples % self.world());
        let before = |rank: u64| rank * share + rank.min(extra);
        (before(self.rank.into()), before(u64::from(self.rank) + 1))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world)
    }
}

/// What is there of an epoch, from where the ranks stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// Samples that are published.
    pub there: u64,
    /// They are all that the epoch has.
    pub is_all: bool,
}

/// What all ranks do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// They take so many samples.
    Take(u64),
    /// It can't be known yet.
    Wait,
    /// The epoch is over; so many samples are left out.
    Over(u64),
    /// The epoch has so many samples: not one for each.
    TooFew(u64),
}

/// Steps of `full` samples.
pub(crate) fn cut(ahead: Ahead, full: u64, world: u64, drop_last: bool) -> Step {
    let Ahead { there, is_all } = ahead;
    // What another step must have.
    let least = if drop_last { full } else { world };
    match there {
        _ if there >= full.saturating_add(least) => Step::Take(full),
        _ if !is_all => Step::Wait,
        _ if there == 0 => Step::Over(0),
        _ if drop_last => {
            if there >= full {
                Step::Take(full)
            } else {
                Step::Over(there)
            }
        }
        _ if there < world => Step::TooFew(there),
        _ => Step::Take(there),
    }
}

/// The source's own batches: as many of them as it takes for everybody to get something. `left_at` tells how many samples of
/// its batch are left from a sample on that is there; most batches have `batch`.
pub(crate) fn own(ahead: Ahead, batch: u64, world: u64, drop_last: bool, left_at: impl Fn(u64) -> u64) -> Step {
    let Ahead { there, is_all } = ahead;
    let together = |first: u64| {
        let mut end = first;
        while end - first < world && end < there {
            end = end.saturating_add(left_at(end).max(1)).min(there);
        }
        end
    };
    let end = together(0);
    if end < world || !drop_last {
        return cut(ahead, end.max(world), world, drop_last);
    }
    // The last one is left out if it is incomplete. It is not the last if something follows it.
    let is_complete =
        |first: u64, end: u64| end - first >= own_step(batch, world) || (end - first >= world && end < there);
    match (is_complete(0, end), is_all) {
        (true, true) => Step::Take(end),
        (false, true) => Step::Over(there),
        (true, false) if is_complete(end, together(end)) => Step::Take(end),
        (_, false) => Step::Wait,
    }
}

/// How many samples a step of the source's own batches has where these have `batch`.
pub fn own_step(batch: u64, world: u64) -> u64 {
    world.div_ceil(batch.max(1)).saturating_mul(batch.max(1))
}

/// Batches that can't be cut: one for each, and those that are left over at the end for nobody. `is_first`: none was taken yet.
pub(crate) fn whole(ahead: Ahead, world: u64, drop_last: bool, is_first: bool) -> Step {
    match cut(ahead, world, world, true) {
        Step::Over(there) if there > 0 && is_first && !drop_last => Step::TooFew(there),
        step => step,
    }
}

/// How many steps of `full` samples an epoch has.
pub(crate) fn steps_in(samples: u64, full: u64, world: u64, drop_last: bool) -> u64 {
    let has_more = !drop_last && samples % full >= world;
    samples / full + u64::from(has_more)
}

#[cfg(test)]
mod tests;
