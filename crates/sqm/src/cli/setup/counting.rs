//! How the new section counts a packet.

use std::path::Path;

use sqm_configuration::{Invalid, parse_and_plan};
use sqm_core::spec::cake::Framing;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::stack;

/// The largest packet of a transfer over the internet, bytes.
const LARGEST_PACKET: u32 = 1500;

/// How a packet counts on the line, by the plan of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counting {
    pub(super) framing: Framing,
    /// The size of a full packet with its IP header, bytes.
    pub(super) packet: u32,
}

/// How the section of the interface in this configuration counts packets: by the preset, the layers that the device stack shows, and
/// the section's own options. `None` if the interface has no enabled section.
pub(super) fn counting(
    text: Vec<u8>,
    config: &Path,
    interface: &str,
    links: &[Link],
) -> Result<Option<Counting>, Invalid> {
    let (_, loaded) = parse_and_plan(text, config, links)?;
    let line = loaded.lines.iter().find(|line| line.interface == interface);
    let mtu = stack::device(links, interface).mtu;
    Ok(line.map(|line| Counting {
        framing: line.framing,
        packet: mtu.clamp(1, LARGEST_PACKET),
    }))
}

/// A rate that makes a section complete before its rates are known.
pub(super) const ANY_RATE: Rate = Rate::from_kbits_per_sec(10_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: &str, mtu: u32) -> Link {
        Link {
            index: 3,
            name: name.to_owned(),
            mtu,
            up: true,
            carrier: true,
            kind: Some(kind.to_owned()),
            hardware: 1,
            lower: None,
            master: None,
            remote: None,
            queues: (1, 1),
        }
    }

    #[test]
    fn layers_below_the_device_and_options_of_the_section_count() {
        let links = [link("eth0", "veth", 9000), link("eth0.7", "vlan", 1492)];
        let counted = |device: &str, options: &str| {
            let text = format!(
                "config queue\n option enabled 1\n option interface {device}\n option download 10mbit\n option upload 1mbit\n \
                 option script best_of_cake.qos\n {options}\n"
            );
            let found = counting(text.into_bytes(), Path::new("sqm"), device, &links)
                .unwrap()
                .unwrap();
            (found.framing.overhead, found.packet)
        };
        assert_eq!(counted("eth0", "option link vdsl2"), (22, 1500));
        assert_eq!(counted("eth0.7", "option link vdsl2"), (26, 1492));
        assert_eq!(counted("eth0.7", "option link vdsl2-pppoe"), (34, 1492));
        assert_eq!(
            counted("eth0.7", "option link vdsl2\n option overhead 40"),
            (40, 1492)
        );
    }
}
