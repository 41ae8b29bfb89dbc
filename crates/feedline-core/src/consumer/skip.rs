//! Catching up where nobody waits for us: the log goes on at the pace of the fastest, and who is slow loses samples.

use std::sync::atomic::Ordering;

use feedline_ring::signal::UNKNOWN;

use super::Consumer;
use super::look::Look;

/// What was lost.
#[derive(Debug, Default)]
pub(super) struct Skips {
    /// In this epoch.
    in_epoch: u64,
    was_told: bool,
}

impl Consumer {
    /// If the samples at the cursor were overwritten: goes on where the fastest is. Not further ahead: the log waits for whoever
    /// is there, and the fastest would lose samples itself. Says so if that is past the epoch of which something was handed out.
    pub(super) fn skip(&mut self, head: u64) -> Option<Look> {
        let oldest = self.head.oldest();
        // An epoch that we waited for may be long gone.
        let is_lost = self.cursor.is_none() && self.epoch > 0 && self.epoch - 1 < self.head.first_known();
        let mut cursor = self.cursor.or(is_lost.then_some(self.start))?;
        // Where epochs are short, their ends are forgotten before their samples are.
        if cursor >= oldest && self.epoch >= self.head.first_known() {
            return None;
        }
        let mut target = self.head.fastest().clamp(oldest.max(cursor), head.max(oldest).max(cursor));
        loop {
            let end = self.head.end_of(self.epoch);
            // After the end, which may be unknown because it was just forgotten.
            let first_known = self.head.first_known();
            if self.epoch >= first_known && target < end {
                break;
            }
            if self.in_epoch {
                // Nobody knows any more where it ended, if that is long ago.
                let end = if self.epoch < first_known { cursor } else { end };
                self.lose(end - cursor);
                // Whoever looks again loses nothing more.
                self.move_to(end);
                return Some(Look::EpochOver(end));
            }
            if self.epoch < first_known {
                // The first one whose beginning is known. The fastest isn't in an earlier one.
                let start = self.head.end_of(first_known);
                if start != UNKNOWN {
                    self.lose(start.saturating_sub(cursor));
                    cursor = cursor.max(start);
                    target = target.max(cursor);
                    (self.start, self.epoch) = (start, first_known + 1);
                }
            } else {
                self.lose(end - cursor);
                cursor = end;
                self.start = end;
                self.epoch += 1;
            }
        }
        self.lose(target - cursor);
        self.move_to(target);
        None
    }

    fn lose(&mut self, samples: u64) {
        self.stats.skipped += samples;
        self.skips.in_epoch += samples;
        self.table.page().skipped.store(self.stats.skipped, Ordering::Relaxed);
        if samples > 0 && !std::mem::replace(&mut self.skips.was_told, true) {
            tracing::warn!(
                "feed {:?}: this consumer (pid {}) is too slow and skips samples, {samples} so far (lag=\"skip\")",
                self.config.name,
                std::process::id(),
            );
        }
    }

    /// At an epoch's end.
    pub(super) fn report_skipped(&mut self) {
        let skipped = std::mem::take(&mut self.skips.in_epoch);
        if skipped > 0 {
            tracing::info!("feed {:?}: {skipped} samples of the last epoch were skipped", self.config.name);
        }
    }
}
