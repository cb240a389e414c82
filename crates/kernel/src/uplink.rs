//! The devices that lead to the internet. If the default route goes through a tunnel, such as a VPN, the line is
//! behind the device that carries the tunnel's packets, and that device is the one to shape.

use crate::netlink::link::Link;
use crate::netlink::route;
use crate::netlink::socket::Socket;
use crate::routes::Routes;

/// Kinds of device that wrap packets in packets to another machine.
const TUNNELS: [&str; 14] = [
    "amneziawg",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "ovpn",
    "sit",
    "tun",
    "vti",
    "vti6",
    "wireguard",
    "xfrm",
];
/// Number of tunnels inside each other that are followed, so that a loop ends. A choice.
const DEEPEST: usize = 4;

/// A device that leads to the internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The device to shape: the one of a default route or, if that is a tunnel, the one that carries its packets. It is
    /// a tunnel only if the kernel does not say which device carries the packets.
    pub device: String,
    /// The tunnels above it, from the one of the default route down.
    pub tunnels: Vec<String>,
    /// False if the device is a tunnel and nothing shows which device carries its packets.
    pub is_known: bool,
}

impl Uplink {
    /// The reason why this device leads to the internet.
    pub fn reason(&self) -> String {
        match self.tunnels.as_slice() {
            [] => "the default route goes through it".to_owned(),
            [tunnel] => format!("it carries the tunnel {tunnel}, through which the default route goes"),
            [first, rest @ ..] => format!(
                "the default route goes through the tunnel {first} inside {}, which it carries",
                rest.join(" inside ")
            ),
        }
    }
}

/// The devices that lead to the internet, the one of the preferred default route first, each once.
pub fn uplinks(socket: &mut Socket, links: &[Link]) -> Vec<Uplink> {
    let routes = Routes::read();
    let mut carriers = |tunnel: &Link| carriers_by(socket, links, &routes, tunnel);
    follow(links, &routes.default_devices(), &mut carriers)
}

/// True if this is a device that wraps packets in packets to another machine.
pub fn is_tunnel(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| TUNNELS.contains(&kind))
}

/// The devices that may carry the packets of a tunnel. It is one if the kernel knows the other end of the tunnel, and
/// none if nothing shows which one it is.
pub fn carriers(socket: &mut Socket, links: &[Link], tunnel: &Link) -> Vec<String> {
    carriers_by(socket, links, &Routes::read(), tunnel)
}

fn carriers_by(socket: &mut Socket, links: &[Link], routes: &Routes, tunnel: &Link) -> Vec<String> {
    let to_remote = tunnel
        .remote
        .and_then(|remote| route::device_to(socket, remote).ok().flatten());
    let bound = tunnel.lower.filter(|index| *index != 0);
    match bound.or(to_remote).and_then(|index| by_index(links, index)) {
        Some(link) if link.leads_out() && link.index != tunnel.index => vec![link.name.clone()],
        _ => by_routes(links, routes),
    }
}

/// The devices that probably carry the packets of a tunnel whose other end only its program knows: those of routes to
/// a single host, or else those of other default routes.
fn by_routes(links: &[Link], routes: &Routes) -> Vec<String> {
    let is_line = |name: &String| {
        let mut links = links.iter();
        links.any(|link| link.name == *name && link.leads_out() && !is_tunnel(link.kind.as_deref()))
    };
    let of = |devices: Vec<String>| -> Vec<String> { devices.into_iter().filter(is_line).collect() };
    let hosts = of(routes.host_devices());
    if hosts.is_empty() {
        of(routes.default_devices())
    } else {
        hosts
    }
}

fn by_index(links: &[Link], index: u32) -> Option<&Link> {
    links.iter().find(|link| link.index == index)
}

/// Replaces each tunnel by the devices that carry it.
fn follow(links: &[Link], devices: &[String], carriers: &mut dyn FnMut(&Link) -> Vec<String>) -> Vec<Uplink> {
    let mut found: Vec<Uplink> = Vec::new();
    for device in devices {
        for uplink in below(links, device, Vec::new(), carriers) {
            if !found.iter().any(|other| other.device == uplink.device) {
                found.push(uplink);
            }
        }
    }
    found
}

fn below(
    links: &[Link],
    device: &str,
    tunnels: Vec<String>,
    carriers: &mut dyn FnMut(&Link) -> Vec<String>,
) -> Vec<Uplink> {
    let tunnel = links
        .iter()
        .find(|link| link.name == device && is_tunnel(link.kind.as_deref()));
    let Some(tunnel) = tunnel else {
        return vec![Uplink {
            device: device.to_owned(),
            tunnels,
            is_known: true,
        }];
    };
    let carrying = if tunnels.len() < DEEPEST {
        carriers(tunnel)
    } else {
        Vec::new()
    };
    if carrying.is_empty() {
        return vec![Uplink {
            device: device.to_owned(),
            tunnels,
            is_known: false,
        }];
    }
    let inside = [tunnels, vec![device.to_owned()]].concat();
    carrying
        .iter()
        .flat_map(|carrier| below(links, carrier, inside.clone(), carriers))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mtu: 1500,
            up: true,
            carrier: true,
            kind: kind.map(str::to_owned),
            hardware: 1,
            lower: None,
            master: None,
            remote: None,
            queues: (1, 1),
        }
    }

    fn links() -> Vec<Link> {
        vec![
            link(2, "eth0", None),
            link(3, "eth1", None),
            link(4, "tun0", Some("tun")),
            link(5, "wg0", Some("wireguard")),
            link(6, "br0", Some("bridge")),
        ]
    }

    fn found(devices: &[&str], carriers: &[(&str, &[&str])]) -> Vec<(String, Vec<String>, bool)> {
        let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
        let mut carried_by = |tunnel: &Link| {
            let of = carriers.iter().find(|(name, _)| *name == tunnel.name);
            of.map_or_else(Vec::new, |(_, names)| {
                names.iter().map(ToString::to_string).collect()
            })
        };
        let uplinks = follow(&links(), &devices, &mut carried_by);
        uplinks
            .into_iter()
            .map(|uplink| (uplink.device, uplink.tunnels, uplink.is_known))
            .collect()
    }

    fn uplink(device: &str, tunnels: &[&str], is_known: bool) -> (String, Vec<String>, bool) {
        let tunnels = tunnels.iter().map(ToString::to_string).collect();
        (device.to_owned(), tunnels, is_known)
    }

    #[test]
    fn a_default_route_through_tunnels_is_followed_to_the_device_below() {
        assert_eq!(found(&["eth0"], &[]), [uplink("eth0", &[], true)]);
        assert_eq!(
            found(&["wg0", "eth0"], &[("wg0", &["tun0"]), ("tun0", &["eth0"])]),
            [uplink("eth0", &["wg0", "tun0"], true)],
            "eth0 is named once"
        );
        assert_eq!(
            found(&["tun0"], &[("tun0", &["eth0", "eth1"])]),
            [uplink("eth0", &["tun0"], true), uplink("eth1", &["tun0"], true)]
        );
    }

    #[test]
    fn a_tunnel_without_a_known_device_below_is_named_itself() {
        assert_eq!(found(&["tun0"], &[]), [uplink("tun0", &[], false)]);
        let loops = found(&["tun0"], &[("tun0", &["wg0"]), ("wg0", &["tun0"])]);
        assert!(!loops[0].2, "{loops:?}");
    }

    #[test]
    fn the_route_to_the_other_end_of_a_vpn_shows_its_device() {
        let head = "head\n";
        let default = "tun0 00000000 00000000 0001 0 0 0 00000000\n";
        let host = "eth1 0200420A 0101A8C0 0007 0 0 0 FFFFFFFF\n";
        let second = "eth0 00000000 0101A8C0 0003 0 0 600 00000000\n";
        let of = |lines: &[&str]| by_routes(&links(), &Routes::parse(&lines.concat(), ""));
        assert_eq!(of(&[head, default, host, second]), ["eth1"]);
        assert_eq!(of(&[head, default, second]), ["eth0"]);
        assert_eq!(of(&[head, default]), Vec::<String>::new());
    }
}
