//! A pause of the shaping, for a test of the line without SQM.

use serde::{Deserialize, Serialize};

/// The longest pause, seconds. A choice: a test with both idle phases takes 70 s.
pub const MAX_SECONDS: u32 = 120;

/// The body of `POST /v1/pause`.
///
/// The answer is a stream of server-sent events that begins with the event `paused` once the interface is not shaped. The pause
/// lasts as long as the client keeps the connection open, and at most `seconds`: the stream ends when the interface is to be
/// shaped again. `POST /v1/apply` ends it, too, and answers when the interface is shaped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The interface.
    pub interface: String,
    /// The longest time for which it is not shaped, seconds; 1 to [`MAX_SECONDS`].
    pub seconds: u32,
}
