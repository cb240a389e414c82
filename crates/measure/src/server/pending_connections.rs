//! The connections whose first message has not arrived yet.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest number of pending connections. A client is pending for one round trip, and for longer while a busy machine does not run
/// its thread. The limit is large enough that a flood from one address takes longer than that to replace all pending connections.
const MAX_PENDING: usize = 256;

/// The pending connections, in order of arrival.
#[derive(Clone, Default)]
pub(super) struct PendingConnections(Arc<Mutex<BTreeMap<u64, Entry>>>);

struct Entry {
    client: IpAddr,
    /// The server shuts it down to evict the connection.
    stream: TcpStream,
}

/// The entry of a pending connection. Dropping it removes the entry.
pub(super) struct PendingGuard {
    number: u64,
    pending: PendingConnections,
}

impl PendingGuard {
    /// Adds a connection. If the limit is reached, evicts the oldest connection of the address with the most pending connections: an
    /// address that floods the server evicts its own, and a client that sends its first message at once stays.
    pub(super) fn admit(
        pending: &PendingConnections,
        client: IpAddr,
        stream: &TcpStream,
    ) -> io::Result<Self> {
        let entry = Entry {
            client,
            stream: stream.try_clone()?,
        };
        let mut entries = pending.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_PENDING
            && let Some(number) = oldest_of_busiest_address(&entries)
            && let Some(entry) = entries.remove(&number)
        {
            // Its thread sees the end of the stream. An error means that the connection is gone already.
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
        let number = entries.last_key_value().map_or(0, |(last, _)| last + 1);
        entries.insert(number, entry);
        drop(entries);
        Ok(Self {
            number,
            pending: pending.clone(),
        })
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let mut entries = self.pending.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&self.number);
    }
}

fn oldest_of_busiest_address(entries: &BTreeMap<u64, Entry>) -> Option<u64> {
    let mut counts = BTreeMap::new();
    for entry in entries.values() {
        *counts.entry(entry.client).or_insert(0) += 1;
    }
    let (busiest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let oldest = entries.iter().find(|(_, entry)| entry.client == busiest);
    oldest.map(|(number, _)| *number)
}
