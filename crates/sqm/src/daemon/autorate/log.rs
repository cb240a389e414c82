//! The decisions as comma-separated values, for whoever wants to plot them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use sqm_core::autorate::{Choice, Decision};

/// A log of more bytes is put aside as FILE.old.
const MOST: u64 = 8 << 20;
const HEAD: &str = "unix_ms,download_bits_per_sec,download_load_bits_per_sec,download_why,upload_bits_per_sec,\
                    upload_load_bits_per_sec,upload_why\n";

/// Where decisions are written, if anywhere.
pub(super) struct Log {
    path: Option<PathBuf>,
    file: Option<File>,
    written: u64,
}

impl Log {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            file: None,
            written: 0,
        }
    }

    /// A line. One that cannot be written is left out.
    pub(super) fn write(&mut self, decision: &Decision, download: u64, upload: u64) {
        let Some(path) = &self.path else { return };
        if self.written > MOST {
            let mut old = path.clone().into_os_string();
            old.push(".old");
            let _ = std::fs::rename(path, old);
            (self.file, self.written) = (None, 0);
        }
        if self.file.is_none() {
            self.file = OpenOptions::new().create(true).append(true).open(path).ok();
            self.written = self
                .file
                .as_ref()
                .and_then(|file| Some(file.metadata().ok()?.len()))
                .unwrap_or(0);
            if self.written == 0 {
                self.put(HEAD);
            }
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of = |choice: &Choice, load: u64| {
            // The words have no comma but that of this one.
            let why = choice.reason.to_string().replace(',', ";");
            format!("{},{load},{why}", choice.rate.bits_per_sec())
        };
        let (down, up) = (
            of(&decision.rates.ingress, download),
            of(&decision.rates.egress, upload),
        );
        self.put(&format!("{},{down},{up}\n", since.as_millis()));
    }

    fn put(&mut self, text: &str) {
        if let Some(file) = &mut self.file
            && file.write_all(text.as_bytes()).is_ok()
        {
            self.written += text.len() as u64;
        }
    }
}
