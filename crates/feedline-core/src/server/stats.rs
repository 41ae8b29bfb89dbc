//! Collects everything that a server knows, for those who ask for its numbers.

use feedline_protocol::UNKNOWN;
use feedline_protocol::log::{Lag, Log};
use feedline_protocol::server::Phase;

use super::Shared;
use super::events::short;
use super::members::consumer_stats;
use super::meter::Spent;
use super::ring::Ring;
use crate::schema::Schema;
use crate::stats::{PoolReport, ServerStats};

/// Collects everything, under the lock.
pub(super) fn stats(shared: &Shared) -> ServerStats {
    let mut state = shared.lock();
    state.machine.refresh(shared.meter.time());
    let ring = state.ring.as_deref();
    let (machine, log) = (&state.machine, state.machine.log());
    let (head, oldest, size) = (log.head(), log.oldest(), log.size());
    let samples_per_epoch = shared.head.length().samples;
    let Spent { loading, copying, waiting, in_call } = shared.meter.spent();
    // The previous epoch counts until the next one begins, unless it was abandoned.
    let next = log.epoch();
    let (epoch, epoch_samples) = log.locate(head).filter(|&(epoch, _)| epoch + 1 >= next).unwrap_or((next, 0));
    // Without consumers, what is in the ring waits for the first one.
    let floor = log.floor().unwrap_or_else(|| log.entrance()).max(head.saturating_sub(size.window));
    ServerStats {
        name: shared.name.clone(),
        pid: std::process::id(),
        state: match machine.phase() {
            Phase::Starting => "starting",
            Phase::Running | Phase::Draining => "running",
            Phase::Ended => "ended",
            Phase::Stopped => "stopped",
            Phase::Failed => "failed",
        }
        .into(),
        why: state.failure.as_ref().map(|failure| short(&failure.message.worded(shared.launch.reader))),
        uptime_secs: shared.meter.uptime().as_secs_f64(),
        epoch,
        epochs: shared.options.epochs,
        order: shared.launch.order.clone(),
        epoch_samples,
        samples_per_epoch: (samples_per_epoch != UNKNOWN).then_some(samples_per_epoch),
        samples: head,
        batches: state.tally.batches,
        whole_batches: ring
            .is_some_and(|ring| matches!(*ring.info.schema, Schema::Whole { .. }) && !ring.info.is_placeholder()),
        bytes: state.tally.bytes,
        ring_bytes: ring.map_or(0, |ring| ring.len_bytes - ring.history_bytes()),
        ring_samples: size.window,
        ring_used_samples: head - floor.min(head),
        ring_fill: fill(log, floor),
        history_bytes: ring.map_or(0, Ring::history_bytes),
        history_samples: size.capacity - size.window,
        history_used_samples: (head - oldest).saturating_sub(size.window),
        history_in_file: ring.is_some_and(|ring| ring.info.is_file),
        oldest,
        generation: ring.map_or(0, |ring| ring.info.generation),
        lag: match shared.options.lag {
            Lag::Block => "block",
            Lag::History => "history",
            Lag::Skip => "skip",
        }
        .into(),
        replay: shared.options.replay,
        wait_for: shared.options.wait_for,
        gate_open: machine.members().has_begun(),
        all_written: match machine.phase() {
            Phase::Draining | Phase::Ended => true,
            _ => shared.options.replay && log.epoch() > 0,
        },
        loading_secs: loading,
        copying_secs: copying,
        wait_secs: waiting,
        loader_call_secs: in_call,
        pool: state.pool.as_ref().map(PoolReport::stats),
        metrics_port: shared.metrics_port,
        consumers: consumer_stats(machine, |sample| state.stamps.age(sample, shared.meter.uptime())),
        events: state.events.recent(),
        event_counts: state.events.counts(),
    }
}

/// How much of the window is taken by samples that a consumer needs, from `floor` on.
fn fill(log: &Log, floor: u64) -> f64 {
    let part = |used: u64, of: u64| if of > 0 { (used as f64 / of as f64).min(1.0) } else { 0.0 };
    let bytes = log.bytes_of(floor..log.head()).map_or(0, |bytes| bytes.end - bytes.start);
    part(log.head().saturating_sub(floor), log.size().window).max(part(bytes, log.size().byte_window))
}
