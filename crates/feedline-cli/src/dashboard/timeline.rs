//! What is remembered about all feeds: what a page gets when it opens, and what is new with each observation.
//!
//! Times are in milliseconds since 1970, by a clock that never jumps.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use feedline_core::control_client::EndNotice;
use feedline_core::metrics::SILENT;
use feedline_core::stats::ServerStats;
use serde_json::{Value, json};

use super::card::{Card, KEPT_MS, Phase};
use crate::watch::Found;

/// How many ended feeds are kept: beyond that, those that ended first are forgotten sooner.
const MOST_ENDED: usize = 32;

/// All feeds.
pub(super) struct Timeline {
    clock: Clock,
    interval_secs: f64,
    folder: String,
    now_ms: u64,
    cards: BTreeMap<String, Card>,
}

/// Runs evenly from what the wall clock said at the start.
struct Clock {
    began: Instant,
    began_ms: u64,
}

impl Timeline {
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

    /// Takes in one observation. Returns the update for pages that know all before it.
    pub fn record(&mut self, found: Vec<Found>, ended: &[(String, Option<EndNotice>)]) -> String {
        let now = self.clock.began_ms + self.clock.began.elapsed().as_millis() as u64;
        self.record_at(now, found, ended).to_string()
    }

    fn record_at(&mut self, now: u64, found: Vec<Found>, ended: &[(String, Option<EndNotice>)]) -> Value {
        self.now_ms = now;
        let known: BTreeMap<String, (u64, usize)> =
            self.cards.iter().map(|(name, card)| (name.clone(), (card.marks_made, card.points.len()))).collect();
        for (name, end_notice) in ended {
            if let Some(card) = self.cards.get_mut(name) {
                card.end(now, end_notice.as_ref());
            }
        }
        let mut names: Vec<String> = Vec::new();
        for Found { feed, view } in found {
            let has_ended = ended.iter().any(|(name, end_notice)| *name == feed.name && end_notice.is_some());
            names.push(feed.name.clone());
            match view {
                Ok(view) => self.cards.entry(feed.name).or_insert_with(|| Card::new(now)).show(now, view),
                // Its server has announced its end, and is about to free its name.
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

    /// The numbers of the feeds that run; of a silent feed, only that it is silent.
    pub fn stats(&self) -> Vec<ServerStats> {
        let cards = self.cards.iter().filter(|(_, card)| card.phase != Phase::Ended);
        cards
            .map(|(name, card)| match (&card.view, card.phase) {
                (Some(view), Phase::Live) => view.stats.clone(),
                _ => ServerStats {
                    name: name.clone(),
                    pid: card.pid,
                    state: SILENT.into(),
                    why: Some(card.why.clone()),
                    ..ServerStats::default()
                },
            })
            .collect()
    }

    /// Forgets feeds that ended long ago.
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

#[cfg(test)]
mod tests {
    use feedline_core::names::FeedInfo;
    use feedline_core::stats::{ConsumerStats, Event};

    use super::super::card::MOST_MARKS;
    use super::*;
    use crate::watch::{Job, Rates, View};

    fn timeline() -> Timeline {
        Timeline::new(Duration::from_secs(1), Path::new("/feeds"))
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
            jobs: vec![Job::default()],
            ..View::default()
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
        let mut timeline = timeline();
        let update = timeline.record_at(10_000, found("a", view(7, 5.0, &[(0, "joined")])), &[]);
        assert_eq!(kinds(&update), ["started", "joined"]);
        assert_eq!(update["feeds"][0]["marks"][0]["at"], 5_000);
        assert_eq!(update["feeds"][0]["points"][0][1], 1235);
        let update = timeline.record_at(11_000, found("a", view(7, 6.0, &[(0, "joined"), (1, "died")])), &[]);
        assert_eq!(kinds(&update), ["died"]);
        assert_eq!(update["feeds"][0]["points"].as_array().unwrap().len(), 1);
        let all: Value = serde_json::from_str(&timeline.snapshot()).unwrap();
        assert_eq!(kinds(&all), ["started", "joined", "died"]);
        assert_eq!(all["feeds"][0]["points"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_restart_goes_on_in_the_same_card() {
        let mut timeline = timeline();
        timeline.record_at(1_000, found("a", view(7, 1.0, &[(0, "joined")])), &[]);
        let end_notice = EndNotice { state: "stopped", text: "pid 9 stopped it".into() };
        let update = timeline.record_at(2_000, vec![], &[("a".into(), Some(end_notice))]);
        assert_eq!(update["feeds"][0]["phase"], "ended");
        assert_eq!(update["feeds"][0]["why"], "pid 9 stopped it");
        assert_eq!(update["feeds"][0]["view"]["pid"], 7);
        let update = timeline.record_at(3_000, found("a", view(8, 0.5, &[(0, "joined")])), &[]);
        assert_eq!(update["feeds"][0]["phase"], "live");
        assert_eq!(kinds(&update), ["started", "joined"]);
        let all: Value = serde_json::from_str(&timeline.snapshot()).unwrap();
        let points = all["feeds"][0]["points"].as_array().unwrap();
        assert_eq!(points.len(), 3);
        assert_eq!(points[1], json!([2_000]), "a gap");
        assert_ne!(points[0][8][0][0], points[2][8][0][0], "another consumer, though the same number");
    }

    #[test]
    fn a_restart_between_two_polls_is_seen() {
        let mut timeline = timeline();
        timeline.record_at(1_000, found("a", view(7, 9.0, &[])), &[]);
        let update = timeline.record_at(2_000, found("a", view(7, 0.1, &[])), &[("a".into(), None)]);
        assert_eq!(kinds(&update), ["vanished", "started"]);
        assert_eq!(update["feeds"][0]["phase"], "live");
    }

    #[test]
    fn silence_is_told_once() {
        let mut timeline = timeline();
        timeline.record_at(1_000, found("a", view(7, 1.0, &[])), &[]);
        let update = timeline.record_at(1_500, found("a", Err("no answer".into())), &[]);
        assert_eq!((&update["feeds"][0]["phase"], kinds(&update).len()), (&json!("live"), 0), "once is chance");
        assert_eq!(kinds(&timeline.record_at(2_000, found("a", Err("no answer".into())), &[])), ["silent"]);
        let update = timeline.record_at(3_000, found("a", Err("no answer".into())), &[]);
        assert!(kinds(&update).is_empty());
        assert_eq!((&update["feeds"][0]["phase"], &update["feeds"][0]["since"]), (&json!("silent"), &json!(2_000)));
        let stats = timeline.stats();
        assert_eq!((stats.len(), stats[0].pid, stats[0].state.as_str()), (1, 7, SILENT));
        assert_eq!(kinds(&timeline.record_at(4_000, found("a", view(7, 4.0, &[])), &[])), ["answers"]);
    }

    #[test]
    fn one_that_is_silent_at_first_has_not_vanished() {
        let mut timeline = timeline();
        assert_eq!(kinds(&timeline.record_at(1_000, found("a", Err("no answer".into())), &[])), ["silent"]);
        assert_eq!(kinds(&timeline.record_at(2_000, found("a", view(7, 4.0, &[])), &[])), ["started", "answers"]);
        // A server that follows another one has started too.
        timeline.record_at(3_000, vec![], &[("a".into(), None)]);
        for at in [4_000, 5_000] {
            let mut silent = found("a", Err("no answer".into()));
            silent[0].feed.pid = 8;
            timeline.record_at(at, silent, &[]);
        }
        assert_eq!(kinds(&timeline.record_at(6_000, found("a", view(8, 2.0, &[])), &[])), ["started", "answers"]);
        // A silent feed whose server was replaced has vanished.
        let mut timeline = self::timeline();
        timeline.record_at(1_000, found("a", Err("no answer".into())), &[]);
        assert_eq!(kinds(&timeline.record_at(2_000, found("a", view(8, 0.5, &[])), &[])), ["vanished", "started"]);
    }

    #[test]
    fn the_end_is_told_once() {
        let mut timeline = timeline();
        timeline.record_at(1_000, found("a", view(7, 1.0, &[(0, "failed")])), &[]);
        let end_notice = EndNotice { state: "failed", text: "the loader raised\ntraceback".into() };
        let update = timeline.record_at(2_000, found("a", Err("lost".into())), &[("a".into(), Some(end_notice))]);
        assert!(kinds(&update).is_empty());
        assert_eq!(update["feeds"][0]["why"], "the loader raised");
        assert_eq!(timeline.record_at(3_000, vec![], &[])["feeds"][0]["why"], "the loader raised");
    }

    #[test]
    fn memory_is_bounded() {
        let mut timeline = timeline();
        for second in 0..1_200 {
            let number = second;
            timeline.record_at(second * 1000, found("a", view(7, second as f64, &[(number, "epoch")])), &[]);
        }
        let card = &timeline.cards["a"];
        assert!(card.points.len() <= 901 && card.marks.len() <= MOST_MARKS);
        for index in 0..100 {
            timeline.record_at(1_200_000 + index, found(&format!("b{index}"), view(7, 1.0, &[])), &[]);
        }
        assert_eq!(timeline.cards.len(), MOST_ENDED + 1);
        timeline.record_at(1_200_000 + 2 * KEPT_MS, vec![], &[]);
        timeline.record_at(1_200_000 + 4 * KEPT_MS, vec![], &[]);
        assert!(timeline.cards.is_empty());
    }
}
