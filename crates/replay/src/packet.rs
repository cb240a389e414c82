//! A captured packet on its way through the queue.

use crate::pcap::LinkNumber;
use sqm_core::flow_hash::HashKey;
use sqm_core::frame::Frame;
use sqm_core::packet::{Hashed, Packet, Tcp, View};
use sqm_core::units::Instant;

/// A frame and what the report needs to know of it.
pub(super) struct Captured {
    pub(super) frame: Frame<Box<[u8]>>,
    /// Its place in the file, counted from 1.
    pub(super) number: u64,
    pub(super) arrived: Instant,
    pub(super) link: LinkNumber,
    /// Its place in the table of flows.
    pub(super) flow: usize,
    /// The tin it goes to, if there are tins.
    pub(super) tin: usize,
    /// Whether it came with a mark.
    pub(super) came_marked: bool,
}

/// Whether a DS field says Congestion Experienced.
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
