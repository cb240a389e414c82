//! The throughput of each direction, from the device's counters.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sqm_autorate::{Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::spec::cake::Framing;
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// The longest packet on the line, bytes (Ethernet's MTU). With segmentation offload the kernel counts several packets as one
/// larger packet.
const MTU: u64 = 1500;
/// The Ethernet header, bytes, which the kernel's counters include.
const HEADER: u64 = 14;

/// The counters of one device.
pub(crate) struct ThroughputReader {
    folder: String,
    framing: Framing,
    faces_lan: bool,
    /// The files of the byte and the packet counter. `None` while there is no device.
    files: Option<PerDirection<[File; 2]>>,
    last: Option<(Instant, PerDirection<Counters>)>,
    loads: PerDirection<Rate>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    bytes: u64,
    packets: u64,
}

impl ThroughputReader {
    pub(crate) fn new(interface: &str, framing: Framing, faces_lan: bool) -> Self {
        Self {
            folder: format!("/sys/class/net/{interface}/statistics"),
            framing,
            faces_lan,
            files: None,
            last: None,
            loads: PerDirection {
                download: Rate::from_bits_per_sec(0),
                upload: Rate::from_bits_per_sec(0),
            },
        }
    }

    /// Adds a sample of each direction's bytes since the last call. Adds none if there is no device, or if its counters went back
    /// because it is another device.
    pub(crate) fn read(&mut self, now: Instant, samples: &mut Vec<Sample>) {
        let before = self.last.map(|(_, counted)| counted);
        let Some(counted) = self.count(before) else {
            // If the device appears again, its counters start at 0.
            (self.files, self.last) = (None, None);
            return;
        };
        let last = self.last.replace((now, counted));
        let Some((before, old)) = last else { return };
        let span = now.since(before);
        for direction in Direction::BOTH {
            let (new, old) = (counted[direction], old[direction]);
            let Some(bytes) = new.bytes.checked_sub(old.bytes).filter(|_| span.0 > 0) else {
                continue;
            };
            let packets = new.packets.saturating_sub(old.packets);
            let bytes = gross(self.framing, bytes, packets);
            let signal = Signal::Traffic {
                direction,
                bytes: Bytes(bytes),
                span,
            };
            self.loads[direction] = rate(bytes, span);
            samples.push(Sample { at: now, signal });
        }
    }

    /// The throughput at the last reading, gross.
    pub(crate) const fn loads(&self) -> PerDirection<Rate> {
        self.loads
    }

    fn count(&mut self, before: Option<PerDirection<Counters>>) -> Option<PerDirection<Counters>> {
        if self.files.is_none() {
            self.files = self.open().ok();
        }
        let files = self.files.as_ref()?;
        let count = |direction| {
            let [bytes, packets] = &files[direction];
            let bytes = number(bytes)?;
            // If no bytes passed, no packets did either: that saves reading a file on an idle line.
            let same = before
                .map(|before| before[direction])
                .filter(|before| before.bytes == bytes);
            let packets = match same {
                Some(same) => same.packets,
                None => number(packets)?,
            };
            Some(Counters { bytes, packets })
        };
        Some(PerDirection {
            download: count(Direction::Download)?,
            upload: count(Direction::Upload)?,
        })
    }

    fn open(&self) -> std::io::Result<PerDirection<[File; 2]>> {
        let open = |prefix: &str| -> std::io::Result<[File; 2]> {
            let file = |what: &str| File::open(format!("{}/{prefix}_{what}", self.folder));
            Ok([file("bytes")?, file("packets")?])
        };
        let (download, upload) = match self.faces_lan {
            false => ("rx", "tx"),
            true => ("tx", "rx"),
        };
        Ok(PerDirection {
            download: open(download)?,
            upload: open(upload)?,
        })
    }
}

fn number(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

/// The bytes that the packets take on the line, if all of them have the mean size.
fn gross(framing: Framing, bytes: u64, packets: u64) -> u64 {
    let Some(mean) = bytes.checked_div(packets) else {
        return bytes;
    };
    let size = mean.saturating_sub(HEADER).clamp(1, MTU);
    let on_line = u64::from(framing.line_len(size as u32));
    bytes.saturating_mul(on_line) / (size + HEADER)
}

fn rate(bytes: u64, span: Nanos) -> Rate {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(span.0.max(1));
    Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use sqm_core::spec::cake::Cells;

    use super::*;

    #[test]
    fn counted_bytes_are_converted_to_bytes_on_the_line() {
        let framing = Framing {
            from_ip: true,
            overhead: 18,
            mpu: 0,
            cells: Cells::None,
        };
        assert_eq!(gross(framing, 1_514_000, 1000), 1_518_000);
        // One counted packet that is ten on the line.
        assert_eq!(gross(framing, 15_140, 1), 15_180);
        assert_eq!(gross(framing, 0, 0), 0);
        let atm = Framing {
            cells: Cells::Atm,
            ..framing
        };
        assert_eq!(gross(atm, 66_000, 1000), 106_000);
    }
}
