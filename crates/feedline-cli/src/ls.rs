//! `feedline ls`.

use std::time::Duration;

use feedline_core::control_client::ControlClient;
use feedline_core::names::{self, FeedInfo};
use feedline_core::proc;
use feedline_core::stats::ServerStats;
use serde_json::json;

use crate::args::Ls;
use crate::format::bytes;
use crate::output::{print, say, table};

/// How long a server may take to answer; a server that is stopped is listed all the same.
const ANSWER: Duration = Duration::from_secs(2);

pub(crate) fn run(options: &Ls) -> anyhow::Result<()> {
    let feeds: Vec<(FeedInfo, Option<ServerStats>)> = names::feeds()
        .into_iter()
        .map(|feed| {
            let stats = ControlClient::connect(&feed.name).and_then(|mut client| client.stats(ANSWER)).ok();
            (feed, stats)
        })
        .collect();
    if options.json {
        let list: Vec<_> = feeds
            .iter()
            .map(|(feed, stats)| {
                json!({
                    "name": feed.name, "pid": feed.pid, "path": feed.path, "state": state(stats.as_ref()),
                    "server_bytes": server_bytes(feed.pid), "stats": stats,
                })
            })
            .collect();
        return Ok(print(&format!("{:#}\n", json!(list)))?);
    }
    if feeds.is_empty() {
        say(&format!("no feeds run for this user (looked in {})", names::folder().display()));
        return Ok(());
    }
    let header =
        ["NAME", "PID", "STATE", "EPOCH", "CONSUMERS", "SAMPLES", "RING", "SERVER", "UP"].map(str::to_owned).to_vec();
    let mut rows = vec![header];
    for (feed, stats) in &feeds {
        let shown = |show: &dyn Fn(&ServerStats) -> String| stats.as_ref().map_or_else(|| "-".to_owned(), show);
        rows.push(vec![
            feed.name.clone(),
            feed.pid.to_string(),
            state(stats.as_ref()).to_owned(),
            shown(&|stats| stats.epoch.to_string()),
            shown(&|stats| stats.consumers.len().to_string()),
            shown(&|stats| {
                if stats.whole_batches { format!("{} batches", stats.samples) } else { stats.samples.to_string() }
            }),
            shown(&|stats| bytes((stats.ring_bytes + stats.history_bytes) as f64)),
            server_bytes(feed.pid).map_or_else(|| "-".to_owned(), |size| bytes(size as f64)),
            shown(&|stats| duration_text(stats.uptime_secs)),
        ]);
    }
    Ok(print(&table(&rows))?)
}

/// The memory of a server's process without its rings; feeds with the same pid share it.
fn server_bytes(pid: u32) -> Option<u64> {
    proc::memory_bytes(pid).map(|(_, private)| private)
}

fn state(stats: Option<&ServerStats>) -> &str {
    stats.map_or("silent", |stats| &stats.state)
}

/// `2h05m`, `3m07s`, `12s`.
pub(crate) fn duration_text(secs: f64) -> String {
    let secs = secs.max(0.0) as u64;
    match (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60) {
        (0, 0, 0, secs) => format!("{secs}s"),
        (0, 0, minutes, secs) => format!("{minutes}m{secs:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, _, _) => format!("{days}d{hours:02}h"),
    }
}
