//! What is wrong with a capture file.

use std::io;

/// Why a capture cannot be read on or written. Places are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It begins with nothing that a capture begins with.
    #[error("not a capture: pcap and pcapng files do not begin with {found}")]
    NotACapture {
        /// The bytes, in hexadecimal.
        found: String,
    },
    /// It ends in the middle of something.
    #[error("cut short: it ends at byte {at}, in the middle of {what}")]
    Truncated {
        /// Where it ends.
        at: u64,
        /// What would have to follow.
        what: &'static str,
    },
    /// A field cannot be true.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Where the record or block begins.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A classic pcap file has one kind of link.
    #[error(
        "packets of link types {first} and {second} do not go into one pcap file, but into one that is named .pcapng"
    )]
    MixedLinks {
        /// That of the file.
        first: u16,
        /// That of the packet.
        second: u16,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}
