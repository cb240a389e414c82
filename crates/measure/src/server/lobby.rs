//! The connections that have not yet said what they are for.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections in the lobby, all together. An honest client stays for one round trip, and for as long as a busy machine has no time for
/// it: whoever floods the server from the same address is to take longer to turn the lobby over.
const MAX_VISITORS: usize = 256;

/// Everybody in the lobby, in order of arrival.
#[derive(Clone, Default)]
pub(super) struct Lobby(Arc<Mutex<BTreeMap<u64, Seat>>>);

struct Seat {
    client: IpAddr,
    /// For showing it out.
    stream: TcpStream,
}

/// A place in the lobby; free when dropped.
pub(super) struct Visitor {
    number: u64,
    lobby: Lobby,
}

impl Visitor {
    /// Takes a place. In a full lobby the oldest connection of the address with the most of them leaves: so whoever floods
    /// the server pushes out its own, and an honest client, which speaks at once, stays.
    pub(super) fn enter(lobby: &Lobby, client: IpAddr, stream: &TcpStream) -> io::Result<Self> {
        let seat = Seat {
            client,
            stream: stream.try_clone()?,
        };
        let mut seats = lobby.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seats.len() >= MAX_VISITORS
            && let Some(number) = oldest_of_the_greediest(&seats)
            && let Some(seat) = seats.remove(&number)
        {
            // Its thread sees the end of the stream; that it may be gone already is no matter.
            let _ = seat.stream.shutdown(Shutdown::Both);
        }
        let number = seats.last_key_value().map_or(0, |(last, _)| last + 1);
        seats.insert(number, seat);
        drop(seats);
        Ok(Self {
            number,
            lobby: lobby.clone(),
        })
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut seats = self.lobby.0.lock().unwrap_or_else(PoisonError::into_inner);
        seats.remove(&self.number);
    }
}

fn oldest_of_the_greediest(seats: &BTreeMap<u64, Seat>) -> Option<u64> {
    let mut counts = BTreeMap::new();
    for seat in seats.values() {
        *counts.entry(seat.client).or_insert(0) += 1;
    }
    let (greediest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let oldest = seats.iter().find(|(_, seat)| seat.client == greediest);
    oldest.map(|(number, _)| *number)
}
