//! Feeds as lines of a given width, for the live screen and for plain output.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::rows;
use super::style::{self, BAD, BOLD, DIM, FAIR, GOOD, LABEL};
use crate::format::{bytes, count, percent, rate, secs, some};
use crate::ls::duration_text;
use crate::pool;
use crate::view::View;
use crate::watch::Found;

/// The indent of every line but a feed's first, which has space for a label.
const INDENT: usize = 10;

/// All feeds, one below the other.
pub(super) fn lines(found: &[Found], width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width).max(40);
    let mut lines = Vec::new();
    for one in found {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        match &one.view {
            Ok(view) => feed(view, width, &mut lines),
            Err(why) => silent(one, why, width, &mut lines),
        }
    }
    lines
}

/// `feedline top  2 feeds, 5 jobs  CPU 87 % of 2 cores`.
pub(super) fn summary(found: &[Found]) -> Line<'static> {
    let views = || found.iter().filter_map(|one| one.view.as_ref().ok());
    let jobs = views().map(|view| view.stats.consumers.len()).sum();
    let mut spans = vec![Span::styled("feedline top", BOLD)];
    spans.push(Span::raw(format!("  {}, {}", some(found.len(), "feed"), some(jobs, "consumer"))));
    if let Some(machine) =
        views().map(|view| view.machine).next().filter(|_| views().any(|view| view.rates.window_secs > 0.0))
    {
        let cores = some(machine.cores as usize, "core");
        spans.push(Span::styled(format!("  CPU {} of {cores}", percent(machine.busy_share)), DIM));
    }
    Line::from(spans)
}

fn feed(view: &View, width: usize, lines: &mut Vec<Line<'static>>) {
    let stats = &view.stats;
    let state = match stats.state.as_str() {
        "running" if stats.all_written => Span::styled("all written", GOOD),
        "running" => Span::styled("running", GOOD),
        "failed" => Span::styled("failed", BAD),
        other => Span::styled(other.to_owned(), FAIR),
    };
    let name = Span::styled(stats.name.clone(), BOLD);
    let facts = format!("  pid {}, up {}", stats.pid, duration_text(stats.uptime_secs));
    let mut spans = vec![name, Span::raw("  "), state, Span::raw(facts)];
    let taken: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::styled(cut(&format!("  {}", short(&view.server.command)), width.saturating_sub(taken)), DIM));
    lines.push(Line::from(spans));
    lines.extend([source(view, width), time(view, width), epoch(view, width)]);
    lines.extend(held(view, width));
    lines.push(memory(view, width));
    if let Some(text) = pool::text(stats) {
        lines.extend(sentence("pool", &text, Style::default(), width));
    }
    lines.extend(sentence("verdict", &view.verdict.text, style::of(view.verdict.kind), width));
    lines.extend(rows::table(view, width));
}

fn silent(one: &Found, why: &str, width: usize, lines: &mut Vec<Line<'static>>) {
    let name = Span::styled(one.feed.name.clone(), BOLD);
    let facts = Span::raw(format!("  pid {}", one.feed.pid));
    lines.push(Line::from(vec![name, Span::raw("  "), Span::styled("silent", BAD), facts]));
    for text in why.lines().flat_map(|line| wrapped(line.trim(), width - 2)) {
        lines.push(Line::from(Span::styled(format!("  {text}"), DIM)));
    }
}

fn labelled(label: &str, mut spans: Vec<Span<'static>>, width: usize) -> Line<'static> {
    spans.insert(0, Span::styled(format!("  {label:<8}"), LABEL));
    fitted(spans, width)
}

/// As many lines as it needs.
fn sentence(label: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let lines = wrapped(text, width - INDENT).into_iter().enumerate();
    lines
        .map(|(index, text)| labelled(if index == 0 { label } else { "" }, vec![Span::styled(text, style)], width))
        .collect()
}

/// What doesn't fit is cut off on the right.
pub(super) fn fitted(spans: Vec<Span<'static>>, width: usize) -> Line<'static> {
    let mut left = width;
    let mut kept = Vec::new();
    for span in spans {
        let text = cut(&span.content, left);
        left = left.saturating_sub(Span::raw(text.as_str()).width());
        kept.push(Span::styled(text, span.style));
    }
    Line::from(kept)
}

fn source(view: &View, width: usize) -> Line<'static> {
    let rates = &view.rates;
    if rates.window_secs == 0.0 {
        return labelled("source", vec![Span::styled("measuring ...", DIM)], width);
    }
    let samples = format!("{} samples/s  ", rate(rates.samples_per_sec));
    let text = format!(
        "{}{} batches/s  {}/s",
        if view.stats.whole_batches { "" } else { &samples },
        rate(rates.batches_per_sec),
        bytes(rates.bytes_per_sec)
    );
    labelled("source", vec![Span::raw(text)], width)
}

/// How the source's time is spent: one bar with three parts.
fn time(view: &View, width: usize) -> Line<'static> {
    let rates = &view.rates;
    let size = bar_size(width).min(width.saturating_sub(INDENT + 42)).max(4);
    let cells = |share: f64| (share.clamp(0.0, 1.0) * size as f64).round() as usize;
    let loading = cells(rates.loading_share);
    let copying = cells(rates.loading_share + rates.copying_share).min(size) - loading;
    let spans = vec![
        Span::styled("█".repeat(loading), FAIR),
        Span::styled("▓".repeat(copying), LABEL),
        Span::styled("░".repeat(size - loading - copying), DIM),
        Span::styled(format!("  {} loading", percent(rates.loading_share)), FAIR),
        Span::styled(format!("  {} copying", percent(rates.copying_share)), LABEL),
        Span::styled(format!("  {} waiting", percent(rates.waiting_share)), DIM),
    ];
    labelled("time", spans, width)
}

fn epoch(view: &View, width: usize) -> Line<'static> {
    let stats = &view.stats;
    // Epochs are counted from 0, as everywhere; when all are written, the server counts on.
    let which = stats.epochs.map_or_else(
        || stats.epoch.to_string(),
        |epochs| {
            let last = stats.epoch.min(epochs.saturating_sub(1));
            format!("{last} ({} of {epochs})", last + 1)
        },
    );
    let Some(all) = stats.samples_per_epoch else {
        let text = format!("{which}: {} {} so far", count(stats.epoch_samples as f64), stats.units());
        return labelled("epoch", vec![Span::raw(text)], width);
    };
    let done = if stats.all_written { all } else { stats.epoch_samples };
    let share = if all > 0 { done as f64 / all as f64 } else { 1.0 };
    let left = view.epoch_left_secs.map_or_else(String::new, |left| format!(", {} left", secs(left)));
    let what = if width < 90 { String::new() } else { format!(" {}", stats.units()) };
    let text = format!("  {which}{left}: {} of {}{what}", count(done as f64), count(all as f64));
    labelled("epoch", with_bar(share, GOOD, text, width), width)
}

/// How many samples are held, of how many: in the ring and in the history; of a replayed epoch, in both together.
fn held(view: &View, width: usize) -> Vec<Line<'static>> {
    let stats = &view.stats;
    let line = |label: &'static str, (share, style): (f64, Style), used: u64, all: u64, len_bytes: u64| {
        let samples = format!("  {} of {} {}", count(used as f64), count(all as f64), stats.units());
        let text = format!("{samples}, {}{}", bytes(len_bytes as f64), place(view, width));
        labelled(label, with_bar(share, style, text, width), width)
    };
    let share = |used: u64, all: u64| used as f64 / all.max(1) as f64;
    if stats.replay {
        let (used, all) =
            (stats.samples, stats.samples_per_epoch.unwrap_or(stats.ring_samples + stats.history_samples));
        return vec![line("kept", (share(used, all), GOOD), used, all, stats.ring_bytes + stats.history_bytes)];
    }
    let (used, all) = (stats.ring_used_samples, stats.ring_samples);
    let mut lines = vec![line("ring", (stats.ring_fill, GOOD), used, all, stats.ring_bytes)];
    let (used, all) = (stats.history_used_samples, stats.history_samples);
    if all > 0 {
        lines.push(line("history", (share(used, all), LABEL), used, all, stats.history_bytes));
    }
    lines
}

fn place(view: &View, width: usize) -> &'static str {
    match view.stats.history_in_file {
        _ if width < 70 => "",
        true => " in a file",
        false => " in memory",
    }
}

fn memory(view: &View, width: usize) -> Line<'static> {
    let stats = &view.stats;
    let rings = if stats.history_in_file { 0 } else { stats.ring_bytes + stats.history_bytes };
    let workers: u64 = view.workers.iter().map(|worker| worker.private_bytes).sum();
    let sum = rings + view.server.private_bytes + workers;
    let mut parts = vec![];
    if rings > 0 {
        let what = if stats.history_bytes > 0 { "ring and history" } else { "ring" };
        parts.push(format!("{what} {}", bytes(rings as f64)));
    }
    let also =
        if view.also_serves.is_empty() { String::new() } else { format!(" (with {})", view.also_serves.join(", ")) };
    parts.push(format!("server {}{also}", bytes(view.server.private_bytes as f64)));
    if !view.workers.is_empty() {
        parts.push(format!("{} {}", some(view.workers.len(), "worker"), bytes(workers as f64)));
    }
    labelled("memory", vec![Span::raw(format!("{}: {}", bytes(sum as f64), parts.join(", ")))], width)
}

fn with_bar(share: f64, style: Style, text: String, width: usize) -> Vec<Span<'static>> {
    let mut spans = bar(share, style, bar_size(width));
    spans.push(Span::raw(format!(" {:>5}", percent(share))));
    spans.push(Span::raw(text));
    spans
}

/// `████░░░░`.
pub(super) fn bar(share: f64, style: Style, size: usize) -> Vec<Span<'static>> {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * size as f64).round() as usize;
    vec![Span::styled("█".repeat(full), style), Span::styled("░".repeat(size - full), DIM)]
}

fn bar_size(width: usize) -> usize {
    (width / 5).clamp(8, 30)
}

/// A command line without the folder of its program.
pub(super) fn short(command: &str) -> String {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {rest}").trim_end().to_owned()
}

/// Cut to a width, with a mark if something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    // Several characters together may be wider or narrower than each by itself.
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|&end| Span::raw(&text[..end]).width() < width).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Broken at blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            *line = cut(word, width);
        } else if Span::raw(line.as_str()).width() + 1 + Span::raw(word).width() <= width {
            *line += " ";
            *line += word;
        } else {
            lines.push(cut(word, width));
        }
    }
    lines
}
