//! `feedline metrics`: the numbers of all feeds of this user, printed once, on a port, or in a file.

use std::sync::Arc;
use std::time::Duration;

use feedline_core::metrics::{HttpExporter, JsonLinesExporter, ReadStats, SILENT, text};
use feedline_core::names;
use feedline_core::stats::ServerStats;
use feedline_shm::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Metrics;
use crate::output::{print, say};
use crate::watch::{Found, Watcher};

pub(crate) fn run(options: &Metrics) -> anyhow::Result<u8> {
    if options.port.is_none() && options.file.is_none() {
        return once();
    }
    let port = options.port.map(HttpExporter::open).transpose()?;
    let lines = options.file.as_deref().map(JsonLinesExporter::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        // Before anything is printed: a program that reads it may send a signal at once.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let watcher = Arc::new(Mutex::new(Watcher::default()));
        let read_stats = || -> ReadStats {
            let watcher = Arc::clone(&watcher);
            Box::new(move || poll_all(&mut watcher.lock()))
        };
        let mut exporters = Vec::new();
        if let Some(port) = port {
            let number = port.number();
            exporters.push(port.serve(read_stats())?);
            say(&format!("answering Prometheus on http://127.0.0.1:{number}/metrics; Ctrl-C ends it"));
        }
        if let Some((lines, path)) = lines.zip(options.file.as_deref()) {
            let interval = Duration::from_secs_f64(options.interval_secs);
            let warn = |text: &str| say(&format!("warning: {text}"));
            exporters.push(lines.write(interval, read_stats(), Box::new(warn))?);
            let (path, secs) = (path.display(), options.interval_secs);
            say(&format!("appending a line per feed to {path} every {secs} s; Ctrl-C ends it"));
        }
        Ok(tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 0,
        })
    })
}

fn once() -> anyhow::Result<u8> {
    let feeds = poll_all(&mut Watcher::default());
    for feed in &feeds {
        if feed.state == SILENT {
            say(&format!(
                "no numbers of {} (pid {}): {}",
                feed.name,
                feed.pid,
                feed.why.as_deref().unwrap_or_default()
            ));
        }
    }
    if feeds.is_empty() {
        say(&format!("no feeds run for this user (looked in {})", names::folder().display()));
    }
    print(&text(&feeds))?;
    Ok(0)
}

fn poll_all(watcher: &mut Watcher) -> Vec<ServerStats> {
    let stats = |Found { feed, view }: Found| match view {
        Ok(view) => view.stats,
        Err(why) => ServerStats {
            name: feed.name,
            pid: feed.pid,
            state: SILENT.into(),
            why: Some(why),
            ..ServerStats::default()
        },
    };
    watcher.poll().into_iter().map(stats).collect()
}
