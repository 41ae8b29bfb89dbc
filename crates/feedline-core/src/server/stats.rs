//! How things stand: the one set of numbers behind `stats()`, the command line, the dashboard and the metrics.
//!
//! Times and counts "in all", a consumer's too, only grow while the server lives: rates are differences of two looks. The rest is
//! how things are at this moment.

use std::collections::BTreeMap;

use feedline_ring::log::{Lag, Log};
use serde::{Deserialize, Serialize};

use super::events::{Event, short};
use super::meter::Spent;
use super::shape::PublishedRing;
use super::{Phase, Shared, UNKNOWN};
use crate::error::FailureKind;
use crate::schema::Schema;

/// How things stand with a feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The feed.
    pub name: String,
    /// The process.
    pub pid: u32,
    /// "starting", "running", "ended", "failed" or "stopped".
    pub state: String,
    /// Why it failed or was stopped, in one line.
    pub why: Option<String>,
    /// Since the server took the name.
    pub uptime_secs: f64,
    /// The epoch that is being written; between two, the one that was written last.
    pub epoch: u64,
    /// How many there will be.
    pub epochs: Option<u64>,
    /// How many samples of this epoch are written.
    pub epoch_samples: u64,
    /// An epoch's length, once known.
    pub samples_per_epoch: Option<u64>,
    /// Samples published, in all.
    pub samples: u64,
    /// Batches taken from the source, in all.
    pub batches: u64,
    /// Whether batches can't be cut: each counts as one sample, here and below.
    pub whole_batches: bool,
    /// Bytes copied into the ring, in all.
    pub bytes: u64,
    /// The ring's memory.
    pub ring_bytes: u64,
    /// How many samples fit into it.
    pub ring_samples: u64,
    /// How many of them the slowest consumer has not let go of.
    pub ring_used_samples: u64,
    /// How full it is, from 0 to 1: in samples, or in bytes where batches vary.
    pub ring_fill: f64,
    /// The memory, or disk space, of the history behind it.
    pub history_bytes: u64,
    /// How many samples fit into that.
    pub history_samples: u64,
    /// How many are there.
    pub history_used_samples: u64,
    /// Whether ring and history are in a file (`history_dir`), not in memory.
    pub history_in_file: bool,
    /// The oldest sample that is still there.
    pub oldest: u64,
    /// Counts the rings of this feed.
    pub generation: u32,
    /// "block", "history" or "skip".
    pub lag: String,
    /// Whether one epoch is read again and again.
    pub replay: bool,
    /// How many consumers the first batch waits for.
    pub wait_for: u32,
    /// Whether so many have asked, once.
    pub gate_open: bool,
    /// Whether every epoch is written, so that nothing is left but to read.
    pub all_written: bool,
    /// Time in the loader, in all.
    pub loading_secs: f64,
    /// Time in which batches were copied into the ring.
    pub copying_secs: f64,
    /// Time in which the loader could not go on: there was no room, or nobody who wanted more.
    pub wait_secs: f64,
    /// How long the loader has been at the batch that it is preparing.
    pub loader_call_secs: f64,
    /// Where it answers Prometheus, on 127.0.0.1.
    pub metrics_port: Option<u16>,
    /// Who is attached.
    pub consumers: Vec<ConsumerStats>,
    /// What happened lately, the newest last.
    pub events: Vec<Event>,
    /// How many events of each kind there were, in all.
    pub event_counts: BTreeMap<String, u64>,
}

impl ServerStats {
    /// What is counted as samples: "samples", or "batches".
    pub fn units(&self) -> &'static str {
        if self.whole_batches { "batches" } else { "samples" }
    }
}

/// How things stand with one consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsumerStats {
    /// Counts the consumers of this server; a process may have several.
    pub id: u64,
    /// The process; 0 if it is in another pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Whether it has a cursor.
    pub joined: bool,
    /// What it asked for; `None` is the source's own batches. Of all ranks together.
    pub batch_size: Option<u64>,
    /// The same for all ranks of one job; else its own `id`.
    pub job: u64,
    /// Which rank it is, of how many.
    pub rank: Option<(u32, u32)>,
    /// Its epoch.
    pub epoch: u64,
    /// One past the newest sample that it took.
    pub cursor: u64,
    /// How far it is behind the newest.
    pub lag_samples: u64,
    /// How long the next sample that it will take has been there.
    pub lag_secs: f64,
    /// "cow", "copy" or "readonly".
    pub mode: String,
    /// Why it copies: "asked for", "it writes in place", "it keeps batches", "lag is skip" or "the kernel".
    pub copies_because: Option<String>,
    /// Live leases.
    pub leases: u32,
    /// Batches taken.
    pub batches: u64,
    /// And the samples in them.
    pub samples: u64,
    /// Samples that were overwritten before it took them.
    pub skipped: u64,
    /// Time that it waited for data.
    pub waited_secs: f64,
    /// Whether it waits right now; one that has not joined, for the feed's first batch.
    pub waiting: bool,
    /// Whether it has read an epoch and not asked for the next.
    pub resting: bool,
}

/// Looks at everything, under the lock.
pub(super) fn stats(shared: &Shared) -> ServerStats {
    let mut state = shared.lock();
    state.refresh();
    let ring = state.ring.as_deref();
    let (head, oldest, size) = (state.log.head(), state.log.oldest(), state.log.size());
    let samples_per_epoch = shared.head.length().samples;
    let Spent { loading, copying, waiting, in_call } = shared.meter.spent();
    // The one before counts until the next one begins, unless it was abandoned.
    let next = state.log.epoch();
    let (epoch, epoch_samples) = state.log.locate(head).filter(|&(epoch, _)| epoch + 1 >= next).unwrap_or((next, 0));
    // With nobody there, what is in the ring waits for the first to come.
    let floor = state.log.floor().unwrap_or_else(|| state.log.entrance()).max(head.saturating_sub(size.window));
    ServerStats {
        name: shared.name.clone(),
        pid: std::process::id(),
        state: match &state.phase {
            Phase::Starting => "starting",
            Phase::Running | Phase::Draining => "running",
            Phase::Ended => "ended",
            Phase::Broken(failure) if failure.kind == FailureKind::Stopped => "stopped",
            Phase::Broken(_) => "failed",
        }
        .into(),
        why: match &state.phase {
            Phase::Broken(failure) => Some(short(&failure.message)),
            _ => None,
        },
        uptime_secs: shared.meter.uptime().as_secs_f64(),
        epoch,
        epochs: shared.options.epochs,
        epoch_samples,
        samples_per_epoch: (samples_per_epoch != UNKNOWN).then_some(samples_per_epoch),
        samples: head,
        batches: state.batches,
        whole_batches: ring
            .is_some_and(|ring| matches!(ring.info.schema, Schema::Whole { .. }) && !ring.info.is_placeholder()),
        bytes: state.bytes,
        ring_bytes: ring.map_or(0, |ring| ring.len_bytes - ring.history_bytes()),
        ring_samples: size.window,
        ring_used_samples: head - floor.min(head),
        ring_fill: fill(&state.log, floor),
        history_bytes: ring.map_or(0, PublishedRing::history_bytes),
        history_samples: size.capacity - size.window,
        history_used_samples: (head - oldest).saturating_sub(size.window),
        history_in_file: ring.is_some_and(|ring| ring.info.is_file),
        oldest,
        generation: ring.map_or(0, |ring| ring.info.generation),
        lag: match shared.options.policy.lag {
            Lag::Block => "block",
            Lag::History => "history",
            Lag::Skip => "skip",
        }
        .into(),
        replay: shared.options.policy.replay,
        wait_for: shared.options.wait_for,
        gate_open: state.members.gate_open,
        all_written: match state.phase {
            Phase::Draining | Phase::Ended => true,
            _ => shared.options.policy.replay && state.log.epoch() > 0,
        },
        loading_secs: loading,
        copying_secs: copying,
        wait_secs: waiting,
        loader_call_secs: in_call,
        metrics_port: shared.metrics_port,
        consumers: state.members.stats(&state.log, |sample| state.stamps.age(sample, shared.meter.uptime())),
        events: state.events.recent(),
        event_counts: state.events.counts(),
    }
}

/// How much of the window is taken by what somebody needs, from `floor` on.
fn fill(log: &Log, floor: u64) -> f64 {
    let part = |used: u64, of: u64| if of > 0 { (used as f64 / of as f64).min(1.0) } else { 0.0 };
    let bytes = log.live_bytes().zip(log.byte_start(floor)).map_or(0, |((_, end), start)| end - start);
    part(log.head().saturating_sub(floor), log.size().window).max(part(bytes, log.size().byte_window))
}
