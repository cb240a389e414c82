//! A packet of a scenario: a real frame, built from its description, that brings the hashes seen by the recorded queue.

use std::net::IpAddr;

use sqm_core::frame::{EtherType, Frame, LinkType};
use sqm_core::handle::Handle;
use sqm_core::packet::{FlowKey, Hashes, Packet as _, Tcp, View};

use super::file::{Packet, Protocol, Truesize};

/// The headers without payload, as in a capture with a short snap length.
pub(super) struct VectorPacket {
    pub(super) id: u64,
    frame: Frame<Vec<u8>>,
    hashes: Hashes,
    mark: u32,
    class: u32,
    truesize: u32,
}

impl VectorPacket {
    pub(super) fn new(packet: &Packet, class: Option<Handle>, truesize: Truesize) -> Self {
        const ETHERNET: u16 = 14;
        let bytes = bytes(packet);
        let frame = match packet.net_off {
            ETHERNET => Frame::new(LinkType::Ethernet, bytes, packet.len),
            offset => Frame::with_network_at(offset, ether_type(packet.proto), bytes, packet.len),
        };
        Self {
            id: packet.id,
            frame,
            hashes: Hashes {
                flow: packet.flow_hash,
                source: packet.src_hash,
                destination: packet.dst_hash,
            },
            mark: packet.mark,
            class: class.map_or(0, Handle::bits),
            truesize: truesize.of(packet.len),
        }
    }

    /// The current DS field.
    pub(super) fn ds_field(&self) -> u8 {
        self.frame.view().ds_field
    }
}

impl sqm_core::packet::Packet for VectorPacket {
    fn len(&self) -> u32 {
        self.frame.len()
    }

    fn truesize(&self) -> u32 {
        self.truesize
    }

    fn view(&self) -> View {
        View {
            key: FlowKey::Hashes(self.hashes),
            ..self.frame.view()
        }
    }

    fn set_ce(&mut self) -> bool {
        self.frame.set_ce()
    }

    fn clear_dscp(&mut self) {
        self.frame.clear_dscp();
    }

    fn tcp(&self) -> Option<Tcp<'_>> {
        self.frame.tcp()
    }

    fn mark(&self) -> u32 {
        self.mark
    }

    fn priority(&self) -> u32 {
        self.class
    }
}

const fn ether_type(protocol: Protocol) -> EtherType {
    /// IEEE 802's EtherType for local experiments.
    const EXPERIMENT: EtherType = EtherType(0x88b5);
    match protocol {
        Protocol::Ipv4 => EtherType::IPV4,
        Protocol::Ipv6 => EtherType::IPV6,
        Protocol::Arp => EtherType::ARP,
        Protocol::Other => EXPERIMENT,
    }
}

/// Link header, IP header, TCP header with options.
fn bytes(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(packet.net_off)];
    if let [.., high, low] = bytes.as_mut_slice() {
        [*high, *low] = ether_type(packet.proto).0.to_be_bytes();
    }
    let length = packet.len.saturating_sub(packet.net_off.into());
    let ds_field = packet.dscp << 2 | packet.ecn;
    let protocol = if packet.tcp.is_some() { 6 } else { 17 };
    match packet.proto {
        Protocol::Ipv4 => {
            bytes.extend([0x45, ds_field]);
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(addresses(packet, [10, 0, 0, 1], [10, 0, 0, 2]));
        }
        Protocol::Ipv6 => {
            bytes.extend([0x60 | ds_field >> 4, ds_field << 4, 0, 0]);
            bytes.extend((length.saturating_sub(40) as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend(addresses(packet, [0xfd; 16], [0xfe; 16]));
        }
        Protocol::Arp | Protocol::Other => {}
    }
    if let Some(tcp) = &packet.tcp {
        let words = 5 + tcp.options.0.len() / 4;
        bytes.extend(tcp.sport.to_be_bytes());
        bytes.extend(tcp.dport.to_be_bytes());
        bytes.extend(tcp.seq.to_be_bytes());
        bytes.extend(tcp.ack.to_be_bytes());
        bytes.extend([(words as u8) << 4, tcp.flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(&tcp.options.0);
    }
    bytes
}

fn addresses<const N: usize>(packet: &Packet, source: [u8; N], destination: [u8; N]) -> Vec<u8> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    match &packet.tcp {
        Some(tcp) => [octets(tcp.src), octets(tcp.dst)].concat(),
        None => [source, destination].concat(),
    }
}
