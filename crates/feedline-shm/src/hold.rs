//! What keeps samples in place while they are copied out of a ring.

use crate::{HeadReader, LeaseTable, RingWriter};

/// Why the server doesn't overwrite samples while somebody copies them, or how to find out that it did.
///
/// A caller that copies from a ring says which of these it is, and gets nothing if it turns out not to hold.
#[derive(Clone, Copy)]
pub enum Hold<'a> {
    /// The cursor of this table, or one of its leases, is at or before them. The table's count is ahead of the ring's by
    /// `lead`.
    Cursor {
        /// Whose cursor.
        table: &'a LeaseTable,
        /// Samples that the table counts and the ring doesn't.
        lead: u64,
    },
    /// Nothing does: the head page tells, afterwards, what may have been overwritten meanwhile.
    Nobody(&'a HeadReader),
    /// The only writer is borrowed for that time. A ring that can be claimed ([`Claimable`](crate::Claimable)) never
    /// is.
    Writer(&'a RingWriter),
}

impl Hold<'_> {
    /// Whether everything from sample `first` on was in place until now. To be asked after the copy: neither a cursor nor
    /// the oldest intact sample goes back.
    pub(crate) fn was_in_place(self, first: u64) -> bool {
        match self {
            Self::Cursor { table, lead } => table.needs(first.saturating_add(lead)),
            Self::Nobody(head) => head.oldest() <= first,
            Self::Writer(_) => true,
        }
    }
}
