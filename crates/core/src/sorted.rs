//! A short list in order of its keys. Entries of equal keys keep the order in which they came.
//!
//! Entries come mostly at the end and leave mostly at the front, which moves few others. The list allocates only to grow
//! beyond the most that it ever held, or was reserved.

use alloc::collections::VecDeque;

#[derive(Clone, Debug)]
pub(crate) struct Sorted<K>(VecDeque<(K, u32)>);

impl<K: Copy + Ord> Sorted<K> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Makes room for `entries` in all.
    pub(crate) fn expect(&mut self, entries: usize) {
        self.0.reserve_exact(entries.saturating_sub(self.0.len()));
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: K, item: u32) {
        let place = self.0.partition_point(|(other, _)| *other <= key);
        self.0.insert(place, (key, item));
    }

    /// Takes out `item`, which was inserted with `key`.
    #[inline]
    pub(crate) fn remove(&mut self, key: K, item: u32) {
        let first = self.0.partition_point(|(other, _)| *other < key);
        let place = self.0.range(first..).position(|(_, other)| *other == item);
        debug_assert!(place.is_some(), "it was never inserted");
        if let Some(place) = place {
            self.0.remove(first + place);
        }
    }

    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.0.front().copied()
    }

    pub(crate) fn last(&self) -> Option<(K, u32)> {
        self.0.back().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, u32)> {
        self.0.iter().copied()
    }
}
