//! The answers of the daemon that several parts of this server read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer to `GET /v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DaemonStatus {
    pub(super) program: String,
    pub(super) health: String,
    pub(super) configuration: Configuration,
    pub(super) interfaces: Vec<DaemonInterface>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Configuration {
    pub(super) file: String,
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// The state of an interface. It is passed on to the browser unchanged, except for the queues, which this server reads itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DaemonInterface {
    pub(super) interface: String,
    pub(super) state: String,
    pub(super) why: Option<String>,
    pub(super) for_seconds: f64,
    pub(super) applied: u64,
    pub(super) repaired: u64,
    pub(super) changes: Vec<String>,
    pub(super) device: Option<Value>,
    #[serde(default, skip_serializing)]
    pub(super) queues: Option<Queues>,
    #[serde(default)]
    pub(super) autorate: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Queues {
    pub(super) owner: Option<String>,
}

/// The configuration file, as the daemon answers it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ConfigurationFile {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) revision: String,
    pub(super) unconfirmed: Option<Unconfirmed>,
}

/// An applied change that is not confirmed yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unconfirmed {
    revision: String,
    seconds_left: f64,
}
