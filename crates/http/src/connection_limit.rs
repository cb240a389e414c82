//! Limits on connections, requests and event streams: in all and for each client. A new connection evicts an idle one.
//!
//! A new connection is admitted if another one can be evicted for it: the connection that has been idle longest, of the
//! client that holds most. A connection is idle unless the server works on one of its requests or sends a stream over it. A
//! connection that waits for its client (for a request, for a request's body, or until the client has read a response) is
//! idle. The numbers of requests that the server works on and of streams are limited as well, so that there are always idle
//! connections.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Limits in all and for each client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Open connections of one client.
    pub connections_per_client: usize,
    /// Requests that the server works on at once; other requests wait.
    pub requests: usize,
    /// Requests of one client that the server works on at once.
    pub requests_per_client: usize,
    /// Event streams; a request for another one is refused.
    pub streams: usize,
    /// Event streams of one client.
    pub streams_per_client: usize,
}

impl Limits {
    /// `true` if some connections are always idle, in all and of each client: they are more than requests and streams together.
    pub const fn leave_some_idle(self) -> bool {
        self.requests + self.streams < self.connections
            && self.requests_per_client + self.streams_per_client < self.connections_per_client
    }
}

/// All open connections. `K` identifies a client.
pub struct ConnectionTable<K> {
    limits: Limits,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    entries: Mutex<Vec<Entry<K>>>,
}

struct Entry<K> {
    client: Arc<Client<K>>,
    activity: Arc<Activity>,
    evicted: Arc<Notify>,
}

/// A client with at least one open connection.
struct Client<K> {
    key: K,
    connections: AtomicUsize,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// The requests and streams of one connection.
struct Activity {
    /// Requests that the server works on, plus streams.
    active: AtomicUsize,
    /// When the connection was accepted, or when its last request or stream ended.
    idle_since: Mutex<Instant>,
}

impl<K: PartialEq> ConnectionTable<K> {
    /// An empty table.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            requests: Arc::new(Semaphore::new(limits.requests)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            entries: Mutex::default(),
        })
    }

    /// Admits a connection of the client `key`. The caller must close it when `evicted` is notified.
    ///
    /// If a limit is reached, another connection is evicted: one of the same client if that client has reached its own
    /// limit. Returns `None` if every connection that might be evicted is active.
    pub fn admit(self: &Arc<Self>, key: K, evicted: &Arc<Notify>) -> Option<ConnectionSlot<K>> {
        let mut entries = self.lock();
        let client = entries
            .iter()
            .map(|entry| &entry.client)
            .find(|client| client.key == key);
        let client = client.map_or_else(|| Arc::new(Client::new(key, self.limits)), Arc::clone);
        let is_full = entries.len() >= self.limits.connections;
        let is_client_full = client.connections() >= self.limits.connections_per_client;
        if is_full || is_client_full {
            evict_idle(&mut entries, |entry| {
                !is_client_full || Arc::ptr_eq(&entry.client, &client)
            })?;
        }
        client.connections.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            active: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        });
        entries.push(Entry {
            client: Arc::clone(&client),
            activity: Arc::clone(&activity),
            evicted: Arc::clone(evicted),
        });
        drop(entries);
        Some(ConnectionSlot {
            table: Arc::clone(self),
            client,
            activity,
            has_evicted: is_full || is_client_full,
        })
    }

    /// Evicts an idle connection, if there is one. For a process that has run out of file descriptors.
    pub fn evict_idle(&self) {
        // If no connection is idle, none can be evicted.
        let _ = evict_idle(&mut self.lock(), |_| true);
    }
}

impl<K> ConnectionTable<K> {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry<K>>> {
        self.entries.lock().expect("no holder of this lock panics")
    }
}

/// Evicts one idle connection that `is_candidate` accepts: the one that has been idle longest, of the client that holds most. `None` if there is no such connection.
fn evict_idle<K>(entries: &mut Vec<Entry<K>>, is_candidate: impl Fn(&Entry<K>) -> bool) -> Option<()> {
    let idle = (0..entries.len()).filter(|at| is_candidate(&entries[*at]) && entries[*at].activity.is_idle());
    let chosen = idle.max_by_key(|at| {
        let entry = &entries[*at];
        (entry.client.connections(), Reverse(entry.activity.idle_since()))
    })?;
    let entry = entries.swap_remove(chosen);
    entry.client.connections.fetch_sub(1, Ordering::Relaxed);
    entry.evicted.notify_one();
    Some(())
}

impl<K> Client<K> {
    fn new(key: K, limits: Limits) -> Self {
        Self {
            key,
            connections: AtomicUsize::new(0),
            requests: Arc::new(Semaphore::new(limits.requests_per_client)),
            streams: Arc::new(Semaphore::new(limits.streams_per_client)),
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Activity {
    fn is_idle(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0
    }

    fn idle_since(&self) -> Instant {
        *self.idle_since.lock().expect("no holder of this lock panics")
    }
}

/// The entry of one connection. Dropping it removes the connection from the table.
pub struct ConnectionSlot<K> {
    table: Arc<ConnectionTable<K>>,
    client: Arc<Client<K>>,
    activity: Arc<Activity>,
    has_evicted: bool,
}

impl<K> ConnectionSlot<K> {
    /// `true` if another connection was evicted to admit this one.
    pub fn has_evicted(&self) -> bool {
        self.has_evicted
    }

    /// The client of the connection.
    pub fn client(&self) -> &K {
        &self.client.key
    }

    /// Waits until the server may work on a request of this client. The connection is idle while it waits, and active as
    /// long as the permit lives.
    pub async fn request_permit(&self) -> Permit {
        let (per_client, in_all) = (
            Arc::clone(&self.client.requests),
            Arc::clone(&self.table.requests),
        );
        let activity = Arc::clone(&self.activity);
        // Let requests of other connections go first, no matter how fast requests arrive on this connection.
        tokio::task::yield_now().await;
        let permits = [acquire(per_client).await, acquire(in_all).await];
        Permit {
            _permits: permits,
            _active: ActivityGuard::begin(activity),
        }
    }

    /// Permits an event stream over this connection, which is active as long as the permit lives. `None` if a limit is reached.
    pub fn stream_permit(&self) -> Option<Permit> {
        let per_client = Arc::clone(&self.client.streams).try_acquire_owned().ok()?;
        let in_all = Arc::clone(&self.table.streams).try_acquire_owned().ok()?;
        Some(Permit {
            _permits: [per_client, in_all],
            _active: ActivityGuard::begin(Arc::clone(&self.activity)),
        })
    }
}

impl<K> Drop for ConnectionSlot<K> {
    fn drop(&mut self) {
        let mut entries = self.table.lock();
        let at = entries
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.activity, &self.activity));
        // An evicted connection is no longer in the table.
        if let Some(at) = at {
            entries.swap_remove(at);
            self.client.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

async fn acquire(permits: Arc<Semaphore>) -> OwnedSemaphorePermit {
    permits
        .acquire_owned()
        .await
        .expect("this module never closes a semaphore")
}

/// Permits one request or one stream.
pub struct Permit {
    _permits: [OwnedSemaphorePermit; 2],
    _active: ActivityGuard,
}

/// Keeps a connection active until it is dropped.
struct ActivityGuard(Arc<Activity>);

impl ActivityGuard {
    fn begin(activity: Arc<Activity>) -> Self {
        activity.active.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        *self.0.idle_since.lock().expect("no holder of this lock panics") = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 6,
        connections_per_client: 4,
        requests: 3,
        requests_per_client: 1,
        streams: 5,
        streams_per_client: 4,
    };

    struct Connection {
        slot: ConnectionSlot<u32>,
        evicted: Arc<Notify>,
    }

    fn connect(table: &Arc<ConnectionTable<u32>>, client: u32) -> Connection {
        let evicted = Arc::default();
        Connection {
            slot: table.admit(client, &evicted).expect("there is room"),
            evicted,
        }
    }

    /// The indices of the connections that were evicted.
    fn evicted(connections: &[Connection]) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_evicted = |connection: &Connection| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = connection.evicted.notified() => true,
                    () = std::future::ready(()) => false,
                }
            })
        };
        (0..connections.len())
            .filter(|at| is_evicted(&connections[*at]))
            .collect()
    }

    #[test]
    fn the_longest_idle_connection_of_the_client_with_most_is_evicted() {
        let table = ConnectionTable::new(LIMITS);
        let mut all: Vec<Connection> = [1, 2, 2, 2, 3, 1].map(|client| connect(&table, client)).into();
        all.push(connect(&table, 4));
        assert_eq!(evicted(&all), [1], "the oldest connection of client 2");
        // Clients 1 and 2 hold two connections each, and the first of client 1 is the oldest; then client 2 holds most.
        all.push(connect(&table, 4));
        assert_eq!(evicted(&all), [0]);
        let active = all[2].slot.stream_permit();
        all.push(connect(&table, 4));
        assert_eq!(evicted(&all), [3], "an active connection is not evicted");
        drop(active);
        assert_eq!(table.lock().len(), LIMITS.connections);
    }

    #[test]
    fn one_client_holds_no_more_than_its_limit_and_evicts_no_other_client() {
        let table = ConnectionTable::new(LIMITS);
        let first = connect(&table, 1);
        let flood: Vec<Connection> = (0..1000).map(|_| connect(&table, 2)).collect();
        assert_eq!(evicted(&flood).len(), 1000 - LIMITS.connections_per_client);
        assert!(evicted(&[first]).is_empty());
        drop(flood);
        assert!(table.lock().is_empty());
    }

    #[test]
    fn a_new_connection_is_refused_if_none_is_idle() {
        let table = ConnectionTable::new(LIMITS);
        let all: Vec<Connection> = (0..4).map(|_| connect(&table, 1)).collect();
        let active: Vec<Permit> = all.iter().filter_map(|one| one.slot.stream_permit()).collect();
        assert_eq!(active.len(), 4);
        assert!(table.admit(1, &Arc::default()).is_none());
        assert!(table.admit(2, &Arc::default()).is_some());
        drop(active);
        assert!(table.admit(1, &Arc::default()).is_some());
    }

    #[test]
    fn one_client_cannot_open_all_streams_and_a_stream_that_ends_makes_room() {
        let table = ConnectionTable::new(LIMITS);
        let (first, second, third) = (connect(&table, 1), connect(&table, 2), connect(&table, 3));
        let streams = |connection: &Connection| -> Vec<Permit> {
            (0..10).map_while(|_| connection.slot.stream_permit()).collect()
        };
        let own = streams(&first);
        assert_eq!((own.len(), streams(&second).len()), (4, 1));
        let others = streams(&second);
        assert!(third.slot.stream_permit().is_none());
        drop(own);
        assert!(third.slot.stream_permit().is_some() && first.slot.stream_permit().is_some());
        drop(others);
    }

    #[test]
    fn requests_of_one_client_wait_for_a_permit_on_an_idle_connection() {
        let table = ConnectionTable::new(LIMITS);
        let (first, second, other) = (connect(&table, 1), connect(&table, 1), connect(&table, 2));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let permit = first.slot.request_permit().await;
            assert!(!first.slot.activity.is_idle());
            let waiting = second.slot.request_permit();
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("client 1 has two permits at once"),
                _ = other.slot.request_permit() => {}
            }
            assert!(second.slot.activity.is_idle());
            drop(permit);
            let _permit = waiting.await;
            assert!(first.slot.activity.is_idle() && !second.slot.activity.is_idle());
        });
    }
}
