//! The conversation between the host and the agent inside the guest: JSON lines over the guest's console.
//!
//! The kernel's own messages share the console, so every line of ours begins with [`MARK`]; whatever does not is
//! log. Requests carry a number because they are answered in the order of their completion.

use serde::{Deserialize, Serialize};

/// Begins each line of the protocol. A control character, so that no kernel message can start with it.
pub const MARK: u8 = 1;

/// A request may be longer than a terminal takes in one go (4 KiB), so it is sent in pieces: [`MARK`], then [`MORE`]
/// or [`LAST`], then the piece, and the next one only after a [`Reply`] numbered [`RECEIVED`].
pub const PIECE: usize = 1024;
/// Another piece follows.
pub const MORE: u8 = b'+';
/// The request is complete.
pub const LAST: u8 = b'.';
/// The number that acknowledges a piece.
pub const RECEIVED: u64 = u64::MAX;

/// What the host asks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the host, echoed in the [`Reply`].
    pub id: u64,
    /// What to do.
    pub act: Act,
}

/// The things the agent can do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Run a program to its end.
    Run {
        /// The network namespace; `None` is the guest's own.
        host: Option<String>,
        /// Program and arguments.
        argv: Vec<String>,
        /// What it reads on standard input.
        stdin: String,
    },
    /// Start a program and leave it running. It ends with the guest at the latest.
    Spawn {
        /// The network namespace; `None` is the guest's own.
        host: Option<String>,
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// Write a file inside the guest, making its folders.
    Write {
        /// Absolute path.
        path: String,
        /// The whole content.
        bytes: Vec<u8>,
    },
    /// End the guest.
    PowerOff,
}

/// What the agent answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The number of the request; 0 is the greeting after boot, [`RECEIVED`] acknowledges a piece.
    pub id: u64,
    /// Exit code; for [`Act::Spawn`] 0; 128 + n for signal n; 127 when the program could not be started.
    pub code: i32,
    /// Standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error likewise.
    pub stderr: String,
}
