//! What a task says, and what becomes of it: numbers on the board, with names.

use feedline_shm::board::{OUTCOME_WORDS, TASK_WORDS};

/// How a task's samples come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each sample into its slots.
    Cut,
    /// The collated batch, in bytes.
    Whole,
}

/// A part of a batch, for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// How they come back.
    pub kind: Kind,
    /// Its keys are a list of the whole batch's that Python has pickled, not a number for each sample of this task.
    pub has_pickled_keys: bool,
    /// Where the keys of its samples are in the arena.
    pub keys: u64,
    /// How many bytes they have.
    pub keys_len: u64,
    /// How many samples it has.
    pub samples: u64,
    /// The number of its first sample in the batch.
    pub first: u64,
    /// How many samples the batch has.
    pub batch: u64,
    /// What its draws are seeded with, beside the seed and the sample.
    pub epoch: u64,
    /// The batch stands in a ring, and the arena has only its place ([`Slots`](super::claimed::Slots)).
    pub is_in_ring: bool,
    /// Where the batch, or its place, stands in the arena; 0 while there is no memory for it.
    pub out: u64,
    /// How much memory that is.
    pub out_len: u64,
    /// Where the description of the lanes is; 0 while nobody knows them, [`NO_LANES`] if there are none.
    pub lanes: u64,
}

/// There are no lanes: batches travel whole.
pub const NO_LANES: u64 = u64::MAX;

/// The word that says where the batch stands.
pub const OUT: usize = 7;
/// The word that says how much memory that is.
pub const OUT_LEN: usize = 8;
/// The word that says where the lanes are described.
pub const LANES: usize = 9;

impl Task {
    /// For the board.
    pub fn to_words(self) -> [u64; TASK_WORDS] {
        let Self { kind, has_pickled_keys, is_in_ring, keys, keys_len, samples, first, batch, epoch, .. } = self;
        let Self { out, out_len, lanes, .. } = self;
        let kind = u64::from(kind == Kind::Whole) | u64::from(has_pickled_keys) << 1 | u64::from(is_in_ring) << 2;
        [kind, keys, keys_len, samples, first, batch, epoch, out, out_len, lanes]
    }

    /// From the board.
    pub fn from_words(words: [u64; TASK_WORDS]) -> Self {
        let [kind, keys, keys_len, samples, first, batch, epoch, out, out_len, lanes] = words;
        let (has_pickled_keys, is_in_ring) = (kind & 2 != 0, kind & 4 != 0);
        let kind = if kind & 1 == 0 { Kind::Cut } else { Kind::Whole };
        Self { kind, has_pickled_keys, is_in_ring, keys, keys_len, samples, first, batch, epoch, out, out_len, lanes }
    }
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Made {
        /// How long that took.
        nanos: u64,
        /// How much CPU time.
        cpu_nanos: u64,
        /// How many bytes it has, if it travels whole.
        len_bytes: u64,
    },
    /// The dataset raised; the owner was told what.
    Raised,
    /// A sample has no place in the lanes.
    Unfit,
}

impl Outcome {
    /// For the board.
    pub fn to_words(self) -> [u64; OUTCOME_WORDS] {
        match self {
            Self::Made { nanos, cpu_nanos, len_bytes } => [0, nanos, len_bytes, cpu_nanos],
            Self::Raised => [1, 0, 0, 0],
            Self::Unfit => [2, 0, 0, 0],
        }
    }

    /// From the board.
    pub fn from_words(words: [u64; OUTCOME_WORDS]) -> Self {
        match words {
            [0, nanos, len_bytes, cpu_nanos] => Self::Made { nanos, cpu_nanos, len_bytes },
            [1, ..] => Self::Raised,
            _ => Self::Unfit,
        }
    }
}

/// A worker has made the pool's first sample, and asks where the lanes are: its mailbox describes the sample.
pub const ASKS_FOR_LANES: u32 = 1;
/// A worker has made a batch that travels whole, and asks for memory.
pub const ASKS_FOR_MEMORY: u32 = 2;
/// The dataset has raised: the mailbox says what.
pub const TELLS_OF_ERROR: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_outcomes_survive_the_board() {
        let bits = [false, true];
        let kinds = bits.iter().flat_map(|&pickled| bits.map(|ring| (Kind::Cut, pickled, ring)));
        let whole = bits.map(|pickled| (Kind::Whole, pickled, false));
        for (kind, has_pickled_keys, is_in_ring) in kinds.chain(whole) {
            let (keys, keys_len, samples, first, batch, epoch, out, out_len, lanes) = (1, 2, 3, 4, 5, 6, 7, 8, 9);
            let task = Task {
                kind,
                has_pickled_keys,
                is_in_ring,
                keys,
                keys_len,
                samples,
                first,
                batch,
                epoch,
                out,
                out_len,
                lanes,
            };
            assert_eq!(Task::from_words(task.to_words()), task);
            let words = task.to_words();
            assert_eq!((words[OUT], words[OUT_LEN], words[LANES]), (out, out_len, lanes));
        }
        for outcome in [Outcome::Made { nanos: 3, cpu_nanos: 2, len_bytes: 4 }, Outcome::Raised, Outcome::Unfit] {
            assert_eq!(Outcome::from_words(outcome.to_words()), outcome);
        }
    }
}
