//! What a section says of the line itself: the figures that a measurement can confirm or refute.

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
    /// Bytes counted on top of an IP packet.
    pub overhead: i32,
    /// Whether packets are counted in ATM cells.
    pub atm: bool,
    /// Whether PTM's coding is counted, which takes a 65th of the rate.
    pub ptm: bool,
}

/// Payload of an ATM cell, and the whole cell, bytes (ITU-T I.361).
const CELL_PAYLOAD: f64 = 48.0;
const CELL: f64 = 53.0;
/// What PTM's coding makes of a byte (ITU-T G.993.2, annex N).
const PTM_CODING: f64 = 65.0 / 64.0;

impl ConfiguredLine {
    /// Bytes that the shaper counts for an IP packet of this length.
    pub fn gross_bytes(&self, ip_bytes: f64) -> f64 {
        let framed = ip_bytes + f64::from(self.overhead);
        match (self.atm, self.ptm) {
            (true, _) => (framed / CELL_PAYLOAD).ceil() * CELL,
            (_, true) => framed * PTM_CODING,
            _ => framed,
        }
    }

    pub(crate) fn of(settings: &Settings, device: &Device) -> Self {
        let (download, upload) = match settings.facing {
            Facing::Internet => (settings.ingress.rate, settings.egress.rate),
            Facing::Lan => (settings.egress.rate, settings.ingress.rate),
        };
        let counts = settings.link.layer != LinkLayer::None;
        Self {
            interface: settings.interface.clone(),
            download,
            upload,
            overhead: if counts {
                above_ip(settings, device)
            } else {
                device.header.cast_signed()
            },
            atm: settings.link.layer == LinkLayer::Atm,
            ptm: settings.link.layer == LinkLayer::Ptm,
        }
    }
}
