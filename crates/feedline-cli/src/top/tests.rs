use std::path::PathBuf;
use std::time::Duration;

use feedline_core::names::FeedInfo;
use feedline_core::stats::{ConsumerStats, PoolReason, PoolStats, ServerStats};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;

use super::live::{KeyAction, State, key_action, watch};
use super::{page, style};
use crate::verdict::{Kind, Verdict};
use crate::view::{Job, Process, Rates, View};
use crate::watch::{Found, Machine};

fn consumer(pid: u32, change: impl FnOnce(&mut ConsumerStats, &mut Job)) -> (ConsumerStats, Job) {
    let mut stats = ConsumerStats {
        id: pid.into(),
        job: pid.into(),
        pid,
        joined: true,
        batch_size: Some(96),
        lag_samples: 288,
        lag_secs: 0.23,
        mode: "cow".into(),
        leases: 2,
        ..ConsumerStats::default()
    };
    let command =
        "/opt/env/bin/python train.py --seed 1 --lr 0.1 --model resnet50 --output /data/runs/2026-11-16/a".into();
    let process = Process { pid, command, state: 'S', ..Process::default() };
    let mut job = Job { user: "kim".into(), process, batches_per_sec: 12.1, wait_share: 0.61, ..Job::default() };
    change(&mut stats, &mut job);
    (stats, job)
}

fn images() -> View {
    let (consumers, jobs) = [
        consumer(813, |_, _| {}),
        consumer(815, |stats, job| {
            (stats.job, stats.rank, stats.batch_size) = (814, Some((1, 2)), None);
            (stats.mode, stats.copies_because) = ("copy".into(), Some("it writes in place".into()));
            (job.wait_share, job.batches_per_sec) = (0.0, 1234.0);
        }),
        consumer(814, |stats, job| {
            (stats.rank, stats.mode, stats.lag_samples, stats.skipped) = (Some((0, 2)), "readonly".into(), 0, 1234);
            job.wait_share = 0.2;
        }),
        consumer(816, |_, job| job.process.state = 'T'),
        consumer(817, |stats, _| stats.joined = false),
        consumer(818, |stats, _| stats.epoch = 3),
        consumer(819, |stats, _| stats.resting = true),
    ]
    .into_iter()
    .unzip();
    let worker = |pid| Process { pid, private_bytes: 205_000_000, ..Process::default() };
    View {
        stats: ServerStats {
            name: "images".into(),
            pid: 812,
            state: "running".into(),
            uptime_secs: 723.0,
            epoch: 2,
            epochs: Some(90),
            epoch_samples: 612_000,
            samples_per_epoch: Some(1_281_167),
            ring_bytes: 512_000_000,
            ring_samples: 3400,
            ring_used_samples: 2108,
            ring_fill: 0.62,
            history_bytes: 256_000_000,
            history_samples: 1700,
            history_used_samples: 850,
            gate_open: true,
            pool: Some(PoolStats {
                workers: 2,
                wanted: 3,
                most: 64,
                why: PoolReason::Trying { from: 2 },
                died: 1,
                ahead_samples: 288,
                ..PoolStats::default()
            }),
            consumers,
            ..ServerStats::default()
        },
        rates: Rates {
            window_secs: 5.0,
            samples_per_sec: 1234.0,
            batches_per_sec: 19.3,
            bytes_per_sec: 1.82e8,
            loading_share: 0.9,
            copying_share: 0.04,
            waiting_share: 0.06,
        },
        server: Process {
            pid: 812,
            command: "/opt/env/bin/python -m feedline serve data.py:make_loader --name images".into(),
            private_bytes: 310_000_000,
            ..Process::default()
        },
        also_serves: Vec::new(),
        workers: vec![worker(820), worker(821)],
        jobs,
        machine: Machine { cores: 8, busy_share: 0.37, allowed_cores: 8.0, free_cores: 5.0, throttled_share: 0.0 },
        epoch_left_secs: Some(552.0),
        verdict: Verdict {
            kind: Kind::LoaderBound,
            text: "loader-bound: 4 jobs wait 61 % of the time for the loader; 2 workers at 98 % CPU: add workers (5.0 of 8 \
                   cores are free)"
                .into(),
            pid: None,
        },
    }
}

fn found(name: &str, view: Result<Box<View>, String>) -> Found {
    Found { feed: FeedInfo { name: name.into(), pid: 812, path: PathBuf::new() }, view }
}

fn all() -> Vec<Found> {
    vec![
        found("images", Ok(Box::new(images()))),
        found("old", Err("feed \"old\" (pid 812) has not answered for 3.0 s".into())),
    ]
}

/// The lines at a width, without blanks at their ends.
fn seen(width: u16) -> String {
    let text = style::plain(&page::lines(&all(), width));
    assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{text}");
    text
}

/// Compares with the snapshot of this name; `FEEDLINE_SNAPSHOTS=write` writes it anew.
#[track_caller]
fn is_as_kept(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/top/snapshots").join(name);
    if std::env::var_os("FEEDLINE_SNAPSHOTS").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} has\n{kept}\nand this is drawn\n{text}", path.display());
}

#[test]
fn a_wide_page_tells_everything() {
    is_as_kept("140-columns.txt", &seen(140));
}

#[test]
fn epochs_are_counted_from_0() {
    let shown = |epoch, epochs, samples_per_epoch| {
        let mut view = images();
        (view.stats.epoch, view.stats.epochs, view.stats.samples_per_epoch) = (epoch, epochs, samples_per_epoch);
        let text = style::plain(&page::lines(&[found("a", Ok(Box::new(view)))], 100));
        text.lines().find(|line| line.contains("epoch")).unwrap().to_owned()
    };
    assert!(shown(2, Some(90), Some(1_281_167)).contains("48 %  2 (3 of 90), 9m12s left: "));
    assert!(shown(2, None, Some(1_281_167)).contains("48 %  2, 9m12s left: "));
    assert!(shown(90, Some(90), None).contains("epoch   89 (90 of 90): 612.0k samples so far"));
}

#[test]
fn an_epoch_that_is_kept_whole_is_not_an_empty_ring() {
    let mut view = images();
    (view.stats.replay, view.stats.samples, view.stats.samples_per_epoch) = (true, 100, Some(100));
    let text = style::plain(&page::lines(&[found("a", Ok(Box::new(view)))], 100));
    assert!(text.contains("100 %  100 of 100 samples, 768.0 MB in memory"), "{text}");
    assert!(!text.contains("\n  ring ") && !text.contains("\n  history "), "{text}");
}

#[test]
fn batches_that_cannot_be_cut_are_called_batches() {
    let mut view = images();
    view.stats.whole_batches = true;
    let text = style::plain(&page::lines(&[found("a", Ok(Box::new(view)))], 140));
    assert!(text.contains("of 1.28M batches\n") && text.contains("of 3400 batches,"), "{text}");
    assert!(!text.contains("samples"), "{text}");
}

#[test]
fn a_narrow_page_tells_what_matters_most() {
    is_as_kept("80-columns.txt", &seen(80));
    is_as_kept("60-columns.txt", &seen(60));
    // Narrower than anybody would read.
    for width in 0..60 {
        page::lines(&all(), width);
    }
}

#[test]
fn a_first_look_and_odd_numbers_are_drawn() {
    let mut view = View { jobs: vec![Job::default()], ..View::default() };
    view.stats.consumers = vec![ConsumerStats::default()];
    assert!(style::plain(&page::lines(&[found("a", Ok(Box::new(view)))], 80)).contains("measuring ..."));
    let mut odd = images();
    (odd.rates.loading_share, odd.stats.ring_fill, odd.jobs[0].wait_share) = (f64::NAN, f64::INFINITY, -3.0);
    (odd.rates.copying_share, odd.stats.samples_per_epoch, odd.epoch_left_secs) = (7.0, Some(0), Some(f64::NAN));
    let text = style::plain(&page::lines(&[found("a", Ok(Box::new(odd)))], 80));
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn what_is_cut_fits() {
    // A sign that the next one makes wide; two that make one; one that has no width.
    for text in ["train ❤️❤️❤️ seed", "👩‍👩‍👧 and 👩‍👩‍👧", "e\u{301}\u{301}te\u{301}s", "漢字漢字"]
    {
        for width in 0..20 {
            let wide = Span::raw(page::cut(text, width)).width();
            assert!(wide <= width, "{text:?} takes {wide} of {width}");
            page::fitted(vec![Span::raw(text), Span::raw(text)], width);
        }
    }
}

#[test]
fn colours_are_for_those_who_want_them() {
    let mut lines = page::lines(&all(), 100);
    let coloured = style::ansi(&lines);
    assert!(coloured.contains("\x1b[1;33mloader-bound"), "{coloured}");
    style::without_colours(&mut lines);
    let plain = style::ansi(&lines);
    assert!(plain.contains("\x1b[1mimages\x1b[0m") && !plain.contains("\x1b[3") && !plain.contains(";3"), "{plain}");
}

/// The rows of a screen of this size.
fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| state.draw(frame)).unwrap();
    let text = terminal.backend().to_string();
    text.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
}

#[test]
fn the_screen_is_the_page_with_a_head_and_a_foot() {
    let mut state = State::default();
    assert_eq!(screen(&mut state, 80, 4)[2], "measuring ...");
    state.update(all());
    let rows = screen(&mut state, 80, 40);
    assert_eq!(rows[0], "feedline top  2 feeds, 7 consumers  CPU 37 % of 8 cores");
    assert_eq!(rows[2..][..3], seen(80).lines().take(3).collect::<Vec<_>>());
    assert_eq!(rows[39], "q quits");
    // What does not fit can be scrolled to.
    let rows = screen(&mut state, 80, 13);
    assert_eq!((rows[2].starts_with("images"), rows[12].as_str()), (true, "q quits, ↑ ↓ scroll: lines 1-10 of 23"));
    state.scroll = 1000;
    let rows = screen(&mut state, 80, 13);
    assert!(rows[12].ends_with("lines 14-23 of 23") && rows[11].contains("has not answered"), "{rows:?}");
    for (width, height) in [(0, 0), (1, 1), (10, 2), (300, 3)] {
        Terminal::new(TestBackend::new(width, height)).unwrap().draw(|frame| state.draw(frame)).unwrap();
    }
    // Gone, and remembered for a while; back, and forgotten.
    state.update(all().drain(1..).collect());
    assert!(screen(&mut state, 80, 13).contains(&"images ended 0 s ago".to_owned()));
    state.update(all());
    assert!(!screen(&mut state, 80, 40).join("\n").contains("ended"));
    state.update(Vec::new());
    assert!(screen(&mut state, 80, 13)[2].starts_with("no feeds run for this user"));
}

#[test]
fn looks_that_nobody_takes_do_not_pile_up() {
    let updates = watch(vec!["none".into()], Duration::from_millis(1));
    std::thread::sleep(Duration::from_millis(300));
    assert!(updates.try_iter().take(20).count() < 20);
}

#[test]
fn keys_are_understood() {
    let press = |code| key_action(KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!([press(KeyCode::Char('q')), press(KeyCode::Esc)], [KeyAction::Quit(0), KeyAction::Quit(0)]);
    assert_eq!(key_action(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), KeyAction::Quit(130));
    assert_eq!([press(KeyCode::Down), press(KeyCode::PageUp)], [KeyAction::Scroll(1), KeyAction::Page(-1)]);
    assert_eq!([press(KeyCode::Char('c')), press(KeyCode::Enter)], [KeyAction::Nothing, KeyAction::Nothing]);
}
