//! What happened to a feed lately: consumers that came and went, faults. For display only.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::proc::sanitized;
use crate::stats::Event;

/// The kinds of events. All are counted from the start: a counter that appeared with its first event would hide that event
/// from readers of differences.
const KINDS: [&str; 10] =
    ["joined", "left", "died", "detached", "epoch", "abandoned", "ring", "stuck", "failed", "stopped"];
/// How many are kept.
const MOST: usize = 64;
/// The longest text of an event: a message with all of them has to fit on the wire.
const LONGEST: usize = 500;

/// Of epochs that follow each other within this time, only the last one is kept.
const APART: Duration = Duration::from_secs(1);
const EPOCH: &str = "epoch";

#[derive(Debug)]
pub(super) struct Events {
    count: u64,
    by_kind: BTreeMap<&'static str, u64>,
    recent: VecDeque<(Instant, Event)>,
}

impl Default for Events {
    fn default() -> Self {
        Self { count: 0, by_kind: KINDS.map(|kind| (kind, 0)).into(), recent: VecDeque::new() }
    }
}

impl Events {
    pub fn note(&mut self, kind: &'static str, pid: Option<u32>, text: &str) {
        // Many short epochs would push out what matters.
        let is_epoch = |(at, event): &(Instant, Event)| event.kind == EPOCH && at.elapsed() < APART;
        if kind == EPOCH && self.recent.back().is_some_and(is_epoch) {
            self.recent.pop_back();
        }
        if self.recent.len() == MOST {
            let oldest_epoch = self.recent.iter().position(|(_, event)| event.kind == EPOCH);
            self.recent.remove(oldest_epoch.unwrap_or(0));
        }
        let event = Event { number: self.count, secs_ago: 0.0, kind: kind.to_owned(), pid, text: short(text) };
        self.recent.push_back((Instant::now(), event));
        self.count += 1;
        *self.by_kind.entry(kind).or_default() += 1;
    }

    /// How many there were of each kind.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.by_kind.iter().map(|(&kind, &count)| (kind.to_owned(), count)).collect()
    }

    /// The newest last.
    pub fn recent(&self) -> Vec<Event> {
        self.recent.iter().map(|(at, event)| Event { secs_ago: at.elapsed().as_secs_f64(), ..event.clone() }).collect()
    }
}

/// The first line, cut to the longest length.
pub(super) fn short(text: &str) -> String {
    sanitized(text.lines().next().unwrap_or_default()).chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_push_out_nothing_else() {
        let mut events = Events::default();
        events.note("joined", Some(7), "");
        for _ in 0..1000 {
            events.note("epoch", None, "");
        }
        let recent = events.recent();
        let kinds: Vec<&str> = recent.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["joined", "epoch"]);
        assert_eq!(recent[1].number, 1000);
    }

    #[test]
    fn what_a_loader_says_does_not_steer_a_terminal() {
        let mut events = Events::default();
        events.note("failed", None, "a\x1b[2Jb\u{202e}c\u{9b}d\te é");
        assert_eq!(events.recent()[0].text, "a [2Jb c d e é");
    }

    #[test]
    fn the_last_ones_are_kept() {
        let mut events = Events::default();
        for pid in 0..100 {
            events.note("joined", Some(pid), "it came\nand this is left out");
        }
        let recent = events.recent();
        assert_eq!(recent.len(), MOST);
        let last = recent.last().unwrap();
        assert_eq!((last.number, last.pid, last.text.as_str()), (99, Some(99), "it came"));
        assert_eq!(recent[0].number, 100 - MOST as u64);
        let counts = events.counts();
        assert_eq!((counts["joined"], counts["died"]), (100, 0));
    }
}
