//! Many packet queues in one store: a queue is two indices, and memory follows the packets that wait, not the queues.

use crate::narrow::fits_u32;
use alloc::vec::Vec;

/// Where no entry is.
const NONE: u32 = u32::MAX;

/// Entries of all queues. Grows to the largest number that ever waited, then allocates no more.
#[derive(Clone, Debug)]
pub(crate) struct Store<T> {
    slots: Vec<Slot<T>>,
    free: u32,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    next: u32,
    entry: Option<T>,
}

/// One queue: its first and last entry in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }
}

impl<T> Store<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
        }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut List, entry: T) {
        let index = self.take_slot(entry);
        if list.is_empty() {
            list.head = index;
        } else {
            self.slots[list.tail as usize].next = index;
        }
        list.tail = index;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<T> {
        let slot = self.slots.get_mut(list.head as usize)?;
        let index = list.head;
        list.head = slot.next;
        slot.next = self.free;
        self.free = index;
        slot.entry.take()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
    }

    /// The entries from head to tail, each with what [`remove_at`](Self::remove_at) needs to remove it.
    pub(crate) fn iter(&self, list: List) -> impl Iterator<Item = (Cursor, &T)> {
        let mut before = NONE;
        let mut index = list.head;
        core::iter::from_fn(move || {
            let slot = self.slots.get(index as usize)?;
            let cursor = Cursor { before };
            before = index;
            index = slot.next;
            Some((cursor, slot.entry.as_ref()?))
        })
    }

    /// Removes the entry behind `cursor`, which must come from an [`iter`](Self::iter) of this list as it is now.
    pub(crate) fn remove_at(&mut self, list: &mut List, cursor: Cursor) -> Option<T> {
        if cursor.before == NONE {
            return self.pop_front(list);
        }
        let index = self.slots[cursor.before as usize].next;
        let slot = self.slots.get_mut(index as usize)?;
        let next = core::mem::replace(&mut slot.next, self.free);
        let entry = slot.entry.take();
        self.free = index;
        self.slots[cursor.before as usize].next = next;
        if next == NONE {
            list.tail = cursor.before;
        }
        entry
    }

    #[inline]
    fn take_slot(&mut self, entry: T) -> u32 {
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let index = self.free;
            self.free = core::mem::replace(&mut slot.next, NONE);
            // A free slot is empty, so that there is nothing to drop.
            core::mem::forget(slot.entry.replace(entry));
            return index;
        }
        self.slots.push(Slot {
            next: NONE,
            entry: Some(entry),
        });
        fits_u32(self.slots.len() as u64 - 1)
    }
}

/// A place in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    before: u32,
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_in_one_store_are_like_separate_queues(steps in prop::collection::vec((0..3usize, 0..4u8), 0..200)) {
            let mut store = Store::new();
            let mut lists = [List::EMPTY; 3];
            let mut model: [VecDeque<usize>; 3] = Default::default();
            for (number, (which, action)) in steps.into_iter().enumerate() {
                match action {
                    0 | 1 => {
                        store.push_back(&mut lists[which], number);
                        model[which].push_back(number);
                    }
                    2 => prop_assert_eq!(store.pop_front(&mut lists[which]), model[which].pop_front()),
                    _ => {
                        let middle = model[which].len() / 2;
                        let cursor = store.iter(lists[which]).nth(middle).map(|(cursor, _)| cursor);
                        if let Some(cursor) = cursor {
                            prop_assert_eq!(store.remove_at(&mut lists[which], cursor), model[which].remove(middle));
                        }
                    }
                }
                prop_assert!(store.iter(lists[which]).map(|(_, entry)| entry).eq(model[which].iter()));
                prop_assert_eq!(lists[which].is_empty(), model[which].is_empty());
            }
        }
    }
}
