//! The live screen: draws what a thread observes, scrolls, and restores the terminal, whatever happens.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use feedline_core::names;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::page;
use super::style::{self, DIM};
use crate::output::is_coloured;
use crate::watch::{Found, Watcher};

/// How often signals and updates are checked.
const TICK: Duration = Duration::from_millis(50);
/// The second observation comes this soon, however long the interval is: rates need two.
const FIRST: Duration = Duration::from_secs(1);
/// How long a feed that ended is remembered.
const REMEMBERED: Duration = Duration::from_secs(15);

/// The terminal is ours until this is dropped. A panic restores it too, before it prints anything. What is inside is not dropped:
/// it would complain, and abort, if there is no terminal any more to complain to.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        // A panic has restored it; a second time would write over the panic's message.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit(u8),
    Scroll(i32),
    Page(i32),
    Top,
    Bottom,
    Nothing,
}

/// What is on the screen.
#[derive(Default)]
pub(super) struct State {
    pub found: Option<Vec<Found>>,
    pub has_colours: bool,
    pub scroll: usize,
    /// Feeds that have ended, and when they were last seen.
    gone: BTreeMap<String, Instant>,
    /// How many lines there are, and how many fit.
    lines: usize,
    height: usize,
}

pub(super) fn run(names: &[String], interval: Duration) -> anyhow::Result<u8> {
    let ended_by = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register_usize(signal, Arc::clone(&ended_by), signal as usize)?;
    }
    let updates = watch(names.to_vec(), interval);
    let code = {
        let mut screen = Screen(ManuallyDrop::new(ratatui::try_init()?));
        let mut state = State { has_colours: is_coloured(&std::io::stdout()), ..State::default() };
        follow(&mut screen.0, &mut state, &updates, &ended_by)
    };
    // The terminal is restored: now the signal may have its usual effect.
    match ended_by.load(Ordering::Relaxed) as i32 {
        0 => {}
        SIGINT => return Ok(130),
        signal => signal_hook::low_level::emulate_default_handler(signal)?,
    }
    match code {
        // The terminal ended while something was being drawn.
        Err(_) if has_terminal_ended() => Ok(0),
        code => Ok(code?),
    }
}

/// Polls from a thread of its own: a server that is stopped must not delay the keys. The thread ends when nobody receives.
pub(super) fn watch(names: Vec<String>, interval: Duration) -> Receiver<Vec<Found>> {
    // A queue of one: a screen that is slow to draw never shows more than one old observation.
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut watcher = Watcher::new(names);
        let mut pause = interval.min(FIRST);
        while sender.send(watcher.poll()).is_ok() {
            std::thread::sleep(pause);
            pause = interval;
        }
    });
    receiver
}

/// Reads keys from a thread of its own: reading from a terminal that has ended returns nothing, at once, again and again.
/// The thread ends with the process.
fn keys() -> Receiver<std::io::Result<Event>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || while sender.send(event::read()).is_ok() {});
    receiver
}

fn follow(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    updates: &Receiver<Vec<Found>>,
    ended_by: &AtomicUsize,
) -> std::io::Result<u8> {
    let keys = keys();
    let mut is_stale = true;
    while ended_by.load(Ordering::Relaxed) == 0 && !has_terminal_ended() {
        match updates.try_recv() {
            Ok(found) => {
                state.update(found);
                is_stale = true;
            }
            Err(TryRecvError::Empty) => {}
            // The thread is gone, and its panic is on the screen that we leave now.
            Err(TryRecvError::Disconnected) => return Ok(1),
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| state.draw(frame))?;
        }
        let event = match keys.recv_timeout(TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(1),
        };
        is_stale = true;
        if let Event::Key(key) = event?
            && let KeyAction::Quit(code) = state.handle_key(key)
        {
            return Ok(code);
        }
    }
    Ok(0)
}

fn has_terminal_ended() -> bool {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let mut fds = vec![PollFd::new(&stdout, PollFlags::empty())];
    // If stdin is no terminal, keys come from elsewhere.
    if stdin.is_terminal() {
        fds.push(PollFd::new(&stdin, PollFlags::empty()));
    }
    let _ = poll(&mut fds, Some(&Timespec::default()));
    fds.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// What a key means.
pub(super) fn key_action(key: KeyEvent) -> KeyAction {
    if key.kind == KeyEventKind::Release {
        return KeyAction::Nothing;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyAction::Quit(130),
        KeyCode::Char('q') | KeyCode::Esc => KeyAction::Quit(0),
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Scroll(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => KeyAction::Page(1),
        KeyCode::PageUp => KeyAction::Page(-1),
        KeyCode::Home | KeyCode::Char('g') => KeyAction::Top,
        KeyCode::End | KeyCode::Char('G') => KeyAction::Bottom,
        _ => KeyAction::Nothing,
    }
}

impl State {
    pub fn update(&mut self, found: Vec<Found>) {
        for one in self.found.iter().flatten() {
            self.gone.entry(one.feed.name.clone()).or_insert_with(Instant::now);
        }
        self.gone.retain(|name, since| since.elapsed() < REMEMBERED && !found.iter().any(|one| one.feed.name == *name));
        self.found = Some(found);
    }

    fn handle_key(&mut self, key: KeyEvent) -> KeyAction {
        let action = key_action(key);
        let page = self.height.saturating_sub(1).max(1) as i32;
        let by = match action {
            KeyAction::Scroll(lines) => lines,
            KeyAction::Page(pages) => pages * page,
            KeyAction::Top => i32::MIN,
            KeyAction::Bottom => i32::MAX,
            KeyAction::Quit(_) | KeyAction::Nothing => 0,
        };
        self.scroll = (self.scroll as i64 + i64::from(by)).clamp(0, self.furthest() as i64) as usize;
        action
    }

    fn furthest(&self) -> usize {
        self.lines.saturating_sub(self.height)
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut lines = self.lines(area.width);
        let [head_row, _, rows, foot_row] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(area);
        (self.lines, self.height) = (lines.len(), usize::from(rows.height));
        self.scroll = self.scroll.min(self.furthest());
        let mut head = vec![page::summary(self.found.as_deref().unwrap_or_default())];
        let mut foot = vec![Line::from(Span::styled(self.hint(), DIM))];
        if !self.has_colours {
            [&mut lines, &mut head, &mut foot].into_iter().for_each(|lines| style::without_colours(lines));
        }
        let seen: Vec<Line<'_>> = lines.into_iter().skip(self.scroll).collect();
        frame.render_widget(Paragraph::new(head), head_row);
        frame.render_widget(Paragraph::new(seen), rows);
        frame.render_widget(Paragraph::new(foot), foot_row);
    }

    fn hint(&self) -> String {
        if self.furthest() == 0 {
            return "q quits".into();
        }
        let last = (self.scroll + self.height).min(self.lines);
        format!("q quits, ↑ ↓ scroll: lines {}-{last} of {}", self.scroll + 1, self.lines)
    }

    fn lines(&self, width: u16) -> Vec<Line<'static>> {
        let Some(found) = &self.found else { return vec![Line::from(Span::styled("measuring ...", DIM))] };
        let mut lines = page::lines(found, width);
        if found.is_empty() {
            let folder = names::folder();
            lines.push(Line::from(format!("no feeds run for this user (searching {})", folder.display())));
        }
        for (name, since) in &self.gone {
            let text = format!("{name} ended {} s ago", since.elapsed().as_secs());
            lines.extend([Line::default(), Line::from(Span::styled(text, DIM))]);
        }
        lines
    }
}
