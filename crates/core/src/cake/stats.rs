//! The figures of CAKE that `tc -s qdisc` and `tc -s class` show.

use alloc::vec::Vec;

use super::Cake;
use super::flow_lists::{FlowId, NO_FLOW};
use super::tables::ENTRIES;
use super::tin::Tin;
use crate::narrow::fits_u32;
use crate::packet::Packet;
use crate::qdisc::Backlog;
use crate::rng::Random;
use crate::units::{Bytes, Nanos, Rate};

/// The whole queue. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Packets that left.
    pub sent_packets: u64,
    /// Their bytes, as the device counts them.
    pub sent_bytes: u64,
    /// Dropped by the AQM, for lack of buffer, or by the ACK filter.
    pub drops: u64,
    /// How often the shaper made a packet wait.
    pub overlimits: u64,
    /// Packets and bytes in the queue.
    pub backlog: Backlog,
    /// The most memory that was ever charged.
    pub memory_used: Bytes,
    /// The limit of that memory.
    pub memory_limit: Bytes,
    /// The rate of the link, as configured or estimated.
    pub capacity_estimate: Rate,
    /// Smallest packet before overhead; none before the first packet.
    pub min_network_size: Option<u32>,
    /// Largest packet before overhead; 0 before the first packet.
    pub max_network_size: u32,
    /// Smallest packet on the line; none before the first packet.
    pub min_adj_size: Option<u32>,
    /// Largest packet on the line; 0 before the first packet.
    pub max_adj_size: u32,
    /// Average length of the link header, in 65536ths of a byte.
    pub average_header_offset: u32,
    /// In the order of display.
    pub tins: Vec<TinStats>,
}

/// One tin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TinStats {
    /// Its name.
    pub name: &'static str,
    /// Its number inside, which orders the priorities.
    pub tin: u8,
    /// Up to this rate it comes before others.
    pub threshold_rate: Rate,
    /// COBALT's target.
    pub target: Nanos,
    /// COBALT's interval.
    pub interval: Nanos,
    /// Delay of recent packets: the worst of them, fading.
    pub peak_delay: Nanos,
    /// Delay of recent packets, average.
    pub average_delay: Nanos,
    /// Delay of recent packets: the best of them, which are those of sparse flows.
    pub base_delay: Nanos,
    /// Offered packets, whatever became of them.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// Flows that were found in another queue than their first choice.
    pub way_indirect_hits: u64,
    /// Flows that took a free queue.
    pub way_misses: u64,
    /// Flows that had to share a queue.
    pub way_collisions: u64,
    /// Dropped by the AQM or for lack of buffer.
    pub drops: u64,
    /// Delivered packets that were marked instead of dropped.
    pub ecn_marks: u64,
    /// Dropped by the ACK filter.
    pub ack_drops: u64,
    /// Flows within their first quantum. `tc` shows these and the decaying ones as one number.
    pub sparse_flows: u32,
    /// Empty flows whose AQM has something to forget.
    pub decaying_flows: u32,
    /// Flows with more to send.
    pub bulk_flows: u32,
    /// Queues that BLUE drops from.
    pub unresponsive_flows: u32,
    /// Largest packet offered, bytes.
    pub max_packet_len: u32,
    /// Bytes per flow and round.
    pub flow_quantum: u32,
}

/// One queue, as `tc -s class` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The tin's number inside.
    pub tin: u8,
    /// The queue's number in its tin, 0 to 1023.
    pub queue: u16,
    /// Bytes it may send now.
    pub deficit: i32,
    /// COBALT's count of signals.
    pub count: u32,
    /// When the next signal is due, microseconds from the last call, negative if it is overdue; only while the queue is
    /// being signalled.
    pub drop_next: Option<i64>,
    /// BLUE's drop probability in units of 2⁻³².
    pub blue_probability: u32,
    /// When BLUE last changed it, microseconds from the last call; only while it is above zero.
    pub blue_timer: Option<i64>,
    /// Packets dropped.
    pub drops: u32,
    /// Packets and bytes in the queue.
    pub backlog: Backlog,
}

impl<P: Packet, R: Random> Cake<P, R> {
    /// Everything `tc -s qdisc` shows.
    pub fn stats(&self) -> Stats {
        let least = |size: (u32, u32)| (size.0 != u32::MAX).then_some(size.0);
        Stats {
            sent_packets: self.counters.packets,
            sent_bytes: self.counters.bytes,
            drops: self.counters.dropped,
            overlimits: self.counters.overlimits,
            backlog: self.backlog,
            memory_used: Bytes(self.memory.most),
            memory_limit: Bytes(self.memory.limit),
            capacity_estimate: Rate::from_bits_per_sec(self.autorate.peak.saturating_mul(8)),
            min_network_size: least(self.sizes.network),
            max_network_size: self.sizes.network.1,
            min_adj_size: least(self.sizes.line),
            max_adj_size: self.sizes.line.1,
            average_header_offset: self.sizes.offset,
            tins: self
                .layout
                .display
                .iter()
                .zip(self.layout.names)
                .map(|(&tin, &name)| tin_stats(tin, name, &self.tins[usize::from(tin)]))
                .collect(),
        }
    }

    /// Everything `tc -s class` shows: the queues that were ever used, tin by tin, in the order of their numbers.
    pub fn queue_stats(&self) -> Vec<QueueStats> {
        let tins = self.tins[..self.layout.count()].iter();
        tins.filter_map(|tin| tin.tables.as_ref())
            .flat_map(|tables| (0..ENTRIES).map(|queue| tables.queues.flow_of(queue)))
            .filter(|flow| *flow != NO_FLOW)
            .map(|flow| self.one_queue(flow))
            .collect()
    }

    fn one_queue(&self, flow: FlowId) -> QueueStats {
        let queue = &self.queues[usize::from(flow)];
        let from_now = |time: u64| time.wrapping_sub(self.now).cast_signed() / 1000;
        let blue = queue.cobalt.drop_probability();
        QueueStats {
            tin: queue.tin,
            queue: queue.number,
            deficit: self.scheds[usize::from(flow)].deficit,
            count: queue.cobalt.count(),
            drop_next: queue.cobalt.drop_next().map(from_now),
            blue_probability: blue,
            blue_timer: (blue > 0).then(|| from_now(queue.cobalt.blue_timer())),
            drops: queue.drops,
            backlog: Backlog {
                packets: fits_u32(self.store.iter(queue.packets).count() as u64),
                bytes: u64::from(queue.backlog),
            },
        }
    }
}

fn tin_stats(number: u8, name: &'static str, tin: &Tin) -> TinStats {
    let counters = &tin.counters;
    TinStats {
        name,
        tin: number,
        threshold_rate: Rate::from_bits_per_sec(tin.threshold.saturating_mul(8)),
        target: Nanos(tin.params.target),
        interval: Nanos(tin.params.interval),
        peak_delay: Nanos(counters.peak_delay),
        average_delay: Nanos(counters.average_delay),
        base_delay: Nanos(counters.base_delay),
        sent_packets: counters.packets,
        sent_bytes: counters.bytes,
        backlog_bytes: tin.backlog,
        way_indirect_hits: counters.hits,
        way_misses: counters.misses,
        way_collisions: counters.collisions,
        drops: counters.drops,
        ecn_marks: counters.marks,
        ack_drops: counters.ack_drops,
        sparse_flows: u32::from(tin.sparse),
        decaying_flows: u32::from(tin.decaying),
        bulk_flows: u32::from(tin.bulk),
        unresponsive_flows: u32::from(tin.unresponsive),
        max_packet_len: counters.max_len,
        flow_quantum: tin.quantum,
    }
}
