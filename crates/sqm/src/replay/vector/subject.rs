//! The queue that a scenario is about, and its counters under the names that the files use.

mod cake;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Drops, Environment, Qdisc};
use sqm_core::spec;
use sqm_core::tree::AnyQdisc;
use sqm_core::units::Instant;

use super::file::{self, Vector, Words};
use super::packet::VectorPacket;
use crate::failure::Failure;

/// A queue that can be reconfigured and looked into.
pub(super) trait Subject: Qdisc<VectorPacket> {
    /// Carries out `tc qdisc change` with these words.
    fn change(
        &mut self,
        words: &str,
        now: Instant,
        drops: &mut dyn Drops<VectorPacket>,
    ) -> Result<(), Failure>;

    /// Its counters.
    fn counters(&self) -> Map<String, Value>;

    /// What is wrong with the scenario as a whole now that it is over.
    fn complaint(&self) -> Option<String> {
        None
    }
}

/// The queue that `vector` describes.
pub(super) fn build(vector: &Vector) -> Result<Box<dyn Subject>, Failure> {
    let environment = Environment {
        mtu: vector.mtu,
        tx_queue_len: 1000,
        handle: 0,
        now: Instant(vector.origin_ns),
        profile: match vector.profile {
            file::Profile::Kernel => Profile::KERNEL,
            file::Profile::Fixed => Profile::FIXED,
        },
        // Packets bring their hashes.
        hash_key: HashKey(0, 0),
    };
    let name = &vector.name;
    let words = match &vector.tc {
        Words::One(words) => format!("{} {words}", vector.qdisc),
        Words::Commands(_) => {
            return Err(Failure::Usage(anyhow!("{name}: no trees yet")));
        }
    };
    let spec = spec::Qdisc::parse(&words)
        .with_context(|| format!("{name}: tc: '{words}'"))
        .map_err(Failure::Usage)?;
    if let spec::Qdisc::Cake(spec) = &spec {
        let random = vector
            .random
            .as_ref()
            .with_context(|| format!("{name}: cake needs random numbers"));
        let random = random.map_err(Failure::Usage)?;
        return Ok(Box::new(cake::CakeSubject::new(spec, &environment, random)));
    }
    let queue = AnyQdisc::new(&spec, &environment).map_err(|error| Failure::Unsupported(error.into()))?;
    Ok(Box::new(queue))
}

impl Subject for AnyQdisc<VectorPacket> {
    fn change(&mut self, words: &str, _: Instant, _: &mut dyn Drops<VectorPacket>) -> Result<(), Failure> {
        Err(Failure::Unsupported(anyhow!("no change '{words}' to this queue")))
    }

    fn counters(&self) -> Map<String, Value> {
        let backlog = self.backlog();
        let mut counters = object(json!({"qlen": backlog.packets, "backlog": backlog.bytes}));
        counters.extend(object(match self {
            Self::Fifo(_) | Self::Cake(_) => json!({}),
            Self::Codel(codel) => json!({
                "drop_overlimit": codel.drop_overlimit(),
                "ecn_mark": codel.stats().ecn_mark,
                "ce_mark": codel.stats().ce_mark,
                "maxpacket": codel.stats().maxpacket,
                "count": codel.state().count,
                "lastcount": codel.state().lastcount,
                "dropping": u8::from(codel.state().dropping),
            }),
            Self::FqCodel(fq_codel) => json!({
                "drop_overlimit": fq_codel.stats().drop_overlimit,
                "drop_overmemory": fq_codel.stats().drop_overmemory,
                "ecn_mark": fq_codel.stats().ecn_mark,
                "ce_mark": fq_codel.stats().ce_mark,
                "new_flow_count": fq_codel.stats().new_flow_count,
                "maxpacket": fq_codel.stats().maxpacket,
                "memory_used": fq_codel.stats().memory_used,
                "new_flows_len": fq_codel.stats().new_flows_len,
                "old_flows_len": fq_codel.stats().old_flows_len,
                "target_units": fq_codel.params().codel.target_units(),
                "interval_units": fq_codel.params().codel.interval_units(),
                "quantum": fq_codel.params().quantum,
            }),
            _ => json!({}),
        }));
        counters
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
