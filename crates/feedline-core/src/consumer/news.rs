//! What a consumer hears: data, news of the server, or that it is over.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_ring::{Waited, fault};

use super::link::News;
use super::look::Look;
use super::{Check, Consumer, SLICE};
use crate::error::Error;
use crate::server::state;
use crate::wire::{Reply, Request};

impl Consumer {
    /// Sleeps until the server has news, the hook objects, or a slice of time is over.
    pub(super) fn wait(&mut self, pressed: Duration, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        let (tick, server_waits) = self.table.page().prepare_wait(&self.head);
        if server_waits {
            self.table.bell().ring();
        }
        fault::point("consumer:about_to_sleep");
        let over = self.head.state();
        let waited = match self.look(check) {
            Ok(Look::Nothing) if over == state::RUNNING => {
                let slice = if server_waits { pressed } else { SLICE };
                Ok(self.head.wait(tick, slice))
            }
            Ok(Look::Nothing) => Err(self.why_over(over)),
            Ok(_) => Ok(Waited::Woken),
            Err(error) => Err(error),
        };
        self.table.page().end_wait();
        self.stats.waited += began.elapsed();
        self.table.page().waited_nanos.store(self.stats.waited.as_nanos() as u64, Ordering::Relaxed);
        let is_quiet = waited? != Waited::Woken;
        // Who waits for an epoch is woken for every batch of the one before it.
        if is_quiet || self.looked.elapsed() >= SLICE {
            check()?;
            self.glance()?;
            self.be_patient()?;
            self.look_for_epoch()?;
        }
        if is_quiet {
            self.pressure.relieve_all();
        }
        Ok(())
    }

    /// Looks whether the server lives and has said something.
    pub(super) fn glance(&mut self) -> Result<(), Error> {
        self.looked = Instant::now();
        if self.head.state() == state::STOPPED {
            return Err(self.why_over(state::STOPPED));
        }
        while let Some(news) = self.link.news() {
            let is_last = matches!(news, News::Lost);
            self.hear(news)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// While waiting: whether the server still answers, and what it said of its loader.
    pub(super) fn be_patient(&mut self) -> Result<(), Error> {
        let progress = self.stats.batches + self.joins + self.epoch;
        self.patience.look(&mut self.link, &self.config.name, progress, self.head.head())
    }

    pub(super) fn hear(&mut self, news: News) -> Result<(), Error> {
        let name = &self.config.name;
        match news {
            News::Reply(Reply::Ring(info), memory) => {
                self.view.adopt(info, memory, name)?;
                fault::point("consumer:ring_adopted");
                // It may be the first real one, after an epoch of nothing.
                self.check_batch_size()
            }
            News::Reply(Reply::Detached { stalled_secs }, _) => {
                self.be_detached();
                let place = self.place();
                let has_begun = !self.is_finished && (self.in_epoch || place.index > 0);
                if self.comes_back || (has_begun && self.config.shard.is_none()) {
                    // The log may have our samples still.
                    self.stalled_secs = Some(stalled_secs);
                    self.resume = Some(place);
                }
                Ok(())
            }
            News::Reply(Reply::Refused { why, batch_size: true }, _) => {
                Err(Error::BatchSize(match self.config.step_size() {
                    Some(size) => format!("feed {name:?} cannot give batches of {size}: {why}"),
                    None => format!("feed {name:?} cannot give a batch to each rank at once: {why}"),
                }))
            }
            News::Reply(Reply::Refused { why, .. }, _) => Err(Error::Protocol(why)),
            News::Reply(Reply::Pong, _) => {
                self.patience.pong(name, self.link.server_pid());
                Ok(())
            }
            News::Reply(Reply::Stuck(stuck), _) => {
                self.patience.stuck(stuck);
                Ok(())
            }
            // These are acted on when all that was published has been read: the head page says when.
            News::Reply(Reply::Failed(_) | Reply::Ended, _) => Ok(()),
            News::Reply(..) => Ok(()),
            // A server that is over has told us so in the head page, and what it published stays readable.
            News::Lost if matches!(self.head.state(), state::ENDED | state::FAILED) => {
                if self.joined {
                    Ok(())
                } else {
                    Err(self.why_over(self.head.state()))
                }
            }
            News::Lost if self.head.state() == state::STOPPED => Err(self.why_over(state::STOPPED)),
            News::Lost => Err(self.link.lost_error(name)),
        }
    }

    /// The ring was replaced: its memory is on the way, or here, or comes when the server sees that we no longer rest.
    pub(super) fn adopt_ring(&mut self, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        self.link.send(&Request::Ping)?;
        while self.view.generation() != self.head.generation() {
            if began.elapsed() > Duration::from_secs(10) && !self.patience.is_asking() {
                // One that answers has had its time.
                let name = &self.config.name;
                return Err(Error::ServerLost(format!("feed {name:?} announced a new ring and did not send it")));
            }
            match self.link.wait_news(check)? {
                // It won't come any more, so there is nothing in it for us.
                Some(News::Lost) if self.head.state() != state::RUNNING => return Err(self.why_over(self.head.state())),
                Some(news) => self.hear(news)?,
                None => self.be_patient()?,
            }
            if !self.joined {
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn why_over(&mut self, over: u32) -> Error {
        if let Some(error) = self.stalled(None) {
            return error;
        }
        if over == state::ENDED {
            return Error::Ended { name: self.config.name.clone() };
        }
        let failure = self.link.failure();
        let (name, pid) = (&self.config.name, self.link.server_pid());
        match (over, failure) {
            (state::FAILED, Some(failure)) => Error::Failed(failure),
            (_, Some(failure)) => {
                Error::ServerLost(format!("feed {name:?} (pid {pid}) was stopped: {}", failure.message))
            }
            _ => self.link.lost_error(name),
        }
    }
}
