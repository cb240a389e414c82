//! The encapsulations between a device and the line, as far as this machine shows them.

use std::collections::BTreeSet;

use sqm_plan::device::Device;
use sqm_plan::link::Encapsulation;

use crate::netlink::link::Link;

/// The kernel's list of PPPoE sessions, with the device of each.
const SESSIONS: &str = "/proc/net/pppoe";
/// Kinds of device that pass packets on to the device below them.
const PASSING: [&str; 3] = ["vlan", "macvlan", "ipvlan"];
/// Number of layers that are looked at, so that a loop of devices ends. A choice: PPPoE over a VLAN has three.
const DEEPEST: usize = 8;

/// The facts about a device on which a plan depends.
pub fn device(links: &[Link], name: &str) -> Device {
    // Without a PPP device there is no session, and the file need not be read.
    let has_ppp = links.iter().any(|link| link.kind.as_deref() == Some("ppp"));
    let sessions = if has_ppp { pppoe_devices() } else { BTreeSet::new() };
    device_with_sessions(links, name, &sessions)
}

/// The devices with PPPoE sessions. The kernel does not say which session belongs to which PPP device: if there are several devices,
/// any of them may be below a PPP device.
pub fn pppoe_devices() -> BTreeSet<String> {
    devices_of_sessions(&std::fs::read_to_string(SESSIONS).unwrap_or_default())
}

/// The devices in the kernel's list of sessions: a head line, then a line for each session with its ID, address and device.
fn devices_of_sessions(list: &str) -> BTreeSet<String> {
    let sessions = list.lines().skip(1);
    sessions
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect()
}

fn device_with_sessions(links: &[Link], name: &str, sessions: &BTreeSet<String>) -> Device {
    let Some(link) = links.iter().find(|link| link.name == name) else {
        return Device::absent(name);
    };
    Device {
        name: name.to_owned(),
        mtu: link.mtu,
        header: if link.has_ethernet_header() {
            Device::ETHERNET_HEADER
        } else {
            0
        },
        stack: stack(links, link, sessions),
        queues: link.queues,
    }
}

fn stack(links: &[Link], link: &Link, sessions: &BTreeSet<String>) -> Vec<Encapsulation> {
    let mut layers = Vec::new();
    let mut here = Some(link);
    for _ in 0..DEEPEST {
        let Some(link) = here else { break };
        let kind = link.kind.as_deref().unwrap_or_default();
        here = None;
        match Encapsulation::of_kind(kind) {
            // PPP may also run over something else than PPPoE, whose overhead is unknown: then nothing is added.
            Some(Encapsulation::Pppoe) if sessions.is_empty() => {}
            Some(Encapsulation::Pppoe) => {
                layers.push(Encapsulation::Pppoe);
                layers.extend(below_pppoe(links, sessions));
            }
            // The devices that carry the tunnel's packets are not below this one in the kernel's list.
            Some(tunnel @ Encapsulation::Tunnel { .. }) => layers.push(tunnel),
            layer => {
                layers.extend(layer);
                if PASSING.contains(&kind) {
                    here = link
                        .lower
                        .and_then(|index| links.iter().find(|link| link.index == index));
                }
            }
        }
    }
    layers
}

/// The layers below a PPPoE session. If the sessions' devices differ in them, the layers with the most bytes: counting too much costs
/// a little of the rate, counting too little costs latency.
fn below_pppoe(links: &[Link], sessions: &BTreeSet<String>) -> Vec<Encapsulation> {
    let devices = links.iter().filter(|link| sessions.contains(&link.name));
    let stacks = devices.map(|link| stack(links, link, &BTreeSet::new()));
    let bytes = |layers: &Vec<Encapsulation>| layers.iter().map(|layer| layer.bytes()).sum::<i32>();
    stacks.max_by_key(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>, lower: Option<u32>, hardware: u16) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mtu: 1492,
            up: true,
            carrier: true,
            kind: kind.map(str::to_owned),
            hardware,
            lower,
            master: None,
            remote: None,
            queues: (4, 2),
        }
    }

    #[test]
    fn layers_are_found_from_the_top_down() {
        let links = [
            link(2, "eth0", None, None, 1),
            link(3, "eth0.7", Some("vlan"), Some(2), 1),
            link(4, "pppoe-wan", Some("ppp"), None, 512),
            link(5, "6in4", Some("sit"), Some(2), 776),
            // The kernel names the other end of a veth as its lower device, but it is not below.
            link(6, "veth0", Some("veth"), Some(3), 1),
        ];
        let sessions = "Id       Address              Device\n00000001 00:11:22:33:44:55   eth0.7\n";
        let sessions = devices_of_sessions(sessions);
        let of = |name| device_with_sessions(&links, name, &sessions);
        assert_eq!(of("eth0").stack, []);
        assert_eq!(of("eth0.7").stack, [Encapsulation::Vlan]);
        assert_eq!(of("pppoe-wan").stack, [Encapsulation::Pppoe, Encapsulation::Vlan]);
        assert_eq!((of("pppoe-wan").header, of("eth0.7").header), (0, 14));
        assert_eq!(
            of("6in4").stack,
            [Encapsulation::Tunnel {
                kind: "sit",
                bytes: 20
            }]
        );
        assert_eq!(of("veth0").stack, []);
        assert_eq!(of("veth0").queues, (4, 2));
        assert_eq!(
            device_with_sessions(&links, "pppoe-wan", &BTreeSet::new()).stack,
            []
        );
        assert_eq!(of("gone.5").stack, [Encapsulation::Vlan]);
    }
    #[test]
    fn of_several_devices_with_sessions_the_one_with_more_overhead_counts() {
        let links = [
            link(2, "eth0", None, None, 1),
            link(3, "eth1.7", Some("vlan"), Some(2), 1),
            link(4, "ppp0", Some("ppp"), None, 512),
        ];
        let head = "Id       Address              Device\n";
        let session = |device: &str| format!("00000001 00:11:22:33:44:55   {device}\n");
        for sessions in [
            session("eth0") + &session("eth1.7"),
            session("eth1.7") + &session("eth0"),
        ] {
            let sessions = devices_of_sessions(&format!("{head}{sessions}"));
            let device = device_with_sessions(&links, "ppp0", &sessions);
            assert_eq!(device.stack, [Encapsulation::Pppoe, Encapsulation::Vlan]);
        }
        let sessions = devices_of_sessions(&format!("{head}{}", session("eth0")));
        let device = device_with_sessions(&links, "ppp0", &sessions);
        assert_eq!(device.stack, [Encapsulation::Pppoe]);
    }
}
