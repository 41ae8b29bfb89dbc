//! How far the log may run ahead, in epochs.

use super::tests::append;
use super::*;
use crate::message::Entry;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum EpochStep {
    /// One more epoch of a single sample.
    Append,
    Join(u64),
    Leave(u64),
    /// Reads one epoch to its end.
    Read(u64),
}

fn epoch_step() -> impl Strategy<Value = EpochStep> {
    let id = || 0_u64..3;
    prop_oneof![
        4 => Just(EpochStep::Append),
        1 => id().prop_map(EpochStep::Join),
        1 => id().prop_map(EpochStep::Leave),
        4 => id().prop_map(EpochStep::Read),
    ]
}

proptest! {
    /// Epochs much shorter than the ring: what bounds the log is how many they are.
    #[test]
    fn the_log_is_no_more_epochs_ahead_than_asked_and_never_stuck(
        lag in prop_oneof![Just(Lag::Block), Just(Lag::History), Just(Lag::Skip)],
        epochs_ahead in 0_u64..4,
        steps in prop::collection::vec(epoch_step(), 1..200),
    ) {
        let mut log = Log::new(Policy { lag, epochs_ahead, ..Policy::default() });
        log.shape(Size { capacity: 1000, window: 1000, ..Size::default() });
        let mut readers: BTreeMap<u64, u64> = BTreeMap::new();
        // Whoever comes while nobody is here begins with the epoch of the one that left last.
        let mut last_left = 0;
        for step in steps {
            match step {
                EpochStep::Append => {
                    let counted = if lag == Lag::Skip { readers.values().max() } else { readers.values().min() };
                    let counted = *counted.unwrap_or(&last_left);
                    prop_assert_eq!(log.can_begin_epoch(), log.epoch() <= counted + epochs_ahead);
                    if log.can_begin_epoch() {
                        log.begin_epoch(0);
                        append(&mut log);
                        log.end_epoch();
                    } else if !readers.is_empty() {
                        let behind: Vec<u64> = log.epochs_behind().iter().map(|&(id, _)| id).collect();
                        let is_behind = |epoch: u64| epoch == counted || (lag != Lag::Skip && epoch + epochs_ahead < log.epoch());
                        let expected: Vec<u64> =
                            readers.iter().filter(|&(_, &epoch)| is_behind(epoch)).map(|(&id, _)| id).collect();
                        prop_assert_eq!(behind, expected, "those who read on, or are cut off, let it go on");
                    }
                }
                EpochStep::Join(id) => {
                    log.leave(id);
                    last_left = readers.remove(&id).filter(|_| readers.is_empty()).unwrap_or(last_left);
                    let place = log.join(id, Entry::EpochStart).unwrap();
                    readers.insert(id, place.epoch);
                }
                EpochStep::Leave(id) => {
                    log.leave(id);
                    last_left = readers.remove(&id).filter(|_| readers.is_empty()).unwrap_or(last_left);
                }
                EpochStep::Read(id) => {
                    if let Some(epoch) = readers.get_mut(&id).filter(|epoch| **epoch < log.epoch()) {
                        *epoch += 1;
                        let released = log.start_of(*epoch).unwrap_or(log.head());
                        log.advance(id, *epoch, released);
                    }
                }
            }
        }
    }
}
