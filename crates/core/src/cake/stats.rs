//! What `tc -s qdisc` and `tc -s class` show of CAKE.

use alloc::vec::Vec;

use crate::qdisc::Backlog;
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
    /// What is queued.
    pub backlog: Backlog,
    /// The most memory that was ever charged.
    pub memory_used: Bytes,
    /// What may be charged.
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
    /// What is queued.
    pub backlog: Backlog,
}
