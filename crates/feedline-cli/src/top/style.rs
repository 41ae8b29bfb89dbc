//! Colours, and lines as plain text for output that is no terminal.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::verdict::Kind;

pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const LABEL: Style = Style::new().fg(Color::Cyan);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const FAIR: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red);

/// The style of a verdict.
pub(super) fn of(kind: Kind) -> Style {
    match kind {
        Kind::Quiet => DIM,
        Kind::TrainersBound | Kind::Balanced | Kind::Loaded => GOOD,
        Kind::LoaderBound | Kind::HeldBack | Kind::DiskBound | Kind::CopyBound => FAIR,
        Kind::Stuck | Kind::Failed => BAD,
    }
    .add_modifier(if kind == Kind::Quiet { Modifier::empty() } else { Modifier::BOLD })
}

/// The style of a share of time that was spent waiting.
pub(super) fn of_waiting(share: f64) -> Style {
    match share {
        0.4.. => BAD,
        0.1..0.4 => FAIR,
        _ => GOOD,
    }
}

/// Takes the colours away, and leaves what is bold.
pub(super) fn without_colours(lines: &mut [Line<'_>]) {
    for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
        (span.style.fg, span.style.bg) = (None, None);
    }
}

/// Without any style.
pub(super) fn plain(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

/// For a terminal that is only written to, not drawn on.
pub(super) fn ansi(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line.spans.iter().map(escaped).collect::<String>() + "\n").collect()
}

fn escaped(span: &Span<'_>) -> String {
    let mut codes = Vec::new();
    if span.style.add_modifier.contains(Modifier::BOLD) {
        codes.push("1");
    }
    codes.extend(span.style.fg.and_then(|colour| match colour {
        Color::DarkGray => Some("90"),
        Color::Cyan => Some("36"),
        Color::Green => Some("32"),
        Color::Yellow => Some("33"),
        Color::Red => Some("31"),
        _ => None,
    }));
    if codes.is_empty() {
        span.content.to_string()
    } else {
        format!("\x1b[{}m{}\x1b[0m", codes.join(";"), span.content)
    }
}
