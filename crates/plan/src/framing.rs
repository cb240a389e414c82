//! Framing: how many bytes a packet takes on the line, as parameters of the mechanism that counts them.
//!
//! `option overhead` has one meaning: bytes that the line adds to an IP packet. CAKE counts from the IP packet, too. A
//! size table, HTB and TBF add their overhead to the length that the kernel knows, which on Ethernet includes a header of
//! 14 bytes. For those the header is subtracted here.

use sqm_core::spec::cake::Framing;
use sqm_core::spec::size_table::{LinkLayer as TableLayer, RateFraming};
use sqm_core::spec::{Stab, cake};

use crate::device::Device;
use crate::link::LinkLayer;
use crate::settings::{Mechanism, Settings};
use crate::side::DirectionContext;

/// An IP packet's size on the line, as CAKE computes it, whichever mechanism is configured.
pub(crate) fn on_the_line(settings: &Settings, device: &Device) -> Framing {
    let (overhead, mpu) = match settings.link.layer {
        LinkLayer::None => (device.header.cast_signed(), 0),
        _ => (settings.overhead_above_ip(device), settings.link.mpu),
    };
    Framing {
        from_ip: true,
        overhead: i16::try_from(overhead).unwrap_or(i16::MAX),
        mpu: u16::try_from(mpu).unwrap_or(u16::MAX),
        cells: settings.link.layer.cells(),
    }
}

/// The framing for CAKE itself; CAKE's default if another mechanism counts it.
pub(crate) fn in_cake(context: DirectionContext<'_>) -> Framing {
    match context.mechanism() {
        Some(Mechanism::Cake) => on_the_line(context.settings, context.device),
        _ => cake::Cake::default().framing,
    }
}

/// The framing as a size table for the root; `None` if another mechanism counts it.
pub(crate) fn stab(context: DirectionContext<'_>) -> Option<Stab> {
    let link = &context.settings.link;
    (context.mechanism() == Some(Mechanism::TcStab)).then(|| Stab {
        mtu: link.table_mtu,
        tsize: link.table_size,
        mpu: link.mpu,
        overhead: context.overhead_above_kernels_length(),
        linklayer: table_layer(link.layer),
    })
}

/// The framing inside each class or TBF; none if another mechanism counts it.
pub(crate) fn private(context: DirectionContext<'_>) -> RateFraming {
    if context.mechanism() != Some(Mechanism::HtbPrivate) {
        return RateFraming::default();
    }
    let link = &context.settings.link;
    RateFraming {
        overhead: u16::try_from(context.overhead_above_kernels_length()).unwrap_or(0),
        mpu: u16::try_from(link.mpu).unwrap_or(u16::MAX),
        linklayer: table_layer(link.layer),
    }
}

/// How the overhead was converted; `None` if it was not.
pub(crate) fn header_note(context: DirectionContext<'_>) -> Option<String> {
    let counter = match context.mechanism()? {
        Mechanism::TcStab => "the size table",
        Mechanism::HtbPrivate => "each class",
        Mechanism::Cake | Mechanism::Default => return None,
    };
    let (overhead, header) = (
        context.settings.overhead_above_ip(context.device),
        context.device.header,
    );
    let added = context.overhead_above_kernels_length();
    let coding = match context.settings.link.layer {
        LinkLayer::Ptm => "; the rate is reduced by 1/65 for 64b/65b coding",
        _ => "",
    };
    (header > 0 || !coding.is_empty()).then(|| {
        format!(
            "overhead {overhead} above IP: {counter} adds {added}, because the kernel's length on {} includes \
             {header}{coding}",
            context.device.name
        )
    })
}

/// The link layer for a size table, HTB or TBF. For PTM the rate is reduced instead: [`DirectionContext::rate`].
fn table_layer(layer: LinkLayer) -> TableLayer {
    match layer {
        LinkLayer::Atm => TableLayer::Atm,
        LinkLayer::None | LinkLayer::Ethernet | LinkLayer::Ptm => TableLayer::Ethernet,
    }
}
