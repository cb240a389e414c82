//! A captured packet in the queue.

use crate::pcap::LinkNumber;
use sqm_core::flow_hash::HashKey;
use sqm_core::frame::Frame;
use sqm_core::packet::{Hashed, Packet, Tcp, View};
use sqm_core::units::Instant;

/// A frame, with the data that the report needs.
pub(super) struct Captured {
    pub(super) frame: Frame<Box<[u8]>>,
    /// The position in the file, from 1.
    pub(super) number: u64,
    pub(super) arrived: Instant,
    pub(super) link: LinkNumber,
    /// The index in the table of flows.
    pub(super) flow: usize,
    /// The packet's tin, if the queue has tins.
    pub(super) tin: usize,
    /// True if the packet arrived with Congestion Experienced.
    pub(super) came_marked: bool,
}

/// True if a DS field has Congestion Experienced (RFC 3168).
pub(super) const fn is_marked(ds_field: u8) -> bool {
    ds_field & 0b11 == 0b11
}

impl Captured {
    pub(super) fn is_marked(&self) -> bool {
        is_marked(self.frame.view().ds_field)
    }
}

impl Packet for Captured {
    fn len(&self) -> u32 {
        self.frame.len()
    }

    fn view(&self) -> View {
        self.frame.view()
    }

    fn hashed(&self, key: &HashKey) -> Hashed {
        self.frame.hashed(key)
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
}
