//! A packet for the tests of this crate: numbered, of one length, of one flow.

use alloc::vec::Vec;

use crate::flow_hash::HashKey;
use crate::handle::Handle;
use crate::packet::{FlowKey, Hashes, Network, Packet, Tcp, Tuple, View};
use crate::profile::Profile;
use crate::qdisc::{Dequeued, Drops, Environment, Qdisc};
use crate::units::Instant;

/// The clock's origin in tests: far from 0, as a real monotonic clock is.
pub(crate) const START: u64 = 1_000_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestPacket {
    pub(crate) id: u32,
    pub(crate) len: u32,
    pub(crate) flow: u32,
    /// DSCP in the upper six bits. ECN in the lower two: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
    pub(crate) ds_field: u8,
    pub(crate) class: u32,
    pub(crate) mark: u32,
    pub(crate) network: Network,
    /// The fields that filters compare. Without them only the flow is known.
    pub(crate) tuple: Option<Tuple>,
}

impl TestPacket {
    pub(crate) const fn new(id: u32, len: u32) -> Self {
        Self {
            id,
            len,
            flow: 0,
            ds_field: 0,
            class: 0,
            mark: 0,
            network: Network::Ipv4,
            tuple: None,
        }
    }

    /// In the flow whose hash value is `flow` of 1024.
    pub(crate) const fn flow(self, flow: u32) -> Self {
        Self { flow, ..self }
    }

    pub(crate) const fn ecn(self, ecn: u8) -> Self {
        Self {
            ds_field: ecn,
            ..self
        }
    }

    pub(crate) const fn class(self, major: u16, minor: u16) -> Self {
        let class = Handle::new(major, minor).bits();
        Self { class, ..self }
    }
}

impl Packet for TestPacket {
    fn len(&self) -> u32 {
        self.len
    }

    fn view(&self) -> View {
        View {
            network_offset: 14,
            network: self.network,
            ds_field: self.ds_field,
            key: self.tuple.map_or(
                FlowKey::Hashes(Hashes {
                    flow: self.flow << 22 | 1,
                    source: 1,
                    destination: 1,
                }),
                FlowKey::Tuple,
            ),
        }
    }

    fn set_ce(&mut self) -> bool {
        let is_capable = self.ds_field & 3 != 0;
        if is_capable {
            self.ds_field |= 3;
        }
        is_capable
    }

    fn clear_dscp(&mut self) {}

    fn tcp(&self) -> Option<Tcp<'_>> {
        None
    }

    fn mark(&self) -> u32 {
        self.mark
    }

    fn priority(&self) -> u32 {
        self.class
    }
}

pub(crate) const fn ethernet(profile: Profile) -> Environment {
    Environment {
        profile,
        ..Environment::ethernet(Instant(START), HashKey(1, 2))
    }
}

/// Milliseconds after the origin, which may have three decimals.
pub(crate) const fn at_micros(micros: u64) -> Instant {
    Instant(START + micros * 1000)
}

/// Numbers of the packets that leave until the queue answers something else.
pub(crate) fn drain(
    queue: &mut impl Qdisc<TestPacket>,
    now: Instant,
    drops: &mut dyn Drops<TestPacket>,
) -> Vec<u32> {
    let mut sent = Vec::new();
    while let Dequeued::Packet(packet) = queue.dequeue(now, drops) {
        sent.push(packet.id);
    }
    sent
}
/// When each packet leaves, in microseconds after the origin, if the queue is asked at the origin and then as soon as it
/// says: pairs of number and time.
pub(crate) fn departures(queue: &mut impl Qdisc<TestPacket>, most: usize) -> Vec<(u32, u64)> {
    let mut now = Instant(START);
    let mut sent = Vec::new();
    while sent.len() < most {
        match queue.dequeue(now, &mut ()) {
            Dequeued::Packet(packet) => sent.push((packet.id, (now.0 - START) / 1000)),
            Dequeued::NotBefore(later) => {
                assert!(later > now, "asked to come back in the past");
                now = later;
            }
            Dequeued::Empty => break,
        }
    }
    sent
}
