//! Counts the packets: in total, by tin, by flow, and over time.

use std::collections::HashMap;

use sqm_core::packet::{Addresses, Packet as _, Tuple};
use sqm_core::qdisc::DropReason;
use sqm_core::units::Instant;

use super::delays::Delays;
use super::packet::Captured;
use super::series::Series;

/// The largest number of flows that are distinguished; later ones are counted together. Our choice, to bound memory.
const MOST_FLOWS: usize = 100_000;

/// The counts of a set of packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    /// The packets that the queue marked.
    pub(super) marks: u64,
    /// Drops by reason, in the order in which the reasons first occurred.
    pub(super) drops: Vec<(DropReason, u64)>,
    pub(super) delays: Delays,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Counts {
    fn arrived(&mut self, packet: &Captured) {
        self.packets += 1;
        self.bytes += u64::from(packet.len());
        self.first.get_or_insert(packet.arrived);
    }

    fn sent(&mut self, packet: &Captured, now: Instant, marked: bool) {
        self.sent_packets += 1;
        self.sent_bytes += u64::from(packet.len());
        self.marks += u64::from(marked);
        self.delays.add(now.since(packet.arrived).0);
        self.last = Some(now);
    }

    fn dropped(&mut self, reason: DropReason) {
        match self.drops.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.drops.push((reason, 1)),
        }
    }

    pub(super) fn dropped_packets(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    /// The time from the first arrival to the last departure, seconds; `None` if it is zero.
    pub(super) fn duration_sec(&self) -> Option<f64> {
        let span = self.last?.since(self.first?).0;
        (span > 0).then(|| span as f64 / 1e9)
    }

    /// The mean sending rate in that time, bits per second.
    pub(super) fn sent_bits_per_sec(&self) -> Option<f64> {
        Some(self.sent_bytes as f64 * 8.0 / self.duration_sec()?)
    }
}

/// One flow.
pub(super) struct Flow {
    pub(super) tuple: Tuple,
    pub(super) counts: Counts,
}

/// All counts.
pub(super) struct Tally {
    pub(super) total: Counts,
    /// The counts by [`Captured::tin`].
    pub(super) tins: Vec<Counts>,
    /// The flows, in the order of their first packets. The last one stands for all beyond [`MOST_FLOWS`].
    pub(super) flows: Vec<Flow>,
    numbers: HashMap<Tuple, usize>,
    /// True if the last of `flows` stands for several.
    pub(super) has_other_flows: bool,
    /// The number of flows whose opposite direction is in the capture as well.
    pub(super) both_ways: u64,
    pub(super) series: Series,
}

impl Tally {
    pub(super) fn new(tins: usize, start: Instant) -> Self {
        Self {
            total: Counts::default(),
            tins: vec![Counts::default(); tins],
            flows: Vec::new(),
            numbers: HashMap::new(),
            has_other_flows: false,
            both_ways: 0,
            series: Series::new(start, tins),
        }
    }

    /// The number of a packet's flow.
    pub(super) fn flow(&mut self, tuple: &Tuple) -> usize {
        if let Some(number) = self.numbers.get(tuple) {
            return *number;
        }
        if self.flows.len() > MOST_FLOWS {
            return MOST_FLOWS;
        }
        if self.flows.len() == MOST_FLOWS {
            self.has_other_flows = true;
        } else {
            self.numbers.insert(*tuple, self.flows.len());
            if self.numbers.contains_key(&reversed(tuple)) && tuple.addresses != Addresses::None {
                self.both_ways += 1;
            }
        }
        self.flows.push(Flow {
            tuple: *tuple,
            counts: Counts::default(),
        });
        self.flows.len() - 1
    }

    pub(super) fn arrived(&mut self, packet: &Captured) {
        self.of(packet, |counts| counts.arrived(packet));
        self.series.arrived(packet);
    }

    pub(super) fn sent(&mut self, packet: &Captured, now: Instant) {
        let marked = !packet.came_marked && packet.is_marked();
        self.of(packet, |counts| counts.sent(packet, now, marked));
        self.series.sent(packet, now, marked);
    }

    pub(super) fn dropped(&mut self, packet: &Captured, now: Instant, reason: DropReason) {
        self.of(packet, |counts| counts.dropped(reason));
        self.series.dropped(now);
    }

    fn of(&mut self, packet: &Captured, mut count: impl FnMut(&mut Counts)) {
        count(&mut self.total);
        if let Some(tin) = self.tins.get_mut(packet.tin) {
            count(tin);
        }
        if let Some(flow) = self.flows.get_mut(packet.flow) {
            count(&mut flow.counts);
        }
    }
}

/// The flow in the opposite direction.
fn reversed(tuple: &Tuple) -> Tuple {
    let addresses = match tuple.addresses {
        Addresses::V4 { source, destination } => Addresses::V4 {
            source: destination,
            destination: source,
        },
        Addresses::V6 { source, destination } => Addresses::V6 {
            source: destination,
            destination: source,
        },
        Addresses::None => Addresses::None,
    };
    Tuple {
        addresses,
        source_port: tuple.destination_port,
        destination_port: tuple.source_port,
        // Each direction has a label of its own.
        ..*tuple
    }
}
