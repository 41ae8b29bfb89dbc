//! `feedline stop`.

use std::collections::HashSet;
use std::time::Duration;

use feedline_core::control_client::ControlClient;
use feedline_core::{Error, names};

use crate::args::Stop;
use crate::output::{Failed, Misused, say};

pub(crate) fn run(options: &Stop) -> anyhow::Result<()> {
    if options.names.is_empty() && !options.all {
        return Err(which_one().into());
    }
    let mut names: Vec<String> =
        if options.all { names::feeds().into_iter().map(|feed| feed.name).collect() } else { options.names.clone() };
    let mut met = HashSet::new();
    names.retain(|name| met.insert(name.clone()));
    if names.is_empty() {
        say("no feeds run for this user");
    }
    let timeout = Duration::from_secs_f64(options.timeout_secs);
    // A feed that can't be stopped doesn't keep the others from being stopped.
    let mut failed = None;
    for name in names {
        match stop(&name, timeout) {
            Ok(pid) => say(&format!("stopped {name} (pid {pid})")),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    crate::output::report(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The user has not said which feed to end.
fn which_one() -> Misused {
    let feeds = names::feeds();
    let running: Vec<&str> = feeds.iter().map(|feed| feed.name.as_str()).collect();
    let way_out = if running.is_empty() {
        "no feeds run for this user".to_owned()
    } else {
        format!("running now: {}\n  feedline stop {}, or feedline stop --all", running.join(", "), running[0])
    };
    Misused(format!("which feed is to be stopped?\n  {way_out}"))
}

/// Ends a feed. Returns the pid of its server.
fn stop(name: &str, timeout: Duration) -> anyhow::Result<u32> {
    let client = connect(name)?;
    let pid = client.server_pid();
    if client.stop(timeout)? {
        return Ok(pid);
    }
    let secs = timeout.as_secs_f64();
    let text = format!(
        "feed {name:?} (pid {pid}) has not ended in {secs} s: its process is stopped, or very busy\n  \
         it was asked to end, and does so when it runs again; wait longer with --timeout-secs, or end it by force: kill -9 {pid}"
    );
    Err(Failed(text).into())
}

/// Connects to a feed that was named on the command line.
pub(crate) fn connect(name: &str) -> anyhow::Result<ControlClient> {
    ControlClient::connect(name).map_err(|error| match error {
        Error::NotFound { .. } => not_found(name).into(),
        Error::BadName(text) => Misused(text).into(),
        other => other.into(),
    })
}

/// No feed has this name: says which feed has a similar one, or how to find out.
pub(crate) fn not_found(name: &str) -> Failed {
    let feeds = names::feeds();
    let like = |other: &str| strsim::jaro_winkler(other, name);
    let nearest = feeds.iter().max_by(|a, b| like(&a.name).total_cmp(&like(&b.name)));
    let way_out = match nearest {
        None => {
            let folder = names::folder();
            format!("no feeds run for this user (looked in {}; FEEDLINE_DIR names another folder)", folder.display())
        }
        Some(feed) if like(&feed.name) > 0.8 => {
            format!("did you mean {} (pid {})? `feedline ls` lists all", feed.name, feed.pid)
        }
        Some(_) => {
            let running: Vec<String> = feeds.iter().map(|feed| format!("{} (pid {})", feed.name, feed.pid)).collect();
            format!("running now: {}", running.join(", "))
        }
    };
    Failed(format!("no feed is named {name:?}\n  {way_out}"))
}
