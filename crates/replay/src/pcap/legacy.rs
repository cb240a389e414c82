//! The classic pcap format: a header of 24 bytes, then a header of 16 before each packet.

use std::io::Read;

use sqm_core::units::Instant;

use super::bytes::{Input, Order};
use super::error::Error;
use super::reader::Found;
use super::{LinkNumber, MAX_BLOCK};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The fields of the file's header.
#[derive(Debug)]
pub(crate) struct Legacy {
    order: Order,
    nanos_per_unit: u64,
    /// The size of each packet's header, in bytes; one old variant has more.
    header: Header,
    link: LinkNumber,
    check_sequence: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Header {
    Usual,
    /// The variant of a patched libpcap of 1999, which has eight more bytes.
    Modified,
}

/// The error for a file that begins like this.
fn no_capture(magic: [u8; 4]) -> Error {
    /// The first bytes of compressed files (RFC 1952, the formats of xz, Zstandard and bzip2).
    const COMPRESSED: [(&[u8], &str); 4] = [
        (&[0x1f, 0x8b], "gzip"),
        (&[0xfd, b'7', b'z', b'X'], "xz"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (b"BZh", "bzip2"),
    ];
    let mut compressed = COMPRESSED.iter();
    match compressed.find(|(beginning, _)| magic.starts_with(beginning)) {
        Some((_, program)) => Error::Compressed { program },
        None => Error::NotACapture {
            found: magic.map(|byte| format!("{byte:02x}")).join(" "),
        },
    }
}

impl Legacy {
    /// Reads the rest of the file's header after its magic number.
    pub(crate) fn open<R: Read>(input: &mut Input<R>, magic: [u8; 4]) -> Result<Self, Error> {
        const MICROS: u32 = 0xa1b2_c3d4;
        const NANOS: u32 = 0xa1b2_3c4d;
        const MODIFIED: u32 = 0xa1b2_cd34;
        let known = [Order::Little, Order::Big].into_iter().find_map(|order| {
            let (nanos_per_unit, header) = match order.u32(magic) {
                MICROS => (1000, Header::Usual),
                NANOS => (1, Header::Usual),
                MODIFIED => (1000, Header::Modified),
                _ => return None,
            };
            Some((order, nanos_per_unit, header))
        });
        let Some((order, nanos_per_unit, header)) = known else {
            return Err(no_capture(magic));
        };
        let rest: [u8; 20] = input.array("the header of a pcap file")?;
        let link = order.u32_at(&rest, 16);
        Ok(Self {
            order,
            nanos_per_unit,
            header,
            link: LinkNumber(link as u16),
            check_sequence: check_sequence(link),
        })
    }

    pub(crate) fn next_packet<R: Read>(
        &self,
        input: &mut Input<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Found>, Error> {
        let at = input.position;
        let Some(header) = input.array_or_end::<16>("a packet's header")? else {
            return Ok(None);
        };
        if self.header == Header::Modified {
            let _: [u8; 8] = input.array("a packet's header")?;
        }
        let [seconds, fraction, captured, length] = [0, 4, 8, 12].map(|at| self.order.u32_at(&header, at));
        if captured > MAX_BLOCK {
            let what = format!("a packet of {captured} bytes");
            return Err(Error::Damaged { at, what });
        }
        input.fill(buffer, captured, "a packet")?;
        let nanos = u64::from(seconds) * NANOS_PER_SEC + u64::from(fraction) * self.nanos_per_unit;
        let found = Found {
            time: Some(Instant(nanos)),
            interface: 0,
            link: self.link,
            length,
            bytes: 0..buffer.len(),
        };
        Ok(Some(found.without_check_sequence(self.check_sequence)))
    }
}

/// The length of the frame check sequence at the end of each frame, in bytes. The upper bits of the link type may have it, in units of two.
const fn check_sequence(link: u32) -> u32 {
    const IS_KNOWN: u32 = 1 << 26;
    if link & IS_KNOWN == 0 { 0 } else { (link >> 28) * 2 }
}
