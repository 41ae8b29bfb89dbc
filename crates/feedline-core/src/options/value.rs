//! A value that was given for an option, or is suggested for it, before it is checked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A value, as Python and a command line have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// `None`; on a command line, nothing.
    Nothing,
    /// A switch.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A number.
    Float(f64),
    /// A string.
    Text(String),
    /// A path that was given as one, or that is not Unicode.
    Path(PathBuf),
    /// Several, for an option that may be given again.
    List(Vec<Value>),
    /// Something else, as Python shows it.
    Other(String),
    /// A whole number that is larger than any option's, as it was written.
    Huge(String),
}

impl Value {
    /// The whole number that a text is, however large.
    pub fn whole(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_whole.then(|| text.parse().map_or_else(|_| Self::Huge(text.into()), Self::Int))
    }

    /// As a whole number, or as near to it as this type gets.
    pub(super) fn as_whole(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Huge(number) => Some(if number.starts_with('-') { i128::MIN } else { i128::MAX }),
            _ => None,
        }
    }

    /// As a number, or as near to it as this type gets.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            value => value.as_whole().map(|number| number as f64),
        }
    }

    /// As it is written in Python, strings between these quotes.
    pub fn in_python(&self, quote: char) -> String {
        match self {
            Self::Nothing => "None".into(),
            Self::Bool(true) => "True".into(),
            Self::Bool(false) => "False".into(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => float(*number),
            Self::Text(text) => quoted(text, quote),
            Self::Path(path) => quoted(&path.to_string_lossy(), quote),
            Self::List(values) => {
                let inner: Vec<_> = values.iter().map(|value| value.in_python(quote)).collect();
                format!("({}{})", inner.join(", "), if inner.len() == 1 { "," } else { "" })
            }
            Self::Other(shown) | Self::Huge(shown) => shown.clone(),
        }
    }

    /// As it is typed after a flag.
    pub fn typed(&self) -> String {
        match self {
            Self::Text(text) => as_one_word(text),
            Self::Path(path) => as_one_word(&path.to_string_lossy()),
            Self::List(values) => values.iter().map(Self::typed).collect::<Vec<_>>().join(" "),
            other => other.in_python('"'),
        }
    }
}

fn float(number: f64) -> String {
    if number.is_nan() { "nan".into() } else { format!("{number:?}") }
}

fn quoted(text: &str, quote: char) -> String {
    // As Python does it: the other quotes, where these would have to be escaped.
    let quote = if quote == '\'' && text.contains('\'') && !text.contains('"') { '"' } else { quote };
    let mut shown = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\\' => shown.push_str("\\\\"),
            _ if letter == quote => shown.extend(['\\', letter]),
            _ if letter.is_control() => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown.push(quote);
    shown
}

/// In quotes where a shell would take it apart, or see nothing.
fn as_one_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._/:@%+=,-".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(text, '"') }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i128> for Value {
    fn from(value: i128) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<PathBuf> for Value {
    fn from(value: PathBuf) -> Self {
        Self::Path(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_they_are_written() {
        let several = Value::List(vec!["alice".into(), 1001.into(), "@lab".into()]);
        for (value, python, typed) in [
            (Value::Nothing, "None", "None"),
            (true.into(), "True", "True"),
            (Value::Int(-1), "-1", "-1"),
            (0.5.into(), "0.5", "0.5"),
            (f64::NAN.into(), "nan", "nan"),
            ("512MB".into(), "'512MB'", "512MB"),
            ("a b".into(), "'a b'", "\"a b\""),
            ("".into(), "''", "\"\""),
            ("it's".into(), "\"it's\"", "\"it's\""),
            ("a\\b\n".into(), "'a\\\\b\\n'", "\"a\\\\b\\n\""),
            (Value::Path("/data/a".into()), "'/data/a'", "/data/a"),
            (several, "('alice', 1001, '@lab')", "alice 1001 @lab"),
            (Value::List(vec![7.into()]), "(7,)", "7"),
            (Value::Other("<object>".into()), "<object>", "<object>"),
        ] {
            assert_eq!(value.in_python('\''), python);
            assert_eq!(value.typed(), typed);
        }
    }
}
