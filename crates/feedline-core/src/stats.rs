//! A feed's numbers: the one set behind `stats()`, the command line, the dashboard and the metrics.
//!
//! Times and counts "in all", a consumer's too, only grow while the server lives: rates are differences of two readings. The rest
//! is
//! the state at this moment.

mod pool;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::pool::{PoolReason, PoolReport, PoolStats};

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
    /// What an epoch's order depends on, beside the epoch, in a few words; empty if that is not known.
    pub order: String,
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
    /// Time in which the loader could not go on: the ring was full, or nobody wanted more.
    pub wait_secs: f64,
    /// How long the loader has been at the batch that it is preparing.
    pub loader_call_secs: f64,
    /// The loader's pool of workers, if it is `feedline.DataLoader` with workers.
    pub pool: Option<PoolStats>,
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

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts the events of this server.
    pub number: u64,
    /// How long ago it was.
    pub secs_ago: f64,
    /// "joined", "left", "died", "detached", "epoch", "abandoned", "ring", "stuck", "failed" or "stopped".
    pub kind: String,
    /// The consumer that it happened to, if it was one.
    pub pid: Option<u32>,
    /// For a person.
    pub text: String,
}
