//! Counters, compared with those that `tc -s -j` printed from the same bytes.

use serde_json::Value;

use super::super::statistics::{decode_cake, decode_fq_codel, decode_statistics};
use super::super::tc::Entry;
use super::{pairs, recording};

#[test]
fn counters_are_read_as_by_tc() {
    for (_, show) in pairs(&recording("statistics")) {
        let printed: Value = serde_json::from_str(&show.printed).expect("JSON");
        let printed = &printed[0];
        let entries = show.entries();
        let [entry] = entries.as_slice() else {
            panic!("one qdisc");
        };
        let read = decode_statistics(entry.statistics());
        assert_eq!(printed["packets"], 3, "the recording has traffic");
        for (name, number) in [
            ("bytes", read.sent_bytes),
            ("packets", read.sent_packets),
            ("drops", read.drops.into()),
            ("overlimits", read.overlimits.into()),
            ("requeues", read.requeues.into()),
            ("backlog", read.backlog_bytes.into()),
            ("qlen", read.backlog_packets.into()),
        ] {
            assert_eq!(printed[name], number, "{name}");
        }
        match entry.kind().as_str() {
            "cake" => check_cake(entry, printed),
            "fq_codel" => check_fq_codel(entry, printed),
            kind => panic!("{kind}"),
        }
    }
}

fn check_cake(entry: &Entry, printed: &Value) {
    let read = decode_cake(entry.statistics());
    // tc prints rates in bytes per second.
    for (name, number) in [
        ("memory_used", u64::from(read.memory_used_bytes)),
        ("memory_limit", read.memory_limit_bytes.into()),
        ("capacity_estimate", read.capacity_estimate_bits_per_sec / 8),
        ("min_network_size", read.network_size_bytes[0].into()),
        ("max_network_size", read.network_size_bytes[1].into()),
        ("min_adj_size", read.adjusted_size_bytes[0].into()),
        ("max_adj_size", read.adjusted_size_bytes[1].into()),
    ] {
        assert_eq!(printed[name], number, "{name}");
    }
    let tins = printed["tins"].as_array().expect("a list");
    assert_eq!(tins.len(), read.tins.len());
    for (printed, tin) in tins.iter().zip(&read.tins) {
        for (name, number) in [
            ("threshold_rate", tin.threshold_bits_per_sec / 8),
            ("sent_bytes", tin.sent_bytes),
            ("backlog_bytes", tin.backlog_bytes.into()),
            ("target_us", tin.target_us.into()),
            ("interval_us", tin.interval_us.into()),
            ("peak_delay_us", tin.delay_peak_us.into()),
            ("avg_delay_us", tin.delay_avg_us.into()),
            ("base_delay_us", tin.delay_base_us.into()),
            ("sent_packets", tin.sent_packets.into()),
            ("way_indirect_hits", tin.way_indirect_hits.into()),
            ("way_misses", tin.way_misses.into()),
            ("way_collisions", tin.way_collisions.into()),
            ("drops", tin.drops.into()),
            ("ecn_mark", tin.marks.into()),
            ("ack_drops", tin.ack_drops.into()),
            ("sparse_flows", tin.sparse_flows.into()),
            ("bulk_flows", tin.bulk_flows.into()),
            ("unresponsive_flows", tin.unresponsive_flows.into()),
            ("max_pkt_len", tin.packet_max_bytes.into()),
            ("flow_quantum", tin.flow_quantum_bytes.into()),
        ] {
            assert_eq!(printed[name], number, "{name}");
        }
    }
}

fn check_fq_codel(entry: &Entry, printed: &Value) {
    let read = decode_fq_codel(entry.statistics()).expect("a qdisc");
    for (name, number) in [
        ("maxpacket", read.packet_max_bytes),
        ("drop_overlimit", read.drops_overlimit),
        ("new_flow_count", read.new_flows),
        ("ecn_mark", read.marks),
        ("new_flows_len", read.new_flows_now),
        ("old_flows_len", read.old_flows_now),
    ] {
        assert_eq!(printed[name], number, "{name}");
    }
}
