//! What a consumer waits for: data, messages of the server, or its end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_protocol::FeedState;
use feedline_protocol::consumer::{Available, Silence};
use feedline_protocol::page::HeadView;
use feedline_shm::{Waited, fault};

use super::link::Event;
use super::messages::{silent_error, warn_of_loader, warn_of_silence};
use super::{Check, Consumer, SLICE};
use crate::error::Error;
use crate::explain::{Explanation, Text};
use crate::wire::{Reply, Request};

/// A consumer that waits longer than this for others to begin logs why.
const LONG_WAIT: Duration = Duration::from_secs(10);

impl Consumer {
    /// Sleeps until there is data, the hook objects, or a slice of time is over.
    pub(super) fn wait(&mut self, pressed: Duration, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        let (tick, server_waits) = self.table.page().prepare_wait(&self.head);
        if server_waits {
            self.table.bell().ring();
        }
        fault::point("consumer:about_to_sleep");
        let over = HeadView::state(&*self.head);
        let waited = match self.available() {
            Ok(Available::Nothing) if over == FeedState::Running => {
                let slice = if server_waits { pressed } else { SLICE };
                Ok(self.head.wait(tick, slice))
            }
            Ok(Available::Nothing) => Err(self.why_over(over)),
            Ok(_) => Ok(Waited::Woken),
            Err(error) => Err(error),
        };
        self.table.page().end_wait();
        self.stats.waited += began.elapsed();
        self.table.page().waited_nanos.store(self.stats.waited.as_nanos() as u64, Ordering::Relaxed);
        let is_quiet = waited? != Waited::Woken;
        // A consumer that waits for an epoch is woken for every batch of the one before it.
        if is_quiet || self.checked.elapsed() >= SLICE {
            check()?;
            self.check_server()?;
            self.check_liveness()?;
            let now = self.now();
            let checked = self.with_machine(|machine, memory| machine.check_epoch(memory, now));
            checked.map_err(|trouble| self.messages().error(trouble))?;
        }
        if is_quiet {
            feedline_shm::LeaseTable::release_all_under_pressure();
        }
        Ok(())
    }

    /// Checks whether the server lives and has sent something.
    pub(super) fn check_server(&mut self) -> Result<(), Error> {
        self.checked = Instant::now();
        if HeadView::state(&*self.head) == FeedState::Stopped {
            return Err(self.why_over(FeedState::Stopped));
        }
        while let Some(event) = self.link.event() {
            let is_last = matches!(event, Event::Lost);
            self.handle(event)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the last join is answered, or it is certain that it won't be.
    pub(super) fn await_answer(&mut self, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        let mut has_told = false;
        while self.machine.is_joining() {
            match self.link.wait(check)? {
                Some(event) => self.handle(event)?,
                None => self.check_liveness()?,
            }
            if began.elapsed() > LONG_WAIT && !std::mem::replace(&mut has_told, true) {
                tracing::warn!(
                    "feed {:?} waits for more consumers (wait_for) before it hands out its first sample",
                    self.config.name
                );
            }
        }
        Ok(())
    }

    /// While waiting: checks whether the server still answers, and what it reported about its loader.
    pub(super) fn check_liveness(&mut self) -> Result<(), Error> {
        let (name, pid) = (&self.config.name, self.link.server_pid());
        if let Some(stuck) = self.stuck.take().filter(|stuck| stuck.samples >= self.head.head()) {
            warn_of_loader(name, pid, &stuck);
        }
        let progress = self.stats.batches + self.machine.joins() + self.machine.epoch();
        match self.liveness.check(progress, self.clock.now()) {
            Silence::Fine => Ok(()),
            Silence::Ask => self.link.send(&Request::Ping),
            Silence::Warn(silence) => {
                warn_of_silence(name, pid, silence);
                Ok(())
            }
            Silence::GiveUp(silence) => Err(silent_error(name, pid, silence)),
        }
    }

    pub(super) fn handle(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Reply(Reply::Ring(info), memory) => {
                self.machine.adopt(info.consumer_shape());
                self.view.adopt(info, memory, &self.config.name)?;
                fault::point("consumer:ring_adopted");
                // It may be the first real ring, after an empty epoch.
                self.check_batch_size()
            }
            Event::Reply(Reply::Answer(answer), _) => {
                let now = self.now();
                let was_joined = self.machine.is_joined();
                let heard = self.with_machine(|machine, memory| machine.handle_answer(answer, memory, now));
                if !was_joined && self.machine.is_joined() {
                    fault::point("consumer:joined");
                }
                heard.map_err(|trouble| self.messages().error(trouble))
            }
            Event::Reply(Reply::Refused { why }, _) => Err(Error::Protocol(why)),
            Event::Reply(Reply::Pong, _) => {
                if self.liveness.answered() {
                    let (name, pid) = (&self.config.name, self.link.server_pid());
                    tracing::info!("feed {name:?}: its server (pid {pid}) answers again");
                }
                Ok(())
            }
            // Logged if the consumer has to wait before the loader goes on.
            Event::Reply(Reply::Stuck(stuck), _) => {
                self.stuck = Some(stuck);
                Ok(())
            }
            // Other messages about its end count when all that was published has been read: the head page says when.
            Event::Reply(..) => Ok(()),
            Event::Lost => match HeadView::state(&*self.head) {
                // What the server published stays readable.
                FeedState::Ended | FeedState::Failed if self.machine.is_joined() => Ok(()),
                FeedState::Running => Err(self.link.lost_error(&self.config.name)),
                over => Err(self.why_over(over)),
            },
        }
    }

    /// The ring was replaced: its memory is on the way, or here, or comes when the server sees that we no longer rest.
    pub(super) fn adopt_ring(&mut self, check: Check<'_>) -> Result<(), Error> {
        let began = Instant::now();
        self.link.send(&Request::Ping)?;
        while self.view.generation() != self.head.generation() && self.machine.is_joined() {
            if began.elapsed() > Duration::from_secs(10) && !self.liveness.is_asking() {
                // A server that answers gets its time again.
                let name = &self.config.name;
                let what = format!("feed {name:?} announced a new ring and did not send it");
                return Err(Error::ServerLost(what.into()));
            }
            match self.link.wait(check)? {
                // The ring won't come any more. A feed that has ended, and has more for us, was lost all the same.
                Some(Event::Lost) => {
                    let over = HeadView::state(&*self.head);
                    let is_lost = match over {
                        FeedState::Running => true,
                        FeedState::Ended => self.machine.has_more(&*self.head),
                        FeedState::Failed | FeedState::Stopped => false,
                    };
                    return Err(if is_lost { self.link.lost_error(&self.config.name) } else { self.why_over(over) });
                }
                Some(event) => self.handle(event)?,
                None => self.check_liveness()?,
            }
        }
        Ok(())
    }

    pub(super) fn why_over(&mut self, over: FeedState) -> Error {
        if let Some(trouble) = self.machine.lost_by_stalling() {
            return self.messages().error(trouble);
        }
        if over == FeedState::Ended {
            return Error::Ended { name: self.config.name.clone() };
        }
        let failure = self.link.failure();
        let (name, pid) = (&self.config.name, self.link.server_pid());
        match (over, failure) {
            (FeedState::Failed, Some(failure)) => Error::Failed(failure),
            (_, Some(failure)) => {
                let Explanation { what, hint } = failure.message;
                let stopped = format!("feed {name:?} (pid {pid}) was stopped: ");
                let what = Text([vec![stopped.into()], what.0].concat());
                Error::ServerLost(Explanation { what, hint })
            }
            _ => self.link.lost_error(name),
        }
    }
}
