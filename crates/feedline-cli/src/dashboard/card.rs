//! One feed, as it is remembered: how it stands, fifteen minutes of its numbers, and what happened.
//!
//! ```text
//!            answers               no answer
//! (new) ──▶ Live ◀──────▶ Silent ◀────────── (new)
//!             │  ▲          │
//!   its end   ▼  │ restart  ▼
//!            Ended ── after 15 minutes ──▶ (forgotten)
//! ```
//!
//! A name is one card, whatever servers it had: a restart goes on in the same one.

use std::collections::VecDeque;

use feedline_core::control_client::EndNotice;
use serde::Serialize;
use serde_json::{Value, json};

use crate::watch::View;

/// For how long numbers, and feeds that ended, are kept.
pub(super) const KEPT_MS: u64 = 15 * 60 * 1000;
/// At most this many points, if observations follow each other quickly.
const MOST_POINTS: usize = 1800;
/// Events are kept longer than numbers, up to this many.
pub(super) const MOST_MARKS: usize = 200;
/// The consumers that have a line in the charts; the table has them all.
const MOST_LINES: usize = 64;
/// A server on a busy machine may miss one answer.
const SILENT: u32 = 2;
/// Separates the consumers of one server from those of the next: each server counts its own from 0.
const KEYS_PER_RUN: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Live,
    Silent,
    Ended,
}

/// One feed.
pub(super) struct Card {
    pub phase: Phase,
    pub since_ms: u64,
    /// Its state in one word: "live", "silent", or the kind of its last mark.
    how: &'static str,
    /// Its state in one line: why it is silent, or what its server said at the end.
    pub why: String,
    /// The pid of its latest server.
    pub pid: u32,
    /// Observations without an answer, in a row.
    missed: u32,
    /// The latest view, if there ever was one.
    pub view: Option<Box<View>>,
    /// How many servers it has had.
    run: u64,
    /// Events of this server with a lower number are among the marks already.
    next_event: u64,
    pub points: VecDeque<Value>,
    pub marks: VecDeque<Mark>,
    pub marks_made: u64,
}

/// Something that happened to a feed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Mark {
    /// Counts the marks of this feed.
    pub number: u64,
    at: u64,
    run: u64,
    /// A kind of [`feedline_core::stats::Event`], or "started", "silent", "answers", "ended", "vanished".
    kind: String,
    pid: Option<u32>,
    text: String,
}

impl Card {
    pub fn new(now: u64) -> Self {
        Self {
            phase: Phase::Ended,
            since_ms: now,
            how: "ended",
            pid: 0,
            missed: 0,
            why: String::new(),
            view: None,
            run: 0,
            next_event: 0,
            points: VecDeque::new(),
            marks: VecDeque::new(),
            marks_made: 0,
        }
    }

    /// Its server answered.
    pub fn show(&mut self, now: u64, view: Box<View>) {
        let ms_ago = |secs: f64| now.saturating_sub((secs.max(0.0) * 1000.0) as u64);
        let stats = &view.stats;
        let last = self.view.as_ref().map(|view| &view.stats).filter(|last| last.pid == stats.pid);
        if last.is_none_or(|last| last.uptime_secs > stats.uptime_secs) {
            // A feed that was silent from its start has not ended.
            if last.is_some() || self.pid != stats.pid {
                self.end(now, None);
            }
            self.run += 1;
            self.next_event = 0;
            self.mark(ms_ago(stats.uptime_secs), "started", None, &format!("its server, pid {}", stats.pid));
        }
        if self.phase == Phase::Silent {
            self.mark(now, "answers", None, "its server answers again");
        }
        for event in stats.events.iter().filter(|event| event.number >= self.next_event).cloned().collect::<Vec<_>>() {
            self.mark(ms_ago(event.secs_ago), &event.kind, event.pid, &event.text);
        }
        self.next_event = stats.events.last().map_or(self.next_event, |event| event.number + 1);
        if view.rates.window_secs > 0.0 {
            self.points.push_back(point(now, &view, self.run));
        }
        self.pid = stats.pid;
        self.view = Some(view);
        self.missed = 0;
        self.turn(now, Phase::Live, "live", "");
    }

    /// Its server is there and doesn't answer.
    pub fn miss(&mut self, now: u64, pid: u32, why: &str) {
        self.missed += 1;
        self.pid = pid;
        if self.phase != Phase::Silent && (self.missed >= SILENT || self.view.is_none()) {
            let why = why.lines().next().unwrap_or_default();
            self.gap(now);
            self.mark(now, "silent", None, &format!("its server, pid {pid}, does not answer: {why}"));
            self.turn(now, Phase::Silent, "silent", why);
        }
    }

    /// Its server is gone.
    pub fn end(&mut self, now: u64, end_notice: Option<&EndNotice>) {
        if self.phase == Phase::Ended {
            return;
        }
        let (kind, text) = match end_notice {
            Some(EndNotice { state, text }) if text.is_empty() => (*state, "all epochs are served".to_owned()),
            Some(EndNotice { state, text }) => (*state, text.lines().next().unwrap_or_default().to_owned()),
            None => ("vanished", "its process is gone without a word; it was killed, perhaps".to_owned()),
        };
        self.gap(now);
        // The server may have reported it before it went.
        if !self.marks.iter().any(|mark| mark.run == self.run && mark.kind == kind) {
            self.mark(now, kind, None, &text);
        }
        self.turn(now, Phase::Ended, kind, &text);
    }

    fn turn(&mut self, now: u64, phase: Phase, how: &'static str, why: &str) {
        if self.phase != phase {
            (self.phase, self.since_ms, self.how) = (phase, now, how);
            why.clone_into(&mut self.why);
        }
    }

    fn mark(&mut self, at: u64, kind: &str, pid: Option<u32>, text: &str) {
        let mark = Mark { number: self.marks_made, at, run: self.run, kind: kind.into(), pid, text: text.to_owned() };
        self.marks.push_back(mark);
        self.marks_made += 1;
    }

    /// Lines of the charts end here.
    fn gap(&mut self, now: u64) {
        if !self.points.is_empty() {
            self.points.push_back(json!([now]));
        }
    }

    pub fn trim(&mut self, now: u64) {
        let is_old = |point: &Value| point[0].as_u64().is_none_or(|at| at + KEPT_MS < now);
        while self.points.len() > MOST_POINTS || self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
        while self.marks.len() > MOST_MARKS {
            self.marks.pop_front();
        }
    }

    pub fn json(&self, name: &str) -> Value {
        let mut view = self.view.as_deref().map(View::json);
        if let Some(Value::Object(view)) = &mut view {
            // The events are among the marks.
            view.remove("events");
        }
        json!({"name": name, "phase": self.phase, "since": self.since_ms, "how": self.how, "why": self.why, "run": self.run, "view": view})
    }
}

/// `[at, samples/s, bytes/s, loading, copying, waiting, ring fill, history fill, [[key, pid, samples/s, wait share], ...]]`:
/// a page gets hundreds of them.
fn point(now: u64, view: &View, run: u64) -> Value {
    let (stats, rates) = (&view.stats, &view.rates);
    let joined = stats.consumers.iter().zip(&view.jobs).filter(|(consumer, _)| consumer.joined);
    let lines: Vec<Value> = joined
        .take(MOST_LINES)
        .map(|(consumer, job)| {
            let key = run * KEYS_PER_RUN + consumer.id;
            json!([key, consumer.pid, short(job.samples_per_sec), short(job.wait_share)])
        })
        .collect();
    let history =
        if stats.history_samples > 0 { stats.history_used_samples as f64 / stats.history_samples as f64 } else { 0.0 };
    let numbers = [
        rates.samples_per_sec,
        rates.bytes_per_sec,
        rates.loading_share,
        rates.copying_share,
        rates.waiting_share,
        stats.ring_fill,
        history,
    ];
    let mut point = vec![json!(now)];
    point.extend(numbers.map(short));
    point.push(json!(lines));
    Value::Array(point)
}

/// Four digits are enough for a line in a chart.
fn short(number: f64) -> Value {
    if !number.is_finite() || number == 0.0 {
        return json!(0);
    }
    let scale = 10_f64.powf(3.0 - number.abs().log10().floor());
    let rounded = (number * scale).round() / scale;
    if rounded.fract() == 0.0 && rounded.abs() < 1e15 { json!(rounded as i64) } else { json!(rounded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let text = |number| short(number).to_string();
        assert_eq!([0.0, 0.12345, 1234.567, 98_765_432.0].map(text), ["0", "0.1235", "1235", "98770000"]);
        assert_eq!([f64::NAN, -1.0, 1.0].map(text), ["0", "-1", "1"]);
    }
}
