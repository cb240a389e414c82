//! The limits of connections, concurrent requests and streams.
//!
//! Users who are logged in have limits of their own, so that no other client can lock them out. All other clients are counted by network.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::network::Network;
use super::problem::Problem;
use sqm_http::{ConnectionSlot, ConnectionTable, Limits, Permit, ResponseBody};

/// Connections without a request so far, and TLS handshakes. The limit is high, because they cost little: an attacker who fills it must
/// open as many again to evict a new connection of another user in the same network, which `server` prevents within a second.
const ARRIVALS: Limits = Limits {
    connections: 1024,
    connections_per_client: 768,
    requests: 0,
    requests_per_client: 0,
    streams: 0,
    streams_per_client: 0,
};
/// Connections with a request, of users who are not logged in. An open page has two streams, and a third during a test.
const READERS: Limits = Limits {
    connections: 192,
    connections_per_client: 64,
    requests: 24,
    requests_per_client: 8,
    streams: 24,
    streams_per_client: 12,
};
/// Connections of users who are logged in. The daemon allows more streams than this server opens for all users together.
const ADMINS: Limits = Limits {
    connections: 64,
    connections_per_client: 32,
    requests: 24,
    requests_per_client: 12,
    streams: 24,
    streams_per_client: 12,
};
const _: () = assert!(MOST_EVICTIONS < ARRIVALS.connections_per_client);
const _: () = assert!(ARRIVALS.leave_some_idle() && READERS.leave_some_idle() && ADMINS.leave_some_idle());
/// The largest number of connections.
pub(super) const MOST_CONNECTIONS: usize = ARRIVALS.connections + READERS.connections + ADMINS.connections;
/// New connections that may evict others within a second: fewer than [`ARRIVALS`] allows one network.
pub(super) const MOST_EVICTIONS: usize = 640;
/// The largest number of connections to the daemon.
pub(super) const MOST_UPSTREAM: usize = READERS.requests + ADMINS.requests + READERS.streams + ADMINS.streams;

/// The client that a connection is counted for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Client {
    Network(Network),
    /// The id of the session.
    Session(String),
}

/// The connections in use, with their requests and streams.
pub(super) struct ConnectionPools {
    arrivals: Arc<ConnectionTable<Client>>,
    readers: Arc<ConnectionTable<Client>>,
    admins: Arc<ConnectionTable<Client>>,
}

impl ConnectionPools {
    pub(super) fn new() -> Self {
        Self {
            arrivals: ConnectionTable::new(ARRIVALS),
            readers: ConnectionTable::new(READERS),
            admins: ConnectionTable::new(ADMINS),
        }
    }

    /// Admits a new connection; `None` if there is no room. It must end when `evicted` is notified.
    pub(super) fn arrive(&self, from: SocketAddr, evicted: &Arc<Notify>) -> Option<ClientConnection> {
        let who = Client::Network(Network::of(from.ip()));
        let place = self.arrivals.admit(who, evicted)?;
        Some(ClientConnection {
            has_evicted: place.has_evicted(),
            from,
            evicted: Arc::clone(evicted),
            place: Mutex::new(Arc::new(place)),
        })
    }

    /// Ends an idle connection, because the process is out of file descriptors.
    pub(super) fn make_room(&self) {
        self.arrivals.evict_idle();
    }
}

/// A connection that has been admitted.
pub(super) struct ClientConnection {
    /// True if another connection was evicted for this one.
    pub(super) has_evicted: bool,
    pub(super) from: SocketAddr,
    evicted: Arc<Notify>,
    place: Mutex<Arc<ConnectionSlot<Client>>>,
}

impl ClientConnection {
    /// Waits until a request may be processed. From then on the connection counts for the session, if there is one.
    pub(super) async fn turn(&self, pools: &ConnectionPools, session: Option<&str>) -> Permit {
        if let Some(session) = session {
            self.count_for_session(pools, session);
        }
        self.place().request_permit().await
    }

    /// Counts an answer that is a stream.
    ///
    /// # Errors
    ///
    /// Too many streams are open.
    pub(super) fn count_stream(&self, answer: &mut ResponseBody) -> Result<(), Problem> {
        if matches!(answer, ResponseBody::Events { .. }) {
            let permit = self.place().stream_permit();
            answer.hold(permit.ok_or_else(|| Problem::unavailable("too many streams are open"))?);
        }
        Ok(())
    }

    /// Must be called when the first bytes are received. Returns false if there is no room for the connection.
    pub(super) fn begin_requests(&self, pools: &ConnectionPools) -> bool {
        let who = Client::Network(Network::of(self.from.ip()));
        let place = pools.readers.admit(who, &self.evicted);
        let is_admitted = place.is_some();
        if let Some(place) = place {
            *self.lock() = Arc::new(place);
        }
        is_admitted
    }

    fn count_for_session(&self, pools: &ConnectionPools, session: &str) {
        let who = Client::Session(session.to_owned());
        if *self.place().client() == who {
            return;
        }
        // If there is no room, the connection still counts as one without a session.
        if let Some(place) = pools.admins.admit(who, &self.evicted) {
            *self.lock() = Arc::new(place);
        }
    }

    fn place(&self) -> Arc<ConnectionSlot<Client>> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<ConnectionSlot<Client>>> {
        self.place.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(pools: &ConnectionPools, from: [u8; 4]) -> ClientConnection {
        let connection = pools
            .arrive((from, 1000).into(), &Arc::default())
            .expect("there is room");
        assert!(connection.begin_requests(pools));
        connection
    }

    #[test]
    fn a_connection_counts_for_its_session_after_log_in() {
        let pools = ConnectionPools::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let connection = connect(&pools, [192, 0, 2, 1]);
            drop(connection.turn(&pools, None).await);
            // Other connections of the same address use all turns of users who are not logged in.
            let others: Vec<ClientConnection> = (0..READERS.requests_per_client)
                .map(|_| connect(&pools, [192, 0, 2, 1]))
                .collect();
            let mut turns = Vec::new();
            for other in &others {
                turns.push(other.turn(&pools, None).await);
            }
            drop(connection.turn(&pools, Some("session")).await);
            assert_eq!(
                *connection.place().client(),
                Client::Session("session".to_owned())
            );
        });
    }

    #[test]
    fn streams_remain_for_users_who_are_logged_in() {
        let pools = ConnectionPools::new();
        let stream = || ResponseBody::Events {
            events: tokio::sync::mpsc::channel(1).1,
            held: Vec::new(),
        };
        // A stream counts as long as its connection is open.
        let mut open = Vec::new();
        let mut take = |from: [u8; 4], session: Option<&str>| {
            let (connection, mut answer) = (connect(&pools, from), stream());
            if let Some(session) = session {
                connection.count_for_session(&pools, session);
            }
            let is_counted = connection.count_stream(&mut answer).is_ok();
            open.push((connection, answer));
            is_counted
        };
        let taken = |from, take: &mut dyn FnMut([u8; 4], Option<&str>) -> bool| {
            (0..100).filter(|_| take(from, None)).count()
        };
        assert_eq!(taken([192, 0, 2, 1], &mut take), READERS.streams_per_client);
        assert_eq!(taken([192, 0, 2, 2], &mut take), READERS.streams_per_client);
        assert!(!take([192, 0, 2, 3], None));
        assert!(take([192, 0, 2, 1], Some("session")));
    }
}
