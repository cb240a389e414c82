//! fq_codel: a queue with its own CoDel for every flow, served by deficit round robin (RFC 8290, Linux `sch_fq_codel`).
//!
//! A flow that just became active is served before those that were there (`new` before `old`), so that a
//! sparse flow does not wait for the others. Each time it is visited with its deficit used up it gets `quantum` bytes more and goes to
//! the end of `old`.
//!
//! Where Linux differs from RFC 8290, and we follow Linux: the guard against dropping from a short queue looks at the
//! bytes of the whole discipline, not of the flow; on overflow the fattest flow
//! loses up to `drop_batch` packets from its head, but no more than half its bytes.
//!
//! A flow exists while it has packets, or a CoDel that has ever dropped and may resume; the table that finds it comes
//! with the first packet. An idle instance is as small as its description.

use alloc::vec::Vec;

use crate::codel;
use crate::flow_hash::HashKey;
use crate::handle::Handle;
use crate::narrow::{fits_u16, fits_u32};
use crate::packet::Packet;
use crate::packet_list::{List, Store};
use crate::qdisc::{Backlog, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::spec;
use crate::units::Instant;

/// Less would mean more than five rounds for a packet (`sch_fq_codel`).
const LEAST_QUANTUM: u32 = 256;

/// A place that holds no flow.
const NONE: u32 = u32::MAX;

/// One fq_codel.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    spec: spec::fq_codel::FqCodel,
    params: Params,
    /// Place in `flows` of each hash value's flow; empty until the first packet.
    table: Vec<u32>,
    flows: Vec<Flow>,
    /// First of the places in `flows` that are not in use.
    free: u32,
    new: Round,
    old: Round,
    queued: Queued<P>,
    peeked: Option<P>,
    /// The latest time that any call brought.
    now: Instant,
    codel_stats: codel::Stats,
    stats: Overflows,
    counters: Counters,
}

/// Its parameters as they were given.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Parameters of each flow's CoDel.
    pub codel: codel::Params,
    /// Bytes per round.
    pub quantum: u32,
    /// Packets held.
    pub limit: u32,
    /// Number of hash values.
    pub flows: u32,
    /// Packets dropped in one go on overflow.
    pub drop_batch: u32,
    /// Memory held, bytes.
    pub memory_limit: u64,
    handle: u16,
    hash_key: HashKey,
}

/// The packets of all flows.
#[derive(Clone, Debug)]
struct Queued<P> {
    store: Store<(P, u64)>,
    packets: u32,
    bytes: u64,
    memory: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Overflows {
    drop_overlimit: u64,
    drop_overmemory: u64,
    new_flow_count: u64,
}

/// One flow.
#[derive(Clone, Debug)]
struct Flow {
    codel: codel::State,
    queue: List,
    bytes: u32,
    deficit: i32,
    /// The flow behind it in its round, or in the chain of unused places.
    next: u32,
    /// Its hash value, and whether it is in a round.
    number: u16,
    listed: bool,
}

const _: () = assert!(size_of::<Flow>() <= 64);

/// Flows in the order in which they are served.
#[derive(Clone, Copy, Debug)]
struct Round {
    head: u32,
    tail: u32,
    len: u32,
}

/// Counters of one fq_codel (`tc -s qdisc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Longest packet that was taken from a flow, bytes.
    pub maxpacket: u32,
    /// Packets dropped because a limit was met.
    pub drop_overlimit: u64,
    /// Those of them for which the limit was memory.
    pub drop_overmemory: u64,
    /// Packets marked in place of a drop.
    pub ecn_mark: u64,
    /// Packets marked because of `ce_threshold`.
    pub ce_mark: u64,
    /// How often a flow became active.
    pub new_flow_count: u64,
    /// Memory held now, bytes.
    pub memory_used: u64,
    /// Flows among the new now.
    pub new_flows_len: u32,
    /// Flows among the old now.
    pub old_flows_len: u32,
}

/// One flow as it stands now (`tc -s class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Its hash value.
    pub number: u16,
    /// Bytes that it may still send in this round.
    pub deficit: i32,
    /// Bytes queued.
    pub bytes: u32,
    /// Its CoDel.
    pub codel: codel::State,
}

impl<P: Packet> FqCodel<P> {
    /// An empty queue.
    pub fn new(spec: &spec::fq_codel::FqCodel, environment: &Environment) -> Self {
        Self {
            spec: spec.clone(),
            params: Params::new(spec, environment),
            table: Vec::new(),
            flows: Vec::new(),
            free: NONE,
            new: Round::EMPTY,
            old: Round::EMPTY,
            queued: Queued {
                store: Store::new(),
                packets: 0,
                bytes: 0,
                memory: 0,
            },
            peeked: None,
            now: Instant(0),
            codel_stats: codel::Stats::default(),
            stats: Overflows::default(),
            counters: Counters::NONE,
        }
    }

    /// Its parameters as they were given.
    pub const fn spec(&self) -> &spec::fq_codel::FqCodel {
        &self.spec
    }

    /// Replaces the parameters, except the number of flows, which stays. Beyond a lower limit packets are dropped in the
    /// order in which they would have left.
    pub fn reconfigure(
        &mut self,
        spec: &spec::fq_codel::FqCodel,
        environment: &Environment,
        now: Instant,
        drops: &mut dyn Drops<P>,
    ) {
        self.spec = spec::fq_codel::FqCodel {
            flows: self.spec.flows,
            ..spec.clone()
        };
        self.params = Params::new(&self.spec, environment);
        while self.backlog().packets > self.params.limit || self.queued.memory > self.params.memory_limit {
            let marks = (self.codel_stats.ecn_mark, self.codel_stats.ce_mark);
            let Some(packet) = self.peeked.take().or_else(|| self.decide_apart(now, drops)) else {
                break;
            };
            // Whoever is dropped was not marked instead.
            (self.codel_stats.ecn_mark, self.codel_stats.ce_mark) = marks;
            self.counters.dropped += 1;
            drops.dropped(packet, DropReason::Reconfigure);
        }
        self.check_invariants();
    }

    /// Its parameters as the algorithm uses them.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Its own counters.
    pub const fn stats(&self) -> Stats {
        Stats {
            maxpacket: self.codel_stats.maxpacket,
            drop_overlimit: self.stats.drop_overlimit,
            drop_overmemory: self.stats.drop_overmemory,
            ecn_mark: self.codel_stats.ecn_mark,
            ce_mark: self.codel_stats.ce_mark,
            new_flow_count: self.stats.new_flow_count,
            memory_used: self.queued.memory,
            new_flows_len: self.new.len,
            old_flows_len: self.old.len,
        }
    }

    /// The flows that wait for their turn, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = FlowStats> {
        self.flows
            .iter()
            .filter(|flow| flow.listed)
            .map(|flow| FlowStats {
                number: flow.number,
                deficit: flow.deficit,
                bytes: flow.bytes,
                codel: flow.codel,
            })
    }

    /// The counters that every discipline has.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory that the instance takes besides itself and what waits in it.
    pub fn heap_bytes(&self) -> usize {
        self.table.capacity() * size_of::<u32>()
            + self.flows.capacity() * size_of::<Flow>()
            + self.queued.store.heap_bytes()
    }

    /// The clock, which never goes back.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now);
        self.params.codel.clock(self.now)
    }

    /// [`Self::decide`] as a function of its own, which keeps it out of the code that every packet passes.
    #[inline(never)]
    fn decide_apart(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Option<P> {
        self.decide(now, drops)
    }

    /// The packet that leaves next, taken out of its flow.
    #[inline(always)]
    fn decide(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Option<P> {
        let now = self.advance(now);
        loop {
            let is_new = self.new.head != NONE;
            let round = if is_new { &mut self.new } else { &mut self.old };
            let index = round.head;
            let flow = self.flows.get_mut(index as usize)?;
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.wrapping_add(self.params.quantum.cast_signed());
                round.pop_front(&mut self.flows);
                self.old.push_back(&mut self.flows, index);
                continue;
            }
            let mut source = FlowQueue {
                queue: &mut flow.queue,
                bytes: &mut flow.bytes,
                queued: &mut self.queued,
                counters: &mut self.counters,
                drops,
            };
            let packet = flow
                .codel
                .dequeue(&self.params.codel, &mut self.codel_stats, now, &mut source);
            if let Some(packet) = packet {
                flow.deficit = flow.deficit.wrapping_sub(packet.len().cast_signed());
                return Some(packet);
            }
            round.pop_front(&mut self.flows);
            if is_new && self.old.head != NONE {
                // Else a flow could stay new for ever by sending a packet as soon as it is empty.
                self.old.push_back(&mut self.flows, index);
            } else {
                self.leave(index);
            }
        }
    }

    /// The place of a flow, which is given one if it has none.
    #[inline]
    fn place(&mut self, number: u32) -> u32 {
        match self.table.get(number as usize) {
            Some(&index) if index != NONE => index,
            _ => self.join(number),
        }
    }

    fn join(&mut self, number: u32) -> u32 {
        if self.table.is_empty() {
            self.table = alloc::vec![NONE; self.params.flows as usize];
        }
        let flow = Flow {
            codel: codel::State::default(),
            queue: List::EMPTY,
            bytes: 0,
            deficit: 0,
            next: NONE,
            number: fits_u16(number.into()),
            listed: false,
        };
        let index = self.free;
        let index = match self.flows.get_mut(index as usize) {
            Some(unused) => {
                self.free = unused.next;
                *unused = flow;
                index
            }
            None => {
                self.flows.push(flow);
                fits_u32(self.flows.len() as u64 - 1)
            }
        };
        self.table[number as usize] = index;
        index
    }

    /// An empty flow has left its round. It gives up its place unless its CoDel remembers something.
    #[inline]
    fn leave(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.listed = false;
        if flow.codel.is_new() {
            self.table[usize::from(flow.number)] = NONE;
            flow.next = self.free;
            self.free = index;
        }
    }

    #[cold]
    fn drop_from_fattest(&mut self, is_over_memory: bool, drops: &mut dyn Drops<P>) {
        let fattest = self
            .flows
            .iter_mut()
            .filter(|flow| flow.bytes > 0)
            .max_by_key(|flow| (flow.bytes, core::cmp::Reverse(flow.number)));
        let Some(flow) = fattest else { return };
        let enough = flow.bytes / 2;
        let (mut packets, mut bytes) = (0, 0);
        loop {
            let taken = self.queued.pop(&mut flow.queue, &mut flow.bytes);
            let Some((packet, _)) = taken else { break };
            packets += 1;
            bytes += packet.len();
            drops.dropped(packet, DropReason::Overflow);
            if packets >= self.params.drop_batch || bytes >= enough {
                break;
            }
        }
        flow.codel.on_overflow(packets);
        self.counters.dropped += u64::from(packets);
        self.stats.drop_overlimit += u64::from(packets);
        if is_over_memory {
            self.stats.drop_overmemory += u64::from(packets);
        }
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let listed = self.flows.iter().filter(|flow| flow.listed).count();
        assert_eq!(listed, (self.new.len + self.old.len) as usize);
        for flow in &self.flows {
            assert!(
                flow.listed || flow.queue.is_empty(),
                "a backlogged queue that is not scheduled: {flow:?}"
            );
        }
        let bytes: u64 = self.flows.iter().map(|flow| u64::from(flow.bytes)).sum();
        assert_eq!(bytes, self.queued.bytes);
    }
}

impl<P: Packet> Qdisc<P> for FqCodel<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        let now = self.advance(now);
        let index = self.place(self.params.classify(&packet));
        let flow = &mut self.flows[index as usize];
        self.queued.push(flow, packet, now);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.params.quantum.cast_signed();
            self.stats.new_flow_count += 1;
            self.new.push_back(&mut self.flows, index);
        }
        let packets = self.queued.packets + u32::from(self.peeked.is_some());
        let is_over_memory = self.queued.memory > self.params.memory_limit;
        if packets > self.params.limit || is_over_memory {
            self.drop_from_fattest(is_over_memory, drops);
        }
        self.check_invariants();
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let packet = match self.peeked.take() {
            Some(packet) => packet,
            None => match self.decide(now, drops) {
                Some(packet) => packet,
                None => return Dequeued::Empty,
            },
        };
        self.counters.sent(packet.len());
        self.check_invariants();
        Dequeued::Packet(packet)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        let peeked = self.peeked.as_ref();
        Backlog {
            packets: self.queued.packets + u32::from(peeked.is_some()),
            bytes: self.queued.bytes + peeked.map_or(0, |packet| packet.len().into()),
        }
    }
}

impl<P: Packet> Peek<P> for FqCodel<P> {
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        if self.peeked.is_none() {
            self.peeked = self.decide_apart(now, drops);
        }
        match &self.peeked {
            Some(packet) => Dequeued::Packet(packet.len()),
            None => Dequeued::Empty,
        }
    }
}

impl Params {
    fn new(spec: &spec::fq_codel::FqCodel, environment: &Environment) -> Self {
        const MEMORY_MAX: u64 = 1 << 31;
        Self {
            codel: codel::Params::of_fq_codel(spec, environment),
            quantum: spec.quantum.unwrap_or(environment.mtu).max(LEAST_QUANTUM),
            limit: spec.limit,
            flows: spec.flows,
            drop_batch: spec.drop_batch,
            memory_limit: spec.memory_limit.0.min(MEMORY_MAX),
            handle: environment.handle,
            hash_key: environment.hash_key,
        }
    }

    /// The hash value of a packet's flow.
    #[inline]
    fn classify<P: Packet>(&self, packet: &P) -> u32 {
        let chosen = Handle::from_bits(packet.priority());
        if chosen.major == self.handle && chosen.major != 0 && (1..=self.flows).contains(&chosen.minor.into())
        {
            return u32::from(chosen.minor) - 1;
        }
        let hash = packet.hashed(&self.hash_key).hashes.flow;
        ((u64::from(hash) * u64::from(self.flows)) >> 32) as u32
    }
}

impl<P: Packet> Queued<P> {
    #[inline]
    fn push(&mut self, flow: &mut Flow, packet: P, now: u64) {
        let length = packet.len();
        flow.bytes += length;
        self.packets += 1;
        self.bytes += u64::from(length);
        self.memory += u64::from(packet.truesize());
        self.store.push_back(&mut flow.queue, (packet, now));
    }

    #[inline]
    fn pop(&mut self, queue: &mut List, flow_bytes: &mut u32) -> Option<(P, u64)> {
        let (packet, enqueued) = self.store.pop_front(queue)?;
        let length = packet.len();
        *flow_bytes -= length;
        self.packets -= 1;
        self.bytes -= u64::from(length);
        self.memory -= u64::from(packet.truesize());
        Some((packet, enqueued))
    }
}

/// One flow's packets, as its CoDel takes them.
struct FlowQueue<'a, P> {
    queue: &'a mut List,
    bytes: &'a mut u32,
    queued: &'a mut Queued<P>,
    counters: &'a mut Counters,
    drops: &'a mut dyn Drops<P>,
}

impl<P: Packet> codel::Source<P> for FlowQueue<'_, P> {
    #[inline]
    fn pop(&mut self) -> Option<(P, u64)> {
        self.queued.pop(self.queue, self.bytes)
    }

    #[inline]
    fn backlog(&self) -> u64 {
        self.queued.bytes
    }

    fn drop(&mut self, packet: P) {
        self.counters.dropped += 1;
        self.drops.dropped(packet, DropReason::Aqm);
    }
}

impl Round {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    #[inline]
    fn push_back(&mut self, flows: &mut [Flow], index: u32) {
        flows[index as usize].next = NONE;
        match self.head {
            NONE => self.head = index,
            _ => flows[self.tail as usize].next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    #[inline]
    fn pop_front(&mut self, flows: &mut [Flow]) {
        self.head = flows[self.head as usize].next;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::test_packet::{TestPacket, at_micros, drain, ethernet};
    use crate::units::Nanos;

    fn queue(change: impl Fn(&mut spec::fq_codel::FqCodel)) -> FqCodel<TestPacket> {
        let mut spec = spec::fq_codel::FqCodel::default();
        change(&mut spec);
        FqCodel::new(&spec, &ethernet(Profile::KERNEL))
    }

    fn enqueue(queue: &mut FqCodel<TestPacket>, flow: u32, ids: core::ops::Range<u32>, len: u32) -> Vec<u32> {
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        for id in ids {
            queue.enqueue(TestPacket::new(id, len).flow(flow), at_micros(0), &mut drops);
        }
        drops.iter().map(|(packet, _)| packet.id).collect()
    }

    fn next(queue: &mut FqCodel<TestPacket>) -> u32 {
        match queue.dequeue(at_micros(0), &mut ()) {
            Dequeued::Packet(packet) => packet.id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_the_kernels() {
        let queue = queue(|_| ());
        let params = queue.params();
        assert_eq!((params.limit, params.flows, params.quantum), (10240, 1024, 1514));
        assert_eq!(params.codel.target_units(), 4882);
        assert_eq!(params.codel.interval_units(), 97656);
        assert_eq!((params.memory_limit, params.drop_batch), (33_554_432, 64));
    }

    #[test]
    fn flows_take_turns_by_the_quantum_and_a_new_one_goes_first() {
        let mut queue = queue(|_| ());
        enqueue(&mut queue, 1, 100..104, 1500);
        enqueue(&mut queue, 2, 200..208, 500);
        let mut order: Vec<u32> = (0..3).map(|_| next(&mut queue)).collect();
        enqueue(&mut queue, 3, 300..301, 100);
        order.extend((0..10).map(|_| next(&mut queue)));
        assert_eq!(
            order,
            [100, 101, 200, 201, 202, 203, 300, 102, 204, 205, 206, 103, 207]
        );
    }

    #[test]
    fn a_flow_that_is_always_new_does_not_starve_the_old() {
        const SPARSE: u32 = 999;
        let mut queue = queue(|_| ());
        enqueue(&mut queue, 1, 1..7, 1500);
        let mut order = Vec::new();
        while queue.backlog().packets > 0 {
            order.push(next(&mut queue));
            if order.len() >= 2 && order.last() != Some(&SPARSE) && queue.backlog().packets > 0 {
                enqueue(&mut queue, 2, SPARSE..SPARSE + 1, 100);
            }
        }
        assert_eq!(order, [1, 2, SPARSE, 3, SPARSE, 4, SPARSE, 5, SPARSE, 6]);
    }

    #[test]
    fn overflow_takes_half_of_the_fattest_flow_from_its_head() {
        let mut queue = queue(|spec| spec.limit = 10);
        enqueue(&mut queue, 1, 100..108, 1000);
        enqueue(&mut queue, 2, 200..202, 500);
        assert_eq!(enqueue(&mut queue, 2, 202..203, 500), [100, 101, 102, 103]);
        assert_eq!(
            queue.backlog(),
            Backlog {
                packets: 7,
                bytes: 5500
            }
        );
        let fat = queue.flows().find(|flow| flow.number == 1);
        assert_eq!(fat.map(|flow| flow.codel.count), Some(4));
        assert_eq!(queue.stats().drop_overlimit, 4);
        assert_eq!(queue.stats().drop_overmemory, 0);
    }

    #[test]
    fn memory_is_a_limit_too() {
        // Each takes 2304 bytes of memory.
        let mut queue = queue(|spec| spec.memory_limit = crate::units::Bytes(3 * 2304));
        assert_eq!(enqueue(&mut queue, 1, 0..3, 1514), []);
        assert_eq!(enqueue(&mut queue, 1, 3..4, 1514), [0, 1]);
        let stats = queue.stats();
        assert_eq!((stats.drop_overlimit, stats.drop_overmemory), (2, 2));
        assert_eq!(stats.memory_used, 2 * 2304);
    }

    #[test]
    fn the_ce_threshold_applies_to_the_selected_ds_field_bits() {
        let mut queue = queue(|spec| {
            spec.ce_threshold = Some(Nanos::from_millis(1));
            spec.ce_threshold_selector = Some(spec::fq_codel::Selector { value: 1, mask: 3 });
        });
        for ecn in [1, 2] {
            let packet = TestPacket::new(0, 100).ecn(ecn);
            queue.enqueue(packet, at_micros(0), &mut ());
        }
        let mut marks = Vec::new();
        while let Dequeued::Packet(packet) = queue.dequeue(at_micros(2000), &mut ()) {
            marks.push(packet.ds_field);
        }
        assert_eq!(marks, [3, 2]);
        assert_eq!(queue.stats().ce_mark, 1);
    }

    #[test]
    fn a_packet_may_name_its_flow() {
        let environment = Environment {
            handle: 0x110,
            ..ethernet(Profile::KERNEL)
        };
        let mut queue = FqCodel::new(&spec::fq_codel::FqCodel::default(), &environment);
        for minor in [1, 1024, 1025] {
            let packet = TestPacket::new(0, 100).flow(7).class(0x110, minor);
            queue.enqueue(packet, at_micros(0), &mut ());
        }
        let numbers: Vec<u16> = queue.flows().map(|flow| flow.number).collect();
        assert_eq!(numbers, [0, 1023, 7]);
    }

    #[test]
    fn flows_that_never_dropped_leave_nothing_behind() {
        let mut queue = queue(|_| ());
        for flow in 0..1000 {
            enqueue(&mut queue, flow, flow..flow + 1, 1000);
            drain(&mut queue, at_micros(0), &mut ());
        }
        assert_eq!(queue.stats().new_flow_count, 1000);
        assert!(queue.flows.len() <= 2, "{} flows kept", queue.flows.len());
        assert!(queue.heap_bytes() < 5000, "{} bytes", queue.heap_bytes());
    }
}
