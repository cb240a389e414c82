//! Reads packets from a capture of either format.

use std::io::Read;

use sqm_core::units::Instant;

use super::LinkNumber;
use super::bytes::Input;
use super::error::Error;
use super::legacy::Legacy;
use super::pcapng::Pcapng;

/// Reads a capture as a stream.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    /// The current packet or block.
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Format {
    Legacy(Legacy),
    Pcapng(Pcapng),
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The time of the capture, nanoseconds since 1970; a simple packet block has none.
    pub time: Option<Instant>,
    /// The interface, numbered from 0 through all sections of the file.
    pub interface: u32,
    /// The link type.
    pub link: LinkNumber,
    /// The length on the wire without the frame check sequence, in bytes.
    pub length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// A packet, with the position of its bytes in the buffer.
pub(crate) struct Found {
    pub(crate) time: Option<Instant>,
    pub(crate) interface: u32,
    pub(crate) link: LinkNumber,
    pub(crate) length: u32,
    pub(crate) bytes: std::ops::Range<usize>,
}

impl Found {
    /// Removes a frame check sequence of `octets`, which queues do not count.
    pub(crate) fn without_check_sequence(mut self, octets: u32) -> Self {
        self.length = self.length.saturating_sub(octets);
        self.bytes.end = self.bytes.end.min(self.bytes.start + self.length as usize);
        self
    }
}

impl<R: Read> Reader<R> {
    /// Reads the file's header. `stream` is best buffered.
    pub fn new(stream: R) -> Result<Self, Error> {
        let mut input = Input::new(stream);
        let magic = input.array::<4>("its magic number")?;
        let format = if magic == Pcapng::MAGIC {
            Format::Pcapng(Pcapng::default())
        } else {
            Format::Legacy(Legacy::open(&mut input, magic)?)
        };
        let mut reader = Self {
            input,
            format,
            buffer: Vec::new(),
        };
        if let Format::Pcapng(pcapng) = &mut reader.format {
            pcapng.section(&mut reader.input, &mut reader.buffer)?;
        }
        Ok(reader)
    }

    /// The next packet; `None` at the end of the file. Must not be called after an error.
    pub fn next_packet(&mut self) -> Result<Option<Record<'_>>, Error> {
        let found = match &mut self.format {
            Format::Legacy(legacy) => legacy.next_packet(&mut self.input, &mut self.buffer)?,
            Format::Pcapng(pcapng) => pcapng.next_packet(&mut self.input, &mut self.buffer)?,
        };
        let Some(found) = found else { return Ok(None) };
        let bytes = self.buffer.get(found.bytes).unwrap_or_default();
        Ok(Some(Record {
            time: found.time,
            interface: found.interface,
            link: found.link,
            // Some programs omit the length of packets that are captured completely.
            length: found.length.max(bytes.len() as u32),
            bytes,
        }))
    }

    /// The number of bytes that have been read.
    pub const fn position(&self) -> u64 {
        self.input.position
    }
}
