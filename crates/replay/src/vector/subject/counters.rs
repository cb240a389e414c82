//! Counters under the names that the files use.

use serde_json::{Value, json};
use sqm_core::cake::{self, TinStats};
use sqm_core::tree::{Details, NodeStats};

/// The counters of the root qdisc of a scenario.
pub(super) fn of_root(details: &Details) -> Value {
    match details {
        Details::Codel {
            state,
            stats,
            drop_overlimit,
            ..
        } => json!({
            "drop_overlimit": drop_overlimit,
            "ecn_mark": stats.ecn_mark,
            "ce_mark": stats.ce_mark,
            "maxpacket": stats.maxpacket,
            "count": state.count,
            "lastcount": state.lastcount,
            "dropping": u8::from(state.dropping),
        }),
        Details::FqCodel { params, stats, .. } => json!({
            "drop_overlimit": stats.drop_overlimit,
            "drop_overmemory": stats.drop_overmemory,
            "ecn_mark": stats.ecn_mark,
            "ce_mark": stats.ce_mark,
            "new_flow_count": stats.new_flow_count,
            "maxpacket": stats.maxpacket,
            "memory_used": stats.memory_used,
            "new_flows_len": stats.new_flows_len,
            "old_flows_len": stats.old_flows_len,
            "target_units": params.codel.target_units(),
            "interval_units": params.codel.interval_units(),
            "quantum": params.quantum,
        }),
        Details::Cake { stats, .. } => of_cake(stats),
        Details::Tbf(tbf) => json!({
            "tokens": tbf.tokens.0,
            "ptokens": tbf.peak_tokens.0,
            "max_size": tbf.max_size,
        }),
        Details::Htb { direct_packets } => json!({"direct_packets": direct_packets}),
        _ => json!({}),
    }
}

fn of_cake(stats: &cake::Stats) -> Value {
    /// The smallest size that the kernel shows before the first packet, in bytes.
    const NONE: u32 = 65535;
    let mut tins: Vec<&TinStats> = stats.tins.iter().collect();
    tins.sort_by_key(|tin| tin.tin);
    json!({
        "memory_used": stats.memory_used.0,
        "memory_limit": stats.memory_limit.0,
        "min_network_size": stats.min_network_size.unwrap_or(NONE),
        "max_network_size": stats.max_network_size,
        "min_adj_size": stats.min_adj_size.unwrap_or(NONE),
        "max_adj_size": stats.max_adj_size,
        "avg_netoff_q16": stats.average_header_offset,
        "drops": stats.drops,
        "tins": tins.into_iter().map(tin).collect::<Vec<_>>(),
    })
}

fn tin(tin: &TinStats) -> Value {
    json!({
        "tin": tin.tin,
        "threshold_rate": tin.threshold_rate.bytes_per_sec(),
        "target_ns": tin.target.0,
        "interval_ns": tin.interval.0,
        "flow_quantum": tin.flow_quantum,
        "sparse": tin.sparse_flows,
        "bulk": tin.bulk_flows,
        "decaying": tin.decaying_flows,
        "unresponsive": tin.unresponsive_flows,
        "drops": tin.drops,
        "ecn_mark": tin.ecn_marks,
        "ack_drops": tin.ack_drops,
        "packets": tin.sent_packets,
        "bytes": tin.sent_bytes,
        "way_hits": tin.way_indirect_hits,
        "way_misses": tin.way_misses,
        "way_collisions": tin.way_collisions,
        "backlog": tin.backlog_bytes,
        "avg_delay_ns": tin.average_delay.0,
        "peak_delay_ns": tin.peak_delay.0,
        "base_delay_ns": tin.base_delay.0,
        "max_len": tin.max_packet_len,
    })
}

/// The counters of a class, without those of its leaf.
pub(super) fn of_class(node: &NodeStats) -> Option<Value> {
    let id = node.handle.to_string();
    Some(match &node.details {
        Details::HtbClass(class) => json!({
            "id": id,
            "tokens": class.tokens,
            "ctokens": class.ctokens,
            "mode": class.mode as u8,
            "lends": class.lends,
            "borrows": class.borrows,
            "level": class.level,
            "quantum": class.quantum,
        }),
        Details::HfscClass(class) => json!({
            "id": id,
            "work": class.work.0,
            "rt_work": class.rt_work.0,
            "qlen": node.backlog.packets,
        }),
        _ => return None,
    })
}
