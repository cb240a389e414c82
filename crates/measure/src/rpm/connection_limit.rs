//! Connection limits of the HTTPS server: in total, per address, and eviction of the connection that has been idle for longest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Largest number of simultaneous connections, in total and from one address. A client opens 16 for load. It also opens up to 100 a
/// second for probes, each of which takes several round trips, and those are long on a slow line.
const MAX_CONNECTIONS: usize = 512;
const MAX_PER_ADDRESS: usize = 256;
/// Largest number of idle connections from one address. Some clients never close the connections of their probes.
const MAX_IDLE: usize = 32;

/// The connections that are open.
#[derive(Clone, Default)]
pub(super) struct ConnectionTable(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    connections: BTreeMap<u64, Entry>,
    /// The last number that was given to a connection or to a moment. No number is used twice.
    last: u64,
}

struct Entry {
    client: IpAddr,
    /// Requests in progress.
    requests: usize,
    /// When the last request ended, as a number that grows with time. `None` during a request, before the handshake is done, and after
    /// the connection has been told to end.
    idle_since: Option<u64>,
    evict: Arc<Notify>,
}

/// A connection's entry in the table. Dropping it removes the entry.
pub(super) struct ConnectionGuard {
    number: u64,
    table: ConnectionTable,
    evict: Arc<Notify>,
}

/// A request in progress, from its head to the end of the response body. Dropping it ends the request.
pub(super) struct RequestGuard {
    number: u64,
    table: ConnectionTable,
}

impl ConnectionTable {
    /// Adds a connection. `None` if a limit is reached.
    pub(super) fn admit(&self, client: IpAddr) -> Option<ConnectionGuard> {
        let mut inner = self.lock();
        let theirs = inner.connections.values().filter(|e| e.client == client).count();
        if inner.connections.len() >= MAX_CONNECTIONS || theirs >= MAX_PER_ADDRESS {
            return None;
        }
        let evict = Arc::new(Notify::new());
        let entry = Entry {
            client,
            requests: 0,
            idle_since: None,
            evict: evict.clone(),
        };
        let number = inner.number();
        inner.connections.insert(number, entry);
        drop(inner);
        Some(ConnectionGuard {
            number,
            table: self.clone(),
            evict,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionGuard {
    /// The TLS handshake is done. From now on the connection is idle while it has no request.
    pub(super) fn handshake_done(&self) {
        self.table.lock().mark_idle(self.number);
    }

    /// Begins a request.
    pub(super) fn request(&self) -> RequestGuard {
        if let Some(entry) = self.table.lock().connections.get_mut(&self.number) {
            entry.requests += 1;
            entry.idle_since = None;
        }
        RequestGuard {
            number: self.number,
            table: self.table.clone(),
        }
    }

    /// Returns when the connection should end, because too many connections of its address are idle and it has been for longest.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.table.lock().connections.remove(&self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut inner = self.table.lock();
        // The request may outlive its connection.
        if let Some(entry) = inner.connections.get_mut(&self.number) {
            entry.requests -= 1;
            if entry.requests == 0 {
                inner.mark_idle(self.number);
            }
        }
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Marks a connection as idle. If too many of its address are idle, tells the one that has been idle for longest to end.
    fn mark_idle(&mut self, number: u64) {
        let now = self.number();
        let Some(entry) = self.connections.get_mut(&number) else {
            return;
        };
        entry.idle_since = Some(now);
        let client = entry.client;
        let idle = |e: &&mut Entry| e.client == client && e.idle_since.is_some();
        if self.connections.values_mut().filter(idle).count() > MAX_IDLE
            && let Some(longest) = self
                .connections
                .values_mut()
                .filter(idle)
                .min_by_key(|e| e.idle_since)
        {
            // It is about to end, and no longer counts as idle.
            longest.idle_since = None;
            longest.evict.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

    fn admit(table: &ConnectionTable, client: IpAddr) -> ConnectionGuard {
        let connection = table.admit(client).expect("there is room");
        connection.handshake_done();
        connection
    }

    fn is_evicted(connection: &ConnectionGuard) -> bool {
        pin!(connection.evicted())
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn the_longest_idle_connection_is_evicted_and_a_busy_one_stays() {
        let table = ConnectionTable::default();
        let other = admit(&table, THERE);
        let busy = admit(&table, HERE);
        let request = busy.request();
        let used_again = admit(&table, HERE);
        let first = admit(&table, HERE);
        drop(used_again.request());
        let rest: Vec<_> = (2..MAX_IDLE).map(|_| admit(&table, HERE)).collect();
        assert!(!is_evicted(&first));
        let last = admit(&table, HERE);
        assert!(is_evicted(&first));
        // After its request, the busy connection is idle, and one idle connection is too many. The first no longer counts.
        drop(request);
        assert!(is_evicted(&used_again));
        for connection in rest.iter().chain([&other, &busy, &first, &last]) {
            assert!(!is_evicted(connection));
        }
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let table = ConnectionTable::default();
        let mut here: Vec<_> = (0..MAX_PER_ADDRESS).map(|_| admit(&table, HERE)).collect();
        assert!(table.admit(HERE).is_none());
        assert!(table.admit(THERE).is_some());
        here.pop();
        assert!(table.admit(HERE).is_some());
    }

    #[test]
    fn a_request_may_outlive_its_connection() {
        let table = ConnectionTable::default();
        let gone = admit(&table, HERE);
        let request = gone.request();
        drop(gone);
        let next = admit(&table, HERE);
        drop(request);
        drop(next.request());
        assert!(table.lock().connections.values().all(|e| e.idle_since.is_some()));
    }
}
