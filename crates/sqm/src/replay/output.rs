//! The packets that left, as a capture.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use sqm_capture::{Format, Writer};
use sqm_core::packet::Packet as _;
use sqm_core::units::Instant;

use super::packet::Captured;
use crate::failure::Failure;
use crate::written::Written;

/// A file that appears under its name when it is complete.
pub(super) struct Output {
    writer: Writer<BufWriter<Written>>,
    path: PathBuf,
}

impl Output {
    /// A file for the packets of `capture`; its name says the format.
    pub(super) fn create(path: &Path, capture: &Path) -> Result<Self, Failure> {
        let same = |a: &Path, b: &Path| {
            a.canonicalize()
                .is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
        };
        if same(path, capture) {
            let error = anyhow!("--out would overwrite the capture {}", capture.display());
            return Err(Failure::Usage(error));
        }
        let format = match path.extension() {
            Some(extension) if extension == "pcapng" => Format::Pcapng,
            _ => Format::Pcap,
        };
        Ok(Self {
            writer: Writer::new(BufWriter::new(Written::begin(path)?), format)?,
            path: path.to_owned(),
        })
    }

    pub(super) fn packet(&mut self, packet: &Captured, now: Instant) -> Result<(), Failure> {
        self.writer
            .packet(now, packet.link, packet.len(), packet.frame.bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        let why = || format!("cannot write {}", self.path.display());
        let buffer = self.writer.finish().with_context(why)?;
        let written = buffer
            .into_inner()
            .map_err(|error| error.into_error())
            .with_context(why)?;
        written.commit().with_context(why)?;
        Ok(())
    }
}
