//! IP headers: DSCP and ECN, and what tells flows apart.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::narrow::low_u8;
use crate::packet::{Addresses, Tuple};

pub(super) const IPV4_IN_IP: u8 = 4;
pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;
pub(super) const IPV6_IN_IP: u8 = 41;

/// Tunnels within tunnels that are looked into.
const MOST_TUNNELS: u32 = 3;

/// Differentiated services field and flow of the IPv4 packet in `packet`.
#[inline]
pub(super) fn ipv4(packet: &[u8]) -> Option<(u8, Tuple)> {
    let header = Ipv4::read(packet)?;
    Some((header.ds_field, header.flow(packet, MOST_TUNNELS)))
}

/// Differentiated services field (here the traffic class) and flow of the IPv6 packet in `packet`.
#[inline]
pub(super) fn ipv6(packet: &[u8]) -> Option<(u8, Tuple)> {
    let header = Ipv6::read(packet)?;
    Some((header.traffic_class, header.flow(packet, MOST_TUNNELS)))
}

/// As [`ipv4`] for the packets that most are: TCP or UDP, no tunnel, no later fragment. None for others.
#[inline(always)]
pub(super) fn plain_ipv4(packet: &[u8]) -> Option<(u8, Tuple)> {
    let header = Ipv4::read(packet)?;
    let payload = packet.get(header.header_length..)?;
    let is_plain = !header.later_fragment && matches!(header.protocol, TCP | UDP);
    is_plain.then(|| (header.ds_field, with_ports(header.outer(), payload)))
}

/// As [`ipv6`] for the packets that most are: TCP or UDP without extension headers, no tunnel. None for others.
#[inline(always)]
pub(super) fn plain_ipv6(packet: &[u8]) -> Option<(u8, Tuple)> {
    let header = Ipv6::read(packet)?;
    let payload = packet.get(Ipv6::LENGTH..)?;
    let is_plain = matches!(header.next_header, TCP | UDP);
    is_plain.then(|| {
        (
            header.traffic_class,
            with_ports(header.outer(header.next_header), payload),
        )
    })
}

/// An IPv4 header (RFC 791).
pub(super) struct Ipv4 {
    ds_field: u8,
    pub(super) addresses: Addresses,
    pub(super) protocol: u8,
    /// With its options; 20 or more.
    pub(super) header_length: usize,
    /// The facts about the whole packet in the header.
    pub(super) total_length: u16,
    pub(super) later_fragment: bool,
}

impl Ipv4 {
    #[inline]
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_length < 20 {
            return None;
        }
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        Some(Self {
            ds_field: header[1],
            addresses: Addresses::V4 {
                source: Ipv4Addr::new(s0, s1, s2, s3),
                destination: Ipv4Addr::new(d0, d1, d2, d3),
            },
            protocol: header[9],
            header_length,
            total_length: u16::from_be_bytes([header[2], header[3]]),
            later_fragment: u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0,
        })
    }

    fn flow(self, packet: &[u8], tunnels: u32) -> Tuple {
        match packet.get(self.header_length..) {
            Some(payload) if !self.later_fragment => above(self.outer(), payload, tunnels),
            _ => self.outer(),
        }
    }

    /// The flow as far as this header tells.
    #[inline]
    const fn outer(&self) -> Tuple {
        Tuple {
            addresses: self.addresses,
            protocol: self.protocol,
            source_port: 0,
            destination_port: 0,
            flow_label: 0,
        }
    }
}

/// An IPv6 header (RFC 8200).
pub(super) struct Ipv6 {
    traffic_class: u8,
    flow_label: u32,
    pub(super) addresses: Addresses,
    pub(super) next_header: u8,
    pub(super) payload_length: u16,
}

impl Ipv6 {
    pub(super) const LENGTH: usize = 40;

    #[inline]
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<{ Self::LENGTH }>()?;
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if first >> 28 != 6 {
            return None;
        }
        Some(Self {
            traffic_class: low_u8((first >> 20).into()),
            flow_label: first & 0xf_ffff,
            addresses: Addresses::V6 {
                source: address(header, 8),
                destination: address(header, 24),
            },
            next_header: header[6],
            payload_length: u16::from_be_bytes([header[4], header[5]]),
        })
    }

    fn flow(self, packet: &[u8], tunnels: u32) -> Tuple {
        let payload = packet.get(Self::LENGTH..).unwrap_or_default();
        match behind_extensions(self.next_header, payload) {
            (protocol, Some(payload)) => above(self.outer(protocol), payload, tunnels),
            (protocol, None) => self.outer(protocol),
        }
    }

    /// The flow as far as this header tells, `protocol` being the one behind the extension headers.
    #[inline]
    const fn outer(&self, protocol: u8) -> Tuple {
        Tuple {
            addresses: self.addresses,
            protocol,
            source_port: 0,
            destination_port: 0,
            flow_label: self.flow_label,
        }
    }
}

#[inline]
fn address(header: &[u8; Ipv6::LENGTH], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from(octets)
}

/// The protocol behind the extension headers, and its bytes unless a later fragment or a cut header hides them.
#[inline]
fn behind_extensions(mut protocol: u8, mut bytes: &[u8]) -> (u8, Option<&[u8]>) {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    const MOBILITY: u8 = 135;
    /// More than anyone sends; Linux's limit is similar.
    const MOST_HEADERS: usize = 12;
    for _ in 0..MOST_HEADERS {
        // In units of eight bytes, the first not counted (RFC 8200 §4); in units of four, two not counted, for
        // authentication (RFC 4302 §2.2).
        let length = |header: &[u8; 8]| match protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        match protocol {
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY => {}
            _ => return (protocol, Some(bytes)),
        }
        let Some(header) = bytes.first_chunk::<8>() else {
            return (protocol, None);
        };
        let later_fragment = protocol == FRAGMENT && u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0;
        let behind = bytes.get(length(header)..);
        protocol = header[0];
        match behind {
            Some(behind) if !later_fragment => bytes = behind,
            _ => return (protocol, None),
        }
    }
    (protocol, None)
}

/// The flow of what IP carries.
#[inline]
fn above(outer: Tuple, payload: &[u8], tunnels: u32) -> Tuple {
    const DCCP: u8 = 33;
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    match outer.protocol {
        TCP | UDP | DCCP | SCTP | UDP_LITE => with_ports(outer, payload),
        IPV4_IN_IP | IPV6_IN_IP => inner(&outer, payload, tunnels).unwrap_or(outer),
        _ => outer,
    }
}

#[inline]
pub(super) fn with_ports(tuple: Tuple, payload: &[u8]) -> Tuple {
    match *payload {
        [s0, s1, d0, d1, ..] => Tuple {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            ..tuple
        },
        _ => tuple,
    }
}

#[cold]
fn inner(outer: &Tuple, payload: &[u8], tunnels: u32) -> Option<Tuple> {
    let tunnels = tunnels.checked_sub(1)?;
    if outer.protocol == IPV4_IN_IP {
        Some(Ipv4::read(payload)?.flow(payload, tunnels))
    } else {
        Some(Ipv6::read(payload)?.flow(payload, tunnels))
    }
}
