//! The conversation between the host and the agent inside the guest: JSON lines over the guest's console.
//!
//! The kernel's own messages share the console, so every line of ours begins with [`MARK`]; whatever does not is
//! log. Requests carry a number because they are answered in the order of their completion.

use std::io;

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
    /// Connect to a port of a virtual host's loopback.
    Connect {
        /// The network namespace.
        host: String,
        /// The TCP port.
        port: u16,
        /// The connection's number from now on, chosen by the host.
        stream: u64,
    },
    /// Write to a connection.
    Send {
        /// Its number.
        stream: u64,
        /// What to write, as [`text_of`] has it; nothing ends this direction.
        bytes: String,
    },
    /// Wait for bytes of a connection; standard output has them, as [`text_of`] does.
    Receive {
        /// Its number.
        stream: u64,
    },
    /// End the guest.
    PowerOff,
}

/// Bytes as text, two hexadecimal digits each: half the length they have as a JSON array.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such a text.
pub fn bytes_of(text: &str) -> io::Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    text.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            &[high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect::<Option<_>>()
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "bytes must be pairs of hexadecimal digits",
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&text_of(&bytes)).expect("our own text"), bytes);
        assert!(bytes_of("0").is_err() && bytes_of("0g").is_err() && bytes_of("é").is_err());
    }
}
