//! A browser's connection: what it may take of the server's places, turns and streams.
//!
//! Those who are logged in have places, turns and streams of their own, so that nobody else can keep them out. All others
//! are told apart by their network.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::network::Network;
use super::problem::Problem;
use sqm_http::{ConnectionSlot, ConnectionTable, Limits, RequestPermit, ResponseBody, StreamLimiter};

/// Connections on which nothing has been said yet, and TLS handshakes. There are many, for they cost little: whoever fills them
/// must make as many again before a newcomer of the same network is pushed out, and `server` lets nobody do so within a second.
const ARRIVALS: Limits = Limits {
    connections: 1024,
    connections_per_client: 768,
    requests: 0,
    requests_per_client: 0,
};
/// Of those who have said something, but are not logged in.
const VISITORS: Limits = Limits {
    connections: 192,
    connections_per_client: 64,
    requests: 24,
    requests_per_client: 8,
};
/// Of those who are.
const MEMBERS: Limits = Limits {
    connections: 64,
    connections_per_client: 32,
    requests: 24,
    requests_per_client: 12,
};
/// Streams at once, of visitors and of members. The daemon has seats for more events than both together ask for.
const MOST_STREAMS: usize = 24;
/// A page that is open needs two, and a third during a test.
const MOST_STREAMS_EACH: usize = 12;
/// All connections at once.
pub(super) const MOST_CONNECTIONS: usize = ARRIVALS.connections + VISITORS.connections + MEMBERS.connections;
/// So many newcomers may push out others within a second: fewer than one network has places for them.
pub(super) const MOST_PUSHED_OUT: usize = 640;
/// What all requests and streams may have open at the daemon at once.
pub(super) const MOST_UPSTREAM: usize = VISITORS.requests + MEMBERS.requests + 2 * MOST_STREAMS;

/// Who is told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Visitor(Network),
    /// The name of the session.
    Member(String),
}

/// Everything that is shared out.
pub(super) struct Rooms {
    arrivals: Arc<ConnectionTable<Who>>,
    visitors: Arc<ConnectionTable<Who>>,
    members: Arc<ConnectionTable<Who>>,
    visitors_streams: StreamLimiter<Who>,
    members_streams: StreamLimiter<Who>,
}

impl Rooms {
    pub(super) fn new() -> Self {
        Self {
            arrivals: ConnectionTable::new(ARRIVALS),
            visitors: ConnectionTable::new(VISITORS),
            members: ConnectionTable::new(MEMBERS),
            visitors_streams: StreamLimiter::new(MOST_STREAMS, MOST_STREAMS_EACH),
            members_streams: StreamLimiter::new(MOST_STREAMS, MOST_STREAMS_EACH),
        }
    }

    /// A connection that has just been accepted. It is to end when `evicted` is notified.
    pub(super) fn arrive(&self, from: SocketAddr, evicted: &Arc<Notify>) -> Option<Guest> {
        let who = Who::Visitor(Network::of(from.ip()));
        let place = self.arrivals.admit(who, evicted)?;
        Some(Guest {
            has_pushed_out: place.has_evicted(),
            from,
            evicted: Arc::clone(evicted),
            place: Mutex::new(Arc::new(place)),
        })
    }

    /// Ends an idle connection: the process is out of descriptors.
    pub(super) fn make_room(&self) {
        self.arrivals.evict_idle();
    }

    /// Gives a stream its seat; any other answer needs none.
    pub(super) fn seat(
        &self,
        guest: &Guest,
        session: Option<&str>,
        answer: &mut ResponseBody,
    ) -> Result<(), Problem> {
        if !matches!(answer, ResponseBody::Events { .. }) {
            return Ok(());
        }
        let (seats, who) = match session {
            Some(session) => (&self.members_streams, Who::Member(session.to_owned())),
            None => (&self.visitors_streams, Who::Visitor(Network::of(guest.from.ip()))),
        };
        let seat = seats.try_acquire(&who);
        answer.hold(seat.ok_or_else(|| Problem::unavailable("too many look at streams already"))?);
        answer.hold(guest.place().keep_active());
        Ok(())
    }
}

/// A connection that has been admitted.
pub(super) struct Guest {
    /// Another connection had to make room for it.
    pub(super) has_pushed_out: bool,
    pub(super) from: SocketAddr,
    evicted: Arc<Notify>,
    place: Mutex<Arc<ConnectionSlot<Who>>>,
}

impl Guest {
    /// Waits until a request may be worked on. The connection counts as one of the session from here on, if there is one.
    pub(super) async fn turn(&self, rooms: &Rooms, session: Option<&str>) -> RequestPermit {
        if let Some(session) = session {
            self.become_member(rooms, session);
        }
        self.place().request_permit().await
    }

    /// Something was said on the connection. False if there is no place for it.
    pub(super) fn speaks(&self, rooms: &Rooms) -> bool {
        let who = Who::Visitor(Network::of(self.from.ip()));
        let place = rooms.visitors.admit(who, &self.evicted);
        let is_admitted = place.is_some();
        if let Some(place) = place {
            *self.lock() = Arc::new(place);
        }
        is_admitted
    }

    fn become_member(&self, rooms: &Rooms, session: &str) {
        let who = Who::Member(session.to_owned());
        if *self.place().client() == who {
            return;
        }
        // Without a place among them it stays where it is.
        if let Some(place) = rooms.members.admit(who, &self.evicted) {
            *self.lock() = Arc::new(place);
        }
    }

    fn place(&self) -> Arc<ConnectionSlot<Who>> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<ConnectionSlot<Who>>> {
        self.place.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(rooms: &Rooms, from: [u8; 4]) -> Guest {
        let guest = rooms
            .arrive((from, 1000).into(), &Arc::default())
            .expect("there is room");
        assert!(guest.speaks(rooms));
        guest
    }

    #[test]
    fn some_connections_can_always_make_room() {
        for limits in [VISITORS, MEMBERS] {
            assert!(limits.requests + MOST_STREAMS < limits.connections);
            assert!(limits.requests_per_client + MOST_STREAMS_EACH < limits.connections_per_client);
        }
        const { assert!(MOST_PUSHED_OUT < ARRIVALS.connections_per_client) };
    }

    #[test]
    fn whoever_logs_in_leaves_the_place_of_a_visitor() {
        let rooms = Rooms::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let guest = connect(&rooms, [192, 0, 2, 1]);
            drop(guest.turn(&rooms, None).await);
            // Visitors of the same address take all turns there are for it.
            let others: Vec<Guest> = (0..VISITORS.requests_per_client)
                .map(|_| connect(&rooms, [192, 0, 2, 1]))
                .collect();
            let mut turns = Vec::new();
            for other in &others {
                turns.push(other.turn(&rooms, None).await);
            }
            drop(guest.turn(&rooms, Some("session")).await);
            assert_eq!(*guest.place().client(), Who::Member("session".to_owned()));
        });
    }

    #[test]
    fn visitors_leave_streams_for_those_who_are_logged_in() {
        let rooms = Rooms::new();
        let stream = || ResponseBody::Events {
            events: tokio::sync::mpsc::channel(1).1,
            held: Vec::new(),
        };
        let mut streams: Vec<ResponseBody> = Vec::new();
        let mut take = |from: [u8; 4], session: Option<&str>| {
            let mut answer = stream();
            let is_seated = rooms.seat(&connect(&rooms, from), session, &mut answer).is_ok();
            streams.push(answer);
            is_seated
        };
        let taken = |from, take: &mut dyn FnMut([u8; 4], Option<&str>) -> bool| {
            (0..100).filter(|_| take(from, None)).count()
        };
        assert_eq!(taken([192, 0, 2, 1], &mut take), MOST_STREAMS_EACH);
        assert_eq!(taken([192, 0, 2, 2], &mut take), MOST_STREAMS_EACH);
        assert!(!take([192, 0, 2, 3], None));
        assert!(take([192, 0, 2, 1], Some("session")));
    }
}
