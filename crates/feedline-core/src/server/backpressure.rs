//! Waits for space in the log, and meanwhile does what the state machine asks for: sleeps on consumers' bells, grows the
//! ring, detaches consumers that stand still.

use std::sync::Arc;

use feedline_protocol::log::Run;
use feedline_protocol::server::{Claim, EpochStart, Halt as Stop, Stalled, Wait};
use feedline_shm::{Doorbell, Slots, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::State;
use super::claim::HIDDEN_LANES;
use super::meter::Doing;
use super::producer::Producer;
use super::watchdog::Inside;
use crate::source::Halt;

/// The longest sleep without a call of the caller's hook.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Abandoned => Self::Abandoned,
            Stop::Stopped => Self::Stopped,
        }
    }
}

impl<'a> Producer<'a> {
    /// Claims the next samples and their memory, and waits for space if needed; `left` samples of the source's batch are left from
    /// the first of them on.
    pub fn claim(&mut self, samples: u64, bytes: u64, left: u64) -> Result<(Run, Slots), Halt> {
        let mut inside = None;
        loop {
            match self.ask_for_room(samples, bytes, left)? {
                Ok(claimed) => return Ok(claimed),
                Err(wait) => self.wait(wait, &mut inside)?,
            }
        }
    }

    /// The same without sleeping: `None` if there is no room now.
    pub fn claim_now(&mut self, samples: u64, bytes: u64, left: u64) -> Result<Option<(Run, Slots)>, Halt> {
        let is_in_vain = self.shared.change(|state| {
            state.machine.refresh(self.shared.meter.time());
            let log = state.machine.log();
            // Nobody waits here: who stands still, and for how long, is found out when somebody does.
            !log.is_filling() && !log.in_the_way(samples, bytes).is_empty()
        });
        if is_in_vain {
            return Ok(None);
        }
        loop {
            match self.ask_for_room(samples, bytes, left)? {
                Ok(claimed) => return Ok(Some(claimed)),
                Err(Wait::Sleep | Wait::ForSource) => {
                    self.shared.lock().producer_sleeps = false;
                    return Ok(None);
                }
                Err(wait) => self.wait(wait, &mut None)?,
            }
        }
    }

    /// Samples and their memory, or what to wait for.
    fn ask_for_room(&self, samples: u64, bytes: u64, left: u64) -> Result<Result<(Run, Slots), Wait>, Halt> {
        let shared = self.shared;
        let asked = shared.change(|state| {
            let claim = state.machine.claim(samples, bytes, &shared.head, shared.meter.time());
            state.producer_sleeps = matches!(claim, Claim::Wait(_));
            match claim {
                Claim::Granted(run) => {
                    let bytes = run.byte_start..run.byte_start + bytes;
                    let span = Span { samples: run.first..run.first + samples, bytes };
                    let slots = state.slots().claim(span).expect("the log grants no sample twice");
                    let len_bytes = (HIDDEN_LANES..slots.lanes()).map(|lane| slots.len_bytes(lane) as u64).sum();
                    state.tally.grant(run, left, len_bytes);
                    Ok(Ok((run, slots)))
                }
                Claim::Wait(wait) => Ok(Err(wait)),
                Claim::Halted(stop) => Err(stop),
            }
        });
        asked.map_err(Halt::from)
    }

    /// Waits until the log may begin its next epoch.
    pub fn wait_for_epoch(&mut self) -> Result<(), Halt> {
        let (shared, mut inside) = (self.shared, None);
        loop {
            let start = shared.change(|state| {
                let start = state.machine.may_begin_epoch(&shared.head, shared.meter.time());
                state.producer_sleeps = matches!(start, EpochStart::Wait(_));
                start
            });
            match start {
                EpochStart::Now => return Ok(()),
                EpochStart::Halted => return Err(Halt::Stopped),
                EpochStart::Wait(wait) => self.wait(wait, &mut inside)?,
            }
        }
    }

    /// Waits until all epochs are read.
    pub fn wait_for_readers(&mut self, epochs: u64) -> Result<(), Halt> {
        let shared = self.shared;
        let waited = self.wait_until(|state| state.machine.is_read(epochs, &shared.head, shared.meter.time()));
        shared.head.want_nothing();
        waited
    }

    /// The loader has failed. Consumers that have attached but not asked yet get a moment for it, so that they too see what came
    /// before.
    pub fn let_in(&mut self) {
        let shared = self.shared;
        let _ = self.wait_until(|state| state.machine.have_asked(&shared.head, shared.meter.time()));
        shared.head.want_nothing();
    }

    /// Waits for something that consumers bring about.
    pub fn wait_until(&mut self, mut is_so: impl FnMut(&mut State) -> bool) -> Result<(), Halt> {
        loop {
            let is_ready = self.shared.change(|state| {
                let is_ready = (!state.machine.phase().is_broken()).then(|| is_so(state));
                state.producer_sleeps = is_ready == Some(false);
                is_ready
            });
            match is_ready {
                None => return Err(Halt::Stopped),
                Some(true) => return Ok(()),
                Some(false) => self.sleep()?,
            }
        }
    }

    /// Waits until those who fill claims have brought something about, under the eyes of the watchdog.
    pub fn wait_for_source(&mut self, mut is_so: impl FnMut(&mut State) -> bool) -> Result<(), Halt> {
        let shared = self.shared;
        if shared.change(&mut is_so) {
            return Ok(());
        }
        let _inside = shared.watch.enter(&shared.meter);
        self.wait_until(is_so)
    }

    /// `inside` is there for as long as the source is what is waited for, however often.
    fn wait(&mut self, wait: Wait, inside: &mut Option<Inside<'a>>) -> Result<(), Halt> {
        if wait != Wait::ForSource {
            *inside = None;
        }
        match wait {
            Wait::Sleep => self.sleep(),
            Wait::ForSource => {
                let shared = self.shared;
                inside.get_or_insert_with(|| shared.watch.enter(&shared.meter));
                self.sleep()
            }
            Wait::GrowFor(window) => {
                self.grow_for_consumers(window);
                Ok(())
            }
            Wait::GrowForRanks(ranks) => {
                self.grow_for_ranks(&ranks);
                Ok(())
            }
            Wait::Detach(stalled) => {
                if self.detach(&stalled) {
                    return Ok(());
                }
                self.sleep()
            }
        }
    }

    /// Detaches consumers that stand still. True if it did.
    ///
    /// A consumer that holds leases, or may be cutting one right now, keeps the old ring, and the others move on to another; so
    /// that ring must be there first. If there is no memory for it, everybody goes on waiting.
    fn detach(&mut self, stalled: &[Stalled]) -> bool {
        let shared = self.shared;
        let needs_ring = shared.lock().machine.needs_ring_to_detach(stalled);
        let prepared = match needs_ring.then(|| self.prepare(self.ring().info.size())).transpose() {
            Ok(prepared) => prepared,
            Err(error) => {
                if !std::mem::replace(&mut self.is_short_of_memory, true) {
                    let (name, error) = (&shared.name, error.explanation().worded(shared.launch.reader));
                    tracing::warn!("feed {name:?} waits for a consumer that stands still: without it, {error}");
                }
                return false;
            }
        };
        let has_ring = prepared.is_some() || self.ring.is_none();
        let mut any = false;
        let detach = |state: &mut State| {
            any = state.machine.detach(stalled, has_ring, &shared.head, shared.meter.time());
        };
        match prepared {
            Some(prepared) => self.install(prepared, detach),
            None => shared.change(detach),
        }
        shared.control_bell.ring();
        any
    }

    fn sleep(&mut self) -> Result<(), Halt> {
        let bells: Vec<Arc<Doorbell>> =
            self.shared.lock().machine.members().values().map(|member| Arc::clone(&member.page.bell)).collect();
        let mut fds = vec![PollFd::new(&self.shared.producer_bell, PollFlags::IN)];
        fds.extend(bells.iter().map(|bell| PollFd::new(&**bell, PollFlags::IN)));
        let meter = &self.shared.meter;
        let before = meter.doing();
        // What is spent on waiting for the source is the source's time.
        meter.turn(if before == Doing::Loading { Doing::Loading } else { Doing::Waiting });
        let _ = poll(&mut fds, Some(&SLICE));
        meter.turn(before);
        self.shared.producer_bell.clear();
        bells.iter().for_each(|bell| bell.clear());
        (self.poll)().map_err(Halt::from)
    }
}
