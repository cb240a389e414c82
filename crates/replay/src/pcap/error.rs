//! The errors of capture files.

use std::io;

/// An error while a capture is read or written. Positions are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin as a capture does.
    #[error("not a capture: pcap and pcapng files do not begin with {found}")]
    NotACapture {
        /// The first bytes, in hexadecimal.
        found: String,
    },
    /// The file is a compressed one. All four programs take the same words.
    #[error("compressed by {program}: decompress it first, with '{program} -dk FILE'")]
    Compressed {
        /// The program that compresses so.
        program: &'static str,
    },
    /// The file ends in the middle of a structure.
    #[error("cut short: it ends at byte {at}, in the middle of {what}")]
    Truncated {
        /// The position of the end.
        at: u64,
        /// The structure that is incomplete.
        what: &'static str,
    },
    /// A field has an impossible value.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// The position of the record or block.
        at: u64,
        /// A description of the damage.
        what: String,
    },
    /// A classic pcap file has one kind of link.
    #[error(
        "a pcap file cannot have packets of two link types ({first} and {second}): give it a name that ends in \
         .pcapng"
    )]
    MixedLinks {
        /// The link type of the file.
        first: u16,
        /// The link type of the packet.
        second: u16,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}
