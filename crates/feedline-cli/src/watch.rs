//! Looking at feeds again and again: what their servers say, what the kernel says of the processes, and how both change.
//!
//! ```text
//! Watcher::look() ── ask each server ──▶ Look ── beside the looks of the last seconds ──▶ View (rates, shares, verdict)
//! ```
//!
//! Connections are kept from look to look. A feed that ended is gone from the next look; one that came back is new.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use feedline_core::names::{self, FeedInfo};
use feedline_core::proc::{self, Stat};
use feedline_core::server::{ConsumerStats, ServerStats};
use feedline_core::visitor::Visitor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::verdict::{self, Evidence, Verdict};

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_millis(500);
/// Over how long rates are taken.
const WINDOW: Duration = Duration::from_secs(5);

/// Everything that is known of a feed at one moment. Rates and shares are over the last seconds.
#[derive(Clone, Debug)]
pub struct View {
    /// What the server says.
    pub stats: ServerStats,
    /// And how that changes.
    pub rates: Rates,
    /// The server's process.
    pub server: Process,
    /// Its children: the loader's workers are among them.
    pub workers: Vec<Process>,
    /// In the order of `stats.consumers`.
    pub jobs: Vec<Job>,
    /// Until the running epoch is written, if that can be known.
    pub epoch_left_secs: Option<f64>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// How a feed changes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rates {
    /// Over how long this was seen; 0 at the first look, when nothing is known yet.
    pub window_secs: f64,
    /// Samples published a second.
    pub samples_per_sec: f64,
    /// Batches published a second.
    pub batches_per_sec: f64,
    /// Bytes published a second.
    pub bytes_per_sec: f64,
    /// The share of the time in the loader.
    pub loading_share: f64,
    /// Copying into the ring.
    pub copying_share: f64,
    /// Without room, or without need for more.
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
    /// Its memory in RAM, the ring's pages that it has touched included.
    pub resident_bytes: u64,
}

/// A consumer: what its numbers in [`ServerStats`] don't tell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    /// The user's name, or number.
    pub user: String,
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Batches taken a second.
    pub batches_per_sec: f64,
    /// Samples taken a second.
    pub samples_per_sec: f64,
    /// The share of its time in which it waited for data.
    pub wait_share: f64,
}

impl View {
    /// One JSON object: the server's numbers, with what is known beyond them.
    pub fn json(&self) -> Value {
        let mut object = json!(self.stats);
        let mut jobs = Vec::new();
        for (consumer, job) in self.stats.consumers.iter().zip(&self.jobs) {
            jobs.push(merged(json!(job), json!(consumer)));
        }
        object["consumers"] = json!(jobs);
        object["server"] = json!(self.server);
        object["workers"] = json!(self.workers);
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

/// What was seen at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    stats: ServerStats,
    /// CPU seconds of the processes that matter.
    cpu_secs: BTreeMap<u32, f64>,
}

/// One feed, as it was over the last seconds.
struct Watched {
    visitor: Visitor,
    looks: VecDeque<Look>,
}

/// Looks at feeds.
#[derive(Default)]
pub struct Watcher {
    /// All, if empty.
    names: Vec<String>,
    feeds: BTreeMap<String, Watched>,
    users: BTreeMap<u32, String>,
}

/// A feed that runs, or at least has a server.
#[derive(Clone, Debug)]
pub struct Found {
    /// Who.
    pub feed: FeedInfo,
    /// What is known of it, or why nothing is.
    pub view: Result<Box<View>, String>,
}

impl Watcher {
    /// Of these feeds, or of all.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Looks at all that run now.
    pub fn look(&mut self) -> Vec<Found> {
        let mut running = names::feeds();
        running.retain(|feed| self.names.is_empty() || self.names.contains(&feed.name));
        self.feeds.retain(|name, watched| {
            running.iter().any(|feed| feed.name == *name && feed.pid == watched.visitor.server_pid())
        });
        running
            .into_iter()
            .map(|feed| {
                let view = self.ask(&feed.name).map_err(|error| {
                    self.feeds.remove(&feed.name);
                    error.to_string()
                });
                Found { view: view.map(Box::new), feed }
            })
            .collect()
    }

    fn ask(&mut self, name: &str) -> Result<View, feedline_core::Error> {
        if !self.feeds.contains_key(name) {
            let watched = Watched { visitor: Visitor::connect(name)?, looks: VecDeque::new() };
            self.feeds.insert(name.to_owned(), watched);
        }
        let watched = self.feeds.get_mut(name).expect("inserted just above");
        let stats = watched.visitor.stats(ANSWER)?;
        let look = Look::new(stats);
        while watched.looks.len() > 1 && watched.looks.get(1).is_some_and(|second| second.at.elapsed() >= WINDOW) {
            watched.looks.pop_front();
        }
        watched.looks.push_back(look);
        let (before, now) = (&watched.looks[0], &watched.looks[watched.looks.len() - 1]);
        Ok(view(before, now, &mut self.users))
    }
}

impl Look {
    fn new(stats: ServerStats) -> Self {
        let mut pids = proc::children(stats.pid);
        pids.push(stats.pid);
        pids.extend(stats.consumers.iter().map(|consumer| consumer.pid));
        let cpu_secs = pids.into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?.cpu_secs))).collect();
        Self { at: Instant::now(), stats, cpu_secs }
    }
}

fn view(before: &Look, now: &Look, users: &mut BTreeMap<u32, String>) -> View {
    let secs = now.at.duration_since(before.at).as_secs_f64();
    let rate = |was: f64, is: f64| if secs > 0.0 { (is - was).max(0.0) / secs } else { 0.0 };
    let (old, new) = (&before.stats, &now.stats);
    let rates = Rates {
        window_secs: secs,
        samples_per_sec: rate(old.samples as f64, new.samples as f64),
        batches_per_sec: rate(old.batches as f64, new.batches as f64),
        bytes_per_sec: rate(old.bytes as f64, new.bytes as f64),
        loading_share: rate(old.loading_secs, new.loading_secs).min(1.0),
        copying_share: rate(old.copying_secs, new.copying_secs).min(1.0),
        waiting_share: rate(old.wait_secs, new.wait_secs).min(1.0),
    };
    let process = |pid: u32| {
        let stat = Stat::of(pid);
        let cpu = before.cpu_secs.get(&pid).zip(now.cpu_secs.get(&pid));
        Process {
            pid,
            command: proc::command(pid).unwrap_or_default(),
            state: stat.map_or('?', |stat| stat.state),
            cpu_cores: cpu.map_or(0.0, |(&was, &is)| rate(was, is)),
            resident_bytes: proc::resident_bytes(pid).unwrap_or(0),
        }
    };
    let mut job = |consumer: &ConsumerStats| {
        let was = old.consumers.iter().find(|other| other.id == consumer.id).cloned().unwrap_or_default();
        Job {
            user: users.entry(consumer.uid).or_insert_with(|| user_name(consumer.uid)).clone(),
            process: process(consumer.pid),
            batches_per_sec: rate(was.batches as f64, consumer.batches as f64),
            samples_per_sec: rate(was.cursor as f64, consumer.cursor as f64),
            wait_share: rate(was.waited_secs, consumer.waited_secs).min(1.0),
        }
    };
    let jobs: Vec<Job> = new.consumers.iter().map(&mut job).collect();
    let left = new.samples_per_epoch.map(|all| all.saturating_sub(new.epoch_samples) as f64);
    let verdict = verdict::judge(&Evidence {
        loading: rates.loading_share,
        copying: rates.copying_share,
        waiting: rates.waiting_share,
        consumers: jobs.iter().map(|job| job.wait_share).collect(),
    });
    View {
        server: process(new.pid),
        workers: proc::children(new.pid).into_iter().map(process).collect(),
        epoch_left_secs: left.filter(|_| rates.samples_per_sec > 0.0).map(|left| left / rates.samples_per_sec),
        jobs,
        verdict,
        rates,
        stats: now.stats.clone(),
    }
}

/// From `/etc/passwd`; the number, where it isn't there.
fn user_name(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid));
    entry.map_or_else(|| uid.to_string(), |fields| fields[0].to_owned())
}
