//! What is known about a feed: its newest numbers, and how they changed over the last seconds.

use std::collections::{BTreeMap, VecDeque};

use feedline_core::proc;
use feedline_core::stats::{ConsumerStats, ServerStats};
use serde::Serialize;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::observation::Observation;
use crate::pool;
use crate::verdict::{self, Evidence, Verdict};

/// Everything that is known about a feed at one moment. Rates and shares are over the last seconds.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What the server reports.
    pub stats: ServerStats,
    /// How that changes.
    pub rates: Rates,
    /// The server's process.
    pub server: Process,
    /// Other feeds of that process.
    pub also_serves: Vec<String>,
    /// Its children: the loader's workers.
    pub workers: Vec<Process>,
    /// In the order of `stats.consumers`.
    pub jobs: Vec<Job>,
    /// The machine that it runs on.
    pub machine: Machine,
    /// Until the running epoch is written, if that can be known.
    pub epoch_left_secs: Option<f64>,
    /// What the numbers mean.
    pub verdict: Verdict,
}

/// How a feed changes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rates {
    /// How long was observed; 0 at the first observation, when nothing is known yet.
    pub window_secs: f64,
    /// Samples published a second.
    pub samples_per_sec: f64,
    /// Batches published a second.
    pub batches_per_sec: f64,
    /// Bytes published a second.
    pub bytes_per_sec: f64,
    /// The share of the time that the source spends in the loader.
    pub loading_share: f64,
    /// The share of the time that it copies into the ring.
    pub copying_share: f64,
    /// The share of the time that it waits: the ring is full, or nobody needs more.
    pub waiting_share: f64,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// How it was started.
    pub command: String,
    /// 'R', 'S', 'D', 'T', ...
    pub state: char,
    /// How many cores it keeps busy.
    pub cpu_cores: f64,
    /// How many more cores it would keep busy, if any were free; for processes that load.
    pub core_wait: f64,
    /// The share of the observations in which it waited for a disk (state D).
    pub disk_share: f64,
    /// How many bytes a second were read from a disk for it, where the history is in a file.
    pub disk_bytes_per_sec: f64,
    /// Its memory in RAM, the ring's pages that it has touched included.
    pub resident_bytes: u64,
    /// The same without the ring, files and other shared memory.
    pub private_bytes: u64,
}

/// A consumer: what its numbers in [`ServerStats`] don't tell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    /// The user's name, or uid.
    pub user: String,
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// For how long it was observed with a cursor.
    pub seen_secs: f64,
    /// Batches taken a second.
    pub batches_per_sec: f64,
    /// Samples taken a second.
    pub samples_per_sec: f64,
    /// Samples a second that were overwritten before it took them.
    pub skipped_per_sec: f64,
    /// The share of its time in which it waited for data.
    pub wait_share: f64,
}

impl View {
    /// From the observations of the last seconds, the newest last; there must be one.
    pub(crate) fn new(observations: &VecDeque<Observation>, users: &mut BTreeMap<u32, String>) -> Self {
        let (before, now) = (&observations[0], &observations[observations.len() - 1]);
        let rates = rates(before, now);
        let jobs: Vec<Job> = now.stats.consumers.iter().map(|consumer| job(observations, consumer, users)).collect();
        let server = process(observations, now.stats.pid);
        let workers: Vec<Process> = now.workers.iter().map(|&pid| process(observations, pid)).collect();
        let ours = own_cores(&server, &workers, &jobs);
        let machine = Machine::new(&before.cores, &now.cores, ours);
        let verdict = verdict::judge(&Evidence {
            stats: &now.stats,
            rates: &rates,
            server: &server,
            workers: &workers,
            jobs: &jobs,
            machine: &machine,
        });
        let left = now.stats.samples_per_epoch.map(|all| all.saturating_sub(now.stats.epoch_samples) as f64);
        let epoch_left_secs = left.filter(|_| rates.samples_per_sec > 0.0 && !now.stats.all_written);
        let epoch_left_secs = epoch_left_secs.map(|left| left / rates.samples_per_sec);
        Self {
            stats: now.stats.clone(),
            rates,
            server,
            also_serves: Vec::new(),
            workers,
            jobs,
            machine,
            epoch_left_secs,
            verdict,
        }
    }

    /// One JSON object: the server's numbers, and what was found out beside them.
    pub fn json(&self) -> Value {
        let mut object = json!(self.stats);
        let mut jobs = Vec::new();
        for (consumer, job) in self.stats.consumers.iter().zip(&self.jobs) {
            jobs.push(merged(json!(job), json!(consumer)));
        }
        object["consumers"] = json!(jobs);
        if let Some(text) = pool::text(&self.stats) {
            object["pool"]["text"] = json!(text);
        }
        object["server"] = json!(self.server);
        object["also_serves"] = json!(self.also_serves);
        object["workers"] = json!(self.workers);
        object["machine"] = json!(self.machine);
        object["epoch_left_secs"] = json!(self.epoch_left_secs);
        object["verdict"] = json!(self.verdict);
        merged(object, json!(self.rates))
    }
}

fn merged(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// How many cores a feed's own processes keep busy, each process counted once: one may serve, load and consume.
pub(crate) fn own_cores(server: &Process, workers: &[Process], jobs: &[Job]) -> f64 {
    let all = workers.iter().chain([server]).chain(jobs.iter().map(|job| &job.process));
    all.map(|process| (process.pid, process.cpu_cores)).collect::<BTreeMap<_, _>>().values().sum()
}

/// The increase per second.
fn rate(secs: f64, was: f64, is: f64) -> f64 {
    if secs > 0.0 { (is - was).max(0.0) / secs } else { 0.0 }
}

fn rates(before: &Observation, now: &Observation) -> Rates {
    let secs = now.at.duration_since(before.at).as_secs_f64();
    let (old, new) = (&before.stats, &now.stats);
    Rates {
        window_secs: secs,
        samples_per_sec: rate(secs, old.samples as f64, new.samples as f64),
        batches_per_sec: rate(secs, old.batches as f64, new.batches as f64),
        bytes_per_sec: rate(secs, old.bytes as f64, new.bytes as f64),
        loading_share: rate(secs, old.loading_secs, new.loading_secs).min(1.0),
        copying_share: rate(secs, old.copying_secs, new.copying_secs).min(1.0),
        waiting_share: rate(secs, old.wait_secs, new.wait_secs).min(1.0),
    }
}

fn process(observations: &VecDeque<Observation>, pid: u32) -> Process {
    // A process that began meanwhile is measured from its first observation.
    let seen: Vec<_> = observations
        .iter()
        .filter_map(|observation| Some((observation.at, observation.processes.get(&pid)?)))
        .collect();
    let (resident_bytes, private_bytes) = proc::memory_bytes(pid).unwrap_or_default();
    let mut process = Process { pid, state: '?', resident_bytes, private_bytes, ..Process::default() };
    if let (Some((began, first)), Some((ended, last))) = (seen.first(), seen.last()) {
        process.state = last.state;
        process.command = proc::command(pid).unwrap_or_default();
        let secs = ended.duration_since(*began).as_secs_f64();
        process.cpu_cores = rate(secs, first.cpu_secs, last.cpu_secs);
        process.disk_bytes_per_sec = rate(secs, first.disk_read_bytes as f64, last.disk_read_bytes as f64);
        process.core_wait = rate(secs, first.core_wait_secs, last.core_wait_secs);
        process.disk_share = seen.iter().filter(|(_, seen)| seen.state == 'D').count() as f64 / seen.len() as f64;
    }
    process
}

fn job(observations: &VecDeque<Observation>, consumer: &ConsumerStats, users: &mut BTreeMap<u32, String>) -> Job {
    // What a consumer did before it had its cursor, waiting for its turn, is no part of its pace.
    let earlier = observations.iter().filter_map(|observation| {
        let was = observation.stats.consumers.iter().find(|was| was.id == consumer.id && was.joined)?;
        Some((observation.at, was))
    });
    let (began, was) = earlier.min_by_key(|(at, _)| *at).unwrap_or((observations[observations.len() - 1].at, consumer));
    let secs = observations[observations.len() - 1].at.duration_since(began).as_secs_f64();
    Job {
        user: users.entry(consumer.uid).or_insert_with(|| user_name(consumer.uid)).clone(),
        process: process(observations, consumer.pid),
        seen_secs: secs,
        batches_per_sec: rate(secs, was.batches as f64, consumer.batches as f64),
        samples_per_sec: rate(secs, was.samples as f64, consumer.samples as f64),
        skipped_per_sec: rate(secs, was.skipped as f64, consumer.skipped as f64),
        wait_share: rate(secs, was.waited_secs, consumer.waited_secs).min(1.0),
    }
}

/// From `/etc/passwd`; the uid, if it isn't there.
fn user_name(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid));
    entry.map_or_else(|| uid.to_string(), |fields| fields[0].to_owned())
}
