//! One packet after another, whatever the format.

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
    /// Holds one packet or block.
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Format {
    Legacy(Legacy),
    Pcapng(Pcapng),
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Nanoseconds since 1970 when it was seen; a simple packet block has none.
    pub time: Option<Instant>,
    /// The interface it was seen on, counted through all sections of the file from 0.
    pub interface: u32,
    /// What it begins with.
    pub link: LinkNumber,
    /// Length on the wire, bytes, without a frame check sequence.
    pub length: u32,
    /// What of it was captured.
    pub bytes: &'a [u8],
}

/// Where a packet's bytes lie in the buffer, and all else that is known of it.
pub(crate) struct Found {
    pub(crate) time: Option<Instant>,
    pub(crate) interface: u32,
    pub(crate) link: LinkNumber,
    pub(crate) length: u32,
    pub(crate) bytes: std::ops::Range<usize>,
}

impl Found {
    /// Takes the frame check sequence of `octets` off, which queues do not count.
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

    /// The next packet; none at the end of the file. After an error there is nothing more to read.
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
            // Some programs leave the length out when they capture all of a packet.
            length: found.length.max(bytes.len() as u32),
            bytes,
        }))
    }

    /// How many bytes were read.
    pub const fn position(&self) -> u64 {
        self.input.position
    }
}
