//! The link-layer options in the words of CAKE or as a size table.
//!
//! The same `overhead` means different bytes to the two, as it does in sqm-scripts: CAKE adds it to the IP packet,
//! a size table to the length the kernel knows, which on Ethernet includes a header of 14 bytes.

use sqm_core::spec::Stab;

use super::is_cake;
use crate::settings::{LinkLayer, Mechanism, Settings};

/// Who counts the framing, with `default` resolved. `None` with `linklayer none`.
pub(crate) fn mechanism(settings: &Settings) -> Option<Mechanism> {
    match (settings.link.layer, settings.link.mechanism) {
        (LinkLayer::None, _) => None,
        (_, Mechanism::Default) if is_cake(settings) => Some(Mechanism::Cake),
        (_, Mechanism::Default) => Some(Mechanism::TcStab),
        (_, mechanism) => Some(mechanism),
    }
}

/// The framing in CAKE's words; none if somebody else counts it.
pub(super) fn cake_words(settings: &Settings) -> String {
    if mechanism(settings) != Some(Mechanism::Cake) {
        return String::new();
    }
    let link = &settings.link;
    let atm = if link.layer == LinkLayer::Atm { "atm " } else { "" };
    format!("{atm}overhead {} mpu {}", link.overhead, link.mpu)
}

/// The framing as a size table for the root; `None` if somebody else counts it.
pub(super) fn stab(settings: &Settings) -> Option<Stab> {
    if mechanism(settings) != Some(Mechanism::TcStab) {
        return None;
    }
    let link = &settings.link;
    Some(Stab {
        mtu: link.table_mtu,
        tsize: link.table_size,
        mpu: link.mpu,
        overhead: link.overhead,
        linklayer: match link.layer {
            LinkLayer::Atm => sqm_core::spec::LinkLayer::Atm,
            LinkLayer::None | LinkLayer::Ethernet => sqm_core::spec::LinkLayer::Ethernet,
        },
    })
}
