//! CAKE as the subject of a scenario, fed with the random numbers that Linux's drew.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Context;
use serde_json::{Map, Value, json};
use sqm_core::cake::{Cake, TinStats};
use sqm_core::qdisc::{Backlog, Dequeued, Drops, Environment, Qdisc};
use sqm_core::rng::Random;
use sqm_core::spec;
use sqm_core::units::Instant;

use super::super::file::{self, Draws};
use super::super::packet::VectorPacket;
use super::{Subject, object};
use crate::failure::Failure;

/// CAKE and its source of randomness.
pub(super) struct CakeSubject {
    cake: Cake<VectorPacket, Recorded>,
    random: Recorded,
}

impl CakeSubject {
    pub(super) fn new(spec: &spec::cake::Cake, environment: &Environment, random: &file::Random) -> Self {
        let random = Recorded(Rc::new(RefCell::new(Lists {
            r16: List::new(&random.r16),
            r32: List::new(&random.r32),
        })));
        Self {
            cake: Cake::new(spec, environment, random.clone()),
            random,
        }
    }
}

impl Qdisc<VectorPacket> for CakeSubject {
    fn enqueue(&mut self, packet: VectorPacket, now: Instant, drops: &mut dyn Drops<VectorPacket>) {
        self.cake.enqueue(packet, now, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<VectorPacket>) -> Dequeued<VectorPacket> {
        self.cake.dequeue(now, drops)
    }

    fn backlog(&self) -> Backlog {
        self.cake.backlog()
    }
}

impl Subject for CakeSubject {
    fn change(
        &mut self,
        words: &str,
        _: Instant,
        drops: &mut dyn Drops<VectorPacket>,
    ) -> Result<(), Failure> {
        self.cake
            .change(words, drops)
            .with_context(|| format!("change: '{words}'"))
            .map_err(Failure::Usage)
    }

    fn counters(&self) -> Map<String, Value> {
        /// What the kernel shows where no packet was seen.
        const NONE: u32 = 65535;
        let stats = self.cake.stats();
        let mut tins: Vec<&TinStats> = stats.tins.iter().collect();
        tins.sort_by_key(|tin| tin.tin);
        object(json!({
            "qlen": stats.backlog.packets,
            "backlog": stats.backlog.bytes,
            "memory_used": stats.memory_used.0,
            "memory_limit": stats.memory_limit.0,
            "min_network_size": stats.min_network_size.unwrap_or(NONE),
            "max_network_size": stats.max_network_size,
            "min_adj_size": stats.min_adj_size.unwrap_or(NONE),
            "max_adj_size": stats.max_adj_size,
            "avg_netoff_q16": stats.average_header_offset,
            "drops": stats.drops,
            "tins": tins.into_iter().map(tin).collect::<Vec<_>>(),
        }))
    }

    fn complaint(&self) -> Option<String> {
        let lists = self.random.0.borrow();
        let of = |width, list: Option<String>| list.map(|list| format!("{list} {width} random numbers"));
        of("16-bit", lists.r16.complaint()).or_else(|| of("32-bit", lists.r32.complaint()))
    }
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

/// Hands out the recorded numbers. CAKE holds one end, the subject the other, to see what is left.
#[derive(Clone)]
struct Recorded(Rc<RefCell<Lists>>);

struct Lists {
    r16: List<u16>,
    r32: List<u32>,
}

struct List<N> {
    draws: Draws<N>,
    /// How many were drawn.
    drawn: usize,
}

impl<N: Copy + Default> List<N> {
    fn new(draws: &Draws<N>) -> Self
    where
        N: Clone,
    {
        Self {
            draws: draws.clone(),
            drawn: 0,
        }
    }

    /// The next number; beyond the end of the list any will do, because the scenario has failed.
    fn draw(&mut self) -> N {
        self.drawn += 1;
        match &self.draws {
            Draws::Always(number) => *number,
            Draws::InOrder(list) => list.get(self.drawn - 1).copied().unwrap_or_default(),
        }
    }

    fn complaint(&self) -> Option<String> {
        let Draws::InOrder(list) = &self.draws else {
            return None;
        };
        (list.len() != self.drawn).then(|| format!("it drew {} of {}", self.drawn, list.len()))
    }
}

impl Random for Recorded {
    fn r16(&mut self) -> u16 {
        self.0.borrow_mut().r16.draw()
    }

    fn r32(&mut self) -> u32 {
        self.0.borrow_mut().r32.draw()
    }
}
