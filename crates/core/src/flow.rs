//! The fields that tell a packet's flow and hosts from others, and their hashes.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Addresses, protocol and ports of a packet: the inner packet's, in a tunnel that the parser looks into (6in4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Both addresses.
    pub addresses: Addresses,
    /// The protocol above IP (6 TCP, 17 UDP); 0 without IP.
    pub protocol: u8,
    /// 0 where the protocol has none, and in fragments after the first.
    pub source_port: u16,
    /// As the source port.
    pub destination_port: u16,
    /// IPv6 flow label, 20 bits; 0 is none.
    pub flow_label: u32,
}

/// The pair of network addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Sender.
        source: Ipv4Addr,
        /// Receiver.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Sender.
        source: Ipv6Addr,
        /// Receiver.
        destination: Ipv6Addr,
    },
    /// Not IP.
    None,
}

/// Keyed hashes of a flow's tuple and of each address alone. 0 where there is nothing to hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// Over the whole tuple.
    pub flow: u32,
    /// Over the source address.
    pub source: u32,
    /// Over the destination address.
    pub destination: u32,
}
