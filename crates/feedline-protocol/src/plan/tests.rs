//! Orders are what they say, wherever they are looked up; chance is fair as far as it can be counted.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::mixture::MixtureError;
use super::order::{Parts, Weighted};
use super::permutation::Permutation;
use super::weighted::{Alias, WeightError};
use super::*;

fn all(order: &Order, seed: u64, epoch: u64) -> Vec<u64> {
    let order = order.epoch(Key::new(seed), epoch);
    (0..order.samples()).map(|index| order.at(index)).collect()
}

fn sorted(mut samples: Vec<u64>) -> Vec<u64> {
    samples.sort_unstable();
    samples
}

/// Pearson's statistic, in standard deviations from what chance gives.
fn surprise(counts: impl IntoIterator<Item = u64>, expected: &[f64]) -> f64 {
    let statistic: f64 =
        counts.into_iter().zip(expected).map(|(count, wanted)| (count as f64 - wanted).powi(2) / wanted).sum();
    let freedom = (expected.len() - 1) as f64;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

proptest! {
    #[test]
    fn a_permutation_has_every_number_once(seed: u64, len in 0_u64..5000) {
        let permutation = Permutation::new(Key::new(seed), len);
        let numbers: HashSet<u64> = (0..len).map(|index| permutation.at(index)).collect();
        prop_assert_eq!(numbers.len() as u64, len);
        prop_assert!(numbers.into_iter().all(|number| number < len));
    }

    #[test]
    fn long_permutations_never_meet_twice(seed: u64, len in 1_u64 << 40..1 << 56, start: u64) {
        let permutation = Permutation::new(Key::new(seed), len);
        let numbers: HashSet<u64> = (0..1000).map(|step| permutation.at((start % len + step) % len)).collect();
        prop_assert_eq!(numbers.len(), 1000);
    }

    #[test]
    fn a_mixture_gives_every_part_its_share_everywhere(
        weights in prop::collection::vec(0.0_f64..10.0, 1..6),
        changes in prop::collection::vec((1_u64..300, prop::collection::vec(0.1_f64..10.0, 6)), 0..4),
        seed: u64,
    ) {
        prop_assume!(weights.iter().any(|&weight| weight > 0.0));
        let lens: Vec<u64> = (0..weights.len() as u64).map(|part| 7 + 5 * part).collect();
        let parts = Parts::new(lens.iter().map(|&len| (len, Order::Shuffled(len))));
        let mut mixture = Mixture::new(parts, &weights, 50).unwrap();
        let mut phases = vec![(0, weights.clone())];
        for (after, weights) in changes {
            let start = phases.last().unwrap().0 + after;
            let weights = weights[..lens.len()].to_vec();
            mixture = mixture.then(start, &weights).unwrap();
            phases.push((start, weights));
        }
        let end = phases.last().unwrap().0 + 400;
        let order = Order::Mixture(mixture);
        let stream: Vec<u64> = (0..end.div_ceil(50)).flat_map(|epoch| all(&order, seed, epoch)).collect();
        let offsets: Vec<u64> = lens.iter().scan(0, |at, len| { *at += len; Some(*at - len) }).collect();
        let part_of = |sample: u64| offsets.partition_point(|&offset| offset <= sample) - 1;
        // In every phase, after any number of samples.
        for (at, (start, weights)) in phases.iter().enumerate() {
            let end = phases.get(at + 1).map_or(end, |next| next.0);
            let sum: f64 = weights.iter().sum();
            let mut had = vec![0.0; lens.len()];
            for (place, &sample) in stream[*start as usize..end as usize].iter().enumerate() {
                had[part_of(sample)] += 1.0;
                for (had, weight) in had.iter().zip(weights) {
                    let share = (place + 1) as f64 * weight / sum;
                    prop_assert!((had - share).abs() < 0.51 * lens.len() as f64, "{} of {}", had, share);
                }
            }
        }
        // Each part's samples come once before any of them comes again, whatever changes.
        for (part, len) in lens.iter().enumerate() {
            let own: Vec<u64> = stream.iter().copied().filter(|&sample| part_of(sample) == part).collect();
            for pass in own.chunks(*len as usize) {
                prop_assert_eq!(pass.iter().collect::<HashSet<_>>().len(), pass.len());
            }
        }
    }

    #[test]
    fn a_concatenation_has_its_parts_one_after_the_other(lens in prop::collection::vec(0_u64..20, 1..6), seed: u64) {
        let order = Order::Concatenation(Parts::new(lens.iter().map(|&len| (len, Order::Shuffled(len)))));
        let samples = all(&order, seed, 3);
        prop_assert_eq!(samples.len() as u64, order.samples());
        let mut start = 0;
        for len in lens {
            let part = samples[start as usize..(start + len) as usize].to_vec();
            prop_assert_eq!(sorted(part), (start..start + len).collect::<Vec<_>>());
            start += len;
        }
    }

    #[test]
    fn without_replacement_nothing_comes_twice(weights in prop::collection::vec(0.0_f64..5.0, 1..60), seed: u64, part in 0.0_f64..1.0) {
        let there = weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
        prop_assume!(there > 0);
        let samples = (there as f64 * part) as u64;
        let order = Order::Weighted(Weighted::new(weights.clone().into(), samples, false).unwrap());
        let drawn = all(&order, seed, 1);
        prop_assert_eq!(drawn.len() as u64, samples);
        prop_assert!(drawn.iter().all(|&sample| weights[sample as usize] > 0.0));
        prop_assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
    }
}

#[test]
fn every_permutation_of_a_few_numbers_is_as_likely() {
    for (len, permutations) in [(2, 2), (3, 6), (4, 24), (5, 120)] {
        let mut counts: HashMap<Vec<u64>, u64> = HashMap::new();
        let tries = 400 * permutations;
        for seed in 0..tries {
            let permutation = Permutation::new(Key::new(seed), len);
            *counts.entry((0..len).map(|index| permutation.at(index)).collect()).or_default() += 1;
        }
        assert_eq!(counts.len() as u64, permutations, "of {len} numbers");
        let expected = vec![400.0; permutations as usize];
        let surprise = surprise(counts.into_values(), &expected);
        assert!(surprise.abs() < 5.0, "{len} numbers: {surprise}");
    }
}

/// Counts in twentieths of the numbers below `len`, as far as they can be divided.
fn surprise_in_twentieths(numbers: impl IntoIterator<Item = u64>, len: u64) -> f64 {
    let (mut counts, mut tries) = (vec![0; 20], 0.0);
    for number in numbers {
        counts[(number * 20 / len) as usize] += 1;
        tries += 1.0;
    }
    let cell = |at: u64| ((at + 1) * len).div_ceil(20) - (at * len).div_ceil(20);
    let expected: Vec<f64> = (0..20).map(|at| tries * cell(at) as f64 / len as f64).collect();
    surprise(counts, &expected)
}

#[test]
fn over_many_keys_no_place_is_a_favourite() {
    for len in [50_u64, 1000, 70_000, 10_000_000] {
        let shuffled = |seed: u64| Permutation::new(Key::new(seed).with(len), len).at(seed.wrapping_mul(7919) % len);
        let surprise = surprise_in_twentieths((0..20_000).map(shuffled), len);
        assert!(surprise.abs() < 5.0, "{len} numbers: {surprise}");
    }
}

#[test]
fn within_a_shuffle_no_distance_is_a_favourite() {
    for len in [50_000_u64, 70_000, 1 << 20] {
        let permutation = Permutation::new(Key::new(len), len);
        // Bits that are not mixed would show at a power of two.
        for step in (0..16).map(|bit| 1 << bit) {
            let apart = |index| (permutation.at((index + step) % len) + len - permutation.at(index)) % len - 1;
            let surprise = surprise_in_twentieths((0..20_000).map(apart), len - 1);
            assert!(surprise.abs() < 5.0, "{len} numbers, {step} apart: {surprise}");
        }
    }
}

#[test]
fn draws_follow_the_weights() {
    let weights = [0.0, 1.0, 2.0, 0.5, 0.0, 6.5];
    let order = Order::Weighted(Weighted::new(weights.to_vec().into(), 100_000, true).unwrap());
    let mut counts = vec![0; weights.len()];
    all(&order, 5, 2).into_iter().for_each(|sample| counts[sample as usize] += 1);
    assert_eq!((counts[0], counts[4]), (0, 0));
    let kept = [1, 2, 3, 5];
    let expected: Vec<f64> = kept.iter().map(|&at| weights[at] * 10_000.0).collect();
    let surprise = surprise(kept.iter().map(|&at| counts[at]), &expected);
    assert!(surprise.abs() < 5.0, "{surprise}");
}

#[test]
fn without_replacement_the_heavy_come_first() {
    let weights: std::sync::Arc<[f64]> = [1.0, 3.0].into();
    let order = Order::Weighted(Weighted::new(weights, 2, false).unwrap());
    let heavy = (0..10_000).filter(|&epoch| all(&order, 1, epoch)[0] == 1).count() as u64;
    let surprise = surprise([heavy, 10_000 - heavy], &[7500.0, 2500.0]);
    assert!(surprise.abs() < 5.0, "{heavy} of 10000");
}

#[test]
fn huge_weights_have_a_sum() {
    let alias = Alias::new(&[f64::MAX, f64::MAX]).unwrap();
    let ones = (0..1000).filter(|&index| alias.at(Key::new(1), index) == 1).count();
    assert!((400..600).contains(&ones), "{ones}");
}

#[test]
fn weights_that_nothing_can_be_drawn_by() {
    let refused = |weights: &[f64], samples, replacement| {
        Weighted::new(weights.to_vec().into(), samples, replacement).unwrap_err()
    };
    assert_eq!(refused(&[1.0, -2.0], 1, true), WeightError::Invalid { index: 1, weight: -2.0 });
    assert!(matches!(refused(&[f64::NAN], 1, true), WeightError::Invalid { index: 0, .. }));
    assert!(matches!(refused(&[f64::INFINITY], 1, true), WeightError::Invalid { index: 0, .. }));
    assert_eq!(refused(&[0.0, 0.0], 1, true), WeightError::AllZero);
    assert_eq!(refused(&[], 1, true), WeightError::AllZero);
    assert_eq!(refused(&[1.0, 0.0, 2.0], 3, false), WeightError::TooFew { wanted: 3, there: 2 });
    assert_eq!(refused(&[1.0, -2.0], 1, true).to_string(), "weight 1 is -2: weights are numbers from 0 on");
    assert_eq!(refused(&[0.0], 1, true).to_string(), "no weight is larger than 0");
    assert_eq!(refused(&[1.0], 3, false).to_string(), "3 samples without replacement, where 1 have a weight above 0");
}

#[test]
fn mixtures_that_cannot_be() {
    let parts = || Parts::new([(3, Order::Sequential(3)), (0, Order::Sequential(0))]);
    assert_eq!(Mixture::new(parts(), &[1.0], 9).unwrap_err(), MixtureError::Count { weights: 1, parts: 2 });
    assert_eq!(Mixture::new(parts(), &[1.0, 1.0], 9).unwrap_err(), MixtureError::Empty(1));
    assert_eq!(Mixture::new(parts(), &[0.0, 0.0], 9).unwrap_err(), MixtureError::Weights(WeightError::AllZero));
    let mixture = Mixture::new(parts(), &[1.0, 0.0], 9).unwrap().then(20, &[2.0, 0.0]).unwrap();
    assert_eq!(mixture.then(19, &[1.0, 0.0]).unwrap_err(), MixtureError::Past { start: 19, last: 20 });
    assert_eq!(all(&Order::Mixture(mixture), 1, 4), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_mixture_follows_its_weights_from_the_first_sample_on() {
    let parts = Parts::new([(100, Order::Sequential(100)), (100, Order::Sequential(100))]);
    let mixture = Mixture::new(parts, &[2.0, 1.0], 9).unwrap().then(9, &[1.0, 1.0]).unwrap();
    let order = Order::Mixture(mixture);
    assert_eq!(all(&order, 1, 0), [0, 100, 1, 2, 101, 3, 4, 102, 5]);
    assert_eq!(all(&order, 1, 1), [6, 103, 7, 104, 8, 105, 9, 106, 10]);
}

#[test]
fn a_weight_changed_twice_at_one_sample_counts_once() {
    let parts = Parts::new([(9, Order::Sequential(9)), (9, Order::Sequential(9))]);
    let mixture =
        Mixture::new(parts, &[1.0, 1.0], 4).unwrap().then(0, &[1.0, 0.0]).unwrap().then(4, &[0.0, 1.0]).unwrap();
    let mixture = mixture.then(4, &[1.0, 0.0]).unwrap();
    assert_eq!(all(&Order::Mixture(mixture.clone()), 1, 0), [0, 1, 2, 3]);
    assert_eq!(all(&Order::Mixture(mixture), 1, 1), [4, 5, 6, 7]);
}

#[test]
fn a_subset_has_its_own_samples_alone() {
    let order = Order::Subset { samples: [3, 9, 27].into(), order: Box::new(Order::Shuffled(3)) };
    let epochs: HashSet<Vec<u64>> = (0..50).map(|epoch| all(&order, 1, epoch)).collect();
    assert_eq!(epochs.len(), 6);
    assert!(epochs.into_iter().all(|samples| sorted(samples) == [3, 9, 27]));
}

#[test]
fn seeds_and_epochs_give_other_orders_and_other_draws() {
    let plans: Vec<Plan> = (0..2).map(|seed| Plan::new(seed, Order::Shuffled(1000))).collect();
    let epochs: Vec<PlannedEpoch> = plans.iter().flat_map(|plan| [plan.epoch(0), plan.epoch(1)]).collect();
    let places: Vec<Vec<Place>> = epochs.iter().map(|epoch| (0..1000).map(|at| epoch.at(at)).collect()).collect();
    for (one, other) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        let alike = places[one].iter().zip(&places[other]).filter(|(one, other)| one.sample == other.sample).count();
        assert!(alike < 12, "{alike} of 1000 samples at the same place");
    }
    let draws: HashSet<u64> = places.iter().flatten().map(|place| place.draw).collect();
    assert_eq!(draws.len(), 4000);
    // What a sample draws does not depend on where it stands.
    let sequential = Plan::new(0, Order::Sequential(1000)).epoch(1);
    let shuffled: HashMap<u64, u64> = places[1].iter().map(|place| (place.sample, place.draw)).collect();
    assert!((0..1000).all(|sample| sequential.at(sample).draw == shuffled[&sample]));
}

/// A state is of use on another machine, years later: these numbers never change.
#[test]
fn orders_stay_what_they_are() {
    let shuffled = Order::Shuffled(1_000_000).epoch(Key::new(7), 3);
    assert_eq!([0, 1, 999_999].map(|index| shuffled.at(index)), [697_135, 170_032, 164_619]);
    let weights: std::sync::Arc<[f64]> = [0.1, 0.7, 0.2].into();
    let drawn = |replacement| all(&Order::Weighted(Weighted::new(weights.clone(), 3, replacement).unwrap()), 7, 3);
    assert_eq!((drawn(true), drawn(false)), (vec![1, 1, 1], vec![1, 2, 0]));
    assert_eq!(Plan::new(7, Order::Sequential(9)).epoch(3).at(5).draw, 5_952_945_272_521_191_189);
}

#[test]
fn orders_in_words() {
    let weights: std::sync::Arc<[f64]> = [1.0, 2.0].into();
    let parts = || Parts::new([(4, Order::Shuffled(4)), (6, Order::Sequential(6))]);
    let mixture = || Order::Mixture(Mixture::new(parts(), &[1.0, 0.5], 8).unwrap().then(20, &[0.0, 1e-9]).unwrap());
    let words = [
        Order::Sequential(5),
        Order::Shuffled(5),
        Order::Weighted(Weighted::new(weights.clone(), 9, true).unwrap()),
        Order::Weighted(Weighted::new(weights, 2, false).unwrap()),
        Order::Subset { samples: [1, 2].into(), order: Box::new(Order::Shuffled(2)) },
        Order::Concatenation(parts()),
        mixture(),
    ]
    .map(|order| order.to_string());
    assert_eq!(
        words,
        [
            "sequential, 5 samples",
            "shuffled, 5 samples",
            "weighted with replacement, 9 of 2 samples (weights 49d6f896253be73d)",
            "weighted without replacement, 2 of 2 samples (weights 49d6f896253be73d)",
            "a subset of 2 samples (shuffled, 2 samples; list a2eac7b9206eaf4e)",
            "2 datasets one after the other, 10 samples [4: shuffled, 4 samples | 6: sequential, 6 samples]",
            "a mixture of 2 datasets, 8 samples [4: shuffled, 4 samples | 6: sequential, 6 samples] by 1 : 0.5, from sample 20 on by 0 : 0.000000001",
        ]
    );
}

#[test]
#[should_panic(expected = "place 5 of an epoch with 5 samples")]
fn there_is_nothing_behind_the_end() {
    let _ = Plan::new(0, Order::Sequential(5)).epoch(0).at(5);
}

#[test]
fn a_feed_says_what_its_plan_is() {
    let mixture =
        Mixture::new(Parts::new([(9, Order::Shuffled(7)), (4, Order::Sequential(4))]), &[2.0, 0.25], 30).unwrap();
    let mixture = Order::Mixture(mixture.then(40, &[1.0, 3.5]).unwrap());
    let nested =
        Order::Concatenation(Parts::new([(5, Order::Shuffled(5)), (13, mixture.clone()), (0, Order::Sequential(0))]));
    for order in
        [Order::Sequential(7), Order::Shuffled(1_000_000), mixture, nested, Order::Concatenation(Parts::new([]))]
    {
        let plan = Plan::of_feed(&format!("seed 12: {order}")).unwrap();
        assert_eq!((plan.seed(), plan.order().to_string()), (12, order.to_string()));
        let plan = Plan::of_feed(&format!("run 80000000000000ff: {order}")).unwrap();
        assert_eq!(plan.seed(), 255, "a seed has 63 bits");
        assert_eq!(all(plan.order(), 255, 1), all(&order, 255, 1));
    }
    for other in [
        "",
        "seed 7",
        "sequential",
        "run zz: shuffled, 3 samples",
        "seed 7: WeightedRandomSampler",
        "seed 7: shuffled, 3 samples ",
        "seed 7: weighted with replacement, 9 of 2 samples (weights 0123456789abcdef)",
        "seed 7: 1 datasets one after the other, 3 samples [3: shuffled, 3 samples",
    ] {
        assert!(Plan::of_feed(other).is_none(), "{other}");
    }
}
