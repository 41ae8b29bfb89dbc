//! Arithmetic of leases: which samples one consumer still needs. Pure numbers, no memory.
//!
//! ```text
//! cut ──▶ live ──last drop──▶ released
//!           └──kept too long──▶ released (its pages were made private first)
//! ```

use std::collections::VecDeque;

/// The live leases of one consumer, in the order in which they were cut.
///
/// `T` is what must stay reachable while a lease lives (the mapping, when there is one).
#[derive(Debug)]
pub struct Leases<T> {
    entries: VecDeque<Option<Entry<T>>>,
    first_id: u64,
    live: usize,
}

#[derive(Debug)]
struct Entry<T> {
    first: u64,
    keeps: T,
}

impl<T> Default for Leases<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), first_id: 0, live: 0 }
    }
}

impl<T> Leases<T> {
    /// Gives no id again that older leases had.
    pub fn continue_after(&mut self, older: &Self) {
        debug_assert!(self.entries.is_empty());
        self.first_id = older.first_id + older.entries.len() as u64;
    }

    /// Records a lease from sample `first` on; samples of successive leases never go back.
    pub fn cut(&mut self, first: u64, keeps: T) -> u64 {
        debug_assert!(self.oldest().is_none_or(|(_, oldest, _)| oldest <= first));
        self.entries.push_back(Some(Entry { first, keeps }));
        self.live += 1;
        self.first_id + self.entries.len() as u64 - 1
    }

    /// Ends a lease; ending one twice does nothing.
    pub fn release(&mut self, id: u64) -> Option<T> {
        let index = id.checked_sub(self.first_id)?;
        let entry = self.entries.get_mut(usize::try_from(index).ok()?)?.take()?;
        self.live -= 1;
        while matches!(self.entries.front(), Some(None)) {
            self.entries.pop_front();
            self.first_id += 1;
        }
        Some(entry.keeps)
    }

    /// The oldest live lease: its id, its first sample and what it keeps.
    pub fn oldest(&self) -> Option<(u64, u64, &T)> {
        let entry = self.entries.front()?.as_ref()?;
        Some((self.first_id, entry.first, &entry.keeps))
    }

    /// Everything before this sample may be overwritten as far as this consumer is concerned.
    pub fn floor(&self, cursor: u64) -> u64 {
        self.oldest().map_or(cursor, |(_, first, _)| first.min(cursor))
    }

    /// How many leases live.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// What the live leases keep, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten().map(|entry| &entry.keeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_live_leases_keep_is_told_oldest_first() {
        let mut leases = Leases::default();
        assert!(leases.is_empty());
        let ids: Vec<_> =
            [(0, "a"), (4, "b"), (8, "c")].iter().map(|&(first, keeps)| leases.cut(first, keeps)).collect();
        assert_eq!(leases.release(ids[1]), Some("b"));
        assert_eq!((leases.iter().copied().collect::<Vec<_>>(), leases.is_empty()), (vec!["a", "c"], false));
        assert_eq!(leases.oldest(), Some((ids[0], 0, &"a")));
        let mut next = Leases::default();
        next.continue_after(&leases);
        assert!(next.cut(8, "d") > ids[2], "no id comes again");
    }

    proptest! {
        /// The floor is the smallest first sample of any lease that is still live, whatever the order of drops.
        #[test]
        fn floor_is_the_oldest_live_lease(
            sizes in prop::collection::vec(1_u64..50, 1..40),
            drops in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
        ) {
            let mut leases = Leases::default();
            let mut model = Vec::new();
            let mut cursor = 0;
            for size in sizes {
                model.push((leases.cut(cursor, ()), cursor));
                cursor += size;
            }
            for index in drops {
                let (id, first) = model[index.index(model.len())];
                let was_live = first != u64::MAX;
                prop_assert_eq!(leases.release(id).is_some(), was_live);
                for entry in &mut model {
                    if entry.0 == id {
                        entry.1 = u64::MAX;
                    }
                }
                let expected = model.iter().map(|entry| entry.1).min().unwrap().min(cursor);
                prop_assert_eq!(leases.floor(cursor), expected);
                prop_assert_eq!(leases.len(), model.iter().filter(|entry| entry.1 != u64::MAX).count());
            }
        }
    }
}
