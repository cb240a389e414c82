//! CAKE in every mode.

use proptest::prelude::*;
use sqm_core::cake::Cake;
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Backlog, Dequeued, DropReason, Drops, Environment, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::spec;
use sqm_core::units::{Instant, Rate};

use crate::packet::TestPacket;
use crate::program::{START, Subject, holds_for_all, program, run};

struct CakeSubject {
    cake: Cake<TestPacket, Xorshift>,
    /// The fastest rate it was ever given; none if it was unlimited.
    fastest: Option<Rate>,
}

impl CakeSubject {
    fn new(words: &str, profile: Profile) -> Self {
        let mut spec = spec::cake::Cake::default();
        spec.apply(words).expect("words of CAKE");
        let environment = Environment {
            profile,
            ..Environment::ethernet(START, HashKey(1, 2))
        };
        Self {
            cake: Cake::new(&spec, &environment, Xorshift::new(7)),
            fastest: spec.bandwidth,
        }
    }
}

impl Qdisc<TestPacket> for CakeSubject {
    fn enqueue(&mut self, packet: TestPacket, now: Instant, drops: &mut dyn Drops<TestPacket>) {
        self.cake.enqueue(packet, now, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<TestPacket>) -> Dequeued<TestPacket> {
        self.cake.dequeue(now, drops)
    }

    fn backlog(&self) -> Backlog {
        self.cake.backlog()
    }
}

impl Subject for CakeSubject {
    fn change(&mut self, way: u8, _: Instant, drops: &mut Vec<(TestPacket, DropReason)>) -> bool {
        const WAYS: [&str; 10] = [
            "bandwidth 3mbit",
            "bandwidth 300kbit rtt 20ms",
            "besteffort",
            "diffserv8",
            "diffserv4 wash",
            "triple-isolate",
            "dual-dsthost rtt 40ms",
            "memlimit 20000",
            "ack-filter-aggressive",
            "flowblind",
        ];
        let words = WAYS[usize::from(way) % WAYS.len()];
        self.cake.change(words, drops).expect("words of CAKE");
        // Once unlimited, no rate bounds what left.
        if self.fastest.is_some() {
            self.fastest = self.fastest.max(self.cake.spec().bandwidth);
        }
        // Another tin or queue for a flow that is queued already.
        !words.starts_with("bandwidth") && !words.starts_with("memlimit") && !words.starts_with("ack")
    }

    /// Flows that share a queue take its tag from each other, and the one without finds another queue.
    fn may_overtake(&self) -> bool {
        let tins = self.cake.stats().tins;
        tins.iter().any(|tin| tin.way_collisions > 0)
    }

    fn check(&self) {
        self.cake.check_invariants();
    }

    fn marks(&self) -> Option<u64> {
        let tins = self.cake.stats().tins;
        // The statistics are those of the tins in use.
        Some(tins.iter().map(|tin| tin.ecn_marks).sum())
    }

    fn memory_limit(&self) -> Option<u64> {
        Some(self.cake.stats().memory_limit.0)
    }

    fn allowance(&self, now: Instant) -> Option<u64> {
        let rate = self.fastest?.bytes_per_sec();
        let nanos = now.since(START).0;
        // Durations are rounded down by up to a nanosecond per packet.
        Some((u128::from(rate) * u128::from(nanos) / 1_000_000_000) as u64 + 1000)
    }

    fn line_len(&self, packet: &TestPacket) -> u64 {
        // Overhead that was changed meanwhile is not followed: programs leave it as it is.
        let framing = self.cake.spec().framing;
        u64::from(framing.line_len(framing.counted_len(packet.len, 14)))
    }
}

fn words() -> impl Strategy<Value = String> {
    (
        prop::sample::select(&[
            "bandwidth 100kbit",
            "bandwidth 2mbit",
            "bandwidth 50mbit",
            "unlimited",
        ]),
        prop::sample::select(&["besteffort", "precedence", "diffserv3", "diffserv4", "diffserv8"]),
        prop::sample::select(&[
            "flowblind",
            "srchost",
            "dsthost",
            "hosts",
            "flows",
            "dual-srchost",
            "dual-dsthost",
            "triple-isolate",
        ]),
        prop::sample::select(&["", "ack-filter", "ack-filter-aggressive"]),
        prop::sample::select(&["", "ingress", "wash", "rtt 1ms", "datacentre"]),
        prop::sample::select(&["", "ethernet", "overhead 44 atm", "pppoe-ptm", "overhead -60"]),
        prop::sample::select(&["", "memlimit 12000", "memlimit 60000"]),
    )
        .prop_map(|(rate, tins, isolation, filter, ways, framing, limit)| {
            [rate, tins, isolation, filter, ways, framing, limit].join(" ")
        })
}

fn keeps_the_contract(profile: Profile) {
    holds_for_all((words(), program()), |(words, steps)| {
        run(steps, || CakeSubject::new(words, profile));
    });
}

#[test]
fn cake_keeps_the_contract() {
    keeps_the_contract(Profile::FIXED);
}

#[test]
fn cake_with_the_kernels_defects_keeps_the_contract() {
    keeps_the_contract(Profile::KERNEL);
}
