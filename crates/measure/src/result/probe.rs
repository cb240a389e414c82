//! The latency probes of a test.

use super::direction_word;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

/// How a probe travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// A UDP packet and its echo.
    #[default]
    Udp,
    /// An ICMP echo.
    Icmp,
    /// The handshake of a new TCP connection.
    Tcp,
    /// A small HTTP request and its answer.
    Http,
    /// A UDP packet of the size and spacing of a voice call (G.711: 172 bytes every 20 ms) and its echo.
    Voip,
}

impl ProbeKind {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Tcp => "TCP",
            Self::Http => "HTTP",
            Self::Voip => "VoIP",
        }
    }
}

/// A series of probes on one timetable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSeries {
    /// Flent's name for it: `Ping (ms) UDP EF`.
    pub name: String,
    /// How the probes travel.
    pub kind: ProbeKind,
    /// DSCP of the probes and of their answers, 0 to 63.
    pub dscp: u8,
    /// The host that is probed, if it is not the test's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Time between two probes.
    pub interval_ms: f64,
    /// Payload of one probe, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
    /// Traffic class bytes (DSCP and ECN) of the probes as they reached the server, with the number of probes that had each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived_up: BTreeMap<u8, u64>,
    /// Traffic class bytes of the answers as they reached the client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived_down: BTreeMap<u8, u64>,
    /// Every probe, in order of sending.
    pub samples: Vec<Probe>,
}

/// One probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// When the timetable had it due.
    pub due_ms: f64,
    /// When it was sent.
    pub t_ms: f64,
    /// Round trip: from sending until the answer arrived. Null if the probe or its answer was lost.
    pub rtt_ms: Option<f64>,
    /// One-way delay from client to server; exact to [`Clock::error_ms`](super::Clock::error_ms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_ms: Option<f64>,
    /// One-way delay from server to client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_ms: Option<f64>,
    /// When the probe reached the server, by the server's clock, whose origin is arbitrary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ms: Option<f64>,
    /// The direction in which it was lost, if known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "direction_word::optional"
    )]
    pub lost: Option<Direction>,
}
