//! A feed's consumers, a row each, with as many columns as fit.

use feedline_core::stats::{ConsumerStats, ServerStats};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::page::{bar, cut, fitted, short};
use super::style::{BAD, BOLD, DIM, FAIR, of_waiting};
use crate::format::{count, percent, rate, secs};
use crate::verdict::waits_for_epoch;
use crate::view::{Job, View};

/// Between two columns.
const GAP: usize = 2;
/// A command that is cut shorter than this tells nothing.
const LEAST_COMMAND: usize = 14;
/// `1234 (0.1 s)`.
const LEAST_LAG: usize = 12;
/// The bar of the time spent waiting.
const BAR: usize = 8;

/// Which columns are left out when the width is too small: the last of these first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Keep {
    Always,
    Rank,
    Batch,
    Mode,
    Command,
    Leases,
    User,
}

struct Column {
    title: &'static str,
    keep: Keep,
    is_right: bool,
    cells: Vec<Vec<Span<'static>>>,
}

impl Column {
    fn width(&self) -> usize {
        // The least width, so that a number that changes doesn't move its neighbours.
        let least = if self.title == "LAG" { LEAST_LAG } else { self.title.len() };
        self.cells.iter().map(|cell| cell_width(cell)).max().unwrap_or(0).max(least)
    }
}

/// A blank line, a header, and the rows; nothing if there are no consumers.
pub(super) fn table(view: &View, width: usize) -> Vec<Line<'static>> {
    let mut rows: Vec<(&ConsumerStats, &Job)> = view.stats.consumers.iter().zip(&view.jobs).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    // Rows keep their places from one observation to the next, and the ranks of a job are together.
    rows.sort_by_key(|(consumer, _)| (consumer.job, consumer.rank, consumer.id));
    let mut columns = columns(view, &rows, width);
    let indent = 2;
    let needed = |columns: &[Column]| -> usize {
        columns
            .iter()
            .map(|column| GAP + if column.keep == Keep::Command { LEAST_COMMAND } else { column.width() })
            .sum()
    };
    while needed(&columns) - GAP + indent > width {
        let Some(last) = columns.iter().map(|column| column.keep).max().filter(|keep| *keep != Keep::Always) else {
            break;
        };
        columns.retain(|column| column.keep != last);
    }
    let header = columns.iter().map(|column| vec![Span::styled(column.title, DIM)]).collect();
    let mut lines = vec![Line::default(), line(&columns, header, width)];
    for row in 0..rows.len() {
        let cells = columns.iter().map(|column| column.cells[row].clone()).collect();
        lines.push(line(&columns, cells, width));
    }
    lines
}

fn columns(view: &View, rows: &[(&ConsumerStats, &Job)], width: usize) -> Vec<Column> {
    type Cell<'a> = &'a dyn Fn(&ConsumerStats, &Job) -> Vec<Span<'static>>;
    let column = |title, keep, is_right, cell: Cell<'_>| Column {
        title,
        keep,
        is_right,
        cells: rows.iter().map(|(consumer, job)| cell(consumer, job)).collect(),
    };
    let plain = |text: String| vec![Span::raw(text)];
    let is_wide = width >= 100;
    let mut columns = vec![
        column("PID", Keep::Always, true, &|consumer, _| pid(view, consumer)),
        column("USER", Keep::User, false, &|_, job| plain(cut(&job.user, 10))),
        column("BATCH", Keep::Batch, true, &|consumer, _| {
            // A rank's own batch size, as it was asked for.
            let ranks = consumer.rank.map_or(1, |(_, world)| u64::from(world));
            // A consumer reports its mode when it asks for its first batch.
            let own = if consumer.joined { "own" } else { "" };
            plain(consumer.batch_size.map_or_else(|| own.into(), |size| (size / ranks).to_string()))
        }),
        column("BATCHES/S", Keep::Always, true, &|_, job| plain(rate(job.batches_per_sec))),
        column("WAITING", Keep::Always, false, &|consumer, job| waiting(&view.stats, consumer, job, is_wide)),
        column("LAG", Keep::Always, false, &|consumer, _| lag(consumer)),
        column("LEASES", Keep::Leases, true, &|consumer, _| plain(consumer.leases.to_string())),
        column("MODE", Keep::Mode, false, &|consumer, _| mode(consumer, is_wide)),
        column("COMMAND", Keep::Command, false, &|_, job| vec![Span::styled(short(&job.process.command), DIM)]),
    ];
    if rows.iter().any(|(consumer, _)| consumer.rank.is_some()) {
        let rank = column("RANK", Keep::Rank, true, &|consumer, _| {
            plain(consumer.rank.map_or_else(String::new, |(rank, world)| format!("{rank}/{world}")))
        });
        columns.insert(1, rank);
    }
    columns
}

/// The consumer that the verdict is about stands out.
fn pid(view: &View, consumer: &ConsumerStats) -> Vec<Span<'static>> {
    let is_named = view.verdict.pid == Some(consumer.pid);
    let text = if consumer.pid == 0 { "?".into() } else { consumer.pid.to_string() };
    vec![Span::styled(text, if is_named { FAIR.patch(BOLD) } else { Style::new() })]
}

/// The share of its time that a consumer waited, or why there is none.
fn waiting(stats: &ServerStats, consumer: &ConsumerStats, job: &Job, is_wide: bool) -> Vec<Span<'static>> {
    let word = match job.process.state {
        'T' | 't' => Some(("stopped", BAD)),
        _ if !consumer.joined && consumer.waiting => Some(("for the first batch", FAIR)),
        _ if !consumer.joined => Some(("not asked yet", DIM)),
        _ if !stats.gate_open => Some(("for the others", DIM)),
        _ if waits_for_epoch(stats, consumer) => Some(("for its epoch", DIM)),
        _ if consumer.resting => Some(("between epochs", DIM)),
        _ => None,
    };
    if let Some((word, style)) = word {
        return vec![Span::styled(word, style)];
    }
    let style = of_waiting(job.wait_share);
    let mut spans = if is_wide { bar(job.wait_share, style, BAR) } else { Vec::new() };
    spans.push(Span::styled(format!("{:>6}", percent(job.wait_share)), style));
    spans
}

fn lag(consumer: &ConsumerStats) -> Vec<Span<'static>> {
    let mut text = count(consumer.lag_samples as f64);
    if consumer.lag_samples > 0 {
        text += &format!(" ({})", secs(consumer.lag_secs));
    }
    let mut spans = vec![Span::raw(text)];
    if consumer.skipped > 0 {
        spans.push(Span::styled(format!(" lost {}", count(consumer.skipped as f64)), FAIR));
    }
    spans
}

fn mode(consumer: &ConsumerStats, is_wide: bool) -> Vec<Span<'static>> {
    let text = match (consumer.mode.as_str(), &consumer.copies_because) {
        ("cow", _) => "zero-copy".to_owned(),
        ("readonly", _) => "read-only".to_owned(),
        ("copy", Some(why)) if is_wide => format!("copies: {why}"),
        ("copy", _) => "copies".to_owned(),
        (other, _) => other.to_owned(),
    };
    vec![Span::raw(text)]
}

fn cell_width(cell: &[Span<'_>]) -> usize {
    cell.iter().map(Span::width).sum()
}

fn line(columns: &[Column], cells: Vec<Vec<Span<'static>>>, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw("  ")];
    for (index, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if index > 0 {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        let blank = Span::raw(" ".repeat(column.width().saturating_sub(cell_width(&cell))));
        if column.is_right {
            spans.push(blank);
            spans.extend(cell);
        } else {
            spans.extend(cell);
            if index + 1 < columns.len() {
                spans.push(blank);
            }
        }
    }
    fitted(spans, width)
}
