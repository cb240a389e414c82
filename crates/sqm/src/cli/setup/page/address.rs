//! The address of the page that setup proposes. Pure, apart from the list of addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sqm_kernel::netlink::address::{self, DeviceAddress};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::uplink::{is_tunnel, uplinks};

use super::options::{LOCAL_PORT, OPEN_PORT};

/// Beginnings of the names of bridges that lead to containers and virtual machines, not to a home network.
const VIRTUAL: [&str; 6] = ["cni", "docker", "lxc", "lxdbr", "podman", "virbr"];

/// This machine's address in the home network, or loopback if it has none.
pub(super) fn proposal(socket: &mut Socket, links: &[Link], shaped: &str) -> SocketAddr {
    let addresses = address::list(socket).unwrap_or_default();
    let mut outside: Vec<String> = uplinks(socket, links)
        .into_iter()
        .map(|uplink| uplink.device)
        .collect();
    outside.push(shaped.to_owned());
    match inside(links, &addresses, &outside) {
        Some(address) => SocketAddr::new(address, OPEN_PORT),
        None => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), LOCAL_PORT),
    }
}

/// A private address on a device that does not lead to the internet. IPv4 comes first, because people can type it.
fn inside(links: &[Link], addresses: &[DeviceAddress], outside: &[String]) -> Option<IpAddr> {
    let is_below_outside = |link: &Link| {
        let mut above = links.iter().filter(|above| outside.contains(&above.name));
        above.any(|above| above.lower == Some(link.index))
    };
    let is_inside = |link: &&Link| {
        link.up
            && link.leads_out()
            && !outside.contains(&link.name)
            && !is_below_outside(link)
            && !is_tunnel(link.kind.as_deref())
            && !VIRTUAL.iter().any(|prefix| link.name.starts_with(prefix))
    };
    let found = links.iter().filter(is_inside).flat_map(|link| {
        let own = addresses.iter().filter(|found| found.device == link.index);
        own.map(|found| found.address)
    });
    let private: Vec<IpAddr> = found.filter(is_private).collect();
    let v4 = private.iter().find(|address| address.is_ipv4());
    v4.or_else(|| private.first()).copied()
}

/// True for addresses that only a home network routes (RFC 1918, RFC 4193).
fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>, lower: Option<u32>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mtu: 1500,
            up: true,
            carrier: true,
            kind: kind.map(str::to_owned),
            hardware: 1,
            lower,
            master: None,
            remote: None,
            queues: (1, 1),
        }
    }

    #[test]
    fn the_page_is_proposed_on_the_home_network_and_not_on_the_line() {
        let links = [
            link(2, "eth0", None, None),
            link(3, "eth0.7", Some("vlan"), Some(2)),
            link(4, "docker0", Some("bridge"), None),
            link(5, "wg0", Some("wireguard"), None),
            link(6, "br0", Some("bridge"), None),
        ];
        let at = |device: u32, address: &str| DeviceAddress {
            device,
            address: address.parse().unwrap(),
        };
        let all = [
            at(2, "192.168.100.2"),
            at(3, "10.1.2.3"),
            at(4, "172.17.0.1"),
            at(5, "10.9.0.1"),
            at(6, "2001:db8::1"),
            at(6, "fd00::1"),
            at(6, "192.168.1.1"),
        ];
        let outside = ["eth0.7".to_owned()];
        let found = |addresses: &[DeviceAddress]| inside(&links, addresses, &outside).map(|a| a.to_string());
        assert_eq!(found(&all).as_deref(), Some("192.168.1.1"));
        // Without IPv4, and never a public address or one of the line.
        assert_eq!(found(&all[..6]).as_deref(), Some("fd00::1"));
        assert_eq!(found(&all[..5]), None);
    }
}
