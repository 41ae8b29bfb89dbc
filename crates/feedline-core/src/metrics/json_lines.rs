//! A file that grows by a line of JSON for each feed, every few seconds.
//!
//! A line is the feed's `ServerStats` and the wall-clock `time`; its `events` are those since the last line. Of a server that
//! doesn't answer there is only its name, pid and state. A line is written at
//! once and to the file's end, so that a process that is killed leaves whole lines, and several writers don't mix theirs. A line
//! that
//! was cut short all the same (the disk was full) is ended by the next one: readers skip what isn't JSON.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use feedline_shm::Doorbell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::json;

use super::{Exporter, ReadStats, SILENT};
use crate::error::Error;
use crate::explain::Explanation;
use crate::stats::ServerStats;

/// A file to append to.
#[derive(Debug)]
pub struct JsonLinesExporter {
    path: PathBuf,
    file: File,
    /// The last line is incomplete.
    is_torn: bool,
    /// For each feed, by name and pid: the number that its next event will have.
    exported: BTreeMap<(String, u32), u64>,
}

/// Reports what went wrong; called at most once.
pub type Warn = Box<dyn FnMut(&str) + Send>;

#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970.
    time: f64,
    #[serde(flatten)]
    stats: &'a ServerStats,
}

impl JsonLinesExporter {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |error: std::io::Error| {
            let what = format!("cannot write metrics to {}: {error}", path.display());
            Error::Invalid(
                Explanation::new(what).hint("name a file in a folder that exists, and that you may write to"),
            )
        };
        // A pipe that nobody reads must not block us; regular files ignore the flag.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().append(true).create(true).custom_flags(nonblock).open(path).map_err(fail)?;
        Ok(Self { path: path.to_owned(), file, is_torn: ends_torn(path), exported: BTreeMap::new() })
    }

    /// Writes from now on: at once, then every `interval`, and a last time at the end.
    pub fn write(mut self, interval: Duration, mut read_stats: ReadStats, mut warn: Warn) -> Result<Exporter, Error> {
        Exporter::start("feedline-lines", move |bell| {
            let mut next = Instant::now();
            let mut has_warned = false;
            loop {
                let is_over = wait(bell, next);
                next = (next + interval).max(Instant::now());
                if let Err(error) = self.append(&read_stats())
                    && !std::mem::replace(&mut has_warned, true)
                {
                    let path = self.path.display();
                    warn(&format!("cannot write metrics to {path}: {error}; lines will be missing from it"));
                }
                if is_over {
                    return;
                }
            }
        })
    }

    fn append(&mut self, feeds: &[ServerStats]) -> std::io::Result<()> {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.exported.retain(|(name, pid), _| feeds.iter().any(|feed| feed.name == *name && feed.pid == *pid));
        for feed in feeds {
            let mut line = if feed.state == SILENT {
                let ServerStats { name, pid, state, .. } = feed;
                serde_json::to_vec(&json!({"time": time, "name": name, "pid": pid, "state": state}))?
            } else {
                serde_json::to_vec(&Line { time, stats: &self.with_new_events(feed) })?
            };
            line.push(b'\n');
            if self.is_torn {
                line.insert(0, b'\n');
            }
            let written = self.file.write(&line)?;
            self.is_torn = written < line.len();
            if self.is_torn {
                self.file.write_all(&line[written..])?;
                self.is_torn = false;
            }
        }
        Ok(())
    }
}

impl JsonLinesExporter {
    /// A feed without the events that earlier lines contain.
    fn with_new_events(&mut self, feed: &ServerStats) -> ServerStats {
        let mut stats = feed.clone();
        let exported = self.exported.entry((feed.name.clone(), feed.pid)).or_default();
        let next = feed.events.last().map_or(0, |event| event.number + 1);
        // Otherwise it counts from the start again: a process may serve the same name twice.
        if *exported <= next {
            stats.events.retain(|event| event.number >= *exported);
        }
        *exported = next;
        stats
    }
}

/// Waits until then, or until the bell rings; tells whether it did.
fn wait(bell: &Doorbell, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let mut fds = [PollFd::new(bell, PollFlags::IN)];
    let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
    !fds[0].revents().is_empty()
}

fn ends_torn(path: &Path) -> bool {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    let last = || -> std::io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        std::io::Read::read_exact(&mut file, &mut byte)?;
        Ok(byte[0])
    };
    is_file && last().is_ok_and(|byte| byte != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Event;

    fn feed(events: std::ops::Range<u64>) -> ServerStats {
        let events = events.map(|number| Event { number, ..Event::default() }).collect();
        ServerStats { name: "a".into(), pid: 7, events, ..ServerStats::default() }
    }

    fn read(path: &Path) -> Vec<Vec<u64>> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let number = |event: &serde_json::Value| event["number"].as_u64().unwrap();
        lines.filter_map(|line| Some(line["events"].as_array()?.iter().map(number).collect())).collect()
    }

    #[test]
    fn a_torn_line_spoils_no_other_and_events_come_once() {
        let path = std::env::temp_dir().join(format!("feedline-lines-{}", std::process::id()));
        std::fs::write(&path, "{\"time\": 1, \"events\": []}\n{\"ti").unwrap();
        let mut lines = JsonLinesExporter::open(&path).unwrap();
        lines.append(&[feed(0..2)]).unwrap();
        lines.append(&[feed(0..3)]).unwrap();
        lines.append(&[feed(0..3)]).unwrap();
        // It doesn't answer for a while: nothing is known, and nothing is forgotten.
        lines.append(&[ServerStats { state: SILENT.into(), ..feed(0..0) }]).unwrap();
        lines.append(&[feed(0..4)]).unwrap();
        // It serves anew.
        lines.append(&[feed(0..1)]).unwrap();
        let lines = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lines, [vec![], vec![0, 1], vec![2], vec![], vec![3], vec![0]]);
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let error = JsonLinesExporter::open(Path::new("/nowhere/at/all.jsonl")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write metrics to /nowhere/at/all.jsonl: No such file"), "{error}");
        assert!(JsonLinesExporter::open(Path::new("/")).is_err());
    }
}
