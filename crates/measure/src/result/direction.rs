//! Download and upload, as the client sees them.

use serde::{Deserialize, Serialize};

/// The direction of a flow as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From server to client.
    Down,
    /// From client to server.
    Up,
}

impl Direction {
    /// `download` or `upload`, as messages have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "download",
            Self::Up => "upload",
        }
    }

    /// The other direction: that of the acknowledgements.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }
}
