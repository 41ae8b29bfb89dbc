//! Whether the feeds that run answer.

use std::time::Duration;

use feedline_core::control_client::ControlClient;
use feedline_core::{Error, names};
use serde_json::json;

use super::report::Check;
use crate::format::some;

const ANSWER: Duration = Duration::from_millis(700);
/// Asking more feeds than these would take too long if all were silent.
const MOST_ASKED: usize = 5;

pub(super) fn checks() -> Vec<Check> {
    let feeds = names::feeds();
    let mut checks = Vec::new();
    let mut answered = 0;
    for feed in feeds.iter().take(MOST_ASKED) {
        let pid = feed.pid;
        match ControlClient::connect(&feed.name).and_then(|mut client| client.stats(ANSWER)) {
            // A feed that has ended meanwhile is no finding.
            Ok(_) | Err(Error::NotFound { .. } | Error::ServerLost(_)) => answered += 1,
            Err(Error::Protocol(why)) => checks.push(Check::note(
                "feed",
                format!("{} (pid {pid}) is of another version: {why}", feed.name),
                "start it again with this version, or its jobs with the other",
            )),
            Err(Error::Stalled(_)) => checks.push(Check::note(
                "feed",
                format!("{} (pid {pid}) does not answer: its process is stopped, or very busy", feed.name),
                format!("let it go on: kill -CONT {pid}; or end it: kill -9 {pid}"),
            )),
            Err(error) => {
                checks.push(Check::note("feed", format!("{} (pid {pid}): {error}", feed.name), "read its log"));
            }
        }
    }
    let found = match feeds.len() {
        0 => "none run".to_owned(),
        many if many > MOST_ASKED => format!("{many} run; the first {MOST_ASKED} were asked, {answered} answer"),
        many if answered == many => format!("{many} run and answer"),
        many => format!("{many} run, {answered} answer"),
    };
    checks.insert(0, Check::ok("feeds", found).with(json!({"running": feeds.len(), "answering": answered})));
    checks.extend(leftovers(feeds.len()));
    checks
}

/// Sockets whose server is gone, and that could not be removed: on a network's file system.
fn leftovers(running: usize) -> Option<Check> {
    let entries = std::fs::read_dir(names::folder()).ok()?;
    let sockets = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "sock")).count();
    let left = sockets.saturating_sub(running);
    let found = format!(
        "{} of servers that were killed: harmless, the next server of that name removes them",
        some(left, "socket")
    );
    (left > 0).then(|| Check::ok("leftovers", found).with(json!({"sockets": left})))
}
