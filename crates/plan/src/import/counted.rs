//! The bytes that a packet is counted with, before and after an import.

use super::{Imported, everywhere};
use crate::configuration::Configuration;
use crate::device::Device;
use crate::link::LinkLayer;
use crate::settings::Mechanism;
use crate::side::{DirectionContext, Side};

/// Keeps what the size tables of sqm-scripts count where the file gives no overhead: the kernel's length of a packet, with its
/// Ethernet header. An overhead that a file gives is kept as it is and reported, because people take it from tables of bytes above
/// IP, which is what it means here.
pub fn keep_counted_bytes(imported: &mut Imported, device: &Device) {
    let text = imported.to_string();
    let Ok(configuration) = Configuration::parse(text.as_bytes(), "") else {
        return;
    };
    let Some(settings) = configuration.sections().first() else {
        return;
    };
    let is_by_kernel = |side: Side| {
        let context = DirectionContext {
            settings,
            side,
            device,
        };
        let counts = matches!(
            context.mechanism(),
            Some(Mechanism::TcStab | Mechanism::HtbPrivate)
        );
        counts && side.of(settings).rate.is_some()
    };
    let header = device.header;
    if settings.link.layer == LinkLayer::None || header == 0 || !Side::ALL.into_iter().any(is_by_kernel) {
        return;
    }
    match settings.link.overhead {
        0 => {
            let message = format!(
                "OVERHEAD is missing or 0, and sqm-scripts counts the {header} bytes of the Ethernet header all the same: \
                 option overhead is {header}, which counts as before"
            );
            imported.set("overhead", header.to_string());
            imported.differences.push(everywhere(message));
        }
        overhead => {
            let before = i64::from(overhead) + i64::from(header);
            imported.differences.push(everywhere(format!(
                "OVERHEAD is {overhead}: sqm-scripts adds it to the {header} bytes of the Ethernet header, option overhead \
                 counts {overhead} bytes above IP; write {before} to count as before"
            )));
        }
    }
}
