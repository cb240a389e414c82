//! The configuration file, and changes of it.

use serde::{Deserialize, Serialize};

use crate::status::Interface;

/// The answer to `GET /v1/configuration`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigurationFile {
    /// Its path.
    pub file: String,
    /// Its text; empty if there is no file.
    pub text: String,
    /// The revision of the text.
    pub revision: String,
    /// The change that waits for its confirmation.
    pub unconfirmed: Option<Unconfirmed>,
}

/// A change that is rolled back unless it is confirmed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// The revision of the changed text.
    pub revision: String,
    /// Time until the rollback, seconds.
    pub seconds_left: f64,
}

/// The body of `PUT /v1/configuration`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configure {
    /// The new text.
    pub text: String,
    /// The revision that the text was made from. If the file has another one, nothing is changed.
    pub revision: String,
    /// The time for a confirmation, seconds; 0: the change needs none.
    pub confirm_seconds: u32,
}

/// The state after a change of the configuration, its confirmation or its rollback.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Configured {
    /// The revision of the file.
    pub revision: String,
    /// The change that waits for its confirmation.
    pub unconfirmed: Option<Unconfirmed>,
    /// The interfaces of the configuration.
    pub interfaces: Vec<Interface>,
}

/// The body of `POST /v1/apply`. An empty body means the default: the daemon reads the configuration again and applies all of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Apply {
    /// The interface to apply, as the daemon read its configuration last.
    pub interface: Option<String>,
}
