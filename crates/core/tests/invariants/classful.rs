//! The queues besides CAKE, alone and in trees.

use proptest::prelude::*;
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Backlog, Dequeued, DropReason, Drops, Environment, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::tree::{Description, Details, Tree};
use sqm_core::units::{Instant, Rate};

use crate::packet::TestPacket;
use crate::program::{START, Subject, holds_for_all, program, run};

/// Bytes of the longest packet in a program, which may leave on credit.
const LONGEST: u64 = 1600;

struct TreeSubject {
    tree: Tree<TestPacket>,
    bound: Option<Bound>,
    memory_limit: Option<u64>,
}

/// A limit on departures: a burst, and a rate per second.
#[derive(Clone, Copy, Debug)]
struct Bound {
    burst: u64,
    bytes_per_sec: u64,
}

impl TreeSubject {
    fn new(commands: &str, profile: Profile) -> Self {
        let description = Description::parse(commands).unwrap_or_else(|error| panic!("{error}\n{commands}"));
        let environment = Environment {
            profile,
            ..Environment::ethernet(START, HashKey(1, 2))
        };
        let tree = Tree::build(&description, &environment, || Xorshift::new(7));
        Self {
            tree: tree.unwrap_or_else(|error| panic!("{error}\n{commands}")),
            bound: None,
            memory_limit: None,
        }
    }
}

impl Qdisc<TestPacket> for TreeSubject {
    fn enqueue(&mut self, packet: TestPacket, now: Instant, drops: &mut dyn Drops<TestPacket>) {
        self.tree.enqueue(packet, now, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<TestPacket>) -> Dequeued<TestPacket> {
        self.tree.dequeue(now, drops)
    }

    fn backlog(&self) -> Backlog {
        self.tree.backlog()
    }
}

impl Subject for TreeSubject {
    /// In ways that leave rate and memory limit as they are. No packet overtakes another of its flow by it.
    fn change(&mut self, way: u8, now: Instant, drops: &mut Vec<(TestPacket, DropReason)>) -> bool {
        let ways = match self.tree.stats()[0].kind {
            "bfifo" => ["limit 2000", "limit 9000", ""],
            "pfifo" | "pfifo_head_drop" => ["limit 0", "limit 3", ""],
            "codel" => ["limit 2", "target 1ms ecn", "interval 20ms noecn limit 30"],
            "fq_codel" => [
                "limit 2",
                "target 1ms quantum 300 noecn",
                "interval 20ms ecn limit 30",
            ],
            _ => return false,
        };
        let words = ways[usize::from(way) % ways.len()];
        self.tree.change(words, now, drops).expect("words of the kind");
        false
    }

    /// Every discipline counts what is below it.
    fn check(&self) {
        let stats = self.tree.stats();
        assert_eq!(stats[0].backlog, self.tree.backlog());
    }

    fn marks(&self) -> Option<u64> {
        let stats = self.tree.stats();
        // These ask before they send: what they hold may be marked already.
        if ["tbf", "hfsc"].contains(&stats[0].kind) {
            return None;
        }
        let mut marks = 0;
        for node in stats {
            marks += match node.details {
                Details::Codel { stats, .. } => stats.ecn_mark,
                Details::FqCodel { stats, .. } => stats.ecn_mark,
                _ => 0,
            };
        }
        Some(marks)
    }

    fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    fn allowance(&self, now: Instant) -> Option<u64> {
        let Bound { burst, bytes_per_sec } = self.bound?;
        let nanos = u128::from(now.since(START).0);
        let bytes = (u128::from(bytes_per_sec) * nanos / 1_000_000_000) as u64;
        // Costs are rounded down, and burst times up to 64 ns.
        Some(burst + bytes + bytes / 1000 + LONGEST)
    }
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn holds(commands: impl Strategy<Value = String>) {
    holds_for_all(
        (commands, any::<bool>(), program()),
        |(commands, is_kernel, steps)| {
            let profile = if *is_kernel {
                Profile::KERNEL
            } else {
                Profile::FIXED
            };
            run(steps, || TreeSubject::new(commands, profile));
        },
    );
}

#[test]
fn fifos_keep_the_contract() {
    let words = one_of(&[
        "pfifo limit 0",
        "pfifo limit 5",
        "bfifo limit 5000",
        "bfifo",
        "pfifo_head_drop limit 0",
        "pfifo_head_drop limit 4",
        "pfifo",
    ]);
    holds(words.prop_map(|words| format!("qdisc add root handle 1: {words}")));
}

fn codel() -> impl Strategy<Value = String> {
    let parts = (
        one_of(&["", "limit 3", "limit 20"]),
        one_of(&[
            "",
            "target 1ms interval 5ms",
            "target 0 interval 0",
            "interval 4000s",
        ]),
        one_of(&["", "ecn"]),
        one_of(&["", "ce_threshold 1ms", "ce_threshold 0"]),
    );
    parts.prop_map(|(limit, times, ecn, threshold)| format!("codel {limit} {times} {ecn} {threshold}"))
}

#[test]
fn codel_keeps_the_contract() {
    holds(codel().prop_map(|words| format!("qdisc add root handle 1: {words}")));
}

fn fq_codel() -> impl Strategy<Value = String> {
    let parts = (
        one_of(&["", "limit 1", "limit 7", "limit 30"]),
        one_of(&["", "flows 1", "flows 3", "flows 65536"]),
        one_of(&["", "quantum 256", "quantum 300", "quantum 1048576"]),
        one_of(&[
            "",
            "target 1ms interval 5ms",
            "target 0 interval 0",
            "interval 4000s",
        ]),
        one_of(&["", "noecn"]),
        one_of(&[
            "",
            "ce_threshold 1ms ce_threshold_selector 0x1/0x3",
            "ce_threshold 0",
        ]),
        one_of(&["", "drop_batch 1", "memory_limit 0", "memory_limit 9000"]),
    );
    parts.prop_map(|(limit, flows, quantum, times, ecn, threshold, memory)| {
        format!("fq_codel {limit} {flows} {quantum} {times} {ecn} {threshold} {memory}")
    })
}

#[test]
fn fq_codel_keeps_the_contract() {
    holds_for_all(
        (fq_codel(), any::<bool>(), program()),
        |(words, is_kernel, steps)| {
            let profile = if *is_kernel {
                Profile::KERNEL
            } else {
                Profile::FIXED
            };
            let commands = format!("qdisc add root handle 1: {words}");
            run(steps, || TreeSubject {
                memory_limit: words.ends_with("9000").then_some(9000),
                ..TreeSubject::new(&commands, profile)
            });
        },
    );
}

/// The qdiscs that can be below another shaper. A shaper there would make two that do not know of each other, and the first to be
/// ready would be woken in vain.
fn leaf() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("pfifo limit 6".to_owned()),
        Just("pfifo_head_drop limit 3".to_owned()),
        codel(),
        fq_codel(),
    ]
}

fn below(parent: &str, handle: &str, child: Option<&String>) -> String {
    child.map_or_else(String::new, |child| {
        format!("qdisc add parent {parent} handle {handle} {child}\n")
    })
}

#[test]
fn tbf_keeps_the_contract_and_its_rate() {
    let parts = (
        prop::sample::select(&[64_u64, 1000, 50_000]),
        prop::sample::select(&[1514_u64, 1600, 20_000]),
        one_of(&[
            "",
            "peakrate 90mbit mtu 1514",
            "overhead 40 linklayer atm",
            "mpu 64",
        ]),
        prop::option::of(leaf()),
    );
    let input = (parts, any::<bool>(), program());
    holds_for_all(input, |((kbit, burst, more, child), is_kernel, steps)| {
        let profile = if *is_kernel {
            Profile::KERNEL
        } else {
            Profile::FIXED
        };
        let commands = format!(
            "qdisc add root handle 1: tbf rate {kbit}kbit burst {burst} limit 20000 {more}\n{}",
            below("1:", "2:", child.as_ref())
        );
        run(steps, || TreeSubject {
            bound: Some(Bound {
                burst: *burst,
                bytes_per_sec: Rate::from_kbits_per_sec(*kbit).bytes_per_sec(),
            }),
            ..TreeSubject::new(&commands, profile)
        });
    });
}

#[derive(Clone, Debug)]
struct Leaf {
    in_inner: bool,
    kbit: u64,
    more_kbit: u64,
    words: &'static str,
    queue: Option<String>,
}

fn leaves() -> impl Strategy<Value = Vec<Leaf>> {
    let leaf = (
        any::<bool>(),
        prop::sample::select(&[50_u64, 333, 1000, 20_000]),
        prop::sample::select(&[0_u64, 100, 5000]),
        one_of(&["", "prio 1", "prio 7", "quantum 1000", "quantum 1", "burst 10k"]),
        prop::option::of(leaf()),
    );
    let leaf = leaf.prop_map(|(in_inner, kbit, more_kbit, words, queue)| Leaf {
        in_inner,
        kbit,
        more_kbit,
        words,
        queue,
    });
    prop::collection::vec(leaf, 1..5)
}

/// Packets come with the eight class selectors: the first few go to the leaves, the rest to the default.
fn filters(leaves: usize) -> String {
    (1..leaves)
        .map(|n| {
            format!(
                "filter add parent 1: protocol ip u32 match ip dsfield {:#x} 0xe0 flowid 1:1{n}\n",
                n << 5
            )
        })
        .collect()
}

#[test]
fn htb_keeps_the_contract_and_its_ceilings() {
    let input = (leaves(), one_of(&["10", "99"]), any::<bool>(), program());
    holds_for_all(input, |(leaves, default, is_kernel, steps)| {
        let profile = if *is_kernel {
            Profile::KERNEL
        } else {
            Profile::FIXED
        };
        let mut commands = format!("qdisc add root handle 1: htb default {default}\n");
        commands += "class add parent 1: classid 1:1 htb rate 1mbit ceil 1200kbit\n";
        if leaves.iter().any(|leaf| leaf.in_inner) {
            commands += "class add parent 1:1 classid 1:2 htb rate 400kbit ceil 900kbit\n";
        }
        let mut bound = Bound {
            burst: 0,
            bytes_per_sec: 0,
        };
        for (n, leaf) in leaves.iter().enumerate() {
            let parent = if leaf.in_inner { 2 } else { 1 };
            let (rate, ceil) = (leaf.kbit, leaf.kbit + leaf.more_kbit);
            commands += &format!(
                "class add parent 1:{parent} classid 1:1{n} htb rate {rate}kbit ceil {ceil}kbit {}\n",
                leaf.words
            );
            commands += &below(&format!("1:1{n}"), &format!("11{n}:"), leaf.queue.as_ref());
            bound.burst += 1600 + LONGEST;
            bound.bytes_per_sec += Rate::from_kbits_per_sec(ceil).bytes_per_sec();
        }
        commands += &filters(leaves.len());
        run(steps, || TreeSubject {
            // Without a default class packets pass unshaped.
            bound: Some(bound).filter(|_| *default == "10"),
            ..TreeSubject::new(&commands, profile)
        });
    });
}

#[test]
fn hfsc_keeps_the_contract() {
    let curves = one_of(&[
        "m2",
        "m1 2mbit d 20ms m2",
        "m1 0 d 10ms m2",
        "umax 1500 dmax 20ms rate",
    ]);
    let kinds = one_of(&["ls", "rt", "sc", "ls ul"]);
    let leaf = (
        any::<bool>(),
        curves,
        kinds,
        prop::sample::select(&[50_u64, 333, 5000]),
        prop::option::of(leaf()),
    );
    let leaves = prop::collection::vec(leaf, 1..5);
    let commands = (leaves, one_of(&["10", "99"])).prop_map(|(leaves, default)| {
        let mut commands = format!("qdisc add root handle 1: hfsc default {default}\n");
        commands += "class add parent 1: classid 1:1 hfsc ls m2 1mbit ul m2 1mbit\n";
        if leaves.iter().any(|(in_inner, ..)| *in_inner) {
            commands += "class add parent 1:1 classid 1:2 hfsc rt m1 600kbit d 10ms m2 400kbit\n";
        }
        for (n, (in_inner, curve, kind, kbit, queue)) in leaves.iter().enumerate() {
            let parent = if *in_inner { 2 } else { 1 };
            let curves: String = kind
                .split(' ')
                .map(|kind| format!(" {kind} {curve} {kbit}kbit"))
                .collect();
            commands += &format!("class add parent 1:{parent} classid 1:1{n} hfsc{curves}\n");
            commands += &below(&format!("1:1{n}"), &format!("11{n}:"), queue.as_ref());
        }
        commands + &filters(leaves.len())
    });
    holds(commands);
}
