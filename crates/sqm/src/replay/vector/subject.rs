//! The queue that a scenario is about, and its counters under the names that the files use.

mod cake;
mod tree;

use anyhow::Context;
use serde_json::{Map, Value};
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Drops, Environment, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::spec;
use sqm_core::spec::command::QdiscNode;
use sqm_core::tree::{Description, Tree};
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
    let commands = match &vector.tc {
        Words::One(words) => {
            let mut commands = format!("qdisc add dev eth0 root handle 1: {} {words}", vector.qdisc);
            if let Some(child) = &vector.child {
                commands += &format!("\nqdisc add dev eth0 parent 1:1 handle 2: {child}");
            }
            commands
        }
        Words::Commands(commands) => commands.join("\n"),
    };
    let description = Description::parse(&commands)
        .with_context(|| format!("{name}: tc"))
        .map_err(Failure::Usage)?;
    if let [
        QdiscNode {
            qdisc: spec::Qdisc::Cake(cake),
            ..
        },
    ] = description.qdiscs.as_slice()
    {
        let random = vector.random.as_ref();
        let random = random.with_context(|| format!("{name}: cake needs random numbers"));
        let random = random.map_err(Failure::Usage)?;
        return Ok(Box::new(cake::CakeSubject::new(cake, &environment, random)));
    }
    description
        .check()
        .with_context(|| format!("{name}: tc"))
        .map_err(Failure::Usage)?;
    // Of the kinds besides CAKE none draws lots.
    let tree = Tree::build(&description, &environment, || Xorshift::new(1))
        .with_context(|| format!("{name}: tc"))
        .map_err(Failure::Usage)?;
    Ok(Box::new(tree::TreeSubject::new(tree, &description)))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
