//! Error responses.

use serde::{Deserialize, Serialize};

/// The body of an error response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Errors {
    /// [`VERSION`](crate::VERSION).
    pub version: u32,
    /// The errors, as sentences for people.
    pub errors: Vec<String>,
    /// The kind of error, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The present revision of the configuration, if the request named another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Why the daemon did not change the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The file has another revision than the request named.
    Conflict,
    /// Another change waits for its confirmation.
    Unconfirmed,
    /// No change waits for a confirmation.
    NothingWaits,
    /// The new text has errors.
    Invalid,
    /// The change failed and was rolled back.
    Failed,
}
