//! The network of a client. Limits apply per network, because a client has any number of addresses in its IPv6 /64, and this machine any
//! number in 127.0.0.0/8.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address, an IPv6 /64, or this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network([u8; 8]);

impl Network {
    /// The network of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        let address = match address.to_canonical() {
            address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            address => address,
        };
        let mut prefix = [0; 8];
        match address {
            IpAddr::V4(address) => prefix[4..].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => prefix.copy_from_slice(&address.octets()[..8]),
        }
        Self(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_network_and_this_machine_each_count_as_one_network() {
        for (one, other, is_same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("127.0.0.1", "127.9.8.7", true),
            ("127.0.0.1", "::1", true),
            ("2001:db8::1", "2001:db8::ffff:0:0:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let network = |address: &str| Network::of(address.parse().unwrap());
            assert_eq!(network(one) == network(other), is_same, "{one} {other}");
        }
    }
}
