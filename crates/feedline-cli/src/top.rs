//! `feedline top`: who is attached, who waits for whom, and what to change. Live in a terminal, or once as text or JSON.
//!
//! `page` makes lines of the views, `rows` the consumers' part of them; `live` keeps them on the screen.

mod live;
mod page;
mod rows;
mod style;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::time::Duration;

use feedline_core::names;
use serde_json::json;

use crate::args::Top;
use crate::output::{Failed, is_coloured, print, say};
use crate::watch::{Found, Watcher};

/// A shorter observation is not enough for a verdict.
const SHORTEST: Duration = Duration::from_millis(500);
/// The width where the terminal's is not known.
const WIDTH: u16 = 120;

pub(crate) fn run(options: &Top) -> anyhow::Result<u8> {
    all_run(&options.names)?;
    let interval = Duration::from_secs_f64(options.interval_secs);
    if options.json {
        let found = poll(&options.names, interval)?;
        print(&format!("{:#}\n", json!(found.iter().map(Found::json).collect::<Vec<_>>())))?;
        return Ok(0);
    }
    let stdout = std::io::stdout();
    let is_live = stdout.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if is_live && !options.once {
        return live::run(&options.names, interval);
    }
    if !options.once {
        say("not a live terminal: the numbers are printed once (--once does so without this line)");
    }
    let found = poll(&options.names, interval)?;
    if found.is_empty() {
        say(&format!("no feeds run for this user (looked in {})", names::folder().display()));
        return Ok(0);
    }
    let lines = page::lines(&found, width());
    print(&if is_coloured(&stdout) { style::ansi(&lines) } else { style::plain(&lines) })?;
    Ok(0)
}

/// Polls twice, because rates need two observations.
fn poll(names: &[String], interval: Duration) -> anyhow::Result<Vec<Found>> {
    let mut watcher = Watcher::new(names.to_vec());
    if !watcher.poll().is_empty() {
        std::thread::sleep(interval.max(SHORTEST));
    }
    let found = watcher.poll();
    all_run(names)?;
    Ok(found)
}

/// Refuses names of feeds that are not running.
fn all_run(names: &[String]) -> Result<(), Failed> {
    let running = names::feeds();
    let Some(missing) = names.iter().find(|name| !running.iter().any(|feed| feed.name == **name)) else {
        return Ok(());
    };
    let texts: Vec<String> = running.iter().map(|feed| format!("{} (pid {})", feed.name, feed.pid)).collect();
    let others = if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") };
    Err(Failed(format!(
        "no feed named {missing:?} runs for this user (looked in {})\n  running now: {others}\n  \
         start it with: feedline serve FILE.py:make_loader --name {missing}",
        names::folder().display()
    )))
}

fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || std::io::stdout().is_terminal().then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    columns.or_else(|| Some(terminal()?.0)).filter(|width| *width > 0).unwrap_or(WIDTH)
}
