//! Makes lines with a prefix of what a job writes. Pure: bytes in, bytes out.
//!
//! A carriage return means that the line will be overwritten, as progress bars do. Such drafts are shown now and then, so that
//! users see that the job is alive; the last state is shown when the line is complete.

use std::time::{Duration, Instant};

/// How often drafts are shown.
const DRAFT: Duration = Duration::from_secs(5);
/// Longer lines are cut.
const LONGEST: usize = 64 << 10;

pub(super) struct Lines {
    prefix: Vec<u8>,
    /// Resets the colours that a line has set.
    is_coloured: bool,
    line: Vec<u8>,
    /// Whether the cursor is at the line's beginning again.
    has_returned: bool,
    last_draft: Option<Instant>,
}

impl Lines {
    pub fn new(prefix: Vec<u8>, is_coloured: bool) -> Self {
        Self { prefix, is_coloured, line: Vec::new(), has_returned: false, last_draft: None }
    }

    /// Takes what was written and appends the lines that are complete.
    pub fn take(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<u8>) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(out),
                b'\r' => self.has_returned = true,
                _ => {
                    if self.has_returned {
                        self.draft(now, out);
                    }
                    self.line.push(byte);
                    if self.line.len() >= LONGEST {
                        self.end_line(out);
                    }
                }
            }
        }
    }

    /// Appends what is left, at the stream's end.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.line.is_empty() {
            self.end_line(out);
        }
    }

    fn draft(&mut self, now: Instant, out: &mut Vec<u8>) {
        let is_blank = self.line.iter().all(u8::is_ascii_whitespace);
        let is_due = self.last_draft.is_none_or(|last| now.duration_since(last) >= DRAFT);
        if is_due && !is_blank {
            self.last_draft = Some(now);
            self.end_line(out);
        }
        self.line.clear();
        self.has_returned = false;
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(&self.line);
        if self.is_coloured && self.line.contains(&b'\x1b') {
            out.extend_from_slice(b"\x1b[0m");
        }
        out.push(b'\n');
        self.line.clear();
        self.has_returned = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&[u8]]) -> String {
        let mut lines = Lines::new(b"[2] ".to_vec(), false);
        let mut out = Vec::new();
        let now = Instant::now();
        for text in texts {
            lines.take(text, now, &mut out);
        }
        lines.finish(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn written(prefix: &[u8], is_coloured: bool, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Lines::new(prefix.to_vec(), is_coloured);
        let mut out = Vec::new();
        lines.take(bytes, Instant::now(), &mut out);
        lines.finish(&mut out);
        out
    }

    #[test]
    fn each_line_has_the_prefix() {
        assert_eq!(all(&[b"one\ntw", b"o\n\nthree"]), "[2] one\n[2] two\n[2] \n[2] three\n");
        assert_eq!(all(&[b"dos\r\nlines\r\n"]), "[2] dos\n[2] lines\n");
    }

    #[test]
    fn of_a_progress_bar_the_first_and_the_last_state_are_shown() {
        assert_eq!(all(&[b"\r 1 %\r 2 %", b"\r 3 %\r    \rdone\n"]), "[2]  1 %\n[2] done\n");
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        assert_eq!(written(b"", false, b"\xff\xfe\n"), b"\xff\xfe\n");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        assert_eq!(written(b"> ", false, &vec![b'x'; LONGEST + 1]).len(), LONGEST + 1 + 2 * 3);
    }

    #[test]
    fn colours_end_with_their_line() {
        assert_eq!(written(b"", true, b"\x1b[31mred\nplain\n"), b"\x1b[31mred\x1b[0m\nplain\n");
    }
}
