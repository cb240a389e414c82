//! Where documents and reports lie, as the agent and the operator's commands see it: a store of keys with revisions. [`crate::nats`] is one.

use std::fmt;
use std::future::Future;

use crate::name::Name;

/// A key of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The signed document of a router. Only operators write it.
    Desired(Name),
    /// The report of a router, with its history. Only the router writes it.
    Report(Name),
    /// The last report of a router, again each minute: its age says when the router was heard last. Only the router writes it.
    Heartbeat(Name),
    /// A roll-out.
    RollOut(Name),
    /// A signed document that a roll-out will hand out.
    Draft {
        /// The roll-out.
        roll_out: Name,
        /// The router.
        router: Name,
    },
    /// The signed document with which a roll-out is reverted.
    Revert {
        /// The roll-out.
        roll_out: Name,
        /// The router.
        router: Name,
    },
}

/// Keys of one kind, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All [`Key::Desired`].
    Desired,
    /// All [`Key::Report`].
    Report,
    /// All [`Key::Heartbeat`].
    Heartbeat,
    /// All [`Key::RollOut`].
    RollOut,
    /// All [`Key::Draft`] of a roll-out.
    Draft(Name),
    /// All [`Key::Revert`] of a roll-out.
    Revert(Name),
}

impl Kind {
    /// The beginning of the keys' texts, with its last dot.
    pub fn prefix(&self) -> String {
        match self {
            Self::Desired => "cfg.".into(),
            Self::Report => "state.".into(),
            Self::Heartbeat => "alive.".into(),
            Self::RollOut => "rollout.".into(),
            Self::Draft(roll_out) => format!("draft.{roll_out}."),
            Self::Revert(roll_out) => format!("revert.{roll_out}."),
        }
    }

    /// The key with this name.
    pub fn key(&self, name: Name) -> Key {
        match self {
            Self::Desired => Key::Desired(name),
            Self::Report => Key::Report(name),
            Self::Heartbeat => Key::Heartbeat(name),
            Self::RollOut => Key::RollOut(name),
            Self::Draft(roll_out) => Key::Draft {
                roll_out: roll_out.clone(),
                router: name,
            },
            Self::Revert(roll_out) => Key::Revert {
                roll_out: roll_out.clone(),
                router: name,
            },
        }
    }
}

impl fmt::Display for Key {
    /// The text of the key in the store, such as `cfg.r1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Desired(name) => (Kind::Desired, name),
            Self::Report(name) => (Kind::Report, name),
            Self::Heartbeat(name) => (Kind::Heartbeat, name),
            Self::RollOut(name) => (Kind::RollOut, name),
            Self::Draft { roll_out, router } => (Kind::Draft(roll_out.clone()), router),
            Self::Revert { roll_out, router } => (Kind::Revert(roll_out.clone()), router),
        };
        write!(f, "{}{name}", kind.prefix())
    }
}

/// A value of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The bytes.
    pub value: Vec<u8>,
    /// The store's number of this write; higher than that of every earlier one.
    pub revision: u64,
    /// When it was written, by the store's clock, RFC 3339.
    pub written: String,
}

/// Why the store did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no connection, or no answer in time. It may be tried again. Whether a write has taken place is not known.
    #[error("no answer from the server: {0}")]
    NoAnswer(String),
    /// The key has another revision than was expected. Nothing was written.
    #[error("another writer has changed {0} meanwhile")]
    Changed(Key),
    /// The server refuses.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The options cannot work.
    #[error("{0}")]
    Options(String),
}

/// The store.
pub trait Store {
    /// The value of a key; `None` if it has none.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, Error>> + Send;

    /// Writes a value, and returns its revision when the store has it. With `expected`, only if that is the revision of the key's value;
    /// 0: if it has none.
    fn put(
        &self,
        key: &Key,
        value: Vec<u8>,
        expected: Option<u64>,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Writes a value without waiting for the store: telemetry, which the next one replaces.
    fn publish(&self, key: &Key, value: Vec<u8>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Subscribes to a key: each of its new values is an [`Event::Changed`]. A value that is there already must be read afterwards.
    fn subscribe(&self, key: &Key) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits for the next event.
    fn next(&mut self) -> impl Future<Output = Event> + Send;
}

/// An event at the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection stands, for the first time or again. Whatever was written meanwhile must be read.
    Connected,
    /// The connection is lost. It is made again without a request.
    Disconnected,
    /// A key that is subscribed to has this value now.
    Changed(Vec<u8>),
    /// The server has refused something that needs no answer, such as a subscription.
    Refused(String),
}
