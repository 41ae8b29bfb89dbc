//! How a consumer takes its batches, and why, as it reports it in its page. For display only.

use super::Mode;

/// Why batches are copied out where nobody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopiesBecause {
    /// Making its pages private would cost more.
    Writes,
    /// So would leaving it the pages.
    Keeps,
    /// The feed waits for nobody: what isn't copied may be overwritten.
    FeedSkips,
    /// The kernel doesn't show which pages are private, or gives no further mapping.
    Kernel,
}

/// How batches are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner(pub Mode, pub Option<CopiesBecause>);

/// The number that stands for each of them in a page is its place here; the name, and why, are for display.
const MANNERS: [(Manner, &str, Option<&str>); 7] = [
    (Manner(Mode::Cow, None), "cow", None),
    (Manner(Mode::Copy, None), "copy", Some("asked for")),
    (Manner(Mode::ReadOnly, None), "readonly", None),
    (Manner(Mode::Copy, Some(CopiesBecause::Writes)), "copy", Some("it writes in place")),
    (Manner(Mode::Copy, Some(CopiesBecause::Keeps)), "copy", Some("it keeps batches")),
    (Manner(Mode::Copy, Some(CopiesBecause::FeedSkips)), "copy", Some("lag is skip")),
    (Manner(Mode::Copy, Some(CopiesBecause::Kernel)), "copy", Some("the kernel")),
];

impl Manner {
    pub fn number(self) -> u32 {
        MANNERS.iter().position(|(manner, ..)| *manner == self).unwrap_or(MANNERS.len()) as u32
    }

    /// The mode's name, and why it copies, of a number that may be anything.
    pub fn words(number: u32) -> (&'static str, Option<&'static str>) {
        MANNERS.get(number as usize).map_or(("unknown", None), |&(_, mode, why)| (mode, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_each() {
        for (number, &(manner, mode, why)) in MANNERS.iter().enumerate() {
            assert_eq!(manner.number(), number as u32);
            assert_eq!(Manner::words(number as u32), (mode, why));
        }
        assert_eq!(Manner::words(u32::MAX), ("unknown", None));
    }
}
