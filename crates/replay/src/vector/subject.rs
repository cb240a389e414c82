//! The queue under test.

mod counters;
mod random;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};
use sqm_core::flow_hash::HashKey;
use sqm_core::handle::Handle;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Dequeued, Drops, Environment, Qdisc};
use sqm_core::spec;
use sqm_core::tree::{ChangeError, Description, Tree};
use sqm_core::units::Instant;

use super::file::{self, Draws, Vector, Words};
use super::packet::VectorPacket;
use crate::error::Error;
use random::Recorded;

/// A queue, or a tree of them, that uses the random numbers that Linux's queue drew.
pub(super) struct Subject {
    tree: Tree<VectorPacket, Recorded>,
    random: Recorded,
    /// The queues, in the order of their creation, which is that of the counters.
    classes: Vec<Handle>,
}

impl Subject {
    /// Builds the queue that `vector` describes.
    pub(super) fn new(vector: &Vector) -> Result<Self, Error> {
        let name = &vector.name;
        let description = description(vector)
            .with_context(|| format!("{name}: tc"))
            .map_err(Error::Input)?;
        let draws_lots = |node: &spec::command::QdiscNode| matches!(node.qdisc, spec::Qdisc::Cake(_));
        let random = match &vector.random {
            Some(random) => Recorded::new(random),
            None if description.qdiscs.iter().any(draws_lots) => {
                return Err(Error::Input(anyhow!("{name}: cake needs random numbers")));
            }
            None => Recorded::new(&file::Random {
                r16: Draws::Always(0),
                r32: Draws::Always(0),
            }),
        };
        let tree = Tree::build(&description, &environment(vector), || random.clone())
            .with_context(|| format!("{name}: tc"))
            .map_err(Error::Input)?;
        Ok(Self {
            tree,
            random,
            classes: description.classes.iter().map(|class| class.id).collect(),
        })
    }

    pub(super) fn enqueue(
        &mut self,
        packet: VectorPacket,
        now: Instant,
        drops: &mut dyn Drops<VectorPacket>,
    ) {
        self.tree.enqueue(packet, now, drops);
    }

    pub(super) fn dequeue(
        &mut self,
        now: Instant,
        drops: &mut dyn Drops<VectorPacket>,
    ) -> Dequeued<VectorPacket> {
        self.tree.dequeue(now, drops)
    }

    /// Reconfigures the queue, as `tc qdisc change` with these parameters does.
    pub(super) fn change(
        &mut self,
        words: &str,
        now: Instant,
        drops: &mut dyn Drops<VectorPacket>,
    ) -> Result<(), Error> {
        self.tree.change(words, now, drops).map_err(|error| {
            let is_refused = matches!(error, ChangeError::Fixed { .. });
            let error = anyhow!(error).context(format!("change: '{words}'"));
            if is_refused {
                Error::Unsupported(error)
            } else {
                Error::Input(error)
            }
        })
    }

    /// The counters of all queues.
    pub(super) fn counters(&self) -> Map<String, Value> {
        let backlog = self.tree.backlog();
        let mut all = object(json!({"qlen": backlog.packets, "backlog": backlog.bytes}));
        let nodes = self.tree.stats();
        if let Some(root) = nodes.first() {
            all.extend(object(counters::of_root(&root.details)));
        }
        let classes = self
            .classes
            .iter()
            .filter_map(|id| nodes.iter().find(|node| node.handle == *id))
            .filter_map(counters::of_class);
        if !self.classes.is_empty() {
            all.insert("classes".to_owned(), classes.collect());
        }
        all
    }

    /// The rules that the whole scenario broke. Call it at the end.
    pub(super) fn complaint(&self) -> Option<String> {
        self.random.complaint()
    }
}

fn environment(vector: &Vector) -> Environment {
    Environment {
        mtu: vector.mtu,
        tx_queue_len: 1000,
        handle: 0,
        now: Instant(vector.origin_ns),
        profile: match vector.profile {
            file::Profile::Kernel => Profile::KERNEL,
            file::Profile::Fixed => Profile::FIXED,
        },
        // Packets have recorded hashes.
        hash_key: HashKey(0, 0),
    }
}

/// The `tc` commands that build the queue.
fn description(vector: &Vector) -> anyhow::Result<Description> {
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
    let description = Description::parse(&commands)?;
    description.check()?;
    Ok(description)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
