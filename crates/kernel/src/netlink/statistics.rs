//! The counters of a qdisc or class (`TCA_STATS2`), with CAKE's tins and fq_codel's queues.

use serde::{Deserialize, Serialize};

use super::attribute::{Attributes, u32_at, u64_at};

/// `TCA_STATS_*`.
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const APP: u16 = 4;
const PKT64: u16 = 8;

/// Counters that every qdisc and class has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub drops: u32,
    /// Times that a packet was delayed because of a rate limit.
    pub overlimits: u32,
    /// Packets that the device could not take yet and returned.
    pub requeues: u32,
    /// Bytes in the queue.
    pub backlog_bytes: u32,
    /// Packets in the queue.
    pub backlog_packets: u32,
}

/// Decodes `TCA_STATS2`. An absent counter is 0.
pub fn decode_statistics(bytes: &[u8]) -> Statistics {
    let all = Attributes(bytes);
    // struct gnet_stats_basic: bytes, packets. struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
    let basic = all.get(BASIC).unwrap_or_default();
    let queue = all.get(QUEUE).unwrap_or_default();
    let word = |at| u32_at(queue, at).unwrap_or(0);
    Statistics {
        sent_bytes: u64_at(basic, 0).unwrap_or(0),
        // The 32-bit counter wraps; kernels since 5.5 also report 64 bits.
        sent_packets: all
            .u64(PKT64)
            .unwrap_or_else(|| u32_at(basic, 8).unwrap_or(0).into()),
        drops: word(8),
        overlimits: word(16),
        requeues: word(12),
        backlog_bytes: word(4),
        backlog_packets: word(0),
    }
}

/// CAKE's counters beyond the common ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CakeStatistics {
    /// The names that `tc` gives to the tins. The kernel does not send them: a [status](crate::status) has them.
    pub tin_names: Vec<String>,
    /// Highest memory use so far, bytes.
    pub memory_used_bytes: u32,
    /// Limit of memory use, bytes.
    pub memory_limit_bytes: u32,
    /// Estimated capacity, bits per second.
    pub capacity_estimate_bits_per_sec: u64,
    /// Smallest and largest packet so far, from the IP header on, bytes. 65535 and 0 before the first packet.
    pub network_size_bytes: [u32; 2],
    /// Smallest and largest packet so far, on the line, bytes. 65535 and 0 before the first packet.
    pub adjusted_size_bytes: [u32; 2],
    /// Tins, in the kernel's order: lowest priority first.
    pub tins: Vec<TinStatistics>,
}

impl CakeStatistics {
    /// Combines two CAKEs with equal settings: counters are added, and of measurements the worse one counts.
    pub(crate) fn combined(self, other: Self) -> Self {
        let range = |[least, largest]: [u32; 2], [l, r]: [u32; 2]| [least.min(l), largest.max(r)];
        Self {
            tin_names: self.tin_names,
            memory_used_bytes: self.memory_used_bytes.saturating_add(other.memory_used_bytes),
            memory_limit_bytes: self.memory_limit_bytes.saturating_add(other.memory_limit_bytes),
            capacity_estimate_bits_per_sec: self
                .capacity_estimate_bits_per_sec
                .saturating_add(other.capacity_estimate_bits_per_sec),
            network_size_bytes: range(self.network_size_bytes, other.network_size_bytes),
            adjusted_size_bytes: range(self.adjusted_size_bytes, other.adjusted_size_bytes),
            tins: self
                .tins
                .into_iter()
                .zip(other.tins)
                .map(|(a, b)| a.combined(&b))
                .collect(),
        }
    }
}

/// One tin of CAKE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TinStatistics {
    /// Rate up to which the tin keeps its priority, bits per second.
    pub threshold_bits_per_sec: u64,
    /// Bytes enqueued, including those dropped later.
    pub sent_bytes: u64,
    /// Packets enqueued, including those dropped later.
    pub sent_packets: u32,
    /// Bytes in the queue.
    pub backlog_bytes: u32,
    /// CoDel's target in effect.
    pub target_us: u32,
    /// CoDel's interval in effect.
    pub interval_us: u32,
    /// Average of the delay that rises fast and falls slowly.
    pub delay_peak_us: u32,
    /// Average delay.
    pub delay_avg_us: u32,
    /// Average of the delay that falls fast and rises slowly.
    pub delay_base_us: u32,
    /// Packets dropped by the queue management or for lack of memory.
    pub drops: u32,
    /// Packets marked with ECN.
    pub marks: u32,
    /// Acknowledgements dropped by the filter.
    pub ack_drops: u32,
    /// Sparse flows: those that build no queue.
    pub sparse_flows: u32,
    /// Bulk flows: those that keep a queue.
    pub bulk_flows: u32,
    /// Flows that do not respond to drops.
    pub unresponsive_flows: u32,
    /// Hash collisions that were resolved by another queue of the set.
    pub way_indirect_hits: u32,
    /// Packets whose flow had no queue yet.
    pub way_misses: u32,
    /// Flows that had to share a queue because all of the set were in use.
    pub way_collisions: u32,
    /// Largest packet so far, bytes.
    pub packet_max_bytes: u32,
    /// Bytes a flow sends per round.
    pub flow_quantum_bytes: u32,
}

impl TinStatistics {
    fn combined(self, other: &Self) -> Self {
        Self {
            // Each CAKE may use the whole rate while the others are idle.
            threshold_bits_per_sec: self.threshold_bits_per_sec.max(other.threshold_bits_per_sec),
            target_us: self.target_us,
            interval_us: self.interval_us,
            flow_quantum_bytes: self.flow_quantum_bytes,
            sent_bytes: self.sent_bytes.wrapping_add(other.sent_bytes),
            // Like the kernel's own 32-bit counters, these wrap.
            sent_packets: self.sent_packets.wrapping_add(other.sent_packets),
            drops: self.drops.wrapping_add(other.drops),
            marks: self.marks.wrapping_add(other.marks),
            ack_drops: self.ack_drops.wrapping_add(other.ack_drops),
            way_indirect_hits: self.way_indirect_hits.wrapping_add(other.way_indirect_hits),
            way_misses: self.way_misses.wrapping_add(other.way_misses),
            way_collisions: self.way_collisions.wrapping_add(other.way_collisions),
            backlog_bytes: self.backlog_bytes.saturating_add(other.backlog_bytes),
            sparse_flows: self.sparse_flows + other.sparse_flows,
            bulk_flows: self.bulk_flows + other.bulk_flows,
            unresponsive_flows: self.unresponsive_flows + other.unresponsive_flows,
            delay_peak_us: self.delay_peak_us.max(other.delay_peak_us),
            delay_avg_us: self.delay_avg_us.max(other.delay_avg_us),
            delay_base_us: self.delay_base_us.max(other.delay_base_us),
            packet_max_bytes: self.packet_max_bytes.max(other.packet_max_bytes),
        }
    }
}

/// `TCA_CAKE_STATS_*`.
mod cake {
    pub(super) const CAPACITY_ESTIMATE64: u16 = 2;
    pub(super) const MEMORY_LIMIT: u16 = 3;
    pub(super) const MEMORY_USED: u16 = 4;
    pub(super) const MIN_NETOFF: u16 = 6;
    pub(super) const MAX_NETOFF: u16 = 7;
    pub(super) const MIN_ADJLEN: u16 = 8;
    pub(super) const MAX_ADJLEN: u16 = 9;
    pub(super) const TIN_STATS: u16 = 10;
}

/// `TCA_CAKE_TIN_STATS_*`.
mod tin {
    pub(super) const SENT_PACKETS: u16 = 2;
    pub(super) const SENT_BYTES64: u16 = 3;
    pub(super) const DROPPED_PACKETS: u16 = 4;
    pub(super) const ACKS_DROPPED_PACKETS: u16 = 6;
    pub(super) const ECN_MARKED_PACKETS: u16 = 8;
    pub(super) const BACKLOG_BYTES: u16 = 11;
    pub(super) const THRESHOLD_RATE64: u16 = 12;
    pub(super) const TARGET_US: u16 = 13;
    pub(super) const INTERVAL_US: u16 = 14;
    pub(super) const WAY_INDIRECT_HITS: u16 = 15;
    pub(super) const WAY_MISSES: u16 = 16;
    pub(super) const WAY_COLLISIONS: u16 = 17;
    pub(super) const PEAK_DELAY_US: u16 = 18;
    pub(super) const AVG_DELAY_US: u16 = 19;
    pub(super) const BASE_DELAY_US: u16 = 20;
    pub(super) const SPARSE_FLOWS: u16 = 21;
    pub(super) const BULK_FLOWS: u16 = 22;
    pub(super) const UNRESPONSIVE_FLOWS: u16 = 23;
    pub(super) const MAX_SKBLEN: u16 = 24;
    pub(super) const FLOW_QUANTUM: u16 = 25;
}

/// Decodes CAKE's own statistics in `TCA_STATS2`. The kernel reports rates in bytes per second.
pub fn decode_cake(bytes: &[u8]) -> CakeStatistics {
    let statistics = Attributes(bytes).nested(APP);
    let number = |kind| statistics.u32(kind).unwrap_or(0);
    let capacity = statistics.u64(cake::CAPACITY_ESTIMATE64).unwrap_or(0);
    CakeStatistics {
        tin_names: Vec::new(),
        capacity_estimate_bits_per_sec: capacity.saturating_mul(8),
        memory_limit_bytes: number(cake::MEMORY_LIMIT),
        memory_used_bytes: number(cake::MEMORY_USED),
        network_size_bytes: [number(cake::MIN_NETOFF), number(cake::MAX_NETOFF)],
        adjusted_size_bytes: [number(cake::MIN_ADJLEN), number(cake::MAX_ADJLEN)],
        tins: statistics
            .nested(cake::TIN_STATS)
            .map(|(_, tin)| decode_tin(Attributes(tin)))
            .collect(),
    }
}

fn decode_tin(statistics: Attributes<'_>) -> TinStatistics {
    let number = |kind| statistics.u32(kind).unwrap_or(0);
    let threshold = statistics.u64(tin::THRESHOLD_RATE64).unwrap_or(0);
    TinStatistics {
        sent_packets: number(tin::SENT_PACKETS),
        sent_bytes: statistics.u64(tin::SENT_BYTES64).unwrap_or(0),
        drops: number(tin::DROPPED_PACKETS),
        ack_drops: number(tin::ACKS_DROPPED_PACKETS),
        marks: number(tin::ECN_MARKED_PACKETS),
        backlog_bytes: number(tin::BACKLOG_BYTES),
        threshold_bits_per_sec: threshold.saturating_mul(8),
        target_us: number(tin::TARGET_US),
        interval_us: number(tin::INTERVAL_US),
        way_indirect_hits: number(tin::WAY_INDIRECT_HITS),
        way_misses: number(tin::WAY_MISSES),
        way_collisions: number(tin::WAY_COLLISIONS),
        delay_peak_us: number(tin::PEAK_DELAY_US),
        delay_avg_us: number(tin::AVG_DELAY_US),
        delay_base_us: number(tin::BASE_DELAY_US),
        sparse_flows: number(tin::SPARSE_FLOWS),
        bulk_flows: number(tin::BULK_FLOWS),
        unresponsive_flows: number(tin::UNRESPONSIVE_FLOWS),
        packet_max_bytes: number(tin::MAX_SKBLEN),
        flow_quantum_bytes: number(tin::FLOW_QUANTUM),
    }
}

/// fq_codel's counters beyond the common ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FqCodelStatistics {
    /// Largest packet so far, bytes.
    pub packet_max_bytes: u32,
    /// Packets dropped because the queue was full.
    pub drops_overlimit: u32,
    /// Packets dropped for lack of memory.
    pub drops_overmemory: u32,
    /// Packets marked with ECN.
    pub marks: u32,
    /// Packets marked because of `ce_threshold`.
    pub marks_ce_threshold: u32,
    /// Times that a packet started a new flow.
    pub new_flows: u32,
    /// Flows in the list of new flows now.
    pub new_flows_now: u32,
    /// Flows in the list of old flows now.
    pub old_flows_now: u32,
    /// Memory in use, bytes.
    pub memory_used_bytes: u32,
}

/// Decodes fq_codel's own statistics in `TCA_STATS2`; `None` for those of a class.
pub fn decode_fq_codel(bytes: &[u8]) -> Option<FqCodelStatistics> {
    // struct tc_fq_codel_xstats: type (0 for a qdisc), then the words of struct tc_fq_codel_qd_stats.
    let app = Attributes(bytes).get(APP)?;
    let word = |n: usize| u32_at(app, 4 * n).unwrap_or(0);
    (word(0) == 0).then(|| FqCodelStatistics {
        packet_max_bytes: word(1),
        drops_overlimit: word(2),
        marks: word(3),
        new_flows: word(4),
        new_flows_now: word(5),
        old_flows_now: word(6),
        marks_ce_threshold: word(7),
        memory_used_bytes: word(8),
        drops_overmemory: word(9),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attribute::Builder;
    use super::*;

    #[test]
    fn counters_are_read_where_the_kernel_puts_them() {
        let basic = [1500u64.to_ne_bytes().as_slice(), &1u32.to_ne_bytes(), &[0; 4]].concat();
        let queue: Vec<u8> = [2u32, 3000, 4, 5, 6]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        let bytes = Builder::default()
            .bytes(BASIC, &basic)
            .bytes(QUEUE, &queue)
            .finish();
        let expected = Statistics {
            sent_bytes: 1500,
            sent_packets: 1,
            drops: 4,
            overlimits: 6,
            requeues: 5,
            backlog_bytes: 3000,
            backlog_packets: 2,
        };
        assert_eq!(decode_statistics(&bytes), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = (decode_statistics(&bytes), decode_cake(&bytes), decode_fq_codel(&bytes));
        }
    }
}
