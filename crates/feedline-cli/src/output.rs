//! What goes where: data to stdout, messages to stderr, an exit code to the caller.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};

use clap::CommandFactory;

use crate::args::Cli;

/// An error that says what happened, why, and what to do next, on lines of their own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Arguments that cannot be used: as `Failed`, with another exit code.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misused(pub String);

/// Prints data.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a message.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Reports an error. Returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    // The reader of our output has closed it.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return 0;
    }
    let red = if is_coloured(&std::io::stderr()) { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    say(&format!("{}error:{} {error:#}", red.0, red.1));
    if error.is::<Misused>() { 2 } else { 1 }
}

/// Reports wrong arguments, and where to read more: in the help of the command that they were for.
pub(crate) fn misused(error: &clap::Error, args: &[OsString]) {
    let text = error.render();
    let text = if is_coloured(&std::io::stderr()) { text.ansi().to_string() } else { text.to_string() };
    let commands = Cli::command();
    let command = args.iter().find_map(|arg| commands.find_subcommand(arg));
    let name = command.map_or_else(String::new, |command| format!("{} ", command.get_name()));
    let text = match text.rsplit_once("--help") {
        Some((front, end)) if front.contains("For more information") => format!("{front}feedline {name}--help{end}"),
        _ => text,
    };
    say(text.trim_end());
}

/// Whether a stream takes colours.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !is_plain && !is_dumb
}

/// A table. Columns whose cells are all numbers, except the header, are aligned right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit()) || matches!(cell.as_str(), "" | "-");
    let right = |column: usize| rows.iter().skip(1).filter_map(|row| row.get(column)).all(is_number);
    let layout: Vec<(usize, bool)> = (0..columns).map(|c| (width(c).unwrap_or(0), right(c))).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&layout)
            .map(|(cell, &(width, right))| if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["name", "pid", "state"]), row(["a", "7", "running"]), row(["longer", "1234", "ended"])];
        assert_eq!(table(&rows), "name     pid  state\na          7  running\nlonger  1234  ended\n");
    }
}
