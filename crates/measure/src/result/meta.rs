//! The circumstances of a test.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::room;

/// The circumstances of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Flent's name of the test: `rrul`, `rrul_be`, `tcp_8down`.
    pub test: String,
    /// The user's title.
    pub title: Option<String>,
    /// When the load began: RFC 3339, UTC, to the second.
    pub time: String,
    /// When the load began in seconds since 1970, with fractions. `None` if the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_unix: Option<f64>,
    /// The server as the user named it.
    pub host: String,
    /// Name of this machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_host: String,
    /// The client's address and port of the control connection.
    pub local: String,
    /// The server's address and port of the control connection.
    pub remote: String,
    /// Version of the client program.
    pub program: String,
    /// Version of the server program.
    pub server_program: String,
    /// The client's kernel release.
    pub kernel: String,
    /// The server's kernel release.
    pub server_kernel: String,
    /// The settings of the test.
    pub settings: Settings,
    /// The offset of the server's clock, if it was estimated. One-way delays are computed with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Why the test ended early. `None` if it ran to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Other facts by name, among them the settings of a test that another program ran.
    #[serde(
        default,
        deserialize_with = "room::few_names",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub parameters: BTreeMap<String, String>,
}

/// The offset of the server's clock, and the error of that estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The server's clock minus the client's, when the load began.
    pub offset_ms: f64,
    /// The true offset differs from the estimate by at most this: half of the smallest round trip, because it is unknown how
    /// that round trip divides between the two directions.
    pub error_ms: f64,
    /// How fast the offset grows, in parts per million.
    pub drift_ppm: f64,
}
