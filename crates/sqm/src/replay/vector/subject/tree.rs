//! Every kind but CAKE as the subject of a scenario.

use anyhow::anyhow;
use serde_json::{Map, Value, json};
use sqm_core::handle::Handle;
use sqm_core::qdisc::{Backlog, Dequeued, Drops, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::tree::{Description, Details, NodeStats, Tree};
use sqm_core::units::Instant;

use super::super::packet::VectorPacket;
use super::{Subject, object};
use crate::failure::Failure;

/// A tree, which may be a single queue.
pub(super) struct TreeSubject {
    tree: Tree<VectorPacket, Xorshift>,
    /// In the order in which they were made, which is that of the counters.
    classes: Vec<Handle>,
}

impl TreeSubject {
    pub(super) fn new(tree: Tree<VectorPacket, Xorshift>, description: &Description) -> Self {
        Self {
            tree,
            classes: description.classes.iter().map(|class| class.id).collect(),
        }
    }
}

impl Qdisc<VectorPacket> for TreeSubject {
    fn enqueue(&mut self, packet: VectorPacket, now: Instant, drops: &mut dyn Drops<VectorPacket>) {
        self.tree.enqueue(packet, now, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<VectorPacket>) -> Dequeued<VectorPacket> {
        self.tree.dequeue(now, drops)
    }

    fn backlog(&self) -> Backlog {
        self.tree.backlog()
    }
}

impl Subject for TreeSubject {
    fn change(&mut self, words: &str, _: Instant, _: &mut dyn Drops<VectorPacket>) -> Result<(), Failure> {
        Err(Failure::Unsupported(anyhow!(
            "change '{words}': only cake can be changed while it runs"
        )))
    }

    fn counters(&self) -> Map<String, Value> {
        let backlog = self.tree.backlog();
        let mut counters = object(json!({"qlen": backlog.packets, "backlog": backlog.bytes}));
        let nodes = self.tree.stats();
        if let Some(root) = nodes.first() {
            counters.extend(object(of_root(&root.details)));
        }
        let classes = self
            .classes
            .iter()
            .filter_map(|id| nodes.iter().find(|node| node.handle == *id))
            .filter_map(of_class);
        if !self.classes.is_empty() {
            counters.insert("classes".to_owned(), classes.collect());
        }
        counters
    }
}

fn of_root(details: &Details) -> Value {
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
        Details::FqCodel { params, stats } => json!({
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
        Details::Tbf(tbf) => json!({
            "tokens": tbf.tokens.0,
            "ptokens": tbf.peak_tokens.0,
            "max_size": tbf.max_size,
        }),
        Details::Htb { direct_packets } => json!({"direct_packets": direct_packets}),
        _ => json!({}),
    }
}

fn of_class(node: &NodeStats) -> Option<Value> {
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
