//! The queues' own counters, under the names of `tc -s -j`.

use serde_json::{Map, Value, json};
use sqm_core::cake::{self, QueueStats, TinStats};
use sqm_core::fq_codel::FlowStats;
use sqm_core::htb::Mode;
use sqm_core::tree::{Details, NodeStats};
use sqm_core::units::Nanos;

/// The counters of a qdisc or class.
pub(super) fn of(node: &NodeStats) -> Value {
    let mut all = object(json!({
        "kind": node.kind,
        "handle": node.handle.to_string(),
        "parent": node.parent.map(|parent| parent.to_string()),
        "packets": node.counters.packets,
        "bytes": node.counters.bytes,
        "drops": node.counters.dropped,
        "overlimits": node.counters.overlimits,
        "qlen": node.backlog.packets,
        "backlog": node.backlog.bytes,
    }));
    all.extend(object(of_kind(&node.details)));
    Value::Object(all)
}

fn of_kind(details: &Details) -> Value {
    match details {
        Details::Codel {
            state,
            stats,
            drop_overlimit,
            ..
        } => json!({
            "count": state.count,
            "lastcount": state.lastcount,
            "ldelay_us": micros(state.ldelay()),
            "dropping": state.dropping,
            "maxpacket": stats.maxpacket,
            "ecn_mark": stats.ecn_mark,
            "ce_mark": stats.ce_mark,
            "drop_overlimit": drop_overlimit,
        }),
        Details::FqCodel { stats, flows, .. } => json!({
            "maxpacket": stats.maxpacket,
            "drop_overlimit": stats.drop_overlimit,
            "drop_overmemory": stats.drop_overmemory,
            "ecn_mark": stats.ecn_mark,
            "ce_mark": stats.ce_mark,
            "new_flow_count": stats.new_flow_count,
            "memory_used": stats.memory_used,
            "new_flows_len": stats.new_flows_len,
            "old_flows_len": stats.old_flows_len,
            "classes": flows.iter().map(fq_codel_flow).collect::<Vec<_>>(),
        }),
        Details::Cake { stats, queues } => of_cake(stats, queues),
        Details::Tbf(stats) => json!({
            "tokens_ns": stats.tokens.0,
            "peak_tokens_ns": stats.peak_tokens.0,
            "max_size": stats.max_size,
        }),
        Details::Htb { direct_packets } => json!({ "direct_packets_stat": direct_packets }),
        Details::HtbClass(class) => json!({
            "level": class.level,
            "quantum": class.quantum,
            "tokens_ns": class.tokens,
            "ctokens_ns": class.ctokens,
            "lended": class.lends,
            "borrowed": class.borrows,
            "mode": match class.mode {
                Mode::CanSend => "can_send",
                Mode::MayBorrow => "may_borrow",
                Mode::CantSend => "cant_send",
            },
        }),
        Details::HfscClass(class) => json!({
            "level": class.level,
            "period": class.period,
            "work": class.work.0,
            "rtwork": class.rt_work.0,
        }),
        Details::Fifo | Details::Hfsc => json!({}),
    }
}

fn of_cake(stats: &cake::Stats, queues: &[QueueStats]) -> Value {
    json!({
        "memory_used": stats.memory_used.0,
        "memory_limit": stats.memory_limit.0,
        "capacity_estimate_bits_per_sec": stats.capacity_estimate.bits_per_sec(),
        "min_network_size": stats.min_network_size,
        "max_network_size": stats.max_network_size,
        "min_adj_size": stats.min_adj_size,
        "max_adj_size": stats.max_adj_size,
        "avg_hdr_offset": (stats.average_header_offset + (1 << 15)) >> 16,
        "tins": stats.tins.iter().map(cake_tin).collect::<Vec<_>>(),
        "classes": queues.iter().map(cake_queue).collect::<Vec<_>>(),
    })
}

fn cake_tin(tin: &TinStats) -> Value {
    json!({
        "name": tin.name,
        "threshold_rate_bits_per_sec": tin.threshold_rate.bits_per_sec(),
        "sent_bytes": tin.sent_bytes,
        "backlog_bytes": tin.backlog_bytes,
        "target_us": micros(tin.target),
        "interval_us": micros(tin.interval),
        "peak_delay_us": micros(tin.peak_delay),
        "avg_delay_us": micros(tin.average_delay),
        "base_delay_us": micros(tin.base_delay),
        "sent_packets": tin.sent_packets,
        "way_indirect_hits": tin.way_indirect_hits,
        "way_misses": tin.way_misses,
        "way_collisions": tin.way_collisions,
        "drops": tin.drops,
        "ecn_mark": tin.ecn_marks,
        "ack_drops": tin.ack_drops,
        "sparse_flows": tin.sparse_flows + tin.decaying_flows,
        "bulk_flows": tin.bulk_flows,
        "unresponsive_flows": tin.unresponsive_flows,
        "max_pkt_len": tin.max_packet_len,
        "flow_quantum": tin.flow_quantum,
    })
}

fn cake_queue(queue: &QueueStats) -> Value {
    json!({
        "tin": queue.tin,
        "queue": queue.queue,
        "deficit": queue.deficit,
        "count": queue.count,
        "drop_next_us": queue.drop_next,
        "blue_prob": queue.blue_probability,
        "blue_timer_us": queue.blue_timer,
        "drops": queue.drops,
        "qlen": queue.backlog.packets,
        "backlog": queue.backlog.bytes,
    })
}

fn fq_codel_flow(flow: &FlowStats) -> Value {
    json!({
        "queue": flow.number,
        "deficit": flow.deficit,
        "backlog": flow.bytes,
        "count": flow.codel.count,
        "lastcount": flow.codel.lastcount,
        "ldelay_us": micros(flow.codel.ldelay()),
        "dropping": flow.codel.dropping,
    })
}

const fn micros(time: Nanos) -> u64 {
    time.as_micros()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
