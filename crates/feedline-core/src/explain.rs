//! Messages for people: what happened and why, and what to do about it.
//!
//! An explanation names options as data. The program that shows it words it for its [`Reader`]: `history="2GB"` for somebody who writes Python,
//! `--history 2GB` for somebody at a command line. It travels as data, too: a server's failure is worded where it is shown.

use std::fmt::{self, Display, Formatter, Write};

use serde::{Deserialize, Serialize};

use crate::options::kinds::Refused;
use crate::options::{Name, Value};

/// Who reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Somebody who writes Python: options are keywords.
    #[default]
    Python,
    /// Somebody at a command line: options are flags.
    CommandLine,
}

/// What happened, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What happened, and why.
    pub what: Text,
    /// What to do about it, if anything can be done.
    pub hint: Text,
}

/// Words, with options among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text(pub Vec<Part>);

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// The same for every reader.
    Plain(String),
    /// An option.
    Option(Mention),
}

/// An option of a server, as a text speaks of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mention {
    /// Which.
    pub option: Name,
    /// What is said of it.
    pub said: Said,
}

/// What is said of an option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// Its name: `history=`, `--history`.
    Name,
    /// A value for it: `history="2GB"`, `--history 2GB`.
    Value(Value),
    /// The value that was given, as Python shows values: `history='2 GB'`, `--history "2 GB"`.
    Given(Value),
    /// That `None` would do as well: `, or epochs=None`, `, or no --epochs`. Nothing on a command line where leaving out the flag means
    /// something else.
    OrNone,
}

impl Name {
    /// A mention of the option.
    pub fn named(self) -> Mention {
        Mention { option: self, said: Said::Name }
    }

    /// A mention of a value for it.
    pub fn of_value(self, value: impl Into<Value>) -> Mention {
        Mention { option: self, said: Said::Value(value.into()) }
    }

    /// A mention of the value that somebody gave.
    pub fn given(self, value: Value) -> Mention {
        Mention { option: self, said: Said::Given(value) }
    }
}

impl Mention {
    fn worded(&self, reader: Reader) -> String {
        let (keyword, flag) = (self.option.keyword(), self.option.flag());
        match (reader, &self.said) {
            (Reader::Python, Said::OrNone) => format!(", or {keyword}=None"),
            (Reader::CommandLine, Said::OrNone) => match self.option.declared().default() {
                Value::Nothing => format!(", or no {flag}"),
                _ => String::new(),
            },
            (Reader::Python, Said::Name) => format!("{keyword}="),
            (Reader::Python, Said::Value(value)) => format!("{keyword}={}", value.in_python('"')),
            (Reader::Python, Said::Given(value)) => format!("{keyword}={}", value.in_python('\'')),
            (Reader::CommandLine, Said::Name | Said::Value(Value::Bool(true)) | Said::Given(Value::Bool(true))) => flag,
            (Reader::CommandLine, Said::Value(value) | Said::Given(value)) => match value {
                Value::Nothing | Value::Bool(false) => format!("no {flag}"),
                // Given once for each.
                Value::List(values) => {
                    values.iter().map(|one| format!("{flag} {}", one.typed())).collect::<Vec<_>>().join(" ")
                }
                value => format!("{flag} {}", value.typed()),
            },
        }
    }
}

impl Text {
    /// For a reader.
    pub fn worded(&self, reader: Reader) -> String {
        self.0.iter().fold(String::new(), |mut text, part| {
            match part {
                Part::Plain(words) => text.push_str(words),
                Part::Option(mention) => text.push_str(&mention.worded(reader)),
            }
            text
        })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Explanation {
    /// Of what happened.
    pub fn new(what: impl Into<Text>) -> Self {
        Self { what: what.into(), hint: Text::default() }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<Text>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Of a value that an option can't have.
    pub fn refused(option: Name, given: Value, refused: &Refused) -> Self {
        let mut hint = Text::from(refused.hint.as_str());
        if refused.or_none {
            hint.0.push(Mention { option, said: Said::OrNone }.into());
        }
        Self::new(crate::text![option.given(given), " ", refused.why.as_str()]).hint(hint)
    }

    /// For a reader: the hint stands on a line of its own.
    pub fn worded(&self, reader: Reader) -> String {
        let mut text = self.what.worded(reader);
        if !self.hint.is_empty() {
            let _ = write!(text, "\n  {}", self.hint.worded(reader));
        }
        text
    }

    /// With so many bytes in a part at most, whatever an exception has to say.
    pub(crate) fn shortened(mut self, longest: usize) -> Self {
        for part in self.what.0.iter_mut().chain(&mut self.hint.0) {
            if let Part::Plain(words) = part
                && words.len() > longest
            {
                let (head, tail) = (boundary(words, longest / 2), boundary(words, words.len() - longest / 2));
                *words = format!("{} … [{} bytes left out] … {}", &words[..head], tail - head, &words[tail..]);
            }
        }
        self
    }
}

/// The last place up to `at` where no letter is cut.
fn boundary(words: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| words.is_char_boundary(at)).unwrap_or(0)
}

/// Worded for Python, which everybody who attaches writes.
impl Display for Mention {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(Reader::Python))
    }
}

/// Worded for Python, which everybody who attaches writes.
impl Display for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(Reader::Python))
    }
}

/// Worded for Python, which everybody who attaches writes.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(Reader::Python))
    }
}

/// A text of several parts: strings, and mentions of options.
#[macro_export]
macro_rules! text {
    ($($part:expr),+ $(,)?) => {
        $crate::explain::Text(vec![$($crate::explain::Part::from($part)),+])
    };
}

impl From<&str> for Part {
    fn from(words: &str) -> Self {
        Self::Plain(words.into())
    }
}

impl From<String> for Part {
    fn from(words: String) -> Self {
        Self::Plain(words)
    }
}

impl From<Mention> for Part {
    fn from(mention: Mention) -> Self {
        Self::Option(mention)
    }
}

impl From<Part> for Text {
    fn from(part: Part) -> Self {
        let is_empty = matches!(&part, Part::Plain(words) if words.is_empty());
        Self(if is_empty { Vec::new() } else { vec![part] })
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        Part::from(words).into()
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Part::from(words).into()
    }
}

impl From<&str> for Explanation {
    fn from(what: &str) -> Self {
        Self::new(what)
    }
}

impl From<String> for Explanation {
    fn from(what: String) -> Self {
        Self::new(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_keywords_for_one_reader_and_flags_for_another() {
        let allowed = Value::List(vec!["alice".into(), Value::Int(1001)]);
        for (mention, keyword, flag) in [
            (Name::history_dir.named(), "history_dir=", "--history-dir"),
            (Name::ring.of_value("20MB"), "ring=\"20MB\"", "--ring 20MB"),
            (Name::lag.given("wait".into()), "lag='wait'", "--lag wait"),
            (Name::replay.of_value(true), "replay=True", "--replay"),
            (Name::epochs.of_value(Value::Nothing), "epochs=None", "no --epochs"),
            (Name::allow.of_value(allowed), "allow=(\"alice\", 1001)", "--allow alice --allow 1001"),
        ] {
            assert_eq!(mention.worded(Reader::Python), keyword);
            assert_eq!(mention.worded(Reader::CommandLine), flag);
        }
    }

    #[test]
    fn a_refusal_says_what_why_and_what_to_do() {
        let mut options = crate::options::Options::default();
        let refused = options.set(Name::loader_warn_secs, &Value::Int(-1)).unwrap_err();
        let explanation = Explanation::refused(Name::loader_warn_secs, Value::Int(-1), &refused);
        assert_eq!(
            explanation.to_string(),
            "loader_warn_secs=-1 is not a time to wait\n  give a number of seconds greater than 0, up to 1e9, or loader_warn_secs=None"
        );
        assert_eq!(
            explanation.worded(Reader::CommandLine),
            "--loader-warn-secs -1 is not a time to wait\n  give a number of seconds greater than 0, up to 1e9",
            "leaving it out would be the default"
        );
        let refused = options.set(Name::linger_secs, &Value::Int(-1)).unwrap_err();
        let explanation = Explanation::refused(Name::linger_secs, Value::Int(-1), &refused);
        assert!(explanation.worded(Reader::CommandLine).ends_with("from 0 to 1e9, or no --linger-secs"));
        let refused = options.set(Name::lag, &"wait".into()).unwrap_err();
        let explanation = Explanation::refused(Name::lag, "wait".into(), &refused);
        assert_eq!(explanation.to_string(), "lag='wait' is not one of \"block\", \"history\", \"skip\"");
    }

    #[test]
    fn what_is_too_long_loses_its_middle() {
        let long = Explanation::new(format!("ä{}ö", "é".repeat(100_000))).hint("read less");
        let text = long.shortened(1000).to_string();
        assert!(text.len() < 1100 && text.starts_with("äé") && text.ends_with("éö\n  read less"), "{text}");
        assert!(text.contains(" bytes left out] … é"), "{text}");
    }
}
