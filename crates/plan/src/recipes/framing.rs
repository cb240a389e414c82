//! What a packet costs on the line, in the words of whoever counts it.
//!
//! To the user `overhead` has one meaning: bytes that the line adds to an IP packet. CAKE counts so, too. A size table,
//! HTB and TBF count on top of the length the kernel knows, which on Ethernet includes a header of 14 bytes; those are
//! taken off here.

use sqm_core::spec::Stab;
use sqm_core::spec::size_table::{LinkLayer as Cells, RateFraming};

use super::{Device, Line, Side, is_cake};
use crate::settings::{LinkLayer, Mechanism, Script, Settings};

/// Who counts the framing. `None` with `linklayer none`.
///
/// A mechanism that the set-up does not have, or that cannot express the overhead, gives way to the set-up's own.
pub(crate) fn counted_by(settings: &Settings, side: Side, device: &Device) -> Option<Mechanism> {
    let direction = side.of(settings);
    let cake = is_cake(direction);
    let own = if cake { Mechanism::Cake } else { Mechanism::TcStab };
    match (settings.link.layer, settings.link.mechanism) {
        (LinkLayer::None, _) => None,
        (_, Mechanism::Default) => Some(own),
        (_, Mechanism::Cake) => Some(own),
        (_, Mechanism::TcStab) => Some(Mechanism::TcStab),
        (_, Mechanism::HtbPrivate) => {
            let has = matches!(
                direction.script,
                Script::Simple | Script::Simplest | Script::SimplestTbf
            );
            let fits = above_kernels_length(settings, device) >= 0;
            Some(if has && !cake && fits {
                Mechanism::HtbPrivate
            } else {
                own
            })
        }
    }
}

/// The bytes that the line adds to an IP packet: those of the settings, and of the layers that the device stack shows
/// and the preset does not count.
pub(crate) fn above_ip(settings: &Settings, device: &Device) -> i32 {
    let link = &settings.link;
    let stack: i32 = match link.preset {
        Some(preset) if !settings.gives("overhead") => preset
            .missing(&device.stack)
            .iter()
            .map(|layer| layer.bytes())
            .sum(),
        _ => 0,
    };
    link.overhead + stack
}

/// The framing in CAKE's words; none if somebody else counts it.
pub(super) fn cake_words(line: Line<'_>) -> String {
    if line.mechanism() != Some(Mechanism::Cake) {
        return String::new();
    }
    let cells = match line.settings.link.layer {
        LinkLayer::Atm => "atm ",
        LinkLayer::Ptm => "ptm ",
        LinkLayer::None | LinkLayer::Ethernet => "",
    };
    let overhead = above_ip(line.settings, line.device);
    format!("{cells}overhead {overhead} mpu {}", line.settings.link.mpu)
}

/// The framing as a size table for the root; `None` if somebody else counts it.
pub(super) fn stab(line: Line<'_>) -> Option<Stab> {
    let link = &line.settings.link;
    (line.mechanism() == Some(Mechanism::TcStab)).then(|| Stab {
        mtu: link.table_mtu,
        tsize: link.table_size,
        mpu: link.mpu,
        overhead: above_kernels_length(line.settings, line.device),
        linklayer: cells(link.layer),
    })
}

/// The framing inside each class or TBF; nothing if somebody else counts it.
pub(super) fn private(line: Line<'_>) -> RateFraming {
    if line.mechanism() != Some(Mechanism::HtbPrivate) {
        return RateFraming::default();
    }
    let link = &line.settings.link;
    RateFraming {
        overhead: u16::try_from(above_kernels_length(line.settings, line.device)).unwrap_or(0),
        mpu: u16::try_from(link.mpu).unwrap_or(u16::MAX),
        linklayer: cells(link.layer),
    }
}

/// How the bytes were converted, where they were.
pub(crate) fn header_note(line: Line<'_>) -> Option<String> {
    let who = match line.mechanism()? {
        Mechanism::TcStab => "the size table",
        Mechanism::HtbPrivate => "each class",
        Mechanism::Cake | Mechanism::Default => return None,
    };
    let (overhead, header) = (above_ip(line.settings, line.device), line.device.header);
    let added = above_kernels_length(line.settings, line.device);
    let coding = match line.settings.link.layer {
        LinkLayer::Ptm => "; the rate is less by 1/65 for 64b/65b coding",
        _ => "",
    };
    (header > 0 || !coding.is_empty()).then(|| {
        format!(
            "overhead {overhead} above IP: {who} adds {added}, because the kernel's length on {} has {header} of them{coding}",
            line.device.name
        )
    })
}

fn above_kernels_length(settings: &Settings, device: &Device) -> i32 {
    above_ip(settings, device) - device.header.cast_signed()
}

/// 64b/65b coding is in the rate.
fn cells(layer: LinkLayer) -> Cells {
    match layer {
        LinkLayer::Atm => Cells::Atm,
        LinkLayer::None | LinkLayer::Ethernet | LinkLayer::Ptm => Cells::Ethernet,
    }
}
