//! What is remembered of each feed: how it stands, fifteen minutes of its numbers, and what happened.
//!
//! ```text
//!            answers               no answer
//! (new) ──▶ Live ◀──────▶ Silent ◀────────── (new)
//!             │  ▲          │
//!   its end   ▼  │ restart  ▼
//!            Ended ── after 15 minutes ──▶ (forgotten)
//! ```
//!
//! A name is one card, whatever servers it had: a restart goes on in the same one. Times are in milliseconds since 1970, by a clock
//! that never jumps.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use feedline_core::visitor::Farewell;
use serde::Serialize;
use serde_json::{Value, json};

use crate::watch::{Found, View};

/// For how long numbers, and feeds that ended, are kept.
const KEPT_MS: u64 = 15 * 60 * 1000;
/// At most so many looks, if they follow each other quickly.
const MOST_POINTS: usize = 1800;
/// What happened is kept longer than numbers, up to so many things for each feed.
const MOST_MARKS: usize = 200;
/// Feeds that ended: beyond so many, the first ones are forgotten sooner.
const MOST_ENDED: usize = 32;
/// The consumers of a feed that have a line in its charts; the table has them all.
const MOST_LINES: usize = 64;
/// A busy machine may miss one answer.
const SILENT: u32 = 2;
/// Parts the consumers of one server from those of the next: each counts its own from 0.
const KEYS_PER_RUN: u64 = 1 << 32;

/// All feeds.
pub(super) struct Past {
    clock: Clock,
    interval_secs: f64,
    folder: String,
    now_ms: u64,
    cards: BTreeMap<String, Card>,
}

/// Ticks evenly, from what the wall clock said at the start.
struct Clock {
    began: Instant,
    began_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Live,
    Silent,
    Ended,
}

/// One feed.
struct Card {
    phase: Phase,
    since_ms: u64,
    /// One word for it: "live", "silent", or the kind of its last mark.
    how: &'static str,
    /// And a line: why it is silent, what it said when it ended.
    why: String,
    /// Looks without an answer, in a row.
    missed: u32,
    /// Its last one, if there ever was one.
    view: Option<Box<View>>,
    /// Counts its servers.
    run: u64,
    /// Events of this server before this number are among the marks.
    next_event: u64,
    points: VecDeque<Value>,
    marks: VecDeque<Mark>,
    marks_made: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
struct Mark {
    /// Counts those of this feed.
    number: u64,
    at: u64,
    run: u64,
    /// Those of [`feedline_core::server::Event`], and "started", "silent", "answers", "ended", "vanished".
    kind: String,
    pid: Option<u32>,
    text: String,
}

impl Past {
    pub fn new(interval: Duration, folder: &Path) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            clock: Clock { began: Instant::now(), began_ms: since_1970.as_millis() as u64 },
            interval_secs: interval.as_secs_f64(),
            folder: folder.display().to_string(),
            now_ms: 0,
            cards: BTreeMap::new(),
        }
    }

    /// Takes in one look: the update for pages that know all before it.
    pub fn take(&mut self, found: Vec<Found>, ended: &[(String, Option<Farewell>)]) -> String {
        let now = self.clock.began_ms + self.clock.began.elapsed().as_millis() as u64;
        self.take_at(now, found, ended).to_string()
    }

    fn take_at(&mut self, now: u64, found: Vec<Found>, ended: &[(String, Option<Farewell>)]) -> Value {
        self.now_ms = now;
        let known: BTreeMap<String, (u64, usize)> =
            self.cards.iter().map(|(name, card)| (name.clone(), (card.marks_made, card.points.len()))).collect();
        for (name, farewell) in ended {
            if let Some(card) = self.cards.get_mut(name) {
                card.end(now, farewell.as_ref());
            }
        }
        let mut names: Vec<String> = Vec::new();
        for Found { feed, view } in found {
            let has_ended = ended.iter().any(|(name, farewell)| *name == feed.name && farewell.is_some());
            names.push(feed.name.clone());
            match view {
                Ok(view) => self.cards.entry(feed.name).or_insert_with(|| Card::new(now)).show(now, view),
                // It has said goodbye, and is about to free its name.
                Err(_) if has_ended => {}
                Err(why) => self.cards.entry(feed.name).or_insert_with(|| Card::new(now)).miss(now, feed.pid, &why),
            }
        }
        for (name, card) in &mut self.cards {
            if !names.contains(name) {
                card.end(now, None);
            }
        }
        self.forget(now);
        let feeds: Vec<Value> = self
            .cards
            .iter()
            .map(|(name, card)| {
                let (marks, points) = known.get(name).copied().unwrap_or_default();
                let new = card.marks.iter().filter(|mark| mark.number >= marks).collect::<Vec<_>>();
                let mut object = card.json(name);
                object["marks"] = json!(new);
                object["points"] = json!(card.points.iter().skip(points).collect::<Vec<_>>());
                object
            })
            .collect();
        for card in self.cards.values_mut() {
            card.trim(now);
        }
        json!({"at": now, "feeds": feeds})
    }

    /// All that is known.
    pub fn snapshot(&self) -> String {
        let feeds: Vec<Value> = self
            .cards
            .iter()
            .map(|(name, card)| {
                let mut object = card.json(name);
                object["marks"] = json!(card.marks);
                object["points"] = json!(card.points);
                object
            })
            .collect();
        json!({
            "at": self.now_ms,
            "interval_secs": self.interval_secs,
            "kept_secs": KEPT_MS / 1000,
            "folder": self.folder,
            "version": env!("CARGO_PKG_VERSION"),
            "feeds": feeds,
        })
        .to_string()
    }

    /// Lets go of feeds that ended long ago.
    fn forget(&mut self, now: u64) {
        self.cards.retain(|_, card| card.phase != Phase::Ended || now < card.since_ms + KEPT_MS);
        loop {
            let ended = self.cards.iter().filter(|(_, card)| card.phase == Phase::Ended);
            let oldest = ended.clone().min_by_key(|(_, card)| card.since_ms).map(|(name, _)| name.clone());
            match oldest.filter(|_| ended.count() > MOST_ENDED) {
                Some(name) => self.cards.remove(&name),
                None => return,
            };
        }
    }
}

impl Card {
    fn new(now: u64) -> Self {
        Self {
            phase: Phase::Ended,
            since_ms: now,
            how: "ended",
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

    /// It answered.
    fn show(&mut self, now: u64, view: Box<View>) {
        let ms_ago = |secs: f64| now.saturating_sub((secs.max(0.0) * 1000.0) as u64);
        let stats = &view.stats;
        let is_same = |last: &View| last.stats.pid == stats.pid && last.stats.uptime_secs <= stats.uptime_secs;
        if !self.view.as_deref().is_some_and(is_same) {
            self.end(now, None);
            self.run += 1;
            self.next_event = 0;
            self.mark(ms_ago(stats.uptime_secs), "started", None, &format!("its server, pid {}", stats.pid));
        } else if self.phase == Phase::Silent {
            self.mark(now, "answers", None, "its server answers again");
        }
        for event in stats.events.iter().filter(|event| event.number >= self.next_event).cloned().collect::<Vec<_>>() {
            self.mark(ms_ago(event.secs_ago), &event.kind, event.pid, &event.text);
        }
        self.next_event = stats.events.last().map_or(self.next_event, |event| event.number + 1);
        if view.rates.window_secs > 0.0 {
            self.points.push_back(point(now, &view, self.run));
        }
        self.view = Some(view);
        self.missed = 0;
        self.turn(now, Phase::Live, "live", "");
    }

    /// Its server is there, and doesn't answer.
    fn miss(&mut self, now: u64, pid: u32, why: &str) {
        self.missed += 1;
        if self.phase != Phase::Silent && (self.missed >= SILENT || self.view.is_none()) {
            let why = why.lines().next().unwrap_or_default();
            self.gap(now);
            self.mark(now, "silent", None, &format!("its server, pid {pid}, does not answer: {why}"));
            self.turn(now, Phase::Silent, "silent", why);
        }
    }

    /// Its server is gone.
    fn end(&mut self, now: u64, farewell: Option<&Farewell>) {
        if self.phase == Phase::Ended {
            return;
        }
        let (kind, text) = match farewell {
            Some(Farewell { state, text }) if text.is_empty() => (*state, "all epochs are served".to_owned()),
            Some(Farewell { state, text }) => (*state, text.lines().next().unwrap_or_default().to_owned()),
            None => ("vanished", "its process is gone without a word; it was killed, perhaps".to_owned()),
        };
        self.gap(now);
        // The server may have told of it before it went.
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

    /// Lines end here.
    fn gap(&mut self, now: u64) {
        if !self.points.is_empty() {
            self.points.push_back(json!([now]));
        }
    }

    fn trim(&mut self, now: u64) {
        let is_old = |point: &Value| point[0].as_u64().is_none_or(|at| at + KEPT_MS < now);
        while self.points.len() > MOST_POINTS || self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
        while self.marks.len() > MOST_MARKS {
            self.marks.pop_front();
        }
    }

    fn json(&self, name: &str) -> Value {
        let mut view = self.view.as_deref().map(View::json);
        if let Some(Value::Object(view)) = &mut view {
            // They are the marks.
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

/// Four digits are enough for a line.
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
    use feedline_core::names::FeedInfo;
    use feedline_core::server::{ConsumerStats, Event, ServerStats};

    use super::*;
    use crate::verdict::{Kind, Verdict};
    use crate::watch::{Job, Process, Rates};

    fn past() -> Past {
        Past::new(Duration::from_secs(1), Path::new("/feeds"))
    }

    fn view(pid: u32, uptime_secs: f64, events: &[(u64, &str)]) -> Result<Box<View>, String> {
        let event = |&(number, kind): &(u64, &str)| Event { number, kind: kind.into(), ..Event::default() };
        let stats = ServerStats {
            pid,
            uptime_secs,
            consumers: vec![ConsumerStats { id: 3, pid: 77, joined: true, ..ConsumerStats::default() }],
            events: events.iter().map(event).collect(),
            ..ServerStats::default()
        };
        Ok(Box::new(View {
            stats,
            rates: Rates { window_secs: 1.0, samples_per_sec: 1234.567, ..Rates::default() },
            server: Process::default(),
            workers: Vec::new(),
            jobs: vec![Job::default()],
            epoch_left_secs: None,
            verdict: Verdict { kind: Kind::Quiet, text: "well".into() },
        }))
    }

    fn found(name: &str, view: Result<Box<View>, String>) -> Vec<Found> {
        vec![Found { feed: FeedInfo { name: name.into(), pid: 7, path: "/feeds/x".into() }, view }]
    }

    fn kinds(update: &Value) -> Vec<&str> {
        update["feeds"][0]["marks"].as_array().unwrap().iter().map(|mark| mark["kind"].as_str().unwrap()).collect()
    }

    #[test]
    fn an_update_has_only_what_is_new() {
        let mut past = past();
        let update = past.take_at(10_000, found("a", view(7, 5.0, &[(0, "joined")])), &[]);
        assert_eq!(kinds(&update), ["started", "joined"]);
        assert_eq!(update["feeds"][0]["marks"][0]["at"], 5_000);
        assert_eq!(update["feeds"][0]["points"][0][1], 1235);
        let update = past.take_at(11_000, found("a", view(7, 6.0, &[(0, "joined"), (1, "died")])), &[]);
        assert_eq!(kinds(&update), ["died"]);
        assert_eq!(update["feeds"][0]["points"].as_array().unwrap().len(), 1);
        let all: Value = serde_json::from_str(&past.snapshot()).unwrap();
        assert_eq!(kinds(&all), ["started", "joined", "died"]);
        assert_eq!(all["feeds"][0]["points"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_restart_goes_on_in_the_same_card() {
        let mut past = past();
        past.take_at(1_000, found("a", view(7, 1.0, &[(0, "joined")])), &[]);
        let farewell = Farewell { state: "stopped", text: "pid 9 told it".into() };
        let update = past.take_at(2_000, vec![], &[("a".into(), Some(farewell))]);
        assert_eq!(update["feeds"][0]["phase"], "ended");
        assert_eq!(update["feeds"][0]["why"], "pid 9 told it");
        assert_eq!(update["feeds"][0]["view"]["pid"], 7);
        let update = past.take_at(3_000, found("a", view(8, 0.5, &[(0, "joined")])), &[]);
        assert_eq!(update["feeds"][0]["phase"], "live");
        assert_eq!(kinds(&update), ["started", "joined"]);
        let all: Value = serde_json::from_str(&past.snapshot()).unwrap();
        let points = all["feeds"][0]["points"].as_array().unwrap();
        assert_eq!(points.len(), 3);
        assert_eq!(points[1], json!([2_000]), "a gap");
        assert_ne!(points[0][8][0][0], points[2][8][0][0], "another consumer, though the same number");
    }

    #[test]
    fn a_restart_between_two_looks_is_seen() {
        let mut past = past();
        past.take_at(1_000, found("a", view(7, 9.0, &[])), &[]);
        let update = past.take_at(2_000, found("a", view(7, 0.1, &[])), &[("a".into(), None)]);
        assert_eq!(kinds(&update), ["vanished", "started"]);
        assert_eq!(update["feeds"][0]["phase"], "live");
    }

    #[test]
    fn silence_is_told_once() {
        let mut past = past();
        past.take_at(1_000, found("a", view(7, 1.0, &[])), &[]);
        let update = past.take_at(1_500, found("a", Err("no answer".into())), &[]);
        assert_eq!((&update["feeds"][0]["phase"], kinds(&update).len()), (&json!("live"), 0), "once is chance");
        assert_eq!(kinds(&past.take_at(2_000, found("a", Err("no answer".into())), &[])), ["silent"]);
        let update = past.take_at(3_000, found("a", Err("no answer".into())), &[]);
        assert!(kinds(&update).is_empty());
        assert_eq!((&update["feeds"][0]["phase"], &update["feeds"][0]["since"]), (&json!("silent"), &json!(2_000)));
        assert_eq!(kinds(&past.take_at(4_000, found("a", view(7, 4.0, &[])), &[])), ["answers"]);
    }

    #[test]
    fn the_end_is_told_once() {
        let mut past = past();
        past.take_at(1_000, found("a", view(7, 1.0, &[(0, "failed")])), &[]);
        let farewell = Farewell { state: "failed", text: "the loader raised\ntraceback".into() };
        let update = past.take_at(2_000, found("a", Err("lost".into())), &[("a".into(), Some(farewell))]);
        assert!(kinds(&update).is_empty());
        assert_eq!(update["feeds"][0]["why"], "the loader raised");
        assert_eq!(past.take_at(3_000, vec![], &[])["feeds"][0]["why"], "the loader raised");
    }

    #[test]
    fn memory_is_bounded() {
        let mut past = past();
        for second in 0..1_200 {
            let number = second;
            past.take_at(second * 1000, found("a", view(7, second as f64, &[(number, "epoch")])), &[]);
        }
        let card = &past.cards["a"];
        assert!(card.points.len() <= 901 && card.marks.len() <= MOST_MARKS);
        for index in 0..100 {
            past.take_at(1_200_000 + index, found(&format!("b{index}"), view(7, 1.0, &[])), &[]);
        }
        assert_eq!(past.cards.len(), MOST_ENDED + 1);
        past.take_at(1_200_000 + 2 * KEPT_MS, vec![], &[]);
        past.take_at(1_200_000 + 4 * KEPT_MS, vec![], &[]);
        assert!(past.cards.is_empty());
    }

    #[test]
    fn numbers_are_short() {
        let text = |number| short(number).to_string();
        assert_eq!([0.0, 0.12345, 1234.567, 98_765_432.0].map(text), ["0", "0.1235", "1235", "98770000"]);
        assert_eq!([f64::NAN, -1.0, 1.0].map(text), ["0", "-1", "1"]);
    }
}
