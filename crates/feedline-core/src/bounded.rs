//! Lists from a peer, in which one byte may become a hundred bytes of memory: entries are counted while they are decoded.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// The most entries that a batch's structure, with all the names and dimensions in it, may have.
pub const MAX_ENTRIES: usize = 1 << 18;

/// A list of plain entries.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    nested_list(deserializer, |_| 1)
}

/// A list of entries that hold further entries.
pub(crate) fn nested_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    weight: fn(&T) -> usize,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(List { weight, entry: PhantomData })
}

struct List<T> {
    weight: fn(&T) -> usize,
    entry: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_ENTRIES} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        // The length that the peer states is not trusted: memory is taken as entries come.
        let mut list = Vec::new();
        let mut total = 0;
        while let Some(entry) = entries.next_element()? {
            total += (self.weight)(&entry);
            if total > MAX_ENTRIES {
                return Err(A::Error::invalid_length(total, &self));
            }
            list.push(entry);
        }
        Ok(list)
    }
}
