//! Batches that stand where they are published: in slots of a ring that whoever serves has claimed for them.
//!
//! The claim itself is somebody else's. It is kept, without a look at it, until no worker writes to it any more.

use std::any::Any;

use feedline_shm::LanePlace;

/// A claim for one batch.
#[derive(Debug)]
pub struct Claimed {
    /// How many samples it has.
    pub samples: u64,
    /// Where workers find it; `None` if they can't write there, and the batch is to be copied.
    pub slots: Option<Slots>,
    /// What is given back when the batch is done with.
    pub claim: Box<dyn Any + Send>,
}

/// Where a batch stands in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Which ring of those that workers have mapped.
    pub ring: u32,
    /// For each of the pool's lanes, in their order.
    pub lanes: Vec<LanePlace>,
}

const WORD: usize = 8;

impl Slots {
    /// For workers to read; with it, the oldest ring that is still written to.
    pub fn to_bytes(&self, oldest_ring: u32) -> Vec<u8> {
        let lanes = self.lanes.iter().flat_map(|lane| [lane.start, lane.len_bytes, lane.position]);
        let words = [u64::from(self.ring), u64::from(oldest_ring)].into_iter().chain(lanes);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// From the owner's bytes, with the oldest ring.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, u32)> {
        let words: Vec<u64> = bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (&[ring, oldest], lanes) = words.split_first_chunk::<2>()?;
        let lanes = lanes.as_chunks::<3>().0.iter();
        let lanes = lanes.map(|&[start, len_bytes, position]| LanePlace { start, len_bytes, position }).collect();
        Some((Self { ring: ring.try_into().ok()?, lanes }, oldest.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_the_arena() {
        let lane = |start| LanePlace { start, len_bytes: 4096, position: 17 };
        let slots = Slots { ring: 3, lanes: vec![lane(0), lane(4096)] };
        assert_eq!(Slots::from_bytes(&slots.to_bytes(2)), Some((slots, 2)));
        assert_eq!(Slots::from_bytes(&[0; 15]), None);
    }
}
