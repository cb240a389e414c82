//! What has happened lately, for those who listen now and those who ask later.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use sqm_http::{COMMENT, Seat, Seats};

/// So many events are remembered.
const REMEMBERED: usize = 100;
/// A listener that is so many events behind is let go.
const MOST_BEHIND: usize = 256;
/// Listeners of root and of the daemon's own user, each. The page's server is one of them and has at most 48 for its visitors.
const MOST_ADMINS_EACH: usize = 64;
/// Listeners of all other users, and of each.
const MOST_READERS: usize = 16;
const MOST_READERS_EACH: usize = 4;

/// An event as the API tells it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Told {
    /// Counts up from 1.
    pub(super) number: u64,
    /// Milliseconds since 1970, UTC.
    pub(super) unix_ms: u64,
    /// `state`, `changed`, `released`, `configuration`.
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interface: Option<String>,
    pub(super) text: String,
}

pub(super) struct Journal {
    inner: Mutex<Inner>,
    admins: Seats<Option<u32>>,
    readers: Seats<Option<u32>>,
}

#[derive(Debug, Default)]
struct Inner {
    told: u64,
    lately: VecDeque<Told>,
    listeners: Vec<Sender<Bytes>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            admins: Seats::new(usize::MAX, MOST_ADMINS_EACH),
            readers: Seats::new(MOST_READERS, MOST_READERS_EACH),
        }
    }
}

impl Journal {
    /// Tells everybody.
    pub(super) fn tell(&self, kind: &'static str, interface: Option<&str>, text: String) {
        let unix_ms = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        let mut inner = self.lock();
        inner.told += 1;
        let told = Told {
            number: inner.told,
            unix_ms,
            kind,
            interface: interface.map(str::to_owned),
            text,
        };
        let message = encode(&told);
        inner
            .listeners
            .retain(|listener| listener.try_send(message.clone()).is_ok());
        if inner.lately.len() == REMEMBERED {
            inner.lately.pop_front();
        }
        inner.lately.push_back(told);
    }

    /// Says to everybody who listens that we are still here: whoever has left is noticed by it.
    pub(super) fn be_heard(&self) {
        self.lock()
            .listeners
            .retain(|listener| listener.try_send(COMMENT).is_ok());
    }

    /// What is remembered, and then what comes, for as long as the seat is held; `None` if too many listen already.
    pub(super) fn listen(
        &self,
        user: Option<u32>,
        is_admin: bool,
    ) -> Option<(Receiver<Bytes>, Seat<Option<u32>>)> {
        let seats = if is_admin { &self.admins } else { &self.readers };
        let seat = seats.take(&user)?;
        let mut inner = self.lock();
        inner.listeners.retain(|listener| !listener.is_closed());
        let (sender, receiver) = channel(MOST_BEHIND);
        for told in &inner.lately {
            // There is room for all that is remembered.
            let _ = sender.try_send(encode(told));
        }
        inner.listeners.push(sender);
        Some((receiver, seat))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

/// A server-sent event (HTML Standard, 9.2): JSON has no line ends.
fn encode(told: &Told) -> Bytes {
    let json = serde_json::to_string(told).unwrap_or_default();
    Bytes::from(format!(
        "id: {}\nevent: {}\ndata: {json}\n\n",
        told.number, told.kind
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_listener_hears_what_was_and_what_comes_and_nothing_grows() {
        let journal = Journal::default();
        for n in 0..1000 {
            journal.tell("state", Some("wan0"), format!("number {n}"));
        }
        let (mut late, _seat) = journal.listen(Some(0), true).unwrap();
        journal.tell("state", None, "last".to_owned());
        let mut heard = Vec::new();
        while let Ok(bytes) = late.try_recv() {
            heard.push(String::from_utf8(bytes.to_vec()).unwrap());
        }
        assert_eq!(heard.len(), REMEMBERED + 1);
        assert!(heard[0].starts_with("id: 901\nevent: state\ndata: {\"number\":901"));
        assert!(heard[REMEMBERED].ends_with("\"text\":\"last\"}\n\n"));
        // One that does not read is let go, one that has gone makes room.
        for n in 0..1000 {
            journal.tell("state", None, format!("{n}"));
        }
        assert!(journal.lock().listeners.is_empty());
        assert_eq!(journal.lock().lately.len(), REMEMBERED);
    }

    #[test]
    fn users_keep_neither_root_nor_each_other_from_listening() {
        let journal = Journal::default();
        let greedy: Vec<_> = (0..1000)
            .map_while(|_| journal.listen(Some(1000), false))
            .collect();
        assert_eq!(greedy.len(), MOST_READERS_EACH);
        assert!(journal.listen(Some(1001), false).is_some());
        let all: Vec<_> = (1001..2000)
            .map(|user| journal.listen(Some(user), false))
            .collect();
        assert!(journal.listen(Some(2000), false).is_none());
        assert!(journal.listen(Some(0), true).is_some());
        drop((greedy, all));
        assert!(journal.listen(Some(2000), false).is_some());
    }
}
