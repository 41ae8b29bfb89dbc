//! Observes feeds again and again: what their servers report, what the kernel tells about the processes, and how both change.
//!
//! ```text
//! Watcher::poll() ── ask each server ──▶ Observation ── beside those of the last seconds ──▶ View (rates, shares, verdict)
//! ```
//!
//! Connections are kept from poll to poll. A feed that ended is missing in the next poll; a feed that came back is new. All
//! servers
//! are asked before the first answer is waited for, so that all servers that are stopped cost one timeout together.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use feedline_core::Error;
use feedline_core::control_client::{ControlClient, EndNotice};
use feedline_core::names::{self, FeedInfo};
use serde_json::{Value, json};

use crate::doctor::round_trip;
pub use crate::machine::Machine;
use crate::observation::Observation;
pub use crate::view::{Job, Process, Rates, View};

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_millis(500);
/// Over how long rates are taken.
const WINDOW: Duration = Duration::from_secs(5);

/// One feed, as it was over the last seconds.
struct Watched {
    client: ControlClient,
    observations: VecDeque<Observation>,
}

/// Observes feeds.
#[derive(Default)]
pub struct Watcher {
    /// The feeds' names; all feeds, if empty.
    names: Vec<String>,
    feeds: BTreeMap<String, Watched>,
    users: BTreeMap<u32, String>,
    ended: Vec<(String, Option<EndNotice>)>,
}

/// A feed that runs, or at least has a server.
#[derive(Clone, Debug)]
pub struct Found {
    /// The feed.
    pub feed: FeedInfo,
    /// What is known about it, or why nothing is.
    pub view: Result<Box<View>, String>,
}

impl Found {
    /// [`View::json`]; of a server that doesn't answer, its name, its pid and why.
    pub fn json(&self) -> Value {
        match &self.view {
            Ok(view) => view.json(),
            Err(why) => json!({"name": self.feed.name, "pid": self.feed.pid, "state": "silent", "error": why}),
        }
    }
}

impl Watcher {
    /// Observes these feeds, or all.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Polls all feeds that run now.
    pub fn poll(&mut self) -> Vec<Found> {
        let mut running = names::feeds();
        let is_wanted = |name: &String| {
            if self.names.is_empty() { !name.starts_with(round_trip::PREFIX) } else { self.names.contains(name) }
        };
        running.retain(|feed| is_wanted(&feed.name));
        self.ended.clear();
        self.feeds.retain(|name, watched| {
            let is_there = running.iter().any(|feed| feed.name == *name && feed.pid == watched.client.server_pid());
            if !is_there {
                self.ended.push((name.clone(), watched.client.end_notice()));
            }
            is_there
        });
        let asked: Vec<(FeedInfo, Result<(), Error>)> =
            running.into_iter().map(|feed| (feed.clone(), self.ask(&feed.name))).collect();
        let deadline = Instant::now() + ANSWER;
        let mut found = Vec::new();
        for (feed, asked) in asked {
            let view = asked.and_then(|()| self.receive(&feed.name, deadline)).map_err(|error| {
                // A server that is silent may answer again; a lost connection is of no use any more.
                if !matches!(error, Error::Stalled(_)) {
                    let end_notice = self.feeds.remove(&feed.name).and_then(|mut watched| watched.client.end_notice());
                    self.ended.extend(end_notice.map(|end_notice| (feed.name.clone(), Some(end_notice))));
                }
                error.to_string()
            });
            found.push(Found { view: view.map(Box::new), feed });
        }
        let served: Vec<(u32, String)> = found.iter().map(|one| (one.feed.pid, one.feed.name.clone())).collect();
        for Found { feed, view } in &mut found {
            if let Ok(view) = view {
                let others = served.iter().filter(|(pid, name)| *pid == feed.pid && *name != feed.name);
                view.also_serves = others.map(|(_, name)| name.clone()).collect();
            }
        }
        found
    }

    /// The servers that the last poll found to have ended, with what they said.
    pub fn ended(&self) -> &[(String, Option<EndNotice>)] {
        &self.ended
    }

    fn ask(&mut self, name: &str) -> Result<(), Error> {
        if !self.feeds.contains_key(name) {
            let watched = Watched { client: ControlClient::connect(name)?, observations: VecDeque::new() };
            self.feeds.insert(name.to_owned(), watched);
        }
        self.feeds.get_mut(name).expect("inserted just above").client.ask_stats()
    }

    fn receive(&mut self, name: &str, deadline: Instant) -> Result<View, Error> {
        let watched = self.feeds.get_mut(name).expect("it was asked");
        let stats = watched.client.receive_stats(deadline.saturating_duration_since(Instant::now()))?;
        while watched.observations.len() > 1
            && watched.observations.get(1).is_some_and(|second| second.at.elapsed() >= WINDOW)
        {
            watched.observations.pop_front();
        }
        watched.observations.push_back(Observation::new(stats));
        Ok(View::new(&watched.observations, &mut self.users))
    }
}
