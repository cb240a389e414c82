//! Writes capture files.

use std::io::Write;

use sqm_core::units::Instant;

use super::LinkNumber;
use super::error::Error;

/// The format of a capture. Both have a resolution of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, which every program reads and which has one link type.
    Pcap,
    /// pcapng, which has any number of interfaces.
    Pcapng,
}

/// Writes a capture as a stream.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    format: Format,
    /// The link types so far, each with an interface of its own; pcap has at most one.
    links: Vec<LinkNumber>,
}

/// The snap length that libpcap writes for "no limit", in bytes.
const SNAP_LENGTH: u32 = 262_144;

impl<W: Write> Writer<W> {
    /// A file without packets. `output` is best buffered.
    pub fn new(mut output: W, format: Format) -> Result<Self, Error> {
        if format == Format::Pcapng {
            // Byte order, version 1.0, and the value for an unknown length of the section.
            let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
            body.extend([1, 0, 0, 0]);
            body.extend([0xff; 8]);
            block(&mut output, 0x0a0d_0d0a, &body)?;
        }
        Ok(Self {
            output,
            format,
            links: Vec::new(),
        })
    }

    /// Appends a packet of `length` bytes on the wire, of which `bytes` were captured.
    pub fn packet(
        &mut self,
        time: Instant,
        link: LinkNumber,
        length: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let interface = self.interface(link)?;
        let captured = (bytes.len() as u32).to_le_bytes();
        match self.format {
            Format::Pcap => {
                // Seconds have 32 bits, which last until 2106.
                let seconds = u32::try_from(time.0 / 1_000_000_000).unwrap_or(u32::MAX);
                let nanos = (time.0 % 1_000_000_000) as u32;
                self.output.write_all(&seconds.to_le_bytes())?;
                self.output.write_all(&nanos.to_le_bytes())?;
                self.output.write_all(&captured)?;
                self.output.write_all(&length.to_le_bytes())?;
                self.output.write_all(bytes)?;
            }
            Format::Pcapng => {
                let mut body = interface.to_le_bytes().to_vec();
                body.extend(((time.0 >> 32) as u32).to_le_bytes());
                body.extend((time.0 as u32).to_le_bytes());
                body.extend(captured);
                body.extend(length.to_le_bytes());
                body.extend(bytes);
                body.resize(body.len().next_multiple_of(4), 0);
                block(&mut self.output, 6, &body)?;
            }
        }
        Ok(())
    }

    /// Writes buffered data. A pcap file without packets has the link type Ethernet.
    pub fn finish(mut self) -> Result<W, Error> {
        if self.format == Format::Pcap && self.links.is_empty() {
            self.interface(LinkNumber::ETHERNET)?;
        }
        self.output.flush()?;
        Ok(self.output)
    }

    /// The number of the interface for `link`, which is described first if it is new.
    fn interface(&mut self, link: LinkNumber) -> Result<u32, Error> {
        if let Some(known) = self.links.iter().position(|known| *known == link) {
            return Ok(known as u32);
        }
        match (self.format, self.links.first()) {
            (Format::Pcap, Some(first)) => {
                return Err(Error::MixedLinks {
                    first: first.0,
                    second: link.0,
                });
            }
            (Format::Pcap, None) => {
                self.output.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
                self.output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
                self.output.write_all(&SNAP_LENGTH.to_le_bytes())?;
                self.output.write_all(&u32::from(link.0).to_le_bytes())?;
            }
            (Format::Pcapng, _) => {
                let mut body = u32::from(link.0).to_le_bytes().to_vec();
                body.extend(SNAP_LENGTH.to_le_bytes());
                // The option for a time resolution of 10^-9 s, then the end of the options.
                body.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
                block(&mut self.output, 1, &body)?;
            }
        }
        self.links.push(link);
        Ok(self.links.len() as u32 - 1)
    }
}

/// A pcapng block. `body` must be a multiple of 32 bits.
fn block(output: &mut impl Write, kind: u32, body: &[u8]) -> Result<(), Error> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    output.write_all(&kind.to_le_bytes())?;
    output.write_all(&length)?;
    output.write_all(body)?;
    output.write_all(&length)?;
    Ok(())
}
