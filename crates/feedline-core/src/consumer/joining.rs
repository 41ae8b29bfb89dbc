//! Getting a cursor, and giving it back.

use std::time::{Duration, Instant};

use feedline_ring::fault;
use feedline_ring::signal::UNKNOWN;

use super::epoch_wait::EpochWait;
use super::link::News;
use super::shard::Shard;
use super::{Check, Consumer, FAR};
use crate::error::Error;
use crate::source::Mark;
use crate::wire::{Join, JoinAt, Rank, Reply, Request};

/// Who waits longer than this for others is told why.
const GATE: Duration = Duration::from_secs(10);

/// The state of one that has read nothing.
pub(super) const NOTHING_READ: Mark = Mark { epoch: 0, index: 0 };

impl Consumer {
    /// Whoever iterated has stopped. Who had all batches has finished the epoch, whether or not it asked for one more.
    pub fn stop(&mut self) {
        if self.has_read_all() && self.is_here() {
            match self.head.end_of(self.epoch_in_log()) {
                UNKNOWN => {
                    (self.is_finished, self.in_epoch) = (true, false);
                    self.table.page().rest();
                }
                end => self.end_epoch(end),
            }
        } else {
            self.leave();
        }
    }

    /// Gives the cursor back. Batches that are still alive keep their bytes.
    pub fn leave(&mut self) {
        if (self.joined || self.joining) && self.is_here() {
            while self.table.keep_oldest() {}
            self.joined = false;
            self.joining = false;
            (self.is_finished, self.may_be_over) = (false, false);
            (self.resume, self.comes_back) = (None, false);
            // A look at one batch is no epoch that was broken off.
            let began = std::mem::take(&mut self.in_epoch);
            self.broke_off = (began && self.taken != Some(1)).then_some(self.epoch);
            if self.view.replays() {
                // The next one to be read is another pass over the same epoch.
                self.epoch += u64::from(began);
            } else if began && self.config.moves_on {
                self.resume = Some(Mark { epoch: self.epoch + 1, index: 0 });
            }
            fault::point("consumer:leaving");
            let _ = self.link.send(&Request::Leave);
            fault::point("consumer:left");
        }
    }

    fn entry(&self) -> JoinAt {
        match self.resume {
            None => self.config.entry,
            // Its state is from before its first batch. Who had this place and lost it needs this very one.
            Some(NOTHING_READ) if !self.comes_back => JoinAt::First { else_newest: self.config.entry.may_be_newest() },
            Some(Mark { epoch, index }) => JoinAt::At { epoch, index },
        }
    }

    pub(super) fn join(&mut self, check: Check<'_>) -> Result<(), Error> {
        if !self.joining {
            self.is_finished = false;
            self.joins += 1;
            let batch_size = self.config.step_size();
            let comes_back = self.comes_back;
            let rank = self.config.shard.map(|Shard { group, world, rank }| Rank { group, world, rank, comes_back });
            let entry = self.entry();
            let (returning, slowest) = self.returning;
            let join = Join { number: self.joins, batch_size, entry, returning, slowest, rank };
            self.link.send(&Request::Join(join))?;
            self.joining = true;
            fault::point("consumer:join_sent");
        }
        let began = Instant::now();
        let mut told = false;
        loop {
            match self.link.wait_news(check)? {
                // An older number answers a join that was interrupted and taken back.
                Some(News::Reply(Reply::Joined { number, epoch, sample, had, start }, _)) if number == self.joins => {
                    if [epoch, sample.unwrap_or(0), had, start].iter().any(|&number| number >= FAR) {
                        return Err(Error::Protocol("the server gave a place that cannot be".into()));
                    }
                    self.joined = true;
                    self.joining = false;
                    self.stalled_secs = None;
                    self.is_last &= self.comes_back;
                    self.epoch_wait = EpochWait::new(!self.comes_back);
                    (self.returning, self.comes_back) = ((0, 0), false);
                    let mark = self.resume.take();
                    self.report_first_epoch_gone(mark, epoch);
                    if !self.view.replays() {
                        self.epoch = epoch;
                    } else if let Some(mark) = mark {
                        self.epoch = mark.epoch;
                    }
                    (self.cursor, self.start, self.had, self.lead) = (sample, start, had, 0);
                    self.taken = (had == 0 && sample.is_none_or(|sample| sample == start)).then_some(0);
                    self.table.enter(number, self.epoch, sample.unwrap_or(start));
                    self.report_wait();
                    self.report_again();
                    fault::point("consumer:joined");
                    return Ok(());
                }
                Some(News::Reply(Reply::Gone { number, epoch, until }, _)) if number == self.joins => {
                    self.joining = false;
                    return Err(self.gone(epoch, until));
                }
                Some(news) => self.hear(news)?,
                None => self.be_patient()?,
            }
            if !told && began.elapsed() > GATE {
                told = true;
                tracing::warn!(
                    "feed {:?} waits for more consumers (wait_for) before it hands out its first sample",
                    self.config.name
                );
            }
        }
    }
}
