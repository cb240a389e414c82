//! Writes the packets that left the queue to a capture file.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use sqm_core::packet::Packet as _;
use sqm_core::units::Instant;

use crate::error::Error;
use crate::packet::Captured;
use crate::pcap::{self, Format, Writer};

/// A capture that is being written.
pub struct Output<'a> {
    writer: Writer<BufWriter<&'a mut dyn Write>>,
    path: PathBuf,
}

impl<'a> Output<'a> {
    /// A capture that is written to `file`. The name `path` selects the format (`.pcapng`, otherwise pcap) and appears in errors.
    pub fn begin(file: &'a mut dyn Write, path: &Path) -> Result<Self, Error> {
        let format = match path.extension() {
            Some(extension) if extension == "pcapng" => Format::Pcapng,
            _ => Format::Pcap,
        };
        Ok(Self {
            writer: Writer::new(BufWriter::new(file), format)?,
            path: path.to_owned(),
        })
    }

    pub(crate) fn packet(&mut self, packet: &Captured, now: Instant) -> Result<(), Error> {
        self.writer
            .packet(now, packet.link, packet.len(), packet.frame.bytes())
            .map_err(of_file)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }

    /// Writes all buffered data to the file.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let why = || format!("cannot write {}", self.path.display());
        let mut buffer = self.writer.finish().map_err(of_file).with_context(why)?;
        buffer.flush().with_context(why)?;
        Ok(())
    }
}

/// Unwraps an error of the file, so that a caller can find the `io::Error`.
fn of_file(error: pcap::Error) -> anyhow::Error {
    match error {
        pcap::Error::Io(error) => error.into(),
        error => error.into(),
    }
}
