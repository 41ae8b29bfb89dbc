//! Makes a job's command line from what the user typed: `{i}`, `{n}`, `{name}`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What the words in braces stand for.
pub(super) struct Values<'a> {
    pub i: u32,
    pub n: u32,
    pub name: Option<&'a str>,
}

/// Puts the values in. A word in double braces loses one pair; all other braces stay.
pub(super) fn fill(text: &OsStr, values: &Values<'_>) -> OsString {
    let (i, n) = (values.i.to_string(), values.n.to_string());
    let words = [("{i}", i.as_str()), ("{n}", n.as_str()), ("{name}", values.name.unwrap_or("{name}"))];
    let mut rest = text.as_bytes();
    let mut filled = Vec::new();
    'text: while !rest.is_empty() {
        for (word, value) in words {
            let (word, doubled) = (word.as_bytes(), format!("{{{word}}}"));
            if rest.starts_with(doubled.as_bytes()) {
                filled.extend_from_slice(word);
                rest = &rest[doubled.len()..];
                continue 'text;
            }
            if rest.starts_with(word) {
                filled.extend_from_slice(value.as_bytes());
                rest = &rest[word.len()..];
                continue 'text;
            }
        }
        filled.push(rest[0]);
        rest = &rest[1..];
    }
    OsString::from_vec(filled)
}

/// Whether a word contains `{name}`.
pub(super) fn needs_name(text: &OsStr) -> bool {
    let fill = |name| fill(text, &Values { i: 0, n: 0, name: Some(name) });
    fill("a") != fill("b")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_braces_are_replaced_and_other_braces_stay() {
        let values = Values { i: 2, n: 4, name: Some("images") };
        let cases = [
            ("--seed={i}", "--seed=2"),
            ("{i}/{n} of {name}", "2/4 of images"),
            ("{{i}} {{name}}", "{i} {name}"),
            ("{\"a\": {\"b\": 1}}", "{\"a\": {\"b\": 1}}"),
            ("{} {x} {i", "{} {x} {i"),
            ("{{{i}}}", "{{i}}"),
            ("", ""),
        ];
        for (text, filled) in cases {
            assert_eq!(fill(OsStr::new(text), &values), filled, "{text}");
        }
    }

    #[test]
    fn a_name_may_be_needed() {
        assert!(needs_name(OsStr::new("--feed={name}")));
        assert!(!needs_name(OsStr::new("{i} {{name}}")));
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        let odd = OsStr::from_bytes(b"\xff{i}\xfe");
        assert_eq!(fill(odd, &Values { i: 7, n: 9, name: None }).as_bytes(), b"\xff7\xfe");
    }
}
