//! The HTTPS connections: how many there may be, and which are shown out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections at the same time, all together and from one address. A client makes 16 for load, and up to 100 each second
/// for probes, which on a slow line take several long round trips each.
const MAX_CONNECTIONS: usize = 512;
const MAX_PER_ADDRESS: usize = 256;
/// Connections of one address without a request. Some clients never close those of their probes.
const MAX_IDLE: usize = 32;

/// Everybody who is here.
#[derive(Clone, Default)]
pub(super) struct ConnectionTable(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    guests: BTreeMap<u64, Entry>,
    /// The next number for a guest or for a moment; none is used twice.
    next: u64,
}

struct Entry {
    client: IpAddr,
    requests: usize,
    /// The moment since when there has been no request; none before the handshake is done and on the way out.
    idle_since: Option<u64>,
    leave: Arc<Notify>,
}

/// A connection's place; free when dropped.
pub(super) struct ConnectionGuard {
    number: u64,
    guests: ConnectionTable,
    leave: Arc<Notify>,
}

/// A request of a connection, from its head to the end of the answer's body; over when dropped.
pub(super) struct RequestGuard {
    number: u64,
    guests: ConnectionTable,
}

impl ConnectionTable {
    /// None when there is no room.
    pub(super) fn enter(&self, client: IpAddr) -> Option<ConnectionGuard> {
        let mut book = self.book();
        let theirs = book.guests.values().filter(|e| e.client == client).count();
        if book.guests.len() >= MAX_CONNECTIONS || theirs >= MAX_PER_ADDRESS {
            return None;
        }
        let leave = Arc::new(Notify::new());
        let entry = Entry {
            client,
            requests: 0,
            idle_since: None,
            leave: leave.clone(),
        };
        let number = book.number();
        book.guests.insert(number, entry);
        drop(book);
        Some(ConnectionGuard {
            number,
            guests: self.clone(),
            leave,
        })
    }

    fn book(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionGuard {
    /// The handshake is done: from now on it is idle while it has no request.
    pub(super) fn handshake_done(&self) {
        self.guests.book().rests(self.number);
    }

    pub(super) fn request(&self) -> RequestGuard {
        if let Some(entry) = self.guests.book().guests.get_mut(&self.number) {
            entry.requests += 1;
            entry.idle_since = None;
        }
        RequestGuard {
            number: self.number,
            guests: self.guests.clone(),
        }
    }

    /// Returns when the connection should end: it idles, and so do too many younger ones of its address.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.guests.book().guests.remove(&self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut book = self.guests.book();
        // It may outlive its connection.
        if let Some(entry) = book.guests.get_mut(&self.number) {
            entry.requests -= 1;
            if entry.requests == 0 {
                book.rests(self.number);
            }
        }
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A guest becomes idle; when there are too many of its address, the one that has been so for longest leaves.
    fn rests(&mut self, number: u64) {
        let now = self.number();
        let Some(entry) = self.guests.get_mut(&number) else {
            return;
        };
        entry.idle_since = Some(now);
        let client = entry.client;
        let idle = |e: &&mut Entry| e.client == client && e.idle_since.is_some();
        if self.guests.values_mut().filter(idle).count() > MAX_IDLE
            && let Some(longest) = self.guests.values_mut().filter(idle).min_by_key(|e| e.idle_since)
        {
            // It is on its way: the next one too many is another.
            longest.idle_since = None;
            longest.leave.notify_one();
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

    fn enter(guests: &ConnectionTable, client: IpAddr) -> ConnectionGuard {
        let guest = guests.enter(client).expect("there is room");
        guest.handshake_done();
        guest
    }

    fn must_leave(guest: &ConnectionGuard) -> bool {
        pin!(guest.evicted())
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn who_idles_longest_leaves_and_who_is_busy_stays() {
        let guests = ConnectionTable::default();
        let other = enter(&guests, THERE);
        let busy = enter(&guests, HERE);
        let request = busy.request();
        let used_again = enter(&guests, HERE);
        let first = enter(&guests, HERE);
        drop(used_again.request());
        let rest: Vec<_> = (2..MAX_IDLE).map(|_| enter(&guests, HERE)).collect();
        assert!(!must_leave(&first));
        let last = enter(&guests, HERE);
        assert!(must_leave(&first));
        // Its request over, the busy one is an idle one too many, whether or not the first is gone by now.
        drop(request);
        assert!(must_leave(&used_again));
        for guest in rest.iter().chain([&other, &busy, &first, &last]) {
            assert!(!must_leave(guest));
        }
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let guests = ConnectionTable::default();
        let mut here: Vec<_> = (0..MAX_PER_ADDRESS).map(|_| enter(&guests, HERE)).collect();
        assert!(guests.enter(HERE).is_none());
        assert!(guests.enter(THERE).is_some());
        here.pop();
        assert!(guests.enter(HERE).is_some());
    }

    #[test]
    fn a_request_may_outlive_its_connection() {
        let guests = ConnectionTable::default();
        let gone = enter(&guests, HERE);
        let request = gone.request();
        drop(gone);
        let next = enter(&guests, HERE);
        drop(request);
        drop(next.request());
        assert!(guests.book().guests.values().all(|e| e.idle_since.is_some()));
    }
}
