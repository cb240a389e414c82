//! Scenarios with the outcomes that Linux 6.12 gives, and where the repaired profile differs.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::*;
use crate::flow_hash::HashKey;
use crate::packet::{Addresses, Aggregate, FlowKey, Hashes, Network, Tcp, View};

const MILLISECOND: u64 = 1_000_000;

/// Far from the zero that means "never".
const START: u64 = 1_000_000_000;

/// Draws that never change.
struct Constant(u16);

impl Random for Constant {
    fn r16(&mut self) -> u16 {
        self.0
    }

    fn r32(&mut self) -> u32 {
        u32::MAX
    }
}

#[derive(Clone, Debug, PartialEq)]
struct TestPacket {
    id: u32,
    len: u32,
    network: Network,
    ds_field: u8,
    key: Key,
    mark: u32,
    priority: u32,
    aggregate: Option<Aggregate>,
    tcp: Option<TestTcp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Key {
    Hashes(Hashes),
    Tuple(Tuple),
}

#[derive(Clone, Debug, PartialEq)]
struct TestTcp {
    source_port: u16,
    ack: u32,
    flags: u16,
    payload: u32,
    options: Vec<u8>,
    later_fragment: bool,
}

impl TestPacket {
    const fn new(id: u32, len: u32, flow: u32) -> Self {
        Self {
            id,
            len,
            network: Network::Ipv4,
            ds_field: 0,
            key: Key::Hashes(Hashes {
                flow,
                source: flow,
                destination: flow,
            }),
            mark: 0,
            priority: 0,
            aggregate: None,
            tcp: None,
        }
    }

    fn hosts(mut self, source: u32, destination: u32) -> Self {
        if let Key::Hashes(hashes) = &mut self.key {
            (hashes.source, hashes.destination) = (source, destination);
        }
        self
    }

    fn dscp(mut self, dscp: u8) -> Self {
        self.ds_field = dscp << 2 | self.ds_field & 3;
        self
    }
}

impl Packet for TestPacket {
    fn len(&self) -> u32 {
        self.len
    }

    fn truesize(&self) -> u32 {
        self.len + 256
    }

    fn view(&self) -> View {
        View {
            network_offset: 14,
            network: self.network,
            ds_field: self.ds_field,
            key: match self.key {
                Key::Hashes(hashes) => FlowKey::Hashes(hashes),
                Key::Tuple(tuple) => FlowKey::Tuple(tuple),
            },
        }
    }

    fn set_ce(&mut self) -> bool {
        let capable = self.ds_field & 3 != 0;
        if capable {
            self.ds_field |= 3;
        }
        capable
    }

    fn clear_dscp(&mut self) {
        self.ds_field &= 3;
    }

    fn tcp(&self) -> Option<Tcp<'_>> {
        self.tcp.as_ref().map(|tcp| Tcp {
            tuple: tuple(tcp.source_port),
            ack: tcp.ack,
            flags: tcp.flags,
            payload: tcp.payload,
            options: &tcp.options,
            later_fragment: tcp.later_fragment,
        })
    }

    fn mark(&self) -> u32 {
        self.mark
    }

    fn priority(&self) -> u32 {
        self.priority
    }

    fn aggregate(&self) -> Option<Aggregate> {
        self.aggregate
    }

    fn split(self, mut each: impl FnMut(Self)) {
        let Some(aggregate) = self.aggregate else {
            return each(self);
        };
        for segment in 0..aggregate.segments {
            each(Self {
                id: self.id + segment,
                len: 14 + aggregate.headers + aggregate.mss,
                aggregate: None,
                ..self.clone()
            });
        }
    }
}

fn tuple(source_port: u16) -> Tuple {
    Tuple {
        addresses: Addresses::V4 {
            source: Ipv4Addr::new(10, 0, 0, 2),
            destination: Ipv4Addr::new(198, 51, 100, 1),
        },
        protocol: 6,
        source_port,
        destination_port: 443,
        flow_label: 0,
    }
}

/// A queue, and what came out of it.
struct Rig {
    cake: Cake<TestPacket, Constant>,
    now: u64,
    drops: Vec<(TestPacket, DropReason)>,
}

impl Rig {
    fn new(words: &str, profile: Profile, r16: u16) -> Self {
        let mut spec = Spec::default();
        spec.apply(words).unwrap();
        let environment = Environment {
            profile,
            handle: 0x8001,
            ..Environment::ethernet(Instant(START), HashKey(1, 2))
        };
        Self {
            cake: Cake::new(&spec, &environment, Constant(r16)),
            now: START,
            drops: Vec::new(),
        }
    }

    fn enqueue(&mut self, packet: TestPacket) {
        self.cake.enqueue(packet, Instant(self.now), &mut self.drops);
    }

    /// The outcome of one dequeue now.
    fn poll(&mut self) -> Option<TestPacket> {
        match self.cake.dequeue(Instant(self.now), &mut self.drops) {
            Dequeued::Packet(packet) => Some(packet),
            Dequeued::NotBefore(_) | Dequeued::Empty => None,
        }
    }

    /// The next packet, as soon as it may leave; the clock is then there.
    fn next(&mut self) -> Option<TestPacket> {
        loop {
            match self.cake.dequeue(Instant(self.now), &mut self.drops) {
                Dequeued::Packet(packet) => return Some(packet),
                Dequeued::NotBefore(later) => {
                    assert!(later.0 > self.now);
                    self.now = later.0;
                }
                Dequeued::Empty => return None,
            }
        }
    }

    fn ids(&mut self, count: usize) -> Vec<u32> {
        (0..count)
            .map_while(|_| self.next())
            .map(|packet| packet.id)
            .collect()
    }

    fn dropped(&mut self) -> Vec<u32> {
        self.drops.drain(..).map(|(packet, _)| packet.id).collect()
    }

    fn since_start(&self) -> u64 {
        (self.now - START) / 1000
    }
}

/// Counts bytes of `count` packets by what `class` says of each.
fn bytes_by<const N: usize>(rig: &mut Rig, count: usize, class: impl Fn(&TestPacket) -> usize) -> [u32; N] {
    let mut bytes = [0; N];
    for _ in 0..count {
        let packet = rig.next().unwrap();
        bytes[class(&packet)] += packet.len;
    }
    bytes
}

#[test]
fn packets_leave_at_the_rate_and_idle_time_gives_no_credit() {
    let mut rig = Rig::new("bandwidth 10mbit besteffort flows", Profile::FIXED, 0);
    for id in 0..4 {
        rig.enqueue(TestPacket::new(id, 1500, 1));
    }
    for micros in [0, 1200, 2400, 3600] {
        rig.next().unwrap();
        assert_eq!(rig.since_start(), micros);
    }
    rig.now = START + 20 * MILLISECOND;
    rig.enqueue(TestPacket::new(4, 1500, 1));
    rig.enqueue(TestPacket::new(5, 1500, 1));
    assert_eq!(rig.ids(2), [4, 5]);
    assert_eq!(rig.since_start(), 21_200);
}

#[test]
fn a_late_poll_catches_up() {
    let mut rig = Rig::new("bandwidth 10mbit besteffort flows", Profile::FIXED, 0);
    for id in 0..6 {
        rig.enqueue(TestPacket::new(id, 1500, 1));
    }
    assert!(rig.poll().is_some() && rig.poll().is_none());
    rig.now = START + 3 * MILLISECOND;
    assert!(rig.poll().is_some() && rig.poll().is_some() && rig.poll().is_none());
    rig.next();
    assert_eq!(rig.since_start(), 3600);
}

#[test]
fn flows_take_turns_by_bytes() {
    for profile in [Profile::KERNEL, Profile::FIXED] {
        let mut rig = Rig::new("bandwidth 100mbit besteffort flows", profile, 0);
        for id in 100..104 {
            rig.enqueue(TestPacket::new(id, 1500, 1));
        }
        for id in 200..210 {
            rig.enqueue(TestPacket::new(id, 500, 2));
        }
        assert_eq!(
            rig.ids(14),
            [
                100, 101, 200, 201, 202, 203, 102, 204, 205, 206, 103, 207, 208, 209
            ]
        );
    }
}

/// Host X has flows 1, 2, 3 and host Y flow 4; 1500-byte packets, deep queues, no AQM.
fn two_hosts(isolation: &str, profile: Profile, common_destination: bool) -> Rig {
    let words = alloc::format!("bandwidth 100mbit besteffort interplanetary {isolation}");
    let mut rig = Rig::new(&words, profile, 32768);
    for _ in 0..500 {
        for flow in 1..=4 {
            let source = if flow == 4 { 77 } else { 55 };
            let destination = if common_destination { 99 } else { 100 + flow };
            rig.enqueue(TestPacket::new(flow, 1500, flow).hosts(source, destination));
        }
    }
    rig
}

#[test]
fn hosts_share_equally_then_flows_do() {
    for isolation in ["dual-srchost", "triple-isolate"] {
        let mut rig = two_hosts(isolation, Profile::KERNEL, false);
        let start = rig.ids(24);
        assert_eq!(
            start,
            [
                1, 1, 2, 2, 3, 3, 4, 4, 1, 4, 4, 2, 3, 4, 1, 4, 4, 2, 3, 4, 1, 4, 4, 2
            ]
        );
        let mut rig = two_hosts(isolation, Profile::KERNEL, false);
        let bytes = bytes_by::<4>(&mut rig, 800, |packet| packet.id as usize - 1);
        assert_eq!(bytes, [201_000, 201_000, 201_000, 597_000]);
    }
    for (isolation, common) in [("flows", false), ("triple-isolate", true)] {
        let mut rig = two_hosts(isolation, Profile::KERNEL, common);
        let bytes = bytes_by::<4>(&mut rig, 800, |packet| packet.id as usize - 1);
        assert_eq!(bytes, [300_000; 4]);
    }
}

#[test]
fn skipped_rounds_do_not_change_the_shares() {
    for isolation in ["dual-srchost", "flows"] {
        let [visited, sat_out] = [true, false].map(|round_by_round| {
            let profile = Profile {
                round_by_round,
                ..Profile::FIXED
            };
            bytes_by::<4>(&mut two_hosts(isolation, profile, false), 800, |packet| {
                packet.id as usize - 1
            })
        });
        for (one, other) in visited.into_iter().zip(sat_out) {
            assert!(one.abs_diff(other) <= 2 * 1500, "{visited:?} {sat_out:?}");
        }
    }
}

/// One host with 200 flows, another with one: half of the line each, in both ways of counting rounds.
#[test]
fn many_flows_of_one_host_get_one_hosts_share() {
    for round_by_round in [true, false] {
        let profile = Profile {
            round_by_round,
            ..Profile::FIXED
        };
        let mut rig = Rig::new(
            "bandwidth 1gbit besteffort dual-srchost interplanetary memlimit 100mb",
            profile,
            32768,
        );
        for _ in 0..15 {
            for flow in 0..200 {
                rig.enqueue(TestPacket::new(0, 1500, 1 + flow * 5).hosts(55, 1));
            }
        }
        for _ in 0..3000 {
            rig.enqueue(TestPacket::new(1, 1500, 3).hosts(77, 1));
        }
        // Each flow's first packets leave before it counts as bulk.
        bytes_by::<2>(&mut rig, 450, |packet| packet.id as usize);
        let [crowd, single] = bytes_by::<2>(&mut rig, 2000, |packet| packet.id as usize);
        assert!(
            crowd.abs_diff(single) < 300_000,
            "{round_by_round}: {crowd} {single}"
        );
    }
}

#[test]
fn tins_keep_to_their_shares() {
    let tins_of = |words: &str, code_points: &[u8], count| {
        let mut rig = Rig::new(words, Profile::KERNEL, 0);
        for _ in 0..1000 {
            for (flow, &dscp) in code_points.iter().enumerate() {
                rig.enqueue(TestPacket::new(u32::from(dscp), 1500, flow as u32 + 1).dscp(dscp));
            }
        }
        let ids = rig.ids(count);
        let tins = ids
            .iter()
            .map(|&dscp| rig.cake.layout.tin_of(Network::Ipv4, (dscp as u8) << 2));
        tins.collect::<Vec<_>>()
    };
    let bytes = |tins: &[u8]| {
        let of = |tin| tins.iter().filter(|seen| **seen == tin).count() * 1500;
        [of(0), of(1), of(2), of(3)]
    };
    let three = tins_of(
        "bandwidth 100mbit diffserv3 flows interplanetary",
        &[0, 8, 46],
        1000,
    );
    assert_eq!(
        three[..20],
        [2, 1, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0]
    );
    assert_eq!(bytes(&three), [1_030_500, 94_500, 375_000, 0]);
    let four = tins_of(
        "bandwidth 100mbit diffserv4 flows interplanetary",
        &[0, 8, 34, 46],
        1000,
    );
    assert_eq!(four[..12], [3, 2, 2, 1, 3, 2, 2, 0, 3, 2, 2, 0]);
    assert_eq!(bytes(&four), [280_500, 94_500, 750_000, 375_000]);
    let unlimited = tins_of("unlimited diffserv3 flows interplanetary", &[0, 8, 46], 1344);
    assert_eq!(unlimited[..13], [0, 1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2]);
    assert_eq!(bytes(&unlimited), [1_500_000, 103_500, 412_500, 0]);
}

#[test]
fn a_sparse_flow_decays_before_it_is_forgotten() {
    let mut rig = Rig::new("bandwidth 10mbit besteffort flows", Profile::FIXED, 0);
    let counts = |rig: &Rig| {
        let tin = &rig.cake.stats().tins[0];
        (tin.sparse_flows, tin.decaying_flows, tin.bulk_flows)
    };
    let mut send = |milliseconds: u64, flow: u32| {
        rig.now = START + milliseconds * MILLISECOND;
        rig.enqueue(TestPacket::new(flow, 100, flow));
        assert!(rig.poll().is_some());
        rig.poll();
        counts(&rig)
    };
    assert_eq!(send(0, 5), (1, 0, 0));
    assert_eq!(send(10, 6), (1, 1, 0));
    assert_eq!(send(60, 5), (1, 1, 0));
    assert_eq!(send(210, 9), (1, 0, 0));
    let later = [410, 610, 810, 1010].map(|at| send(at, 9));
    assert_eq!(
        later[3],
        (0, 0, 1),
        "100 bytes every 200 ms are bulk after one quantum: {later:?}"
    );
}

#[test]
fn overflow_drops_from_the_fattest_queue() {
    for profile in [Profile::KERNEL, Profile::FIXED] {
        let mut rig = Rig::new("bandwidth 10mbit besteffort flows memlimit 10000", profile, 0);
        for id in 100..106 {
            rig.enqueue(TestPacket::new(id, 1000, 1));
        }
        rig.enqueue(TestPacket::new(200, 1000, 2));
        assert_eq!(rig.dropped(), []);
        rig.enqueue(TestPacket::new(201, 1000, 2));
        rig.enqueue(TestPacket::new(202, 1000, 2));
        rig.enqueue(TestPacket::new(106, 1000, 1));
        assert_eq!(rig.dropped(), [100, 101, 102]);
        let hurt = rig.cake.queue_stats()[0];
        assert_eq!((hurt.count, hurt.drop_next, hurt.drops), (1, Some(0), 3));
    }
}

#[test]
fn the_heap_sinks_one_level_only_with_the_kernels_defect() {
    let victims = |overflow_heap_shallow| {
        let profile = Profile {
            overflow_heap_shallow,
            ..Profile::FIXED
        };
        let mut rig = Rig::new("bandwidth 10mbit besteffort flows memlimit 20000", profile, 0);
        for id in 0..23 {
            let flow = id % 5;
            rig.enqueue(TestPacket::new(id, 1000 - 50 * flow, flow + 1));
        }
        rig.dropped()
    };
    assert_eq!(victims(true), [0, 2, 4, 5, 1, 6]);
    assert_eq!(victims(false), [0, 1, 2, 5, 6, 7]);
}

/// 12 Mbit/s into 10 Mbit/s for a second: milliseconds of the first drops, and how many there were, and marks.
fn overload(profile: Profile, ecn: u8) -> (Vec<u64>, usize, u64) {
    let mut rig = Rig::new("bandwidth 10mbit besteffort flows", profile, 0);
    let mut drops_at = Vec::new();
    let mut wake = None;
    let mut arrivals = (0..=1200_u64).map(|number| START + number * 833_333).peekable();
    loop {
        let at = match (arrivals.peek().copied(), wake) {
            (Some(arrival), Some(wake)) => arrival.min(wake),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => break,
        };
        if at > START + 1000 * MILLISECOND {
            break;
        }
        rig.now = at;
        if arrivals.next_if_eq(&at).is_some() {
            let mut packet = TestPacket::new(0, 1250, 1);
            packet.ds_field = ecn;
            rig.enqueue(packet);
        }
        wake = loop {
            match rig.cake.dequeue(Instant(at), &mut rig.drops) {
                Dequeued::Packet(_) => {}
                Dequeued::NotBefore(later) => break Some(later.0),
                Dequeued::Empty => break None,
            }
        };
        drops_at.extend(rig.drops.drain(..).map(|_| (at - START) / MILLISECOND));
    }
    let marks = rig.cake.stats().tins[0].ecn_marks;
    let count = drops_at.len();
    drops_at.truncate(8);
    (drops_at, count, marks)
}

#[test]
fn overload_is_signalled_after_one_interval_or_with_the_kernels_defect_at_once() {
    let (first, count, _) = overload(Profile::KERNEL, 0);
    assert_eq!(first, [31, 106, 164, 214, 259, 299, 337, 373]);
    assert_eq!(count, 36);
    let (first, count, _) = overload(Profile::FIXED, 0);
    assert_eq!(first, [130, 201, 259, 309, 354, 394, 432, 468]);
    assert_eq!(count, 30);
    assert_eq!(overload(Profile::FIXED, 2), (vec![], 0, 30));
}

/// Queues acknowledgements and says which stay.
fn acknowledge(profile: Profile, aggressive: bool, segments: &[TestTcp]) -> (Vec<u32>, Stats) {
    let words = if aggressive {
        "bandwidth 1mbit besteffort flows ack-filter-aggressive"
    } else {
        "bandwidth 1mbit besteffort flows ack-filter"
    };
    let mut rig = Rig::new(words, profile, 0);
    for (index, tcp) in segments.iter().enumerate() {
        let len = 54 + tcp.options.len() as u32 + tcp.payload;
        let mut packet = TestPacket::new(index as u32 + 1, len, 1);
        packet.tcp = Some(tcp.clone());
        rig.enqueue(packet);
    }
    let stats = rig.cake.stats();
    let dropped: Vec<u32> = rig.dropped();
    let survivors = (1..=segments.len() as u32).filter(|id| !dropped.contains(id));
    (survivors.collect(), stats)
}

fn ack(number: u32) -> TestTcp {
    TestTcp {
        source_port: 1000,
        ack: number,
        flags: 0x10,
        payload: 0,
        options: Vec::new(),
        later_fragment: false,
    }
}

fn stamped(number: u32, value: u32) -> TestTcp {
    let mut options = vec![1, 1, 8, 10];
    options.extend(value.to_be_bytes());
    options.extend(1_u32.to_be_bytes());
    TestTcp {
        options,
        ..ack(number)
    }
}

fn sack(number: u32, start: u32, end: u32) -> TestTcp {
    let mut options = vec![1, 1, 5, 10];
    options.extend(start.to_be_bytes());
    options.extend(end.to_be_bytes());
    TestTcp {
        options,
        ..ack(number)
    }
}

#[test]
fn redundant_acknowledgements_are_dropped() {
    let flagged = |number, flags| TestTcp { flags, ..ack(number) };
    let data = |number| TestTcp {
        payload: 100,
        ..ack(number)
    };
    let of = |source_port, number| TestTcp {
        source_port,
        ..ack(number)
    };
    let odd = |number| TestTcp {
        options: vec![30, 4, 0, 0],
        ..ack(number)
    };
    /// Name, arrivals, and who stays: with the filter, with the aggressive one.
    type Case = (&'static str, Vec<TestTcp>, &'static [u32], &'static [u32]);
    let cases: [Case; 13] = [
        ("pure", (1..=5).map(|k| ack(1000 * k)).collect(), &[4, 5], &[5]),
        (
            "duplicates",
            vec![ack(1000), ack(1000), ack(1000)],
            &[1, 2, 3],
            &[1, 2, 3],
        ),
        (
            "data between",
            vec![ack(1000), data(2000), ack(3000), ack(4000)],
            &[2, 3, 4],
            &[2, 4],
        ),
        (
            "ECE comes and goes",
            vec![
                ack(1000),
                flagged(2000, 0x50),
                flagged(3000, 0x50),
                flagged(4000, 0x50),
                ack(5000),
            ],
            &[1, 4, 5],
            &[1, 4, 5],
        ),
        (
            "rising stamps",
            (1..=4).map(|k| stamped(1000 * k, k)).collect(),
            &[3, 4],
            &[4],
        ),
        (
            "falling stamps",
            (1..=4).map(|k| stamped(1000 * k, 9 - k)).collect(),
            &[1, 2, 3, 4],
            &[1, 2, 3, 4],
        ),
        (
            "growing SACK",
            vec![
                sack(1000, 2000, 3000),
                sack(1000, 2000, 4000),
                sack(1000, 2000, 5000),
            ],
            &[2, 3],
            &[3],
        ),
        (
            "growing SACK after a plain one",
            vec![
                ack(1000),
                sack(1000, 2000, 3000),
                sack(1000, 2000, 4000),
                sack(1000, 2000, 5000),
            ],
            &[3, 4],
            &[4],
        ),
        (
            "D-SACK",
            vec![sack(5000, 3000, 4000), ack(6000), ack(7000), ack(8000)],
            &[1, 3, 4],
            &[1, 4],
        ),
        (
            "FIN",
            vec![flagged(1000, 0x11), ack(2000), ack(3000), ack(4000)],
            &[1, 3, 4],
            &[1, 4],
        ),
        (
            "two connections",
            vec![
                of(1, 1000),
                of(2, 1000),
                of(1, 2000),
                of(2, 2000),
                of(1, 3000),
                of(2, 3000),
            ],
            &[3, 4, 5, 6],
            &[3, 4, 5, 6],
        ),
        (
            "data last",
            vec![ack(1000), ack(2000), ack(3000), data(4000)],
            &[3, 4],
            &[4],
        ),
        (
            "unknown option",
            (1..=4).map(|k| odd(1000 * k)).collect(),
            &[1, 2, 3, 4],
            &[1, 2, 3, 4],
        ),
    ];
    for (name, segments, normal, aggressive) in cases {
        assert_eq!(acknowledge(Profile::KERNEL, false, &segments).0, normal, "{name}");
        assert_eq!(
            acknowledge(Profile::KERNEL, true, &segments).0,
            aggressive,
            "{name}, aggressive"
        );
    }
}

#[test]
fn filtered_acknowledgements_are_counted() {
    let segments: Vec<TestTcp> = (1..=5).map(|k| ack(1000 * k)).collect();
    let (_, stats) = acknowledge(Profile::FIXED, false, &segments);
    let tin = &stats.tins[0];
    assert_eq!(
        (tin.sent_packets, tin.sent_bytes, tin.ack_drops, tin.drops),
        (5, 270, 3, 0)
    );
    assert_eq!(
        (stats.drops, stats.backlog.packets, stats.backlog.bytes),
        (3, 2, 108)
    );
}

#[test]
fn later_fragments_are_headers_only_with_the_kernels_defect() {
    let fragments: Vec<TestTcp> = (1..=4)
        .map(|k| TestTcp {
            later_fragment: true,
            ..ack(1000 * k)
        })
        .collect();
    let defect = Profile {
        ack_filter_fragments: true,
        ..Profile::FIXED
    };
    assert_eq!(acknowledge(defect, false, &fragments).0, [3, 4]);
    assert_eq!(acknowledge(Profile::FIXED, false, &fragments).0, [1, 2, 3, 4]);
}

#[test]
fn an_ack_filter_that_is_switched_on_sees_packets_that_already_wait() {
    let mut rig = Rig::new("bandwidth 1mbit besteffort flows", Profile::FIXED, 0);
    for id in 1..=4 {
        if id == 3 {
            rig.cake.change("ack-filter", &mut rig.drops).unwrap();
        }
        let mut packet = TestPacket::new(id, 54, 1);
        packet.tcp = Some(ack(1000 * id));
        rig.enqueue(packet);
    }
    assert_eq!(rig.dropped(), [1, 2]);
}

#[test]
fn limits_follow_rate_and_round_trip() {
    let limit = |words: &str, profile| Rig::new(words, profile, 0).cake.stats().memory_limit.0;
    for (words, bytes) in [
        ("bandwidth 10mbit", 4_194_304),
        ("bandwidth 100mbit", 5_000_000),
        ("bandwidth 1gbit", 15_503_360),
        ("unlimited", 15_503_360),
        ("bandwidth 1gbit memlimit 1m", 1_048_576),
    ] {
        assert_eq!(limit(words, Profile::KERNEL), bytes, "{words}");
    }
    let defect = Profile {
        buffer_limit_32_bits: true,
        ..Profile::FIXED
    };
    // Four round trips are 2³² bytes exactly, of which the kernel sees none.
    let words = "bandwidth 8589934592bit rtt 1s";
    assert_eq!(limit(words, defect), 4_194_304);
    assert_eq!(limit(words, Profile::FIXED), 15_503_360);
}

#[test]
fn the_capacity_follows_a_change_unless_the_kernels_defect_is_wanted() {
    for (capacity_estimate_stale, mbits) in [(true, 10), (false, 20)] {
        let profile = Profile {
            capacity_estimate_stale,
            ..Profile::FIXED
        };
        let mut rig = Rig::new("bandwidth 10mbit", profile, 0);
        rig.cake.change("bandwidth 20mbit", &mut rig.drops).unwrap();
        let estimate = rig.cake.stats().capacity_estimate;
        assert_eq!(estimate, Rate::from_bits_per_sec(mbits * 1_000_000));
    }
}

#[test]
fn debts_of_shaped_tins_are_forgiven_at_a_change_unless_the_kernels_defect_is_wanted() {
    for (tin_deficit_unbounded, is_owed) in [(true, true), (false, false)] {
        let profile = Profile {
            tin_deficit_unbounded,
            ..Profile::FIXED
        };
        let mut rig = Rig::new("bandwidth 10mbit besteffort", profile, 0);
        for id in 0..100 {
            rig.enqueue(TestPacket::new(id, 1500, 1));
            rig.next();
        }
        rig.cake.change("unlimited", &mut rig.drops).unwrap();
        assert_eq!(rig.cake.tins[0].deficit < 0, is_owed);
    }
}

#[test]
fn a_change_keeps_queued_packets_except_those_of_removed_tins() {
    let mut rig = Rig::new("bandwidth 1mbit diffserv4 flows", Profile::FIXED, 0);
    for (id, dscp) in [(0, 0), (1, 46), (2, 8), (3, 0)] {
        rig.enqueue(TestPacket::new(id, 1000, id + 1).dscp(dscp));
    }
    rig.cake
        .change("bandwidth 2mbit rtt 50ms", &mut rig.drops)
        .unwrap();
    assert_eq!((rig.cake.backlog().packets, rig.drops.len()), (4, 0));
    rig.cake.change("diffserv3", &mut rig.drops).unwrap();
    let given_up: Vec<_> = rig
        .drops
        .drain(..)
        .map(|(packet, reason)| (packet.id, reason))
        .collect();
    assert_eq!(given_up, [(1, DropReason::Reconfigure)]);
    rig.cake.change("besteffort", &mut rig.drops).unwrap();
    assert_eq!(rig.dropped(), [2]);
    assert_eq!(rig.ids(3), [0, 3]);
    assert!(rig.cake.change("bandwidht 1mbit", &mut rig.drops).is_err());
    assert_eq!(
        rig.cake.spec().bandwidth,
        Some(Rate::from_bits_per_sec(2_000_000))
    );
}

#[test]
fn marks_and_priorities_override_dscp() {
    let rig = Rig::new("bandwidth 1mbit diffserv4 flows fwmark 0xf0", Profile::FIXED, 0);
    let tin_of = |mark, priority| {
        let mut packet = TestPacket::new(0, 100, 1).dscp(46);
        (packet.mark, packet.priority) = (mark, priority);
        let hashed = packet.hashed(&HashKey(1, 2));
        rig.cake.choose_tin(&packet, &hashed)
    };
    let by_mark = [0x10, 0x20, 0x30, 0x40, 0x50].map(|mark| tin_of(mark, 0));
    assert_eq!(by_mark, [1, 0, 2, 3, 3]);
    assert_eq!(tin_of(0, 0x8001_0001), 1);
    assert_eq!(tin_of(0x20, 0x8001_0001), 0, "the mark comes first");
    assert_eq!(tin_of(0, 0x8002_0001), 3, "another queue's handle");
    assert_eq!(tin_of(0, 0x8001_0005), 3, "there is no fifth tin");
    assert_eq!(tin_of(0, 1), 3, "a plain priority names no queue");
}

#[test]
fn wash_clears_dscp_and_keeps_ecn() {
    for words in ["unlimited besteffort wash", "unlimited diffserv4 wash"] {
        let mut rig = Rig::new(words, Profile::FIXED, 0);
        let mut packet = TestPacket::new(0, 100, 1).dscp(46);
        packet.ds_field |= 2;
        rig.enqueue(packet);
        assert_eq!(rig.next().unwrap().ds_field, 2);
    }
}

#[test]
fn super_packets_are_split_or_counted_as_their_segments() {
    let mut packet = TestPacket::new(7, 14 + 40 + 3 * 1448, 1);
    packet.aggregate = Some(Aggregate {
        headers: 40,
        mss: 1448,
        segments: 3,
    });
    let mut rig = Rig::new("bandwidth 100mbit besteffort ethernet", Profile::FIXED, 0);
    rig.enqueue(packet.clone());
    assert_eq!(rig.cake.stats().tins[0].sent_packets, 3);
    assert_eq!(rig.ids(4), [7, 8, 9]);
    let took = rig.now;

    let mut rig = Rig::new(
        "bandwidth 100mbit besteffort ethernet no-split-gso",
        Profile::FIXED,
        0,
    );
    rig.enqueue(packet);
    rig.enqueue(TestPacket::new(8, 100, 1));
    assert_eq!(rig.ids(2), [7, 8]);
    assert_eq!(
        rig.now - START,
        (took - START) / 2 * 3,
        "three segments' time, not two's"
    );
    assert_eq!(rig.cake.stats().max_adj_size, 3 * 1526);
}

#[test]
fn nat_finds_the_hosts_behind_one_address() {
    let words = "bandwidth 100mbit besteffort dual-srchost interplanetary nat";
    let queues = |resolver: Option<NatResolver>| {
        let mut rig = Rig::new(words, Profile::FIXED, 0);
        rig.cake.resolve_nat(resolver);
        for port in 0..4 {
            let mut packet = TestPacket::new(u32::from(port), 100, 1);
            packet.key = Key::Tuple(tuple(1000 + port));
            rig.enqueue(packet);
        }
        let scheds = &rig.cake.scheds;
        scheds.iter().map(|sched| sched.source).collect::<Vec<_>>()
    };
    let alike = |hosts: &[u16]| hosts.iter().all(|host| *host == hosts[0]);
    assert!(alike(&queues(None)));
    let behind: NatResolver = Box::new(|tuple| {
        let source = Ipv4Addr::new(192, 168, 1, (tuple.source_port % 2) as u8);
        let Addresses::V4 { destination, .. } = tuple.addresses else {
            return None;
        };
        Some(Tuple {
            addresses: Addresses::V4 { source, destination },
            ..*tuple
        })
    });
    let hosts = queues(Some(behind));
    assert!(
        hosts[0] == hosts[2] && hosts[1] == hosts[3] && hosts[0] != hosts[1],
        "{hosts:?}"
    );
}

#[test]
fn ingress_mode_counts_dropped_packets() {
    let sent_after = |words: &str| {
        let mut rig = Rig::new(words, Profile::FIXED, 0);
        for step in 0..2000_u64 {
            rig.now = START + step * MILLISECOND;
            rig.enqueue(TestPacket::new(0, 1250, 1));
            while rig.poll().is_some() {}
        }
        (rig.cake.stats().sent_packets, rig.cake.stats().drops)
    };
    // Twice the rate arrives. What is dropped had crossed the line: less is sent than the rate allows, but no less than
    // two thirds.
    let (egress, _) = sent_after("bandwidth 5mbit besteffort");
    let (ingress, drops) = sent_after("bandwidth 5mbit besteffort ingress");
    assert!((990..=1010).contains(&egress), "{egress}");
    assert!(ingress < 950 && ingress > 660 && drops > 20, "{ingress} {drops}");
}

#[test]
fn a_peeked_packet_still_counts_as_queued() {
    let mut rig = Rig::new("unlimited besteffort", Profile::FIXED, 0);
    rig.enqueue(TestPacket::new(1, 100, 1));
    rig.enqueue(TestPacket::new(2, 200, 2));
    let now = Instant(rig.now);
    assert_eq!(rig.cake.peek(now, &mut ()), Dequeued::Packet(100));
    assert_eq!(rig.cake.peek(now, &mut ()), Dequeued::Packet(100));
    assert_eq!(
        (rig.cake.backlog().packets, rig.cake.stats().sent_packets),
        (2, 0)
    );
    assert_eq!(rig.ids(3), [1, 2]);
    assert_eq!(rig.cake.peek(now, &mut ()), Dequeued::Empty);
}

#[test]
fn time_that_runs_backwards_changes_nothing() {
    let mut rig = Rig::new("bandwidth 10mbit besteffort", Profile::FIXED, 0);
    rig.enqueue(TestPacket::new(1, 1500, 1));
    rig.now = 0;
    rig.enqueue(TestPacket::new(2, 1500, 1));
    assert!(rig.poll().is_some());
    let Dequeued::NotBefore(later) = rig.cake.dequeue(Instant(5), &mut ()) else {
        panic!("the second packet must wait");
    };
    assert_eq!(later, Instant(START + 1_200_000));
}
