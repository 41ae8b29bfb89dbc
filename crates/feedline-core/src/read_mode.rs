//! How a consumer takes its batches, and why, as it reports it in its page. For display only.

/// How a consumer takes its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In place; a write makes a private copy of the page.
    Cow,
    /// Copied out.
    Copy,
    /// In place; a write is a crash.
    ReadOnly,
}

/// Why batches are copied although the user didn't ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopiesBecause {
    /// The job writes in place: making its pages private would cost more.
    Writes,
    /// The job keeps batches: leaving it the pages would cost more.
    Keeps,
    /// The feed waits for nobody: what isn't copied may be overwritten.
    FeedSkips,
    /// The kernel doesn't show which pages are private, or gives no further mapping.
    Kernel,
}

/// How batches are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadMode(pub Mode, pub Option<CopiesBecause>);

/// The number of each in a page is its index here; the name and the reason are for display.
const READ_MODES: [(ReadMode, &str, Option<&str>); 7] = [
    (ReadMode(Mode::Cow, None), "cow", None),
    (ReadMode(Mode::Copy, None), "copy", Some("asked for")),
    (ReadMode(Mode::ReadOnly, None), "readonly", None),
    (ReadMode(Mode::Copy, Some(CopiesBecause::Writes)), "copy", Some("it writes in place")),
    (ReadMode(Mode::Copy, Some(CopiesBecause::Keeps)), "copy", Some("it keeps batches")),
    (ReadMode(Mode::Copy, Some(CopiesBecause::FeedSkips)), "copy", Some("lag is skip")),
    (ReadMode(Mode::Copy, Some(CopiesBecause::Kernel)), "copy", Some("the kernel")),
];

impl ReadMode {
    pub fn number(self) -> u32 {
        READ_MODES.iter().position(|(read_mode, ..)| *read_mode == self).unwrap_or(READ_MODES.len()) as u32
    }

    /// The mode's name and the reason, for a number that may be anything.
    pub fn words(number: u32) -> (&'static str, Option<&'static str>) {
        READ_MODES.get(number as usize).map_or(("unknown", None), |&(_, mode, why)| (mode, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_each() {
        for (number, &(read_mode, mode, why)) in READ_MODES.iter().enumerate() {
            assert_eq!(read_mode.number(), number as u32);
            assert_eq!(ReadMode::words(number as u32), (mode, why));
        }
        assert_eq!(ReadMode::words(u32::MAX), ("unknown", None));
    }
}
