//! The log entries of the daemon, as `GET /v1/events` sends them.

use serde::{Deserialize, Serialize};

/// A log entry: the data of an event, which is named as its kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Entries are numbered from 1.
    pub number: u64,
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
    /// The subject of the entry.
    pub kind: LogKind,
    /// The interface concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// A sentence for people.
    pub text: String,
}

/// The subject of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// The state of an interface or of the daemon.
    State,
    /// The queues of an interface were changed.
    Changed,
    /// The queues from before sqm were restored.
    Released,
    /// The configuration: its errors and warnings, and changes of it.
    Configuration,
    /// The controller that follows a line.
    Autorate,
    /// The fleet's documents, and the connection to its server.
    Fleet,
}

impl LogKind {
    /// The name of the event.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Changed => "changed",
            Self::Released => "released",
            Self::Configuration => "configuration",
            Self::Autorate => "autorate",
            Self::Fleet => "fleet",
        }
    }
}
