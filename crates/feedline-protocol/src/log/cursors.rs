//! Who reads where: consumers join, go on, leave, and tell what is needed.

use super::{Lag, Log};
use crate::message::{Entry, Place};

/// What a newcomer asked for is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The first sample of that epoch that still is, if any is.
    pub until: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) epoch: u64,
    pub(super) released: Option<u64>,
    /// It joined in the history and has not caught up yet.
    pub(super) is_behind: bool,
    /// The place that it asked for: an epoch, and the number of a sample there.
    pub(super) asked: Option<(u64, u64)>,
}

impl Log {
    /// Registers a consumer and finds its place, in one step: from here on nothing that it needs is overwritten.
    pub fn join(&mut self, id: u64, entry: Entry) -> Result<Place, Gone> {
        let place = match entry {
            Entry::Newest if self.writing => self.place(self.epoch(), Some(self.head)),
            Entry::Newest | Entry::EpochStart if self.policy.replay => self.place(0, self.start_of(0)),
            Entry::Newest => self.place(self.epoch(), None),
            Entry::EpochStart => self.epoch_start(),
            Entry::First { else_newest } => match self.place_at(0, 0) {
                Ok(place) => place,
                Err(Gone { .. }) if else_newest => return self.join(id, Entry::Newest),
                Err(Gone { .. }) => return self.join(id, Entry::EpochStart),
            },
            Entry::At { epoch, index } => self.place_at(epoch, index)?,
        };
        let is_behind = place.sample.is_some_and(|sample| !self.is_in_window(sample));
        let asked = if let Entry::At { epoch, index } = entry { Some((epoch, index)) } else { None };
        self.cursors.insert(id, Cursor { epoch: place.epoch, released: place.sample, is_behind, asked });
        Ok(place)
    }

    /// Registers a consumer where another is that has not moved since it joined. `None` if there is no such one.
    pub fn join_beside(&mut self, id: u64, other: u64) -> Option<Place> {
        let cursor = *self.cursors.get(&other)?;
        self.cursors.insert(id, cursor);
        Some(self.place(cursor.epoch, cursor.released))
    }

    fn place(&self, epoch: u64, sample: Option<u64>) -> Place {
        Place { epoch, sample, had: 0, start: self.start_of(epoch).unwrap_or(self.head) }
    }

    fn epoch_start(&self) -> Place {
        let begun = self.begun();
        // A consumer that waits for a later epoch doesn't decide where newcomers begin.
        let here = self.cursors.values().filter(|cursor| cursor.released.is_some() || cursor.epoch <= begun);
        let all = || self.cursors.values().map(|cursor| cursor.epoch).min();
        let running = here.map(|cursor| cursor.epoch).max().or_else(all).unwrap_or(self.last_running);
        let intact = (running.max(self.after_abandoned())..begun)
            .find(|&epoch| self.start_of(epoch).is_some_and(|start| start >= self.oldest));
        match intact {
            Some(epoch) => self.place(epoch, self.start_of(epoch)),
            None => self.place(begun.max(running), None),
        }
    }

    /// The first epoch after all that were abandoned: a consumer in an earlier one would take what there is of those for whole.
    fn after_abandoned(&self) -> u64 {
        let last = self.starts.iter().rposition(Option::is_none);
        last.map_or(self.first_epoch, |index| self.first_epoch + index as u64 + 1)
    }

    fn place_at(&self, epoch: u64, index: u64) -> Result<Place, Gone> {
        let epoch = if self.policy.replay { 0 } else { epoch };
        if epoch >= self.begun() {
            return Ok(Place { had: index, ..self.place(epoch, None) });
        }
        let start = self.start_of(epoch).filter(|_| epoch >= self.after_abandoned());
        let Some(start) = start else { return Err(Gone { until: None }) };
        let later = self.starts.iter().skip((epoch - self.first_epoch) as usize + 1);
        let end = later.flatten().next().copied().unwrap_or(self.head);
        let sample = start.saturating_add(index);
        let first = sample.min(end);
        if first < self.oldest {
            return Err(Gone { until: (self.oldest < end).then(|| self.oldest - start) });
        }
        Ok(Place { had: sample - first, ..self.place(epoch, Some(first)) })
    }

    /// Whether a cursor here may be bounded by the window from now on.
    fn is_in_window(&self, sample: u64) -> bool {
        sample >= self.wanted_of(self.ring(), 0, 0)
    }

    /// Forgets a consumer, and with it what only it needed.
    pub fn leave(&mut self, id: u64) {
        if let Some(cursor) = self.cursors.remove(&id)
            && self.cursors.is_empty()
            && cursor.epoch <= self.begun()
        {
            self.last_running = cursor.epoch;
        }
    }

    /// Takes over what a consumer reports. It can't go back, nor past what was published.
    pub fn advance(&mut self, id: u64, epoch: u64, released: u64) {
        let newest_epoch = if self.policy.replay { u64::MAX } else { self.begun() };
        let head = self.head;
        if let Some(cursor) = self.cursors.get_mut(&id)
            && let Some(current) = cursor.released
        {
            let released = released.clamp(current, head.max(current));
            cursor.released = Some(released);
            cursor.epoch = epoch.clamp(cursor.epoch, newest_epoch.max(cursor.epoch));
            if cursor.is_behind && self.is_in_window(released) {
                self.cursors.entry(id).and_modify(|cursor| cursor.is_behind = false);
            }
        }
    }

    /// Whether the epoch that is being written is of use to nobody: all who are here wait for a later one.
    pub fn is_abandoned(&self) -> bool {
        self.writing
            && !self.cursors.is_empty()
            && self.cursors.values().all(|cursor| cursor.epoch > self.epoch() && cursor.released.is_none())
    }

    /// Whether one of those who wait for the next epoch to begin asked for a place in it, or, if all wait for a later one, in
    /// that. Others of its kind may be on their way.
    pub fn is_wanted_by_number(&self) -> bool {
        let next = self.begun().max(self.slowest_epoch());
        self.cursors.values().any(|cursor| cursor.asked.is_some() && cursor.released.is_none() && cursor.epoch == next)
    }

    /// Those for whose sake the next epoch may not begin, and the oldest sample that each needs.
    pub fn epochs_behind(&self) -> Vec<(u64, u64)> {
        let counts = |cursor: &Cursor| self.policy.lag != Lag::Skip || cursor.epoch == self.epoch_to_wait_for();
        let reading = self.cursors.iter().filter(|(_, cursor)| self.is_too_far_behind(cursor.epoch) && counts(cursor));
        reading.filter_map(|(&id, cursor)| Some((id, cursor.released?))).collect()
    }

    /// A consumer's epoch and the oldest sample that it needs (`None` while it waits for its epoch).
    pub fn cursor(&self, id: u64) -> Option<(u64, Option<u64>)> {
        self.cursors.get(&id).map(|cursor| (cursor.epoch, cursor.released))
    }

    /// The oldest sample that anybody needs, in the epoch that is being written or an earlier one.
    pub fn floor(&self) -> Option<u64> {
        self.cursors.values().map(|cursor| cursor.released.unwrap_or(self.head)).min()
    }

    /// Where one begins that comes now and asks for whole epochs.
    pub fn entrance(&self) -> u64 {
        let first = if self.policy.replay { self.start_of(0) } else { self.epoch_start().sample };
        first.unwrap_or(self.head)
    }

    /// From where on somebody needs what there is: an epoch, and a sample of it. Who has taken an epoch's last sample and not
    /// seen its end is still in that epoch.
    pub fn needed(&self) -> Option<(u64, u64)> {
        let place = |cursor: &Cursor| {
            let Some(released) = cursor.released else { return self.locate(self.head) };
            let index = cursor.epoch.checked_sub(self.first_epoch)? as usize;
            let start = self.starts.get(index).copied().flatten();
            Some((cursor.epoch, start.map_or(0, |start| released.saturating_sub(start))))
        };
        self.cursors.values().filter_map(place).min()
    }

    /// Whether somebody else waits for an epoch to begin.
    pub fn another_waits(&self, id: u64) -> bool {
        self.cursors.iter().any(|(&other, cursor)| other != id && cursor.released.is_none())
    }

    /// The place of the one that is furthest ahead.
    pub fn fastest(&self) -> u64 {
        self.cursors.values().filter_map(|cursor| cursor.released).max().unwrap_or(self.head)
    }
}
