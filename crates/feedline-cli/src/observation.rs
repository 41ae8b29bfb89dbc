//! One observation of a feed: what its server reports, and what the kernel tells about the processes around it.

use std::collections::BTreeMap;
use std::time::Instant;

use feedline_core::proc::{self, Stat};
use feedline_core::stats::ServerStats;

use crate::machine::Cores;

/// A feed at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub at: Instant,
    pub stats: ServerStats,
    /// The cores, as the server may use them.
    pub cores: Cores,
    /// The server's children that load.
    pub workers: Vec<u32>,
    /// The server, its workers and its consumers, as far as they can be inspected.
    pub processes: BTreeMap<u32, ProcessSample>,
}

/// A process at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSample {
    pub state: char,
    pub cpu_secs: f64,
    /// Counted where the history is in a file.
    pub disk_read_bytes: u64,
    /// Counted for processes that load.
    pub core_wait_secs: f64,
}

impl Observation {
    pub fn new(stats: ServerStats) -> Self {
        let at = Instant::now();
        let cores = Cores::of(stats.pid);
        let workers = workers(&stats);
        let mut processes = BTreeMap::new();
        let consumers = stats.consumers.iter().map(|consumer| (consumer.pid, false));
        let loaders = workers.iter().chain([&stats.pid]).map(|&pid| (pid, true));
        for (pid, loads) in consumers.chain(loaders) {
            if let Some(Stat { state, cpu_secs, .. }) = Stat::of(pid) {
                // A job may have hundreds of threads, and how it is scheduled says nothing about the loader.
                let core_wait_secs = if loads { proc::core_wait_secs(pid) } else { 0.0 };
                let disk_read_bytes = if stats.history_in_file { proc::disk_read_bytes(pid) } else { 0 };
                processes.insert(pid, ProcessSample { state, cpu_secs, disk_read_bytes, core_wait_secs });
            }
        }
        Self { at, stats, cores, workers, processes }
    }
}

/// The processes that load for a server: those that its pool has forked; of a server without a pool, its children that are neither
/// consumers, nor this process, nor multiprocessing's resource tracker.
fn workers(stats: &ServerStats) -> Vec<u32> {
    let mut found = match stats.pool {
        Some(pool) => proc::children(pool.forker_pid),
        None => children_that_load(stats.pid),
    };
    let is_consumer = |pid: u32| stats.consumers.iter().any(|consumer| consumer.pid == pid);
    found.retain(|&pid| pid != std::process::id() && !is_consumer(pid));
    found.retain(|&pid| Stat::of(pid).is_some_and(|stat| stat.state != 'Z'));
    found
}

fn children_that_load(server: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for pid in proc::children(server) {
        let command = proc::command(pid).unwrap_or_default();
        if command.contains("multiprocessing.forkserver") {
            // A fork server's children have its command line; a process without children is a worker.
            let forked = proc::children(pid);
            found.extend(if forked.is_empty() { vec![pid] } else { forked });
        } else if !command.contains("multiprocessing.resource_tracker") {
            found.push(pid);
        }
    }
    found
}
