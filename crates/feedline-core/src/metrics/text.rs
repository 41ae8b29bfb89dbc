//! Prometheus' text format, version 0.0.4: base units, `_total` for what only grows, HELP and TYPE once for each name.
//!
//! Labels are the feed's name and, for consumers, those that are attached now: their number stays small.
//! Written by hand: crates for metrics keep counters that the program increments and write OpenMetrics; our numbers exist
//! already, and
//! consumers come and go.

use std::fmt::Write;

use crate::stats::{ConsumerStats, PoolStats, ServerStats};

/// What the text is, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The state of a feed whose server doesn't answer. Only that it isn't up is exported.
pub const SILENT: &str = "silent";

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter, Gauge};

/// A metric's name, type, help, and how to get its number; `None` where there is none.
type Family<T> = (&'static str, Kind, &'static str, fn(&T) -> Option<f64>);

const OF_FEEDS: &[Family<ServerStats>] = &[
    ("feedline_uptime_seconds", Gauge, "Time since the server took the feed's name.", |feed| Some(feed.uptime_secs)),
    ("feedline_samples_total", Counter, "Samples published.", |feed| Some(feed.samples as f64)),
    ("feedline_batches_total", Counter, "Batches taken from the loader.", |feed| Some(feed.batches as f64)),
    ("feedline_bytes_total", Counter, "Bytes copied into the ring.", |feed| Some(feed.bytes as f64)),
    ("feedline_epoch", Gauge, "The epoch that is being written.", |feed| Some(feed.epoch as f64)),
    ("feedline_epochs", Gauge, "How many epochs there will be, if that is limited.", |feed| {
        feed.epochs.map(|epochs| epochs as f64)
    }),
    ("feedline_epoch_samples", Gauge, "Samples of this epoch that are written.", |feed| {
        Some(feed.epoch_samples as f64)
    }),
    ("feedline_samples_per_epoch", Gauge, "An epoch's length, once known.", |feed| {
        feed.samples_per_epoch.map(|samples| samples as f64)
    }),
    ("feedline_loader_call_seconds", Gauge, "How long the loader has been at the batch that it prepares.", |feed| {
        Some(feed.loader_call_secs)
    }),
    ("feedline_ring_bytes", Gauge, "Memory of the ring.", |feed| Some(feed.ring_bytes as f64)),
    ("feedline_ring_samples", Gauge, "Samples that fit into the ring.", |feed| Some(feed.ring_samples as f64)),
    ("feedline_ring_used_samples", Gauge, "Samples that the slowest consumer has not let go of.", |feed| {
        Some(feed.ring_used_samples as f64)
    }),
    ("feedline_ring_fill_ratio", Gauge, "How full the ring is, from 0 to 1.", |feed| Some(feed.ring_fill)),
    ("feedline_ring_generation", Gauge, "Counts the rings of this feed: it has grown when this rises.", |feed| {
        Some(f64::from(feed.generation))
    }),
    ("feedline_history_bytes", Gauge, "Memory, or disk space, of the history.", |feed| Some(feed.history_bytes as f64)),
    ("feedline_history_samples", Gauge, "Samples that fit into the history.", |feed| Some(feed.history_samples as f64)),
    ("feedline_history_used_samples", Gauge, "Samples that are in the history.", |feed| {
        Some(feed.history_used_samples as f64)
    }),
    (
        "feedline_history_fill_ratio",
        Gauge,
        "How full the history is, from 0 to 1; none where there is no history.",
        |feed| (feed.history_samples > 0).then(|| feed.history_used_samples as f64 / feed.history_samples as f64),
    ),
    ("feedline_oldest_sample", Gauge, "The oldest sample that is still there.", |feed| Some(feed.oldest as f64)),
    ("feedline_wait_for_consumers", Gauge, "How many consumers the first batch waits for.", |feed| {
        Some(f64::from(feed.wait_for))
    }),
    ("feedline_gate_open", Gauge, "Whether that many consumers have asked.", |feed| Some(feed.gate_open.into())),
    ("feedline_all_written", Gauge, "Whether every epoch is written: nothing is left but to read.", |feed| {
        Some(feed.all_written.into())
    }),
    ("feedline_consumers", Gauge, "Consumers that are attached.", |feed| Some(feed.consumers.len() as f64)),
    ("feedline_consumers_joined", Gauge, "Consumers that have a place in the feed.", |feed| {
        Some(feed.consumers.iter().filter(|consumer| consumer.joined).count() as f64)
    }),
];

const OF_POOLS: &[Family<PoolStats>] = &[
    ("feedline_pool_workers", Gauge, "Worker processes that run.", |pool| Some(pool.workers as f64)),
    ("feedline_pool_workers_wanted", Gauge, "How many there should be.", |pool| Some(pool.wanted as f64)),
    ("feedline_pool_workers_most", Gauge, "As many as there may be.", |pool| Some(pool.most as f64)),
    ("feedline_pool_stand_ins", Gauge, "Further workers, for those that slow samples hold up.", |pool| {
        Some(pool.stand_ins as f64)
    }),
    ("feedline_pool_died_total", Counter, "Workers that ended by themselves, and were replaced.", |pool| {
        Some(pool.died as f64)
    }),
    ("feedline_pool_late_total", Counter, "Workers that took too long for a sample, and were replaced.", |pool| {
        Some(pool.late as f64)
    }),
    ("feedline_pool_ahead_samples", Gauge, "Samples that are made, or were made ahead.", |pool| {
        Some(pool.ahead_samples as f64)
    }),
    ("feedline_pool_samples_total", Counter, "Samples that workers made.", |pool| Some(pool.samples as f64)),
    ("feedline_pool_busy_seconds_total", Counter, "Time that workers were at samples, all together.", |pool| {
        Some(pool.busy_secs)
    }),
    ("feedline_pool_cpu_seconds_total", Counter, "CPU time that they spent on them.", |pool| Some(pool.cpu_secs)),
    ("feedline_pool_waited_seconds_total", Counter, "Time that the server waited for a batch of them.", |pool| {
        Some(pool.waited_secs)
    }),
];

const OF_CONSUMERS: &[Family<ConsumerStats>] = &[
    ("feedline_consumer_joined", Gauge, "Whether it has a place in the feed.", |one| Some(one.joined.into())),
    ("feedline_consumer_batches_total", Counter, "Batches that it took.", |one| Some(one.batches as f64)),
    ("feedline_consumer_samples_total", Counter, "Samples that it took.", |one| Some(one.samples as f64)),
    ("feedline_consumer_skipped_samples_total", Counter, "Samples that were overwritten before it took them.", |one| {
        Some(one.skipped as f64)
    }),
    ("feedline_consumer_waited_seconds_total", Counter, "Time that it waited for data.", |one| Some(one.waited_secs)),
    ("feedline_consumer_waiting", Gauge, "Whether it waits for data right now.", |one| Some(one.waiting.into())),
    ("feedline_consumer_resting", Gauge, "Whether it has read an epoch and not asked for the next.", |one| {
        Some(one.resting.into())
    }),
    ("feedline_consumer_lag_samples", Gauge, "How far it is behind the newest sample.", |one| {
        Some(one.lag_samples as f64)
    }),
    ("feedline_consumer_lag_seconds", Gauge, "How long its next sample has been there.", |one| Some(one.lag_secs)),
    ("feedline_consumer_epoch", Gauge, "Its epoch.", |one| Some(one.epoch as f64)),
    ("feedline_consumer_cursor", Gauge, "One past the newest sample that it took.", |one| Some(one.cursor as f64)),
    ("feedline_consumer_leases", Gauge, "Batches, or parts of them, that it still holds.", |one| {
        Some(one.leases.into())
    }),
    ("feedline_consumer_batch_size_samples", Gauge, "The batch size that it asked for, if it did.", |one| {
        one.batch_size.map(|size| size as f64)
    }),
];

/// All metrics of these feeds.
pub fn text(feeds: &[ServerStats]) -> String {
    let mut page = Page::default();
    page.family("feedline_up", Gauge, "Whether the feed is served, and its server answers.");
    for feed in feeds {
        let is_up = matches!(feed.state.as_str(), "starting" | "running");
        page.sample(&[("feed", &feed.name)], is_up.into());
    }
    let answering: Vec<&ServerStats> = feeds.iter().filter(|feed| feed.state != SILENT).collect();
    page.family("feedline_info", Gauge, "How the feed is served; always 1.");
    for feed in &answering {
        let labels = [
            ("feed", feed.name.as_str()),
            ("pid", &feed.pid.to_string()),
            ("state", &feed.state),
            ("lag", &feed.lag),
            ("replay", if feed.replay { "true" } else { "false" }),
            ("counts", feed.units()),
            ("history", if feed.history_in_file { "file" } else { "memory" }),
        ];
        page.sample(&labels, 1.0);
    }
    page.family(
        "feedline_source_seconds_total",
        Counter,
        "Time in the loader, copying, and waiting for space or demand.",
    );
    for feed in &answering {
        for (phase, secs) in
            [("loading", feed.loading_secs), ("copying", feed.copying_secs), ("waiting", feed.wait_secs)]
        {
            page.sample(&[("feed", &feed.name), ("phase", phase)], secs);
        }
    }
    for &(name, kind, help, number) in OF_FEEDS {
        page.family(name, kind, help);
        for feed in &answering {
            if let Some(number) = number(feed) {
                page.sample(&[("feed", &feed.name)], number);
            }
        }
    }
    page.family("feedline_events_total", Counter, "What happened: joins, leaves, deaths, rings, faults.");
    for feed in &answering {
        for (kind, &count) in &feed.event_counts {
            page.sample(&[("feed", &feed.name), ("kind", kind)], count as f64);
        }
    }
    pools(&mut page, &answering);
    consumers(&mut page, &answering);
    page.text
}

fn pools(page: &mut Page, feeds: &[&ServerStats]) {
    let all = || feeds.iter().filter_map(|feed| Some((feed.name.as_str(), feed.pool.as_ref()?)));
    page.family("feedline_pool_info", Gauge, "Why the loader's pool has as many workers as it has; always 1.");
    for (feed, pool) in all() {
        page.sample(&[("feed", feed), ("why", pool.why.kind())], 1.0);
    }
    for &(name, kind, help, number) in OF_POOLS {
        page.family(name, kind, help);
        for (feed, pool) in all() {
            if let Some(number) = number(pool) {
                page.sample(&[("feed", feed)], number);
            }
        }
    }
}

fn consumers(page: &mut Page, feeds: &[&ServerStats]) {
    let all = || feeds.iter().flat_map(|feed| feed.consumers.iter().map(|one| (feed.name.as_str(), one)));
    page.family("feedline_consumer_info", Gauge, "Who reads the feed, and how; always 1.");
    for (feed, one) in all() {
        let (rank, ranks) = one.rank.map_or_else(Default::default, |(rank, of)| (rank.to_string(), of.to_string()));
        let (pid, id, uid) = (one.pid.to_string(), one.id.to_string(), one.uid.to_string());
        let (job, because) = (one.job.to_string(), one.copies_because.as_deref().unwrap_or_default());
        let labels = [
            ("feed", feed),
            ("pid", &pid),
            ("consumer", &id),
            ("uid", &uid),
            ("mode", &one.mode),
            ("copies_because", because),
            // Not "job": Prometheus itself uses that label for what it scrapes.
            ("job_number", &job),
            ("rank", &rank),
            ("ranks", &ranks),
        ];
        page.sample(&labels, 1.0);
    }
    for &(name, kind, help, number) in OF_CONSUMERS {
        page.family(name, kind, help);
        for (feed, one) in all() {
            if let Some(number) = number(one) {
                page.sample(
                    &[("feed", feed), ("pid", &one.pid.to_string()), ("consumer", &one.id.to_string())],
                    number,
                );
            }
        }
    }
}

/// The text so far. A family's head is written with its first sample: a family without samples is left out.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
    head: String,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Counter => "counter",
            Gauge => "gauge",
        };
        self.name = name;
        self.head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], number: f64) {
        self.text += &std::mem::take(&mut self.head);
        self.text += self.name;
        for (index, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for c in value.chars() {
                match c {
                    '\\' => self.text += "\\\\",
                    '"' => self.text += "\\\"",
                    '\n' => self.text += "\\n",
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let _ = writeln!(self.text, "}} {number}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::PoolReason;

    fn feed(name: &str, state: &str) -> ServerStats {
        ServerStats { name: name.into(), state: state.into(), ..ServerStats::default() }
    }

    #[test]
    fn heads_come_once_and_only_with_samples() {
        let page = text(&[feed("a", "running"), feed("b", "ended")]);
        for head in ["# HELP ", "# TYPE "] {
            let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(head)?.split(' ').next()).collect();
            let mut unique = names.clone();
            unique.dedup();
            assert_eq!(names, unique);
            assert!(names.contains(&"feedline_samples_total") && !names.contains(&"feedline_consumer_epoch"));
        }
        assert!(page.contains("\nfeedline_up{feed=\"a\"} 1\nfeedline_up{feed=\"b\"} 0\n"));
        assert!(text(&[]).is_empty());
    }

    #[test]
    fn of_a_silent_feed_only_that_it_is_down() {
        let page = text(&[feed("a", SILENT)]);
        let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["feedline_up{feed=\"a\"} 0"]);
    }

    #[test]
    fn a_pool_tells_its_size_and_why() {
        let pool = PoolStats { workers: 3, died: 1, why: PoolReason::KeepsUp { waits: 0.0 }, ..PoolStats::default() };
        let page = text(&[ServerStats { pool: Some(pool), ..feed("a", "running") }, feed("b", "running")]);
        for line in [
            "feedline_pool_info{feed=\"a\",why=\"keeps_up\"} 1",
            "feedline_pool_workers{feed=\"a\"} 3",
            "feedline_pool_died_total{feed=\"a\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("feedline_pool_info{feed=\"b\""));
    }

    #[test]
    fn labels_are_escaped() {
        let page = text(&[feed("a\\b\"c\nd", SILENT)]);
        assert!(page.ends_with("feedline_up{feed=\"a\\\\b\\\"c\\nd\"} 0\n"), "{page}");
    }
}
