//! TCP headers, where Linux's ACK filter looks for them: in IPv4, in IPv6 without extension headers, in 6in4.

use super::network::{IPV6_IN_IP, Ipv4, Ipv6, TCP, with_ports};
use crate::narrow::fits_u32;
use crate::packet::{Addresses, Network, Tcp, Tuple};

/// The TCP segment that `packet` carries, if its header is at hand as a whole.
#[inline]
pub(super) fn read(network: Network, packet: &[u8]) -> Option<Tcp<'_>> {
    match network {
        Network::Ipv4 => in_ipv4(packet),
        Network::Ipv6 => in_ipv6(packet, false),
        Network::Arp | Network::Other => None,
    }
}

#[inline]
fn in_ipv4(packet: &[u8]) -> Option<Tcp<'_>> {
    let header = Ipv4::read(packet)?;
    let payload = packet.get(header.header_length..)?;
    let length = usize::from(header.total_length).saturating_sub(header.header_length);
    match header.protocol {
        TCP => segment(header.addresses, payload, length, header.later_fragment),
        IPV6_IN_IP => in_ipv6(payload, header.later_fragment),
        _ => None,
    }
}

fn in_ipv6(packet: &[u8], later_fragment: bool) -> Option<Tcp<'_>> {
    let header = Ipv6::read(packet)?;
    let payload = packet.get(Ipv6::LENGTH..)?;
    let length = usize::from(header.payload_length);
    match header.next_header {
        TCP => segment(header.addresses, payload, length, later_fragment),
        _ => None,
    }
}

/// The segment at the start of `bytes`, `length` bytes long as IP tells it.
#[inline]
fn segment(addresses: Addresses, bytes: &[u8], length: usize, later_fragment: bool) -> Option<Tcp<'_>> {
    const LEAST_HEADER: usize = 20;
    let header = bytes.first_chunk::<LEAST_HEADER>()?;
    let header_length = usize::from(header[12] >> 4) * 4;
    let tuple = Tuple {
        addresses,
        protocol: TCP,
        source_port: 0,
        destination_port: 0,
        flow_label: 0,
    };
    Some(Tcp {
        tuple: with_ports(tuple, bytes),
        ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        flags: u16::from(header[12] & 0x0f) << 8 | u16::from(header[13]),
        payload: fits_u32(length.saturating_sub(header_length) as u64),
        options: bytes.get(LEAST_HEADER..header_length)?,
        later_fragment,
    })
}
