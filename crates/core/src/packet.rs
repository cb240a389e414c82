//! Packets as queueing disciplines see them: what they may read, and the little that they may change.
//!
//! The disciplines are generic over [`Packet`]: a captured frame parses its bytes, a simulated packet has its fields at
//! hand, a recorded trace brings the hashes that were seen when it was recorded.

use crate::flow_hash::HashKey;

pub use crate::flow::{Addresses, Hashes, Tuple};

/// A packet in the care of a queue. The queue owns it until it is sent or dropped, and hands it back then.
pub trait Packet: Sized {
    /// Length in bytes as the device counts it: link header included, frame check sequence not.
    fn len(&self) -> u32;

    /// True if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that it counts against a queue's memory limit.
    fn truesize(&self) -> u32 {
        truesize(self.len())
    }

    /// The fields that classification needs. Frames are parsed here, so a queue asks once per packet.
    fn view(&self) -> View;

    /// The view with its flow hashed, which is what most queues want. In place of [`view`](Self::view), not besides.
    #[inline]
    fn hashed(&self, key: &HashKey) -> Hashed {
        self.view().hashed(key)
    }

    /// Sets Congestion Experienced (RFC 3168 §5). False if the packet's transport does not speak ECN, and the packet is
    /// then unchanged; true if it carries CE now, even if it came so.
    fn set_ce(&mut self) -> bool;

    /// Clears the six DSCP bits and keeps the two of ECN.
    fn clear_dscp(&mut self);

    /// Its TCP header, if it has one that can be read: IPv4, IPv6 without extension headers, or 6in4.
    fn tcp(&self) -> Option<Tcp<'_>>;

    /// The firewall's mark; 0 is none.
    fn mark(&self) -> u32 {
        0
    }

    /// The class chosen for it in advance, as `tc` writes handles: major in the upper 16 bits, minor in the lower.
    fn priority(&self) -> u32 {
        0
    }

    /// How it is built, if it is a super-packet of several segments (GRO, TSO).
    fn aggregate(&self) -> Option<Aggregate> {
        None
    }

    /// Gives `each` the segments of a super-packet in order, or the packet itself if it is none.
    fn split(self, mut each: impl FnMut(Self)) {
        each(self);
    }
}

/// About the memory that the kernel charges for a buffer of `len` bytes: 2304 for a full Ethernet frame, 768 for an
/// acknowledgement.
pub const fn truesize(len: u32) -> u32 {
    256 + (len + 384).next_power_of_two()
}

/// The fields of a packet that classification needs.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Where the network header begins; 14 on Ethernet, 0 where the device has no link header.
    pub network_offset: u16,
    /// The protocol there, VLAN tags looked through.
    pub network: Network,
    /// Differentiated services field: DSCP in the upper six bits, ECN in the lower two. 0 where there is none.
    pub ds_field: u8,
    /// The key that tells its flow from others.
    pub key: FlowKey,
}

impl View {
    /// The view with its flow hashed by `key`.
    #[inline]
    pub fn hashed(&self, key: &HashKey) -> Hashed {
        Hashed {
            network_offset: self.network_offset,
            network: self.network,
            ds_field: self.ds_field,
            hashes: match &self.key {
                FlowKey::Tuple(tuple) => key.hashes(tuple),
                FlowKey::Hashes(hashes) => *hashes,
            },
        }
    }
}

/// A [`View`] with hashes in place of what they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Where the network header begins.
    pub network_offset: u16,
    /// The protocol there.
    pub network: Network,
    /// Differentiated services field.
    pub ds_field: u8,
    /// The key that tells its flow from others.
    pub hashes: Hashes,
}

/// The network layer's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IP version 4.
    Ipv4,
    /// IP version 6.
    Ipv6,
    /// Address resolution, which CAKE treats as network control.
    Arp,
    /// Anything else.
    Other,
}

/// The key that tells a packet's flow from others.
#[derive(Clone, Copy, Debug)]
pub enum FlowKey {
    /// Addresses and ports, which the queue hashes with its own key.
    Tuple(Tuple),
    /// Hashes computed elsewhere.
    Hashes(Hashes),
}

/// A TCP segment, as the ACK filter reads it.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    /// Addresses and ports.
    pub tuple: Tuple,
    /// Acknowledgement number.
    pub ack: u32,
    /// The four data-offset bits are left out: the upper nibble holds the reserved bits that precede CWR, shifted as in
    /// byte 12 of the header (mask 0x0f), and the lower byte is byte 13 (FIN 1 … CWR 128).
    pub flags: u16,
    /// Data bytes.
    pub payload: u32,
    /// Option bytes, as they stand.
    pub options: &'a [u8],
    /// These bytes are from the middle of an IPv4 datagram: only who takes later fragments for headers, as Linux's ACK
    /// filter does, reads a header here.
    pub later_fragment: bool,
}

/// A super-packet's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Bytes from the network header to the end of the transport header.
    pub headers: u32,
    /// Data bytes per segment.
    pub mss: u32,
    /// Number of segments.
    pub segments: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truesize_is_what_the_kernel_usually_charges() {
        assert_eq!(truesize(1514), 2304);
        assert_eq!(truesize(54), 768);
    }
}
