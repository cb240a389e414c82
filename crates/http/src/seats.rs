//! Limits on event streams: how many there may be in all, and how many of one client.

use std::sync::{Arc, Mutex};

/// Counts the streams of all clients. `K` tells clients apart.
pub struct Seats<K> {
    most: usize,
    most_each: usize,
    taken: Arc<Mutex<Vec<K>>>,
}

impl<K: Clone + PartialEq> Seats<K> {
    /// At most `most` streams in all and `most_each` of one client.
    pub fn new(most: usize, most_each: usize) -> Self {
        Self {
            most,
            most_each,
            taken: Arc::default(),
        }
    }

    /// A seat; `None` if there is none left, or none for `who`.
    pub fn take(&self, who: &K) -> Option<Seat<K>> {
        let mut taken = self.taken.lock().expect("no holder of this lock panics");
        let own = taken.iter().filter(|other| *other == who).count();
        if taken.len() >= self.most || own >= self.most_each {
            return None;
        }
        taken.push(who.clone());
        Some(Seat {
            who: who.clone(),
            taken: Arc::clone(&self.taken),
        })
    }
}

/// Free again when this is dropped.
pub struct Seat<K: PartialEq> {
    who: K,
    taken: Arc<Mutex<Vec<K>>>,
}

impl<K: PartialEq> Drop for Seat<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().expect("no holder of this lock panics");
        if let Some(at) = taken.iter().position(|who| *who == self.who) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_and_a_seat_that_is_left_is_free() {
        let seats = Seats::new(5, 3);
        let first: Vec<_> = (0..10).map_while(|_| seats.take(&1)).collect();
        let second: Vec<_> = (0..10).map_while(|_| seats.take(&2)).collect();
        assert_eq!((first.len(), second.len()), (3, 2));
        drop(first);
        assert!(seats.take(&3).is_some() && seats.take(&2).is_some());
    }
}
