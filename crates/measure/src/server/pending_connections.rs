//! The connections that have not yet said what they are for.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections in the pending, all together. An honest client stays for one round trip, and for as long as a busy machine has no time for
/// it: whoever floods the server from the same address is to take longer to turn the pending over.
const MAX_PENDING: usize = 256;

/// Everybody in the pending, in order of arrival.
#[derive(Clone, Default)]
pub(super) struct PendingConnections(Arc<Mutex<BTreeMap<u64, Entry>>>);

struct Entry {
    client: IpAddr,
    /// For showing it out.
    stream: TcpStream,
}

/// A place in the pending; free when dropped.
pub(super) struct PendingGuard {
    number: u64,
    pending: PendingConnections,
}

impl PendingGuard {
    /// Takes a place. In a full pending the oldest connection of the address with the most of them leaves: so whoever floods
    /// the server pushes out its own, and an honest client, which speaks at once, stays.
    pub(super) fn enter(
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
            // Its thread sees the end of the stream; that it may be gone already is no matter.
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
