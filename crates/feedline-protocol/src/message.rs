//! What a consumer and a server say to each other about cursors, and the numbers that they say it with.

use serde::{Deserialize, Serialize};

/// A number that is not known: an epoch's end, a length, or the room wanted when none is.
pub const UNKNOWN: u64 = u64::MAX;

/// No log gets this far: larger numbers of a peer are refused.
pub const FAR: u64 = 1 << 62;

/// More ranks than this are a mistake.
pub const MOST_RANKS: u32 = 1 << 16;

/// A place in a feed that means the same to every server of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Which epoch.
    pub epoch: u64,
    /// Which sample of it.
    pub index: u64,
}

/// How long an epoch is; each number is [`UNKNOWN`] until it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochLength {
    /// In samples.
    pub samples: u64,
    /// In batches as the source yields them.
    pub batches: u64,
    /// Samples in the last of these.
    pub tail: u64,
}

impl EpochLength {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { samples: UNKNOWN, batches: UNKNOWN, tail: UNKNOWN };
}

/// What a feed's head page says of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedState {
    /// More may come.
    #[default]
    Running,
    /// Every epoch is produced.
    Ended,
    /// The loader or the server failed; what was published stays good.
    Failed,
    /// Somebody stopped the server.
    Stopped,
}

impl FeedState {
    /// The word that stands for it in a page.
    pub fn word(self) -> u32 {
        self as u32
    }

    /// The state that a word stands for. A word that no server writes is taken for a failure.
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Running,
            1 => Self::Ended,
            3 => Self::Stopped,
            _ => Self::Failed,
        }
    }
}

/// Where a consumer that joins wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// With the first sample of the running epoch, or of the next.
    EpochStart,
    /// With the newest sample.
    Newest,
    /// With the first sample of all, or, if that is gone, like a consumer that has just come.
    First {
        /// That is [`Entry::Newest`], not [`Entry::EpochStart`].
        else_newest: bool,
    },
    /// With this sample of this epoch.
    At {
        /// Which epoch.
        epoch: u64,
        /// Which sample of it.
        index: u64,
    },
}

impl Entry {
    /// The epoch that it names; 0 if it names none.
    pub fn epoch(self) -> u64 {
        if let Self::At { epoch, .. } = self { epoch } else { 0 }
    }

    /// Whether it may become the newest sample.
    pub fn may_be_newest(self) -> bool {
        matches!(self, Self::Newest | Self::First { else_newest: true })
    }
}

/// A consumer's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The epoch that it reads first.
    pub epoch: u64,
    /// Its first sample, or `None` if that epoch has not begun.
    pub sample: Option<u64>,
    /// How many samples from there on it has had already.
    pub had: u64,
    /// Where the epoch began, if it has.
    pub start: u64,
}

impl Place {
    /// Whether its numbers can be.
    pub fn is_possible(&self) -> bool {
        [self.epoch, self.sample.unwrap_or(0), self.had, self.start].iter().all(|&number| number < FAR)
    }
}

/// What a consumer says when it wants a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Counts the joins of this connection.
    pub number: u64,
    /// `None` for the source's own batches. Of all ranks together.
    pub batch_size: Option<u64>,
    /// Where it wants to begin.
    pub entry: Entry,
    /// If it reconnects after a server was lost: who read from that one. If it had its place at an earlier one, and had not got it
    /// back when the next was lost too, it tells of both.
    pub others: [Option<Others>; 2],
    /// If it shares the feed with others.
    pub rank: Option<Rank>,
}

impl Join {
    /// The join of a consumer that comes alone, for the first time.
    pub fn new(number: u64, batch_size: Option<u64>, entry: Entry) -> Self {
        Self { number, batch_size, entry, others: [None; 2], rank: None }
    }
}

/// The consumers of a server that was lost, as one of them remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// The process of that server.
    pub server: u32,
    /// How many there were.
    pub count: u32,
    /// Whether the one that tells is surely one of them: it had its place, and was told so.
    pub is_one: bool,
    /// The epoch that the slowest of them was in.
    pub slowest: u64,
}

/// One of the processes of a data-parallel job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// The same for all ranks of one job.
    pub group: u64,
    /// How many ranks there are.
    pub world: u32,
    /// Which one it is.
    pub rank: u32,
    /// It had a place, lost it, and asks for that one again: the other ranks do not.
    pub is_rejoining: bool,
}

impl Rank {
    /// Whether there can be such a rank.
    pub fn is_possible(&self) -> bool {
        self.rank < self.world && self.world <= MOST_RANKS
    }
}

/// Why a consumer can't have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Ranks can't share a feed that skips samples.
    RanksWithSkip,
    /// Its batches can't be cut into others.
    Whole,
    /// A ring that holds its batches would not fit into memory.
    TooLarge {
        /// What the ring would need.
        needed_bytes: u64,
        /// What is left.
        free_bytes: u64,
    },
    /// A larger ring could not be made, for this reason.
    NoRing(String),
}

/// What a server says to a consumer about its cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It has a cursor.
    Joined {
        /// Which join this answers.
        number: u64,
        /// Where it stands.
        place: Place,
    },
    /// The place that it asked for is no longer there.
    Gone {
        /// Which join this answers.
        number: u64,
        /// Its epoch.
        epoch: u64,
        /// The first sample of that epoch that still is there, if any is.
        until: Option<u64>,
    },
    /// It can't have what it asked for.
    Refused(Refusal),
    /// It stood still for too long and has lost its cursor.
    Detached {
        /// For how long it may stand still.
        stalled_secs: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_words_and_an_unknown_word_is_a_failure() {
        for state in [FeedState::Running, FeedState::Ended, FeedState::Failed, FeedState::Stopped] {
            assert_eq!(FeedState::from_word(state.word()), state);
        }
        assert_eq!(FeedState::from_word(99), FeedState::Failed);
        assert_eq!(FeedState::Running.word(), 0);
    }

    #[test]
    fn what_entries_name() {
        assert_eq!((Entry::At { epoch: 5, index: 2 }.epoch(), Entry::Newest.epoch()), (5, 0));
        assert!(Entry::Newest.may_be_newest() && Entry::First { else_newest: true }.may_be_newest());
        assert!(!Entry::EpochStart.may_be_newest() && !Entry::First { else_newest: false }.may_be_newest());
    }

    #[test]
    fn numbers_that_can_not_be() {
        let place = Place { epoch: 1, sample: Some(2), had: 3, start: 4 };
        assert!(place.is_possible() && Place { sample: None, ..place }.is_possible());
        assert!(!Place { epoch: FAR, ..place }.is_possible() && !Place { sample: Some(FAR), ..place }.is_possible());
        assert!(!Place { had: FAR, ..place }.is_possible() && !Place { start: FAR, ..place }.is_possible());
        let rank = Rank { group: 0, world: 2, rank: 1, is_rejoining: false };
        assert!(rank.is_possible() && Rank { world: MOST_RANKS, ..rank }.is_possible());
        assert!(!Rank { rank: 2, ..rank }.is_possible() && !Rank { world: MOST_RANKS + 1, ..rank }.is_possible());
    }
}
