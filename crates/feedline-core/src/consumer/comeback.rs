//! Going on where one was: after a crash with a saved place, after being cut off, after the server was lost.

use std::sync::Arc;
use std::time::Instant;

use feedline_ring::LeaseTable;
use feedline_ring::signal::UNKNOWN;

use super::joining::NOTHING_READ;
use super::link::Link;
use super::patience::Patience;
use super::pressure::Pressure;
use super::view::View;
use super::{Check, Consumer};
use crate::error::{Error, Failure, FailureKind};
use crate::source::Mark;

impl Consumer {
    /// The next sample that this consumer will get: where to go on after a crash.
    pub fn position(&self) -> Mark {
        let place = self.place();
        // What a source promised, or the last epoch had, is not enough: this one may be longer.
        let is_known = self.config.shard.is_some() || self.head.end_of(self.epoch_in_log()) != UNKNOWN;
        let is_over = self.resume.is_none() && (self.is_finished || (is_known && self.has_read_all()));
        if is_over { Mark { epoch: place.epoch + 1, index: 0 } } else { place }
    }

    /// Whether nothing of this epoch is left for us, as far as its length is known.
    pub fn has_read_all(&self) -> bool {
        let (true, true, Some(cursor)) = (self.joined, self.in_epoch, self.cursor) else { return false };
        if self.config.shard.is_some() {
            // All ranks must come to the same answer: what the source promised may turn out wrong for one of them.
            return self.is_last;
        }
        let length = self.head.length();
        let expected = if self.view.is_cut() { length.samples } else { length.batches };
        let left = match (self.head.end_of(self.epoch_in_log()), expected) {
            (UNKNOWN, UNKNOWN) => return self.taken.is_some() && self.taken == self.batches_per_epoch(),
            (UNKNOWN, expected) => expected.saturating_sub(self.place().index),
            (end, _) => end.saturating_sub(cursor),
        };
        let size =
            self.config.batch_size.unwrap_or_else(|| if self.view.is_cut() { self.view.source_batch() } else { 1 });
        left == 0 || (self.config.drop_last && left < size)
    }

    /// Where we stand in the epoch that we are in.
    pub(super) fn place(&self) -> Mark {
        if let Some(mark) = self.resume {
            return mark;
        }
        let index = self.cursor.map_or(0, |cursor| cursor - self.start) + self.had;
        Mark { epoch: self.epoch, index }
    }

    /// Says what it waits for, if that may take long.
    pub(super) fn report_wait(&self) {
        let ended = self.head.ended();
        if self.cursor.is_none() && self.epoch > ended + 1 {
            tracing::warn!(
                "feed {:?}: this consumer (pid {}) waits for epoch {}, and the feed is at {ended}",
                self.config.name,
                std::process::id(),
                self.epoch,
            );
        }
    }

    /// Says that a state from before the first batch meant an epoch that is gone.
    pub(super) fn report_first_epoch_gone(&self, mark: Option<Mark>, epoch: u64) {
        if mark == Some(NOTHING_READ) && epoch > 0 {
            tracing::warn!(
                "feed {:?}: this consumer (pid {}) was to begin with epoch 0, which is gone; it begins with epoch {epoch}",
                self.config.name,
                std::process::id(),
            );
        }
    }

    /// Says once that an epoch is read from its start again: a loop that breaks off each time would see nothing else.
    pub(super) fn report_again(&mut self) {
        let is_again = self.broke_off.take() == Some(self.epoch) && !self.view.replays();
        if is_again && self.taken.is_some() && !std::mem::replace(&mut self.told_again, true) {
            tracing::warn!(
                "feed {:?}: this consumer (pid {}) broke off epoch {} and reads it from its start again\n  \
                 join=\"next\" goes on to the next one instead",
                self.config.name,
                std::process::id(),
                self.epoch,
            );
        }
    }

    /// Goes on there, from the next batch on. If those samples are gone, asking for that batch says so. Who has read nothing
    /// loses nothing: if the first epoch's beginning is gone, it begins like one that has just attached.
    pub fn resume_at(&mut self, mark: Mark) {
        self.leave();
        self.broke_off = None;
        self.epoch = mark.epoch;
        (self.resume, self.comes_back) = (Some(mark), false);
        self.may_be_over = mark.index > 0;
    }

    /// The server has taken our place away. A rank goes on in that very place or not at all: the others do.
    pub(super) fn be_detached(&mut self) {
        if self.config.shard.is_some() && self.joined {
            (self.resume, self.comes_back) = (Some(self.position()), true);
        }
        self.joined = false;
    }

    /// Waits for another server of the same feed, and goes on with it where we were.
    pub(super) fn reconnect(&mut self, why: &str, check: Check<'_>) -> Result<(), Error> {
        let (name, limit) = (self.config.name.clone(), self.config.reconnect);
        let began = Instant::now();
        tracing::warn!("{}\n  waiting up to {} s for another", first_line(why), limit.as_secs_f64());
        let (link, welcome) = Link::open(&self.config, limit, true, check).map_err(|error| match error {
            Error::NotFound { .. } => {
                let rest = why.lines().skip(1).map(|line| format!("\n{line}")).collect::<String>();
                let secs = limit.as_secs_f64();
                Error::ServerLost(format!("{}, and none came back within {secs} s{rest}", first_line(why)))
            }
            error => error,
        })?;
        // A server that goes on at an epoch's end has nothing to show yet.
        let is_unknown = welcome.ring.is_placeholder() || self.view.is_placeholder();
        if !is_unknown && !welcome.ring.schema.goes_with(self.schema()) {
            let message = format!(
                "feed {name:?} came back (pid {}) with other batches: {} before, {} now\n  attach anew",
                link.server_pid(),
                self.schema().describe(),
                welcome.ring.schema.describe(),
            );
            return Err(Error::Failed(Failure::new(FailureKind::Schema, message)));
        }
        self.check_run(welcome.run, link.server_pid())?;
        // Who had left has no place to go back to.
        let mark = if self.joined { Some(self.place()) } else { self.resume };
        self.comes_back |= self.joined;
        self.returning = mark.map_or((0, 0), |mark| self.others(mark.epoch));
        let head = Arc::new(welcome.head);
        // What was handed out keeps the old ring, which nobody writes to any more.
        self.table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        self.view = View::new(welcome.ring, welcome.memory, self.config.mode, &name)?;
        self.check_lag()?;
        self.stats.server_pid = link.server_pid();
        (self.link, self.head, self.pressure) = (link, head, Pressure::default());
        self.patience = Patience::new(self.config.answer_timeout);
        (self.joined, self.joining) = (false, false);
        self.stalled_secs = None;
        self.resume = mark;
        self.may_be_over |= std::mem::take(&mut self.is_finished);
        self.report_mode();
        let waited = began.elapsed().as_secs_f64();
        match mark {
            Some(Mark { epoch, index }) => tracing::warn!(
                "feed {name:?} is back after {waited:.1} s (pid {}): going on at sample {index} of epoch {epoch}",
                self.stats.server_pid,
            ),
            None => tracing::warn!("feed {name:?} is back after {waited:.1} s (pid {})", self.stats.server_pid),
        }
        Ok(())
    }

    /// How many we were with the server that was lost, and in which epoch the slowest was. It may not have heard of all of us
    /// yet: then what the one before it said still counts.
    fn others(&self, epoch: u64) -> (u32, u64) {
        let (before, slowest_before) = self.returning;
        let slowest = if before > 0 { slowest_before } else { self.head.slowest() };
        (before.max(self.head.joined()), slowest.min(epoch))
    }

    /// The answer to a join at a place that is no longer there.
    pub(super) fn gone(&mut self, epoch: u64, until: Option<u64>) -> Error {
        let mark = self.resume.take();
        let Mark { epoch, index } = mark.unwrap_or(Mark { epoch, index: 0 });
        let what = match until {
            Some(until) if until == index + 1 => format!("sample {index} of epoch {epoch} is gone"),
            Some(until) => format!("samples {index} to {} of epoch {epoch} are gone", until - 1),
            None => format!("epoch {epoch}, from sample {index} on, is gone"),
        };
        if let Some(error) = self.stalled(Some(&what)) {
            return error;
        }
        if let (None, Some(shard)) = (mark, self.config.shard) {
            return Error::Gone(format!(
                "feed {:?}: {shard} came too late: {what}, where the others began\n  \
                 start the ranks together, or give the server a longer stall_timeout_secs or more history=",
                self.config.name,
            ));
        }
        Error::Gone(format!(
            "feed {:?}: {what}\n  \
             keep more of an epoch with Server(history=...), or iterate again to join the feed anew",
            self.config.name,
        ))
    }

    /// What one gets that stood still for too long, and whose place is lost.
    pub(super) fn stalled(&mut self, what: Option<&str>) -> Option<Error> {
        let secs = self.stalled_secs.take()?;
        (self.in_epoch, self.resume, self.comes_back) = (false, None, false);
        let what = what.map_or_else(String::new, |what| format!("; {what}"));
        Some(Error::Stalled(format!(
            "this consumer (pid {}) held up feed {:?} for {secs} s and was detached{what}\n  \
             iterate again to join the feed anew, or give the server a longer stall_timeout_secs or more history=",
            std::process::id(),
            self.config.name,
        )))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}
