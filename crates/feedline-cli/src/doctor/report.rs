//! The findings: a line for each, and a second line that says what to do.

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::{is_coloured, print, say};

const NAME_WIDTH: usize = 18;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Note,
    Bad,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    level: Level,
    found: String,
    what_to_do: Option<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    numbers: Value,
}

impl Check {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, found: found.into(), what_to_do: None, numbers: Value::Null }
    }

    /// Worth knowing, but feeds work.
    pub(crate) fn note(name: &'static str, found: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { level: Level::Note, what_to_do: Some(what_to_do.into()), ..Self::ok(name, found) }
    }

    /// Feeds don't work here, or not for long.
    pub(crate) fn bad(name: &'static str, found: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { level: Level::Bad, what_to_do: Some(what_to_do.into()), ..Self::ok(name, found) }
    }

    /// With the numbers behind it, for `--json`.
    pub(crate) fn with(mut self, numbers: Value) -> Self {
        self.numbers = numbers;
        self
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.level == Level::Bad
    }

    fn text(&self, coloured: bool) -> String {
        let (word, colour) = match self.level {
            Level::Ok => ("ok", "\x1b[32m"),
            Level::Note => ("note", "\x1b[33m"),
            Level::Bad => ("bad", "\x1b[1;31m"),
        };
        let (on, off) = if coloured { (colour, "\x1b[0m") } else { ("", "") };
        // Text from elsewhere, such as an error of the system, may have several lines.
        let indent = format!("\n{:width$}", "", width = 4 + 2 + NAME_WIDTH + 2);
        let found = self.found.trim_end().replace('\n', &indent);
        let mut text = format!("{on}{word:<4}{off}  {:<NAME_WIDTH$}  {found}\n", self.name);
        if let Some(advice) = &self.what_to_do {
            text += &format!("{}{}\n", &indent[1..], advice.trim_end().replace('\n', &indent));
        }
        text
    }
}

/// Prints findings as they come, or all of them at the end as JSON.
pub(crate) struct Report {
    is_json: bool,
    is_coloured: bool,
    checks: Vec<Check>,
}

impl Report {
    pub(crate) fn new(is_json: bool) -> Self {
        Self { is_json, is_coloured: is_coloured(&std::io::stdout()), checks: Vec::new() }
    }

    pub(crate) fn add(&mut self, checks: Vec<Check>) -> std::io::Result<()> {
        if !self.is_json {
            let text: String = checks.iter().map(|check| check.text(self.is_coloured)).collect();
            print(&text)?;
        }
        self.checks.extend(checks);
        Ok(())
    }

    /// Returns the exit code.
    pub(crate) fn finish(self) -> std::io::Result<u8> {
        let count = |level| self.checks.iter().filter(|check| check.level == level).count();
        let (notes, bad) = (count(Level::Note), count(Level::Bad));
        if self.is_json {
            print(&format!("{:#}\n", json!({"ok": bad == 0, "notes": notes, "bad": bad, "checks": self.checks})))?;
        } else if bad > 0 {
            say(&format!("{bad} of {} checks are bad: see what to do under each", self.checks.len()));
        } else {
            let notes = match notes {
                0 => String::new(),
                1 => ", with 1 note".into(),
                many => format!(", with {many} notes"),
            };
            say(&format!("feeds work here{notes}"));
        }
        Ok(u8::from(bad > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_stands_under_what_was_found() {
        let text = Check::bad("futex", "failed:\nno such thing", "do this").text(false);
        let indent = " ".repeat(26);
        assert_eq!(text, format!("bad   futex               failed:\n{indent}no such thing\n{indent}do this\n"));
    }
}
