//! A limit on event streams: in all, and for each client.

use std::sync::{Arc, Mutex};

/// Counts the streams of all clients. `K` identifies a client.
pub struct StreamLimiter<K> {
    limit: usize,
    limit_per_client: usize,
    /// The client of each open stream.
    open: Arc<Mutex<Vec<K>>>,
}

impl<K: Clone + PartialEq> StreamLimiter<K> {
    /// Allows `limit` streams in all and `limit_per_client` for each client.
    pub fn new(limit: usize, limit_per_client: usize) -> Self {
        Self {
            limit,
            limit_per_client,
            open: Arc::default(),
        }
    }

    /// A permit for one stream of `client`, or `None` if a limit is reached.
    pub fn try_acquire(&self, client: &K) -> Option<StreamPermit<K>> {
        let mut open = self.open.lock().expect("no holder of this lock panics");
        let own = open.iter().filter(|other| *other == client).count();
        if open.len() >= self.limit || own >= self.limit_per_client {
            return None;
        }
        open.push(client.clone());
        Some(StreamPermit {
            client: client.clone(),
            open: Arc::clone(&self.open),
        })
    }
}

/// Permits one stream; dropping it makes room for another stream.
pub struct StreamPermit<K: PartialEq> {
    client: K,
    open: Arc<Mutex<Vec<K>>>,
}

impl<K: PartialEq> Drop for StreamPermit<K> {
    fn drop(&mut self) {
        let mut open = self.open.lock().expect("no holder of this lock panics");
        if let Some(at) = open.iter().position(|client| *client == self.client) {
            open.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_open_all_streams_and_a_dropped_permit_can_be_acquired_again() {
        let streams = StreamLimiter::new(5, 3);
        let first: Vec<_> = (0..10).map_while(|_| streams.try_acquire(&1)).collect();
        let second: Vec<_> = (0..10).map_while(|_| streams.try_acquire(&2)).collect();
        assert_eq!((first.len(), second.len()), (3, 2));
        drop(first);
        assert!(streams.try_acquire(&3).is_some() && streams.try_acquire(&2).is_some());
    }
}
