//! The server's side of the arithmetic: what may be overwritten, and where a newcomer begins. Pure numbers.
//!
//! ```text
//!      oldest            floor                 head      claimed
//!        │ still intact    │ somebody needs it   │ being   │
//!  ──────┴─────────────────┴─────────────────────┴─────────┴────▶ sample index
//!        └──────────────── at most `capacity` ─────────────┘
//! ```
//!
//! Invariant: no claim passes `floor + capacity`, so nothing that a cursor still needs is ever overwritten.

use std::collections::{BTreeMap, VecDeque};

use crate::positions::round_up;

/// How many epochs the log may run ahead of the slowest consumer: the length of the shared table of epoch ends.
pub const EPOCHS_AHEAD: u64 = 64;

/// Batches of variable length begin at multiples of this, so that tensors in them are aligned.
pub const ALIGN_BYTES: u64 = 64;

/// Where a newcomer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// From the first sample of the running epoch, or of the next.
    EpochStart,
    /// From the newest sample.
    Newest,
}

/// A newcomer's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The epoch that it reads first.
    pub epoch: u64,
    /// Its first sample, or `None` if that epoch has not begun.
    pub sample: Option<u64>,
}

/// The state of one log.
#[derive(Debug)]
pub struct Log {
    capacity: u64,
    head: u64,
    claimed: u64,
    oldest: u64,
    starts: VecDeque<u64>,
    first_epoch: u64,
    writing: bool,
    cursors: BTreeMap<u64, Cursor>,
    last_running: u64,
    bytes: Option<ByteLane>,
}

#[derive(Debug)]
struct Cursor {
    epoch: u64,
    released: Option<u64>,
}

/// Byte positions of samples of variable length.
#[derive(Debug)]
struct ByteLane {
    len_bytes: u64,
    head_bytes: u64,
    /// Where each sample from `oldest` on begins.
    starts: VecDeque<u64>,
}

impl Log {
    /// A log whose samples all have the same size.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            head: 0,
            claimed: 0,
            oldest: 0,
            starts: VecDeque::new(),
            first_epoch: 0,
            writing: false,
            cursors: BTreeMap::new(),
            last_running: 0,
            bytes: None,
        }
    }

    /// Gives a log that is still empty its capacity, and a lane of this length if its samples are of variable length.
    pub fn shape(&mut self, capacity: u64, byte_lane: Option<u64>) {
        debug_assert_eq!(self.head, 0);
        self.capacity = capacity;
        self.bytes = byte_lane.map(|len_bytes| ByteLane { len_bytes, head_bytes: 0, starts: VecDeque::new() });
    }

    /// How many samples fit.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// One past the newest published sample.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The oldest sample whose bytes are intact.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The epoch that is being written, or will be next if none is.
    pub fn epoch(&self) -> u64 {
        let begun = self.first_epoch + self.starts.len() as u64;
        if self.writing { begun - 1 } else { begun }
    }

    /// Where sample `sample`, still intact, begins in the byte lane.
    pub fn byte_start(&self, sample: u64) -> Option<u64> {
        let index = sample.checked_sub(self.oldest)?;
        self.bytes.as_ref()?.starts.get(usize::try_from(index).ok()?).copied()
    }

    /// Where in the byte lane the intact samples begin and end; `None` without a lane or without samples.
    pub fn live_bytes(&self) -> Option<(u64, u64)> {
        let lane = self.bytes.as_ref()?;
        Some((*lane.starts.front()?, lane.head_bytes))
    }

    /// Whether the next epoch may begin. The table of ends must keep those from the one before the slowest consumer's to
    /// the one after the new.
    pub fn can_begin_epoch(&self) -> bool {
        let slowest = self.cursors.values().map(|cursor| cursor.epoch).min().unwrap_or(self.last_running);
        self.epoch() < slowest + EPOCHS_AHEAD - 2
    }

    /// Begins an epoch at the head; whoever waited for it stands there now.
    pub fn begin_epoch(&mut self) {
        debug_assert!(!self.writing);
        let epoch = self.epoch();
        self.starts.push_back(self.head);
        self.writing = true;
        for cursor in self.cursors.values_mut() {
            if cursor.released.is_none() && cursor.epoch <= epoch {
                cursor.released = Some(self.head);
            }
        }
        let needed = self.cursors.values().map(|cursor| cursor.epoch).min().unwrap_or(self.last_running);
        while self.first_epoch < needed.min(epoch) {
            self.starts.pop_front();
            self.first_epoch += 1;
        }
    }

    /// Ends the epoch that is being written.
    pub fn end_epoch(&mut self) {
        debug_assert!(self.writing);
        self.writing = false;
    }

    /// Everything from here on is needed by somebody; `None` when nobody is there and nothing more should be written.
    fn floor(&self) -> Option<u64> {
        if self.cursors.is_empty() {
            return match self.start_of(self.last_running) {
                Some(start) if start >= self.oldest => Some(start),
                Some(_) => None,
                None => Some(self.head),
            };
        }
        let reading = self.cursors.values().filter_map(|cursor| cursor.released).min();
        Some(reading.unwrap_or(self.head))
    }

    /// How far somebody must release before `need` more samples, in `need_bytes` of the byte lane, can be claimed.
    ///
    /// `None` when no release would help: nobody is there.
    pub fn wanted(&self, need: u64, need_bytes: u64) -> Option<u64> {
        self.floor()?;
        let by_count = (self.head + need).saturating_sub(self.capacity);
        let by_bytes = self.bytes.as_ref().map_or(0, |lane| {
            let first_byte = (lane.next_start() + need_bytes).saturating_sub(lane.len_bytes);
            let gone = lane.starts.iter().take_while(|&&start| start < first_byte).count() as u64;
            if first_byte > 0 && gone == lane.starts.len() as u64 { self.head } else { self.oldest + gone }
        });
        Some(by_count.max(by_bytes))
    }

    /// Claims the next `need` samples for writing; returns the byte position in the byte lane (0 without one).
    pub fn claim(&mut self, need: u64, need_bytes: u64) -> Option<u64> {
        debug_assert_eq!(self.head, self.claimed);
        let floor = self.floor()?;
        if floor < self.wanted(need, need_bytes)? {
            return None;
        }
        self.claimed = self.head + need;
        self.forget_before(self.claimed.saturating_sub(self.capacity));
        let Some(lane) = &mut self.bytes else { return Some(0) };
        let start = lane.next_start();
        let first_byte = (start + need_bytes).saturating_sub(lane.len_bytes);
        lane.head_bytes = start + need_bytes;
        let gone = lane.starts.iter().take_while(|&&byte| byte < first_byte).count() as u64;
        let oldest = self.oldest + gone;
        self.forget_before(oldest);
        if let Some(lane) = &mut self.bytes {
            lane.starts.push_back(start);
        }
        Some(start)
    }

    fn forget_before(&mut self, sample: u64) {
        while self.oldest < sample {
            self.oldest += 1;
            match &mut self.bytes {
                Some(lane) => drop(lane.starts.pop_front()),
                None => self.oldest = sample,
            }
        }
    }

    /// Publishes what was claimed.
    pub fn publish(&mut self) {
        self.head = self.claimed;
    }

    /// Makes room: the ring was replaced by a larger one that holds all intact samples.
    pub fn grow(&mut self, capacity: u64, len_bytes: u64) {
        debug_assert!(capacity >= self.capacity);
        self.capacity = capacity;
        if let Some(lane) = &mut self.bytes {
            debug_assert!(len_bytes >= lane.len_bytes);
            lane.len_bytes = len_bytes;
        }
    }

    fn start_of(&self, epoch: u64) -> Option<u64> {
        let index = epoch.checked_sub(self.first_epoch)?;
        self.starts.get(usize::try_from(index).ok()?).copied()
    }

    /// Registers a consumer and finds its place, in one step: from here on nothing that it needs is overwritten.
    pub fn join(&mut self, id: u64, entry: Entry) -> Place {
        let place = match entry {
            Entry::Newest if self.writing => Place { epoch: self.epoch(), sample: Some(self.head) },
            Entry::Newest => Place { epoch: self.epoch(), sample: None },
            Entry::EpochStart => self.epoch_start(),
        };
        self.cursors.insert(id, Cursor { epoch: place.epoch, released: place.sample });
        place
    }

    fn epoch_start(&self) -> Place {
        let running = self.cursors.values().map(|cursor| cursor.epoch).max().unwrap_or(self.last_running);
        let begun = self.first_epoch + self.starts.len() as u64;
        let intact = (running..begun)
            .filter_map(|epoch| self.start_of(epoch).map(|start| (epoch, start)))
            .find(|&(_, start)| start >= self.oldest);
        match intact {
            Some((epoch, start)) => Place { epoch, sample: Some(start) },
            None => Place { epoch: begun.max(running), sample: None },
        }
    }

    /// Forgets a consumer, and with it what only it needed.
    pub fn leave(&mut self, id: u64) {
        if let Some(cursor) = self.cursors.remove(&id)
            && self.cursors.is_empty()
        {
            self.last_running = cursor.epoch;
        }
    }

    /// Takes over what a consumer reports. It can't go back, nor past what was published.
    pub fn advance(&mut self, id: u64, epoch: u64, released: u64) {
        let newest_epoch = self.first_epoch + self.starts.len() as u64;
        if let Some(cursor) = self.cursors.get_mut(&id)
            && let Some(current) = cursor.released
        {
            cursor.released = Some(released.clamp(current, self.head.max(current)));
            cursor.epoch = epoch.clamp(cursor.epoch, newest_epoch.max(cursor.epoch));
        }
    }

    /// Whether the epoch that is being written is of use to nobody: all who are here wait for the next.
    pub fn is_abandoned(&self) -> bool {
        self.writing
            && !self.cursors.is_empty()
            && self.cursors.values().all(|cursor| cursor.epoch > self.epoch())
            && self.cursors.values().all(|cursor| cursor.released.is_none())
    }

    /// Those who need samples before `wanted`, and the oldest that each needs.
    pub fn in_the_way_of(&self, wanted: u64) -> Vec<(u64, u64)> {
        self.reading().filter(|&(_, released)| released < wanted).collect()
    }

    /// Those for whose sake the next epoch may not begin, and the oldest sample that each needs.
    pub fn epochs_behind(&self) -> Vec<(u64, u64)> {
        let limit = (self.epoch() + 3).saturating_sub(EPOCHS_AHEAD);
        self.reading().filter(|(id, _)| self.cursors[id].epoch < limit).collect()
    }

    fn reading(&self) -> impl Iterator<Item = (u64, u64)> {
        self.cursors.iter().filter_map(|(&id, cursor)| Some((id, cursor.released?)))
    }

    /// A consumer's epoch and the oldest sample that it needs (`None` while it waits for its epoch).
    pub fn cursor(&self, id: u64) -> Option<(u64, Option<u64>)> {
        self.cursors.get(&id).map(|cursor| (cursor.epoch, cursor.released))
    }
}

impl ByteLane {
    fn next_start(&self) -> u64 {
        round_up(self.head_bytes, ALIGN_BYTES).expect("byte positions stay far below 2^64")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(u64, u64),
        EndEpoch,
        Join(u64, bool),
        Leave(u64),
        Read(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u64..9, 1_u64..900).prop_map(|(samples, bytes)| Step::Append(samples, bytes)),
            1 => Just(Step::EndEpoch),
            1 => (0_u64..4, any::<bool>()).prop_map(|(id, now)| Step::Join(id, now)),
            1 => (0_u64..4).prop_map(Step::Leave),
            4 => (0_u64..4, 1_u64..9).prop_map(|(id, samples)| Step::Read(id, samples)),
        ]
    }

    /// Runs the log against a ring that remembers which sample each slot and byte holds.
    fn run(mut log: Log, whole: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
        let lane_bytes = 1 << 12;
        let mut slots = vec![u64::MAX; log.capacity() as usize];
        let mut bytes = vec![u64::MAX; lane_bytes];
        let mut readers: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        log.begin_epoch();
        for step in steps {
            match step {
                Step::Append(samples, len) => {
                    let (need, need_bytes) = if whole { (1, len) } else { (samples, 0) };
                    let Some(start) = log.claim(need, need_bytes) else { continue };
                    for sample in log.head()..log.head() + need {
                        let capacity = slots.len() as u64;
                        slots[(sample % capacity) as usize] = sample;
                        for byte in start..start + need_bytes {
                            bytes[byte as usize % lane_bytes] = sample;
                        }
                    }
                    log.publish();
                    if whole {
                        prop_assert_eq!(log.byte_start(log.head() - 1), Some(start));
                        prop_assert_eq!(start % ALIGN_BYTES, 0);
                    }
                }
                Step::EndEpoch => {
                    if !log.can_begin_epoch() {
                        continue;
                    }
                    log.end_epoch();
                    log.begin_epoch();
                    for (&id, at) in &mut readers {
                        *at = at.or(log.cursor(id).and_then(|(_, released)| released));
                    }
                }
                Step::Join(id, now) => {
                    log.leave(id);
                    let place = log.join(id, if now { Entry::Newest } else { Entry::EpochStart });
                    prop_assert!(place.sample.is_none_or(|sample| sample >= log.oldest() && sample <= log.head()));
                    readers.insert(id, place.sample);
                }
                Step::Leave(id) => {
                    log.leave(id);
                    readers.remove(&id);
                }
                Step::Read(id, samples) => {
                    if let Some(Some(at)) = readers.get_mut(&id) {
                        *at = (*at + samples).min(log.head());
                        log.advance(id, log.epoch(), *at);
                    }
                }
            }
            for at in readers.values().flatten() {
                for sample in *at..log.head() {
                    prop_assert_eq!(slots[sample as usize % slots.len()], sample);
                    if whole {
                        prop_assert_eq!(bytes[log.byte_start(sample).unwrap() as usize % lane_bytes], sample);
                    }
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_needed_is_overwritten(steps in prop::collection::vec(step(), 1..300), capacity in 9_u64..40) {
            run(Log::new(capacity), false, steps)?;
        }

        #[test]
        fn nothing_needed_is_overwritten_in_bytes(steps in prop::collection::vec(step(), 1..300), capacity in 9_u64..40) {
            let mut log = Log::new(0);
            log.shape(capacity, Some(1 << 12));
            run(log, true, steps)?;
        }
    }

    #[test]
    fn a_newcomer_gets_the_running_epoch_while_its_start_is_intact() {
        let mut log = Log::new(10);
        log.begin_epoch();
        assert_eq!(log.join(1, Entry::EpochStart), Place { epoch: 0, sample: Some(0) });
        assert!(log.claim(10, 0).is_some());
        log.publish();
        assert_eq!(log.join(2, Entry::EpochStart), Place { epoch: 0, sample: Some(0) });
        assert!(log.claim(1, 0).is_none(), "full while both stand at 0");
        log.advance(1, 0, 5);
        log.advance(2, 0, 5);
        assert!(log.claim(1, 0).is_some());
        log.publish();
        assert_eq!(log.join(3, Entry::EpochStart), Place { epoch: 1, sample: None });
        log.end_epoch();
        log.begin_epoch();
        assert_eq!(log.cursor(3), Some((1, Some(11))));
    }

    #[test]
    fn with_nobody_there_the_log_fills_and_waits() {
        let mut log = Log::new(10);
        log.begin_epoch();
        for _ in 0..5 {
            assert!(log.claim(2, 0).is_some());
            log.publish();
        }
        assert!(log.claim(2, 0).is_none());
        log.join(1, Entry::EpochStart);
        log.advance(1, 0, 6);
        assert!(log.claim(2, 0).is_some());
        log.publish();
        log.leave(1);
        assert!(log.claim(2, 0).is_none(), "the epoch's start is gone: nobody could use more of it");
        assert_eq!(log.join(2, Entry::EpochStart), Place { epoch: 1, sample: None });
        assert!(log.is_abandoned());
    }

    #[test]
    fn epochs_of_nothing_do_not_run_away() {
        let mut log = Log::new(10);
        log.join(1, Entry::EpochStart);
        let mut begun = 0;
        while log.can_begin_epoch() {
            log.begin_epoch();
            log.end_epoch();
            begun += 1;
        }
        assert_eq!(begun, EPOCHS_AHEAD - 2);
    }
}
