//! The packets of the programs.

use std::net::Ipv4Addr;

use sqm_core::packet::{Addresses, FlowKey, Hashes, Network, Packet, Tcp, Tuple, View};

/// A packet that knows when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestPacket {
    /// Counted over all packets of a program.
    pub(crate) id: u32,
    pub(crate) len: u32,
    /// 0 to 255. Decides the hashes, and thereby who shares a queue.
    pub(crate) flow: u8,
    /// DSCP and ECN.
    pub(crate) ds_field: u8,
    /// ECN as it came.
    pub(crate) came_with: u8,
    pub(crate) segment: Option<Segment>,
}

/// The fields of a TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) ack: u32,
    pub(crate) flags: u16,
    pub(crate) payload: u32,
}

impl TestPacket {
    pub(crate) const fn ecn(&self) -> u8 {
        self.ds_field & 3
    }
}

impl Packet for TestPacket {
    fn len(&self) -> u32 {
        self.len
    }

    fn view(&self) -> View {
        let flow = u32::from(self.flow);
        View {
            network_offset: 14,
            network: Network::Ipv4,
            ds_field: self.ds_field,
            key: FlowKey::Hashes(Hashes {
                // Few sets, so that they fill up and flows collide.
                flow: 1 + (flow % 16) + (flow / 16) * 1024,
                source: 1 + flow % 4,
                destination: 1 + flow % 3,
            }),
        }
    }

    fn set_ce(&mut self) -> bool {
        let capable = self.ecn() != 0;
        if capable {
            self.ds_field |= 3;
        }
        capable
    }

    fn clear_dscp(&mut self) {
        self.ds_field &= 3;
    }

    fn tcp(&self) -> Option<Tcp<'_>> {
        let segment = self.segment.as_ref()?;
        Some(Tcp {
            tuple: Tuple {
                addresses: Addresses::V4 {
                    source: Ipv4Addr::new(10, 0, 0, 2),
                    destination: Ipv4Addr::new(198, 51, 100, 1),
                },
                protocol: 6,
                source_port: 1024 + u16::from(self.flow),
                destination_port: 443,
                flow_label: 0,
            },
            ack: segment.ack,
            flags: segment.flags,
            payload: segment.payload,
            options: &[],
            later_fragment: false,
        })
    }
}
