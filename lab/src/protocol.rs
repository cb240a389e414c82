//! The protocol between the host and the agent inside the guest: lines of JSON over the guest's console.
//!
//! The kernel prints its messages on the same console. Every line of the protocol therefore begins with [`MARK`]; other lines are
//! kernel messages. Requests have a number, because they are answered in the order of their completion.

use data_encoding::HEXLOWER;
use std::io;

use serde::{Deserialize, Serialize};

/// The first byte of each line of the protocol: a control character, with which no kernel message begins.
pub const MARK: u8 = 1;

/// Length of a piece of a request. A terminal takes at most 4 KiB at once, so that a request is sent in pieces: [`MARK`], then [`MORE`]
/// or [`LAST`], then the piece. The next piece follows after a [`Reply`] with the number [`RECEIVED`].
pub const PIECE: usize = 1024;
/// Another piece follows.
pub const MORE: u8 = b'+';
/// The request is complete.
pub const LAST: u8 = b'.';
/// The number of a reply that acknowledges a piece.
pub const RECEIVED: u64 = u64::MAX;

/// A request of the host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// A number that the host chooses. The [`Reply`] has the same number.
    pub id: u64,
    /// The action.
    pub act: Act,
}

/// The actions of the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Run a program to its end.
    Run {
        /// The network namespace; `None` is the guest's own.
        host: Option<String>,
        /// Program and arguments.
        argv: Vec<String>,
        /// Its standard input.
        stdin: String,
    },
    /// Start a program whose output the host reads as it comes, by [`Act::Receive`].
    Start {
        /// The network namespace.
        host: String,
        /// Program and arguments.
        argv: Vec<String>,
        /// The number of the program, which the host chooses.
        stream: u64,
    },
    /// Send SIGINT to such a program and its children.
    Interrupt {
        /// Its number.
        stream: u64,
    },
    /// Forget such a program: it receives SIGPIPE when it writes more.
    Close {
        /// Its number.
        stream: u64,
    },
    /// Start a program and leave it running. It ends with the guest at the latest.
    Spawn {
        /// The network namespace; `None` is the guest's own.
        host: Option<String>,
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// Write a file inside the guest, and create its folders.
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
        /// The number of the connection, which the host chooses.
        stream: u64,
    },
    /// Start a shell at a terminal of its own.
    Terminal {
        /// The network namespace.
        host: String,
        /// The number of the terminal, which the host chooses; [`Act::Send`] types and [`Act::Receive`] reads what appears.
        stream: u64,
        /// Lines and columns.
        size: (u16, u16),
        /// The kind of terminal, for `TERM`.
        kind: String,
    },
    /// Change the size of a terminal.
    Resize {
        /// Its number.
        stream: u64,
        /// Lines and columns.
        size: (u16, u16),
    },
    /// Write to a connection.
    Send {
        /// Its number.
        stream: u64,
        /// The bytes in the form of [`text_of`]. An empty text ends this direction.
        bytes: String,
    },
    /// Wait for bytes on a connection or a terminal, or of a program. Standard output has them in the form of [`text_of`], and so has
    /// standard error for those of a program. At the end of a terminal or a program, standard output has the exit code of the shell or the
    /// program.
    Receive {
        /// Its number.
        stream: u64,
    },
    /// End the guest.
    PowerOff,
}

/// Bytes as text, two hexadecimal digits each: half as long as a JSON array.
pub fn text_of(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// The bytes of a text in the form of [`text_of`].
pub fn bytes_of(text: &str) -> io::Result<Vec<u8>> {
    HEXLOWER.decode(text.as_bytes()).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "bytes must be pairs of hexadecimal digits",
        )
    })
}

/// A reply of the agent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The number of the request; 0 is the greeting after boot, [`RECEIVED`] acknowledges a piece.
    pub id: u64,
    /// Exit code; for [`Act::Spawn`] 0; 128 + n for signal n; 127 when the program could not be started.
    pub code: i32,
    /// Standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, with invalid UTF-8 replaced.
    pub stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_decodes_to_the_bytes_it_was_made_of() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&text_of(&bytes)).expect("our own text"), bytes);
        assert!(bytes_of("0").is_err() && bytes_of("0g").is_err() && bytes_of("é").is_err());
    }
}
