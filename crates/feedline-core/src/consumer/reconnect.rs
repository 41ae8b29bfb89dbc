//! Going on with another server of the same feed when the server is lost.
//!
//! The servers of one run of a shared feed yield an epoch in the same order; those of different runs need not. A consumer that
//! may reconnect holds its run (`names::runs`), so that the next server goes on with it.

use std::sync::Arc;
use std::time::Instant;

use feedline_protocol::Mark;
use feedline_protocol::consumer::{Liveness, Pressure};
use feedline_shm::LeaseTable;

use super::link::Link;
use super::messages::what_another_order_means;
use super::view::View;
use super::{Check, Config, Consumer};
use crate::error::{Error, Failure, FailureKind};
use crate::explain::Explanation;
use crate::names::{self, runs::HeldRun};

/// The run that a consumer is in.
#[derive(Debug)]
pub(super) struct Run {
    /// `None` if the feed is served by hand.
    id: Option<u64>,
    _held: Option<HeldRun>,
}

impl Run {
    /// Held, if the consumer may come back to it.
    pub fn of(config: &Config, id: Option<u64>) -> Self {
        let may_reconnect = !config.reconnect.is_zero();
        let held = id.filter(|_| may_reconnect).and_then(|id| HeldRun::hold(&names::folder(), &config.name, id));
        Self { id, _held: held }
    }
}

impl Consumer {
    /// Changes to the run of a server that has replaced a lost one. In the middle of an epoch it must be the same
    /// run: the rest of another run's epoch would come in another order.
    fn check_run(&mut self, id: Option<u64>, pid: u32) -> Result<(), Error> {
        if id == self.run.id {
            return Ok(());
        }
        if self.with_machine(|machine, memory| machine.is_inside(memory)) {
            let Mark { epoch, index } = self.machine.place();
            let what = format!(
                "feed {:?} came back (pid {pid}) as another run, whose samples may come in another order: nobody can tell what is \
                 left of epoch {epoch} after sample {}",
                self.config.name,
                index - 1,
            );
            let way_out = "attach anew; what was read so far was right";
            return Err(Error::ServerLost(Explanation::new(what).hint(way_out)));
        }
        self.run = Run::of(&self.config, id);
        Ok(())
    }

    /// Warns if a server that was started by hand yields the rest of an epoch in another order, as far as that can be known.
    fn check_order(&mut self, order: &str, pid: u32) {
        let is_known = !order.is_empty() && !self.order.is_empty();
        if is_known && *order != *self.order && self.with_machine(|machine, memory| machine.is_inside(memory)) {
            let epoch = self.machine.place().epoch;
            tracing::warn!(
                "feed {:?} came back (pid {pid}) in another order ({order:?}) than before ({:?}): {}",
                self.config.name,
                self.order,
                what_another_order_means(epoch),
            );
        }
    }

    /// Waits for another server of the same feed, and goes on with it where we were.
    pub(super) fn reconnect(&mut self, why: &Explanation, check: Check<'_>) -> Result<(), Error> {
        let (name, limit) = (self.config.name.clone(), self.config.reconnect);
        let began = Instant::now();
        tracing::warn!("{}\n  waiting up to {} s for another", why.what, limit.as_secs_f64());
        let (link, welcome) = Link::open(&self.config, limit, true, check).map_err(|error| match error {
            Error::NotFound { .. } => {
                let mut why = why.clone();
                why.what.0.push(format!(", and none came back within {} s", limit.as_secs_f64()).into());
                Error::ServerLost(why)
            }
            error => error,
        })?;
        // A server that goes on at an epoch's end has nothing to show yet.
        let is_unknown = welcome.ring.is_placeholder() || self.view.is_placeholder();
        if !is_unknown && !welcome.ring.schema.goes_with(self.schema()) {
            let what = format!(
                "feed {name:?} came back (pid {}) with other batches: {} before, {} now",
                link.server_pid(),
                self.schema().describe(),
                welcome.ring.schema.describe(),
            );
            let message = Explanation::new(what).hint("attach anew");
            return Err(Error::Failed(Failure::new(FailureKind::Schema, message)));
        }
        self.check_run(welcome.run, link.server_pid())?;
        self.check_order(&welcome.order, link.server_pid());
        self.order = welcome.order;
        let (shape, counted) = (welcome.ring.consumer_shape(), self.table.page().counted());
        let mark = self.machine.reconnect(shape, self.link.server_pid(), &*self.head, counted);
        let head = Arc::new(welcome.head);
        // Batches that were handed out keep the old ring, which nobody writes to any more.
        self.table = LeaseTable::new(Arc::clone(&head), welcome.page, welcome.bell, 0, 0);
        self.view = View::new(welcome.ring, welcome.memory, self.config.mode, &name)?;
        self.check_lag()?;
        self.stats.server_pid = link.server_pid();
        (self.link, self.head, self.pressure) = (link, head, Pressure::default());
        self.liveness = Liveness::new(self.config.answer_timeout, self.clock.now());
        self.stuck = None;
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
}
