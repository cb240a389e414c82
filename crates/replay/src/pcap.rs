//! Capture files: pcap (its microsecond and nanosecond forms, either byte order) and pcapng.
//!
//! A file is untrusted: no field of it makes the reader panic, allocate more than [`MAX_BLOCK`] or read beyond a block.
//! Packets come one by one, so that memory does not grow with the file.
//!
//! Our own code, because the crates for it fall short where it matters here: `pcap-file` 2 reads every pcapng time as
//! nanoseconds, and `pcap-parser` 0.17 knows no binary time resolution, reads time offsets in one byte order only and
//! allocates for the options of every packet.

mod bytes;
mod error;
mod legacy;
mod pcapng;
mod reader;
mod writer;

pub use error::Error;
pub use reader::{Reader, Record};
pub use writer::{Format, Writer};

use sqm_core::frame::LinkType;

/// The longest block, and with it the longest packet, that is read, in bytes: libpcap's limit.
pub const MAX_BLOCK: u32 = 16 << 20;

/// The link type of a frame, as capture files number it (LINKTYPE_ values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkNumber(pub u16);

impl LinkNumber {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6 without a link header.
    pub const RAW: Self = Self(101);

    /// The kind of link, if frames of it can be parsed.
    pub const fn link(self) -> Option<LinkType> {
        Some(match self.0 {
            0 | 108 => LinkType::Null,
            1 => LinkType::Ethernet,
            // PPP; in HDLC-like framing; as NetBSD has it under its own number.
            9 | 50 => LinkType::Ppp,
            // Two numbers that some systems used for raw IP before 101, and those of one version only.
            12 | 14 | 101 | 228 | 229 => LinkType::Raw,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            _ => return None,
        })
    }
}
