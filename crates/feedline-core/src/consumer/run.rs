//! Whether another server goes on with what the lost one had begun.
//!
//! The servers of one run of a shared feed yield an epoch in the same order; those of different runs need not. A consumer that
//! may come back holds its run (`names::runs`), so that the next server goes on with it.

use super::{Config, Consumer};
use crate::error::Error;
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
        let may_come_back = !config.reconnect.is_zero();
        let held = id.filter(|_| may_come_back).and_then(|id| HeldRun::hold(&names::folder(), &config.name, id));
        Self { id, _held: held }
    }
}

impl Consumer {
    /// Goes over to the run of a server that has come in the place of a lost one. In the middle of an epoch that can't be another
    /// run's: what is left of it would come in another order.
    pub(super) fn check_run(&mut self, id: Option<u64>, pid: u32) -> Result<(), Error> {
        if id == self.run.id {
            return Ok(());
        }
        let place = self.place();
        let is_inside = (self.joined || self.comes_back) && place.index > 0 && !self.has_read_all();
        if is_inside {
            return Err(Error::ServerLost(format!(
                "feed {:?} came back (pid {pid}) as another run, whose samples may come in another order: nobody can tell what is \
                 left of epoch {} after sample {}\n  attach anew; what was read so far was right",
                self.config.name,
                place.epoch,
                place.index - 1,
            )));
        }
        self.run = Run::of(&self.config, id);
        Ok(())
    }
}
