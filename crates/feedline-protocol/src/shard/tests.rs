//! Ranks that see an epoch's samples appear in pieces of any size, each at moments of its own.

use super::*;
use proptest::prelude::*;

#[test]
fn a_shard_is_named_by_its_rank() {
    assert_eq!(Shard { group: 7, world: 3, rank: 1 }.to_string(), "rank 1 of 3");
}

/// How a job reads.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Cut(u64),
    Own,
    Whole,
}

#[derive(Clone, Debug)]
struct Job {
    kind: Kind,
    world: u32,
    drop_last: bool,
    /// The source's batches.
    batches: Vec<u64>,
}

fn job() -> impl Strategy<Value = Job> {
    let kind = prop_oneof![(1_u64..9).prop_map(Kind::Cut), Just(Kind::Own), Just(Kind::Whole)];
    let even = (1_u64..12, 0_usize..12, 1_u64..12).prop_map(|(size, count, tail)| {
        let mut batches = vec![size; count];
        batches.push(tail.min(size));
        batches
    });
    let batches = prop_oneof![even, prop::collection::vec(1_u64..12, 0..12)];
    (kind, 1_u32..9, any::<bool>(), batches).prop_map(|(kind, world, drop_last, batches)| Job {
        kind,
        world,
        drop_last,
        batches,
    })
}

impl Job {
    /// In the unit of the log: samples, or batches that travel whole.
    fn lens(&self) -> Vec<u64> {
        if matches!(self.kind, Kind::Whole) { vec![1; self.batches.len()] } else { self.batches.clone() }
    }

    fn source_batch(&self) -> u64 {
        self.batches.first().copied().unwrap_or(1)
    }

    fn step(&self, cursor: u64, head: u64, is_all: bool) -> Step {
        let ends: Vec<u64> =
            self.lens().iter().scan(0, |end, len| Some(*end + len).inspect(|next| *end = *next)).collect();
        let ahead = Ahead { there: head - cursor, is_all };
        let left_at = |at: u64| {
            assert!(cursor + at < head, "only what is published is looked at");
            ends.iter().find(|&&end| end > cursor + at).expect("it is in a batch") - cursor - at
        };
        let world = self.world.into();
        match self.kind {
            Kind::Cut(size) => cut(ahead, size * world, world, self.drop_last),
            Kind::Own => own(ahead, self.source_batch(), world, self.drop_last, left_at),
            Kind::Whole => whole(ahead, world, self.drop_last, cursor == 0),
        }
    }

    /// Reads an epoch as one rank, which looks when so many samples are published, and again when there are more.
    fn read(&self, rank: u32, looks: &[u64]) -> (Vec<(u64, u64)>, Vec<u64>, Step) {
        let total: u64 = self.lens().iter().sum();
        let shard = Shard { group: 0, world: self.world, rank };
        let (mut slices, mut steps, mut cursor) = (Vec::new(), Vec::new(), 0);
        let mut knew_the_end = false;
        // A batch is published as a whole; the end becomes known some time after the last.
        let mut published = 0;
        let mut heads: Vec<(u64, bool)> = vec![(0, false)];
        for len in self.lens() {
            published += len;
            heads.push((published, false));
        }
        heads.push((total, true));
        let looked = |at: u64| heads[(at as usize).min(heads.len() - 1)];
        let mut moments: Vec<u64> = looks.to_vec();
        moments.sort_unstable();
        moments.push(u64::MAX);
        for (head, is_all) in moments.into_iter().map(looked) {
            loop {
                match self.step(cursor, head, is_all) {
                    Step::Take(samples) => {
                        let (first, until) = shard.slice(samples);
                        slices.push((cursor + first, cursor + until));
                        cursor += samples;
                        steps.push(cursor);
                        knew_the_end = is_all;
                    }
                    Step::Wait => break,
                    over => {
                        assert!(knew_the_end || steps.is_empty(), "whoever took the last step knew that it was");
                        return (slices, steps, over);
                    }
                }
            }
        }
        panic!("the end is known, and it waits");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranks_decide_alike_and_share_everything(
        job in job(),
        looks in prop::collection::vec(prop::collection::vec(0_u64..14, 0..14), 8),
    ) {
        let total: u64 = job.lens().iter().sum();
        let world = u64::from(job.world);
        let read: Vec<_> = (0..job.world).map(|rank| job.read(rank, &looks[rank as usize])).collect();
        let (_, steps, over) = &read[0];
        for (slices, others, end) in &read {
            prop_assert_eq!(others, steps, "the same steps");
            prop_assert_eq!(end, over);
            prop_assert_eq!(slices.len(), steps.len());
            prop_assert!(slices.iter().all(|(first, until)| first < until), "never an empty batch");
        }
        // Step by step and rank by rank: one unbroken run.
        let in_order: Vec<_> = (0..steps.len()).flat_map(|step| read.iter().map(move |(slices, ..)| slices[step])).collect();
        let mut at = 0;
        for (first, until) in in_order {
            prop_assert_eq!(first, at);
            at = until;
        }
        match *over {
            Step::Over(left_out) => {
                prop_assert_eq!(at + left_out, total, "every sample once");
                let may_leave_out = job.drop_last || matches!(job.kind, Kind::Whole);
                prop_assert!(left_out == 0 || may_leave_out);
            }
            Step::TooFew(samples) => prop_assert!(samples == total && samples < world && steps.is_empty()),
            Step::Take(_) | Step::Wait => prop_assert!(false),
        }
        if let Kind::Cut(size) = job.kind {
            let full = size * world;
            prop_assert_eq!(steps.len() as u64, steps_in(total, full, world, job.drop_last));
            let ordinary = steps.len().saturating_sub(1);
            for (slices, ..) in &read {
                prop_assert!(slices.iter().take(ordinary).all(|(first, until)| until - first == size));
                prop_assert!(slices.iter().all(|(first, until)| until - first <= size + 1));
            }
            if job.drop_last {
                prop_assert_eq!(at, total / full * full);
            }
        }
        let is_even = job.batches.split_last().is_none_or(|(tail, rest)| {
            rest.iter().all(|&len| len == job.source_batch()) && *tail <= job.source_batch()
        });
        if matches!(job.kind, Kind::Own) && is_even {
            let full = own_step(job.source_batch(), world);
            prop_assert_eq!(steps.len() as u64, steps_in(total, full, world, job.drop_last));
        }
    }

    #[test]
    fn slices_differ_by_one_at_most(samples in 0_u64..1000, world in 1_u32..40) {
        let slices: Vec<_> = (0..world).map(|rank| Shard { group: 0, world, rank }.slice(samples)).collect();
        prop_assert_eq!(slices[0].0, 0);
        prop_assert_eq!(slices[world as usize - 1].1, samples);
        prop_assert!(slices.windows(2).all(|pair| pair[0].1 == pair[1].0));
        let lens: Vec<_> = slices.iter().map(|(first, until)| until - first).collect();
        prop_assert!(lens.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1));
        prop_assert!(lens[0] - lens[world as usize - 1] <= 1);
    }
}

#[test]
fn a_tail_too_small_for_everybody_joins_the_step_before_it() {
    let all = |there| Ahead { there, is_all: true };
    assert_eq!(cut(all(15), 12, 4, false), Step::Take(15));
    assert_eq!(cut(all(16), 12, 4, false), Step::Take(12), "the last has one for each");
    assert_eq!(cut(Ahead { there: 15, is_all: false }, 12, 4, false), Step::Wait, "it may be the end");
    assert_eq!(cut(all(3), 12, 4, false), Step::TooFew(3));
    assert_eq!(cut(all(15), 12, 4, true), Step::Take(12));
    assert_eq!(cut(all(3), 12, 4, true), Step::Over(3));
}
