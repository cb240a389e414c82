//! A packet as the bytes that were captured or received: the parser that all users of real frames share.
//!
//! The bytes are untrusted. Whatever they hold, nothing here panics or loops; a header that is cut short or wrong makes
//! the packet one of [`Network::Other`], which has no flow, no DSCP and no ECN.
//!
//! * Below IP: see [`LinkType`]; stacked VLAN tags and PPPoE are looked through. The network header is IP's, behind them:
//!   sizes that CAKE counts from IP on are the line's, where Linux counts PPPoE's eight bytes to the network packet
//!   because its header is the one that the Ethernet device sees.
//! * IPv6 extension headers are followed. Later fragments have no ports, in IPv4 and IPv6.
//! * Tunnels of IP in IP, of either version (6in4: RFC 4213; DS-Lite: RFC 6333), have the inner packet's flow, as in
//!   Linux's flow dissector. DSCP and ECN are the outer header's, which is also the one that is marked.
//! * The IPv4 checksum follows a changed byte incrementally (RFC 1624 equation 3), so that a wrong one stays wrong.
//!
//! Parsing is spread over the calls that need it: [`Frame::new`] finds the network header, [`Packet::view`] reads it, and
//! [`Packet::tcp`] reads TCP's.

mod ds_field;
mod link;
mod network;
mod tcp;

pub use link::{EtherType, LinkType};

use crate::flow_hash::HashKey;
use crate::packet::{Addresses, FlowKey, Hashed, Network, Packet, Tcp, Tuple, View};

/// A frame in its buffer: `&mut [u8]`, `Box<[u8]>`, `Vec<u8>` or whatever else holds the bytes.
#[derive(Clone, Debug)]
pub struct Frame<B> {
    bytes: B,
    length: u32,
    network_offset: u16,
    network: Network,
}

impl<B: AsRef<[u8]>> Frame<B> {
    /// The frame in `bytes`, which begin as `link` says. `length` is its length on the wire; a capture may hold less.
    #[inline]
    pub fn new(link: LinkType, bytes: B, length: u32) -> Self {
        let (network_offset, network) = link.network(bytes.as_ref());
        Self {
            bytes,
            length,
            network_offset,
            network,
        }
    }

    /// A frame of which the device told where the network header begins and what it is.
    pub fn with_network_at(offset: u16, protocol: EtherType, bytes: B, length: u32) -> Self {
        let (network_offset, network) = protocol.network(bytes.as_ref(), offset);
        Self {
            bytes,
            length,
            network_offset,
            network,
        }
    }

    /// The bytes at hand, marks included.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The buffer back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    /// The protocol of a packet whose IP header was read, or not.
    #[inline]
    const fn network_if(&self, is_read: bool) -> Network {
        match self.network {
            Network::Ipv4 | Network::Ipv6 if !is_read => Network::Other,
            network => network,
        }
    }

    /// From the network header on.
    #[inline]
    fn packet(&self) -> &[u8] {
        self.bytes
            .as_ref()
            .get(usize::from(self.network_offset)..)
            .unwrap_or_default()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Frame<B> {
    fn packet_mut(&mut self) -> &mut [u8] {
        self.bytes
            .as_mut()
            .get_mut(usize::from(self.network_offset)..)
            .unwrap_or_default()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Packet for Frame<B> {
    #[inline]
    fn len(&self) -> u32 {
        self.length
    }

    #[inline]
    fn view(&self) -> View {
        let header = match self.network {
            Network::Ipv4 => network::ipv4(self.packet()),
            Network::Ipv6 => network::ipv6(self.packet()),
            Network::Arp | Network::Other => None,
        };
        match header {
            Some((ds_field, tuple)) => View {
                network_offset: self.network_offset,
                network: self.network,
                ds_field,
                key: FlowKey::Tuple(tuple),
            },
            None => View {
                network_offset: self.network_offset,
                network: self.network_if(false),
                ds_field: 0,
                key: FlowKey::Tuple(Tuple {
                    addresses: Addresses::None,
                    protocol: 0,
                    source_port: 0,
                    destination_port: 0,
                    flow_label: 0,
                }),
            },
        }
    }

    #[inline]
    fn hashed(&self, key: &HashKey) -> Hashed {
        let plain = match self.network {
            Network::Ipv4 => network::plain_ipv4(self.packet()).map(|(ds, tuple)| (ds, key.hashes(&tuple))),
            Network::Ipv6 => network::plain_ipv6(self.packet()).map(|(ds, tuple)| (ds, key.hashes(&tuple))),
            Network::Arp | Network::Other => None,
        };
        match plain {
            Some((ds_field, hashes)) => Hashed {
                network_offset: self.network_offset,
                network: self.network,
                ds_field,
                hashes,
            },
            None => self.view().hashed(key),
        }
    }

    fn set_ce(&mut self) -> bool {
        ds_field::change(self.network, self.packet_mut(), |ds_field| {
            match ds_field & 0b11 {
                0 => None,
                _ => Some(ds_field | 0b11),
            }
        })
    }

    fn clear_dscp(&mut self) {
        ds_field::change(self.network, self.packet_mut(), |ds_field| Some(ds_field & 0b11));
    }

    #[inline]
    fn tcp(&self) -> Option<Tcp<'_>> {
        tcp::read(self.network, self.packet())
    }
}

#[cfg(test)]
mod tests;
