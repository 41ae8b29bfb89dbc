//! Looking at feeds again and again: what their servers say, what the kernel says of the processes, and how both change.
//!
//! ```text
//! Watcher::look() ── ask each server ──▶ Look ── beside the looks of the last seconds ──▶ View (rates, shares, verdict)
//! ```
//!
//! Connections are kept from look to look. A feed that ended is gone from the next look; one that came back is new. All servers
//! are asked before the first answer is waited for, so that those who are stopped cost one timeout together.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use feedline_core::Error;
use feedline_core::names::{self, FeedInfo};
use feedline_core::visitor::{Farewell, Visitor};
use serde_json::{Value, json};

use crate::doctor::trip;
use crate::look::Look;
pub use crate::machine::Machine;
pub use crate::view::{Job, Process, Rates, View};

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_millis(500);
/// Over how long rates are taken.
const WINDOW: Duration = Duration::from_secs(5);

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
    ended: Vec<(String, Option<Farewell>)>,
}

/// A feed that runs, or at least has a server.
#[derive(Clone, Debug)]
pub struct Found {
    /// Who.
    pub feed: FeedInfo,
    /// What is known of it, or why nothing is.
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
    /// Of these feeds, or of all.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Looks at all that run now.
    pub fn look(&mut self) -> Vec<Found> {
        let mut running = names::feeds();
        let is_wanted = |name: &String| {
            if self.names.is_empty() { !name.starts_with(trip::PREFIX) } else { self.names.contains(name) }
        };
        running.retain(|feed| is_wanted(&feed.name));
        self.ended.clear();
        self.feeds.retain(|name, watched| {
            let is_there = running.iter().any(|feed| feed.name == *name && feed.pid == watched.visitor.server_pid());
            if !is_there {
                self.ended.push((name.clone(), watched.visitor.farewell()));
            }
            is_there
        });
        let asked: Vec<(FeedInfo, Result<(), Error>)> =
            running.into_iter().map(|feed| (feed.clone(), self.ask(&feed.name))).collect();
        let deadline = Instant::now() + ANSWER;
        let mut found = Vec::new();
        for (feed, asked) in asked {
            let view = asked.and_then(|()| self.hear(&feed.name, deadline)).map_err(|error| {
                // One that is silent may speak again; the connection to one that is lost is of no use.
                if !matches!(error, Error::Stalled(_)) {
                    let farewell = self.feeds.remove(&feed.name).and_then(|mut watched| watched.visitor.farewell());
                    self.ended.extend(farewell.map(|farewell| (feed.name.clone(), Some(farewell))));
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

    /// The servers that the last look found to have ended, with what they said.
    pub fn ended(&self) -> &[(String, Option<Farewell>)] {
        &self.ended
    }

    fn ask(&mut self, name: &str) -> Result<(), Error> {
        if !self.feeds.contains_key(name) {
            let watched = Watched { visitor: Visitor::connect(name)?, looks: VecDeque::new() };
            self.feeds.insert(name.to_owned(), watched);
        }
        self.feeds.get_mut(name).expect("inserted just above").visitor.ask_stats()
    }

    fn hear(&mut self, name: &str, deadline: Instant) -> Result<View, Error> {
        let watched = self.feeds.get_mut(name).expect("it was asked");
        let stats = watched.visitor.hear_stats(deadline.saturating_duration_since(Instant::now()))?;
        while watched.looks.len() > 1 && watched.looks.get(1).is_some_and(|second| second.at.elapsed() >= WINDOW) {
            watched.looks.pop_front();
        }
        watched.looks.push_back(Look::new(stats));
        Ok(View::new(&watched.looks, &mut self.users))
    }
}
