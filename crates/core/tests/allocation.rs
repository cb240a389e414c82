//! Once a queue is warm, packets pass through it without an allocation.
//!
//! Warm is a queue that has seen its flows and been as full as it gets. Each queue is held at its limits, so that
//! packets are sent, marked, filtered and dropped for every reason that it has.

use std::hint::black_box;

use allocation_counter::measure;
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Dequeued, DropReason, Drops, Environment, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::tree::{Description, Tree};
use sqm_core::units::Instant;
use sqm_core::workload::{self, Buffer, Packet, START, Sizes, Traffic, Workload};

const FLOWS: u32 = 100;

/// Packets of the warm-up and of the time that counts.
const PACKETS: u32 = 15_000;

/// Packets that a queue is filled with at the start, if it holds that many.
const FILL: u32 = 1000;

/// More buffers than any queue here ever holds.
const BUFFERS: u32 = 4000;

const ALONE: [&str; 21] = [
    "pfifo limit 50",
    "bfifo limit 50000",
    "pfifo_head_drop limit 50",
    "codel limit 500 target 1ms interval 10ms",
    "codel limit 500 target 1ms interval 10ms ecn",
    "fq_codel",
    "fq_codel limit 300 target 1ms interval 10ms noecn",
    "fq_codel memory_limit 200k flows 16",
    "cake bandwidth 100mbit",
    "cake bandwidth 100mbit besteffort flowblind",
    "cake bandwidth 100mbit diffserv8 dual-dsthost wash",
    "cake bandwidth 100mbit diffserv4 dual-srchost ack-filter overhead 44 atm",
    "cake bandwidth 100mbit precedence hosts ack-filter-aggressive ptm",
    "cake bandwidth 100mbit diffserv4 ingress memlimit 300k",
    "cake bandwidth 100mbit memlimit 100k rtt 1ms",
    "cake bandwidth 100mbit autorate-ingress",
    "cake unlimited diffserv4",
    "tbf rate 100mbit burst 10k limit 200k",
    "tbf rate 100mbit burst 10k latency 20ms peakrate 150mbit mtu 1514",
    "stab overhead 44 linklayer atm fq_codel limit 300",
    "stab overhead 44 linklayer atm cake bandwidth 100mbit diffserv4",
];

const HTB: &str = "qdisc add root handle 1: htb default 13
    class add parent 1: classid 1:1 htb rate 100mbit
    class add parent 1:1 classid 1:11 htb rate 10mbit ceil 100mbit prio 0
    class add parent 1:1 classid 1:12 htb rate 30mbit ceil 100mbit prio 1
    class add parent 1:1 classid 1:13 htb rate 60mbit ceil 100mbit prio 2
    qdisc add parent 1:11 handle 110: fq_codel
    qdisc add parent 1:12 handle 120: cake besteffort
    qdisc add parent 1:13 handle 130: pfifo limit 50
    filter add parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:11
    filter add parent 1: protocol ip prio 2 flower ip_proto tcp src_ip 10.0.0.4/31 classid 1:12";

const HFSC: &str = "qdisc add root handle 1: hfsc default 12
    class add parent 1: classid 1:1 hfsc ls m2 100mbit ul m2 100mbit
    class add parent 1:1 classid 1:11 hfsc rt m1 50mbit d 10ms m2 10mbit ls m2 20mbit
    class add parent 1:1 classid 1:12 hfsc ls m2 80mbit ul m2 90mbit
    qdisc add parent 1:11 handle 110: fq_codel
    qdisc add parent 1:12 handle 120: tbf rate 80mbit burst 10k limit 100k
    filter add parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:11";

#[test]
fn queues_alone() {
    for words in ALONE {
        stays_warm(&format!("qdisc add root handle 1: {words}"));
    }
}

#[test]
fn trees() {
    stays_warm(HTB);
    stays_warm(HFSC);
}

#[test]
fn an_allocation_is_noticed() {
    assert_eq!(measure(|| drop(black_box(Box::new(1)))).count_total, 1);
}

/// Fails if a packet of a warm queue costs an allocation.
fn stays_warm(commands: &str) {
    let description = Description::parse(commands).unwrap();
    for profile in [Profile::FIXED, Profile::KERNEL] {
        let environment = Environment {
            profile,
            ..Environment::ethernet(START, HashKey(1, 2))
        };
        let tree = Tree::build(&description, &environment, || Xorshift::new(7)).unwrap();
        let mut busy = Busy::new(tree);
        busy.fill();
        busy.run(PACKETS);
        let (sent, dropped) = (busy.sent, busy.pool.dropped);
        let info = measure(|| busy.run(PACKETS));
        assert!(busy.sent - sent > 5_000, "{commands}: nothing passed");
        assert!(
            busy.pool.dropped > dropped || commands.contains("handle 1: fq_codel"),
            "{commands}: no limit was met"
        );
        assert_eq!(
            (info.count_total, info.bytes_total),
            (0, 0),
            "allocations and their bytes in {PACKETS} packets: {commands}"
        );
    }
}

/// A queue that gets a little more than leaves it.
struct Busy {
    queue: Tree<Packet>,
    traffic: Traffic,
    pool: Pool,
    now: Instant,
    sent: u32,
}

struct Pool {
    buffers: Vec<Buffer>,
    dropped: u32,
}

impl Drops<Packet> for Pool {
    fn dropped(&mut self, packet: Packet, _: DropReason) {
        self.buffers.push(packet.into_bytes());
        self.dropped += 1;
    }
}

impl Busy {
    fn new(queue: Tree<Packet>) -> Self {
        Self {
            queue,
            traffic: Traffic::new(&Workload {
                flows: FLOWS,
                hosts: 8,
                backlog: 0,
                sizes: Sizes::Acks(30),
                shaped: true,
            }),
            pool: Pool {
                buffers: (0..BUFFERS).map(|_| workload::buffer()).collect(),
                dropped: 0,
            },
            now: START,
            sent: 0,
        }
    }

    /// Small packets of all flows.
    fn fill(&mut self) {
        for number in 0..FILL {
            let buffer = self.pool.buffers.pop().expect("more buffers");
            let packet = self.traffic.packet(number % FLOWS, 66, buffer);
            self.queue.enqueue(packet, self.now, &mut self.pool);
        }
    }

    /// `packets` arrive at 120 Mbit/s, and leave as the queue lets them through a line of 100 Mbit/s. Now and then the
    /// queue runs empty.
    fn run(&mut self, packets: u32) {
        let mut line_free = self.now;
        for number in 0..packets {
            let buffer = self.pool.buffers.pop().expect("more buffers");
            let packet = self.traffic.next_into(buffer);
            let pause = if number % 5_000 == 0 { 1_000_000_000 } else { 0 };
            self.now.0 += pause + u64::from(sqm_core::packet::Packet::len(&packet)) * 8 * 1000 / 120;
            while line_free <= self.now {
                match self.queue.dequeue(line_free, &mut self.pool) {
                    Dequeued::Packet(packet) => {
                        line_free.0 += u64::from(sqm_core::packet::Packet::len(&packet)) * 8 * 1000 / 100;
                        self.pool.buffers.push(packet.into_bytes());
                        self.sent += 1;
                    }
                    Dequeued::NotBefore(later) => line_free = later,
                    Dequeued::Empty => line_free.0 = self.now.0 + 1,
                }
            }
            self.queue.enqueue(packet, self.now, &mut self.pool);
        }
    }
}
