//! The daemon's recent log entries, and the streams that receive new ones (`/v1/events`).

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use sqm_api::journal::{LogEntry, LogKind};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use sqm_http::KEEP_ALIVE;

/// The number of entries that are kept for new streams; a choice.
const MAX_ENTRIES: usize = 100;
/// A stream whose client is this many entries behind is closed; a choice.
const MAX_QUEUED: usize = 256;
/// The recent entries and the open streams.
#[derive(Default)]
pub(super) struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of the last entry.
    last: u64,
    recent: VecDeque<LogEntry>,
    streams: Vec<Sender<Bytes>>,
}

impl Journal {
    /// Adds an entry and sends it to all streams.
    pub(super) fn record(&self, kind: LogKind, interface: Option<&str>, text: String) {
        let unix_ms = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        let mut inner = self.lock();
        inner.last += 1;
        let entry = LogEntry {
            number: inner.last,
            unix_ms,
            kind,
            interface: interface.map(str::to_owned),
            text,
        };
        let message = encode(&entry);
        inner
            .streams
            .retain(|stream| stream.try_send(message.clone()).is_ok());
        if inner.recent.len() == MAX_ENTRIES {
            inner.recent.pop_front();
        }
        inner.recent.push_back(entry);
    }

    /// Sends a comment to all streams, so that a write fails on the connection of a client that has gone.
    pub(super) fn keep_alive(&self) {
        self.lock()
            .streams
            .retain(|stream| stream.try_send(KEEP_ALIVE).is_ok());
    }

    /// Opens a stream: the recent entries, then each new one.
    pub(super) fn subscribe(&self) -> Receiver<Bytes> {
        let mut inner = self.lock();
        inner.streams.retain(|stream| !stream.is_closed());
        let (sender, receiver) = channel(MAX_QUEUED);
        for entry in &inner.recent {
            // The channel has room for all recent entries.
            let _ = sender.try_send(encode(entry));
        }
        inner.streams.push(sender);
        receiver
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Encodes a server-sent event (HTML Standard, 9.2). Compact JSON has no line ends, so one `data:` line is enough.
fn encode(entry: &LogEntry) -> Bytes {
    let json = serde_json::to_string(entry).unwrap_or_default();
    Bytes::from(format!(
        "id: {}\nevent: {}\ndata: {json}\n\n",
        entry.number,
        entry.kind.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stream_receives_recent_and_new_entries_and_memory_is_bounded() {
        let journal = Journal::default();
        for n in 0..1000 {
            journal.record(LogKind::State, Some("wan0"), format!("number {n}"));
        }
        let mut late = journal.subscribe();
        journal.record(LogKind::State, None, "last".to_owned());
        let mut received = Vec::new();
        while let Ok(bytes) = late.try_recv() {
            received.push(String::from_utf8(bytes.to_vec()).unwrap());
        }
        assert_eq!(received.len(), MAX_ENTRIES + 1);
        assert!(received[0].starts_with("id: 901\nevent: state\ndata: {\"number\":901"));
        assert!(received[MAX_ENTRIES].ends_with("\"text\":\"last\"}\n\n"));
        // A stream whose client does not read is closed.
        for n in 0..1000 {
            journal.record(LogKind::State, None, format!("{n}"));
        }
        assert!(journal.lock().streams.is_empty());
        assert_eq!(journal.lock().recent.len(), MAX_ENTRIES);
    }
}
