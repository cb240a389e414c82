//! Classes that take turns: in order of their numbers, with a pointer to the one whose turn it is.

use alloc::collections::VecDeque;

/// No class.
pub(super) const NONE: u32 = u32::MAX;

/// The active classes of one priority at one place of the hierarchy.
///
/// The pointer may stand past the end, and then the next look starts from the first. What a removal does to a pointer on
/// the removed class differs, and the order of service with it: in a *row* (classes within their own rates) the
/// pointer goes on to the next; in a *feed* (children that borrow) it is taken off, and the place remembered.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    members: VecDeque<u32>,
    pointer: u32,
    remembered: u32,
}

impl Ring {
    pub(super) const fn new() -> Self {
        Self {
            members: VecDeque::new(),
            pointer: NONE,
            remembered: NONE,
        }
    }

    /// Makes room for `classes` in all.
    pub(super) fn expect(&mut self, classes: usize) {
        self.members
            .reserve_exact(classes.saturating_sub(self.members.len()));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    #[inline]
    pub(super) fn insert(&mut self, class: u32) {
        if let Err(place) = self.members.binary_search(&class) {
            self.members.insert(place, class);
        }
    }

    #[inline]
    pub(super) fn remove_from_row(&mut self, class: u32) {
        if self.pointer == class {
            self.advance();
        }
        self.remove(class);
    }

    #[inline]
    pub(super) fn remove_from_feed(&mut self, class: u32) {
        if self.pointer == class {
            self.pointer = NONE;
            self.remembered = class;
        }
        self.remove(class);
    }

    /// The class to serve next; `NONE` if the pointer stands past the end.
    #[inline]
    pub(super) fn current(&mut self) -> u32 {
        if self.pointer == NONE && self.remembered != NONE {
            self.pointer = self.at_or_after(self.remembered);
        }
        self.remembered = NONE;
        self.pointer
    }

    /// Back to the first.
    #[inline]
    pub(super) fn rewind(&mut self) {
        self.pointer = self.members.front().copied().unwrap_or(NONE);
    }

    /// On to the next, or past the end.
    #[inline]
    pub(super) fn advance(&mut self) {
        if self.pointer != NONE {
            self.pointer = self.at_or_after(self.pointer + 1);
        }
    }

    #[inline]
    fn at_or_after(&self, class: u32) -> u32 {
        let place = self.members.partition_point(|member| *member < class);
        self.members.get(place).copied().unwrap_or(NONE)
    }

    #[inline]
    fn remove(&mut self, class: u32) {
        if let Ok(place) = self.members.binary_search(&class) {
            self.members.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(pointer: u32) -> Ring {
        let mut ring = Ring::new();
        for class in [5, 1, 3] {
            ring.insert(class);
        }
        ring.pointer = pointer;
        ring
    }

    #[test]
    fn turns_go_by_number_until_the_end() {
        let mut ring = ring(1);
        let mut turns = alloc::vec![];
        for _ in 0..4 {
            turns.push(ring.current());
            ring.advance();
        }
        assert_eq!(turns, [1, 3, 5, NONE]);
        ring.rewind();
        assert_eq!(ring.current(), 1);
    }

    #[test]
    fn a_row_continues_with_the_next_class_and_a_feed_remembers_the_removed_one() {
        let mut row = ring(3);
        row.remove_from_row(3);
        row.insert(4);
        assert_eq!(row.current(), 5);

        let mut feed = ring(3);
        feed.remove_from_feed(3);
        feed.insert(4);
        assert_eq!(feed.current(), 4);

        let mut feed = ring(5);
        feed.remove_from_feed(5);
        assert_eq!(feed.current(), NONE);
        feed.insert(5);
        assert_eq!(feed.current(), NONE, "it looks back once only");
    }
}
