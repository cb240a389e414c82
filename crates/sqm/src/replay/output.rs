//! The packets that left, as a capture.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use sqm_capture::{Format, Writer};
use sqm_core::packet::Packet as _;
use sqm_core::units::Instant;

use super::packet::Captured;
use crate::failure::Failure;

/// A file that appears under its name when it is complete.
pub(super) struct Output {
    /// None once it is complete.
    writer: Option<Writer<BufWriter<File>>>,
    path: PathBuf,
    partial: PathBuf,
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
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).with_context(|| format!("cannot write {}", partial.display()))?;
        let writer = Writer::new(BufWriter::new(file), format)?;
        Ok(Self {
            writer: Some(writer),
            path: path.to_owned(),
            partial,
        })
    }

    pub(super) fn packet(&mut self, packet: &Captured, now: Instant) -> Result<(), Failure> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        writer
            .packet(now, packet.link, packet.len(), packet.frame.bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let path = self.path.display();
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        writer.finish().with_context(|| format!("cannot write {path}"))?;
        fs::rename(&self.partial, &self.path).with_context(|| format!("cannot write {path}"))?;
        Ok(())
    }
}

/// What is not complete is not left behind.
impl Drop for Output {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            // Nobody is left to be told.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
