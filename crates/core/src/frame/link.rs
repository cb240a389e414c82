//! The link header: everything before the network header.

use crate::packet::Network;

/// How a frame's bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Two addresses and a protocol: 14 bytes.
    Ethernet,
    /// No link header: IPv4 or IPv6, as the first four bits say.
    Raw,
    /// Linux's "cooked" capture on all devices at once: 16 bytes.
    LinuxSll,
    /// Its second version: 20 bytes.
    LinuxSll2,
    /// PPP, with or without address and control bytes.
    Ppp,
    /// BSD's loopback: four bytes with the address family in the byte order of the machine that captured.
    Null,
}

impl LinkType {
    /// Where the network header begins, and what it is.
    #[inline]
    pub(super) fn network(self, bytes: &[u8]) -> (u16, Network) {
        match self {
            Self::Ethernet => behind(bytes, 14, 12),
            Self::Raw => (0, version(bytes, 0)),
            Self::LinuxSll => behind(bytes, 16, 14),
            Self::LinuxSll2 => behind(bytes, 20, 0),
            Self::Ppp => {
                let address_and_control = if bytes.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
                ppp(bytes, address_and_control)
            }
            Self::Null => (4, family(bytes)),
        }
    }
}

/// The protocol number of Ethernet, as the device tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet Protocol version 4.
    pub const IPV4: Self = Self(0x0800);
    /// Internet Protocol version 6.
    pub const IPV6: Self = Self(0x86dd);
    /// Address resolution.
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// An outer VLAN tag (IEEE 802.1ad).
    pub const PROVIDER_VLAN: Self = Self(0x88a8);
    /// An outer VLAN tag as equipment made before 802.1ad writes it.
    pub const OLD_PROVIDER_VLAN: Self = Self(0x9100);
    /// PPP over Ethernet, session stage (RFC 2516).
    pub const PPPOE_SESSION: Self = Self(0x8864);

    /// Where the network header begins, and what it is, if this protocol's header begins at `offset`.
    #[inline]
    pub(super) fn network(mut self, bytes: &[u8], mut offset: u16) -> (u16, Network) {
        /// More tags than anyone stacks; Linux stops there too.
        const MOST_TAGS: usize = 8;
        for _ in 0..=MOST_TAGS {
            let network = match self {
                Self::IPV4 => Network::Ipv4,
                Self::IPV6 => Network::Ipv6,
                Self::ARP => Network::Arp,
                Self::VLAN | Self::PROVIDER_VLAN | Self::OLD_PROVIDER_VLAN => {
                    let Some(inner) = u16_at(bytes, usize::from(offset) + 2) else {
                        break;
                    };
                    (self, offset) = (Self(inner), offset.saturating_add(4));
                    continue;
                }
                Self::PPPOE_SESSION => return pppoe(bytes, offset),
                _ => Network::Other,
            };
            return (offset, network);
        }
        (offset, Network::Other)
    }
}

/// Behind a link header of `length` bytes with its protocol number at `protocol`.
#[inline]
fn behind(bytes: &[u8], length: u16, protocol: usize) -> (u16, Network) {
    match u16_at(bytes, protocol) {
        Some(protocol) => EtherType(protocol).network(bytes, length),
        None => (length, Network::Other),
    }
}

/// Six bytes, then PPP's protocol. Version and type are 1, and code 0 says that it carries data.
fn pppoe(bytes: &[u8], offset: u16) -> (u16, Network) {
    if u16_at(bytes, usize::from(offset)) == Some(0x1100) {
        ppp(bytes, offset.saturating_add(6))
    } else {
        (offset, Network::Other)
    }
}

/// PPP's protocol number has two bytes, or one if that one is odd (RFC 1661 §6.5).
fn ppp(bytes: &[u8], offset: u16) -> (u16, Network) {
    const IPV4: u16 = 0x0021;
    const IPV6: u16 = 0x0057;
    let at = usize::from(offset);
    let (protocol, length) = match bytes.get(at) {
        Some(compressed) if compressed & 1 == 1 => (Some(u16::from(*compressed)), 1),
        _ => (u16_at(bytes, at), 2),
    };
    let network = match protocol {
        Some(IPV4) => Network::Ipv4,
        Some(IPV6) => Network::Ipv6,
        _ => Network::Other,
    };
    (offset.saturating_add(length), network)
}

fn version(bytes: &[u8], offset: usize) -> Network {
    match bytes.get(offset).map(|first| first >> 4) {
        Some(4) => Network::Ipv4,
        Some(6) => Network::Ipv6,
        _ => Network::Other,
    }
}

/// The address families of IPv6 differ: 10 in Linux, 24, 28 and 30 in the BSDs and macOS. All fit one byte, so that the
/// byte order can be seen.
fn family(bytes: &[u8]) -> Network {
    let family = match bytes.first_chunk::<4>() {
        Some([family, 0, 0, 0] | [0, 0, 0, family]) => *family,
        _ => 0,
    };
    match family {
        2 => Network::Ipv4,
        10 | 24 | 28 | 30 => Network::Ipv6,
        _ => Network::Other,
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}
