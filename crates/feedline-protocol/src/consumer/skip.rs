//! Catching up where nobody waits for a consumer: the log goes on at the pace of the fastest, and a slow one loses samples.

use super::{Available, Consumer, Notice, Progress};
use crate::message::UNKNOWN;
use crate::page::ConsumerMemory;

/// What was lost.
#[derive(Debug, Default)]
pub(super) struct Skips {
    total: u64,
    in_epoch: u64,
}

impl Skips {
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Consumer {
    /// If the samples at the cursor were overwritten: goes on where the fastest is. Not further ahead: the log waits for whoever
    /// is there, and the fastest would lose samples itself. Says so if that is past the epoch of which something was handed out.
    pub(super) fn skip(&mut self, head: u64, memory: &impl ConsumerMemory) -> Option<Available> {
        let oldest = memory.oldest();
        let cursor = self.cursor_mut()?;
        let (has_begun, mut epoch, mut start) = (cursor.has_begun(), cursor.epoch, cursor.start);
        // An epoch that was waited for may be long gone.
        let is_lost = cursor.sample.is_none() && epoch > 0 && epoch - 1 < memory.first_known();
        let mut sample = cursor.sample.or(is_lost.then_some(start))?;
        // Where epochs are short, their ends are forgotten before their samples are.
        if sample >= oldest && epoch >= memory.first_known() {
            return None;
        }
        let mut target = memory.fastest().clamp(oldest.max(sample), head.max(oldest).max(sample));
        let mut lost = 0;
        loop {
            let end = memory.end_of(epoch);
            // After the end, which may be unknown because it was just forgotten.
            let first_known = memory.first_known();
            if epoch >= first_known && target < end {
                break;
            }
            if epoch < first_known {
                // Nobody knows any more where it ended. The first one whose beginning is known comes next; the fastest isn't in an
                // earlier one.
                let known = memory.start_of(first_known + 1);
                if known == UNKNOWN {
                    continue;
                }
                lost += known.saturating_sub(sample);
                sample = sample.max(known);
                target = target.max(sample);
                (start, epoch) = (known, first_known + 1);
                if has_begun {
                    return Some(self.end_by_skipping(first_known, sample, lost, memory));
                }
            } else if has_begun {
                return Some(self.end_by_skipping(epoch, end, end - sample, memory));
            } else {
                lost += end - sample;
                (sample, start) = (end, end);
                epoch += 1;
            }
        }
        if let Some(cursor) = self.cursor_mut() {
            if cursor.epoch != epoch {
                // It has left the epoch that it had finished: what comes now is of the one that is asked for.
                cursor.progress = Progress::Fresh { may_be_over: false };
            }
            (cursor.epoch, cursor.start) = (epoch, start);
            cursor.taken = cursor.taken.filter(|_| target == start);
        }
        self.lose(lost + (target - sample), memory);
        self.move_to(target, memory);
        None
    }

    /// The epoch of which something was handed out is over, and so are all up to this one, which ended there.
    fn end_by_skipping(&mut self, epoch: u64, end: u64, lost: u64, memory: &impl ConsumerMemory) -> Available {
        self.lose(lost, memory);
        if let Some(cursor) = self.cursor_mut() {
            cursor.epoch = epoch;
        }
        // So that a second call does not count them again.
        self.move_to(end, memory);
        Available::EpochOver(end)
    }

    fn lose(&mut self, samples: u64, memory: &impl ConsumerMemory) {
        if samples == 0 {
            return;
        }
        if self.skips.total == 0 {
            self.notices.push(Notice::Skips(samples));
        }
        self.skips.total += samples;
        self.skips.in_epoch += samples;
        memory.set_skipped(self.skips.total);
    }

    /// At an epoch's end.
    pub(super) fn report_skipped(&mut self) {
        let skipped = std::mem::take(&mut self.skips.in_epoch);
        if skipped > 0 {
            self.notices.push(Notice::SkippedInEpoch(skipped));
        }
    }
}
