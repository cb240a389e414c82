//! What a section says of the line itself: the figures that a measurement can confirm or refute.

use sqm_core::spec::cake::Framing;
use sqm_core::units::Rate;

use crate::recipes::{Device, above_ip};
use crate::settings::{Facing, LinkLayer, Settings};

/// A line as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredLine {
    /// The device that leads to it.
    pub interface: String,
    /// Shaped rate towards the home; none if that direction is not shaped.
    pub download: Option<Rate>,
    /// Shaped rate towards the network.
    pub upload: Option<Rate>,
    /// What an IP packet takes on it.
    pub framing: Framing,
    /// Where the file's section begins.
    pub at: usize,
}

impl ConfiguredLine {
    pub(crate) fn of(settings: &Settings, device: &Device) -> Self {
        let (download, upload) = match settings.facing {
            Facing::Internet => (settings.ingress.rate, settings.egress.rate),
            Facing::Lan => (settings.egress.rate, settings.ingress.rate),
        };
        let (overhead, mpu) = match settings.link.layer {
            LinkLayer::None => (device.header.cast_signed(), 0),
            _ => (above_ip(settings, device), settings.link.mpu),
        };
        Self {
            interface: settings.interface.clone(),
            download,
            upload,
            framing: Framing {
                from_ip: true,
                overhead: i16::try_from(overhead).unwrap_or(i16::MAX),
                mpu: u16::try_from(mpu).unwrap_or(u16::MAX),
                cells: settings.link.layer.cells(),
            },
            at: settings.line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_as_cake_does_and_knows_its_section() {
        // The first section is not enabled: that is the default.
        let text = "config queue\n option interface eth1\n option download 1\n option upload 1\n\
                    config queue\n option enabled 1\n option interface eth1\n option download 8mbit\n\
                    option upload 1mbit\n option linklayer atm\n option overhead 44\n option tcMPU 96\n option script best_of_cake.qos\n";
        let loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).unwrap();
        let [line] = &loaded.lines[..] else {
            panic!("{:?}", loaded.lines);
        };
        assert_eq!(line.at, 5);
        assert_eq!(
            line.framing.line_len(40),
            2 * 53,
            "an acknowledgement: 96 bytes in two cells"
        );
        assert_eq!(line.framing.line_len(1500), 33 * 53);
    }
}
