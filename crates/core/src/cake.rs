//! CAKE: a shaper, priorities, fairness between hosts and flows, and an AQM in one queue (Høiland-Jørgensen, Täht and
//! Morton 2018, "Piece of CAKE"; `tc-cake`(8)).
//!
//! A packet's way: its DSCP or mark chooses a tin ([`diffserv`](crate::diffserv)), its addresses and ports a queue of
//! that tin and the hosts it is counted at (`tables`). When the shaper lets a packet go ([`shaper`](crate::shaper)), the
//! most urgent tin gives one from the flow whose turn it is (`turns`), if COBALT does not drop it
//! ([`cobalt`](crate::cobalt)).
//!
//! With [`Profile::KERNEL`](crate::profile::Profile::KERNEL) every decision is that of Linux 6.12.

mod autorate;
mod overflow;
mod stats;
mod tables;
mod tin;
mod turns;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::ack_filter::{self, Summary};
use crate::cobalt::{Cobalt, Verdict};
use crate::diffserv::Layout;
use crate::packet::{FlowKey, Hashes, Packet, Tuple, View};
use crate::packet_list::{List, Store};
use crate::qdisc::{Backlog, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::rng::Random;
use crate::shaper::{Pace, Shaper};
use crate::spec::ParseError;
use crate::spec::cake::{AckFilter, Cake as Spec, Isolation};
use crate::units::{Bytes, Instant, Nanos, Rate};

pub use stats::{QueueStats, Stats, TinStats};

use autorate::Autorate;
use overflow::{Overflow, Rank};
use tables::{Found, How};
use tin::{Fairness, Tin, dithered};
use turns::{FlowId, MOST_ROUNDS, NOBODY, State, Turn};

/// Least computed buffer limit, bytes.
const LEAST_LIMIT: u64 = 4 << 20;

/// Most computed buffer limit, in packets of the device's MTU.
const LIMIT_PACKETS: u64 = 10240;

/// The addresses of a packet before NAT, if it was translated: IPv4 only.
pub type NatResolver = Box<dyn FnMut(&Tuple) -> Option<Tuple> + Send>;

/// One CAKE instance.
pub struct Cake<P, R> {
    spec: Spec,
    environment: Environment,
    layout: &'static Layout,
    fair: Fairness,
    /// Bytes per second; 0 is unlimited. Differs from the specification with `autorate-ingress`.
    rate: u64,
    shaper: Shaper,
    autorate: Autorate,
    /// As many as ever were configured; the first ones are in use.
    tins: Vec<Tin>,
    /// Where the search of the next tin begins without a rate.
    current_tin: usize,
    turns: Vec<Turn>,
    queues: Vec<Queue>,
    store: Store<Entry<P>>,
    overflow: Overflow,
    memory: Memory,
    sizes: Sizes,
    counters: Counters,
    backlog: Backlog,
    /// What [`Peek::peek`] decided on. It counts as queued.
    peeked: Option<P>,
    /// The latest time a call brought.
    now: u64,
    nat: Option<NatResolver>,
    random: R,
}

/// A queue's packets and its AQM.
#[derive(Clone, Debug)]
struct Queue {
    cobalt: Cobalt,
    packets: List,
    /// Bytes.
    backlog: u32,
    drops: u32,
    number: u16,
    tin: u8,
}

/// A packet that waits.
#[derive(Clone, Debug)]
struct Entry<P> {
    packet: P,
    since: u64,
    /// Bytes on the line.
    line_len: u32,
    ack: Summary,
}

/// Bytes of memory, as [`Packet::truesize`] counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    used: u64,
    most: u64,
    limit: u64,
}

/// Packet sizes seen.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    network: (u32, u32),
    line: (u32, u32),
    /// Average network offset in 65536ths.
    offset: u32,
}

impl Sizes {
    const NONE: (u32, u32) = (u32::MAX, 0);

    #[inline]
    fn note(&mut self, network: u32, line: u32, offset: u16) {
        self.network = (self.network.0.min(network), self.network.1.max(network));
        self.line = (self.line.0.min(line), self.line.1.max(line));
        self.offset = self.offset - (self.offset >> 8) + (u32::from(offset) << 8);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent_packets: u64,
    sent_bytes: u64,
    drops: u64,
    overlimits: u64,
}

/// Exponentially weighted average: `sample` counts 2^-`shift`.
#[inline]
const fn ewma(average: u64, sample: u64, shift: u32) -> u64 {
    average - (average >> shift) + (sample >> shift)
}

impl<P: Packet, R: Random> Cake<P, R> {
    /// An empty queue. It allocates what its tins need, and more only when packets come.
    pub fn new(spec: &Spec, environment: &Environment, random: R) -> Self {
        let rate = spec.bandwidth.map_or(0, Rate::bytes_per_sec);
        let mut cake = Self {
            spec: spec.clone(),
            environment: *environment,
            layout: Layout::of(spec.tins),
            fair: fairness(spec.isolation),
            rate,
            shaper: Shaper::default(),
            autorate: Autorate::new(rate),
            tins: Vec::new(),
            current_tin: 0,
            turns: Vec::new(),
            queues: Vec::new(),
            store: Store::new(),
            overflow: Overflow::new(),
            memory: Memory::default(),
            sizes: Sizes {
                network: Sizes::NONE,
                line: Sizes::NONE,
                offset: 0,
            },
            counters: Counters::default(),
            backlog: Backlog::default(),
            peeked: None,
            now: environment.now.0,
            nat: None,
            random,
        };
        cake.configure();
        cake
    }

    /// Whom to ask for the addresses before NAT, which `nat` calls for. Without one they are as in the packet.
    pub fn resolve_nat(&mut self, resolver: Option<NatResolver>) {
        self.nat = resolver;
    }

    /// What it does now. With `autorate-ingress` the bandwidth is the one it follows.
    pub fn spec(&self) -> Spec {
        Spec {
            bandwidth: (self.rate > 0).then(|| Rate::from_bits_per_sec(self.rate.saturating_mul(8))),
            ..self.spec.clone()
        }
    }

    /// Changes the parameters, as `tc qdisc change` does: what `words` do not mention stays, overhead is counted anew if
    /// it is mentioned. Nothing queued is lost, except the packets of tins that go away. On an error nothing changes.
    pub fn change(&mut self, words: &str, drops: &mut dyn Drops<P>) -> Result<(), ParseError> {
        let mut spec = self.spec.clone();
        spec.change(words)?;
        self.reconfigure(&spec, drops);
        if crate::spec::cake::sets_overhead(words) {
            self.forget_sizes();
        }
        Ok(())
    }

    /// Replaces the parameters. Nothing queued is lost, except the packets of tins that go away.
    pub fn reconfigure(&mut self, spec: &Spec, drops: &mut dyn Drops<P>) {
        let old = core::mem::replace(&mut self.spec, spec.clone());
        let (was, is) = (old.framing, spec.framing);
        if (was.from_ip, was.overhead) != (is.from_ip, is.overhead) {
            self.forget_sizes();
        }
        // A rate that follows the arrivals goes on from where it is.
        if !spec.autorate_ingress || old.bandwidth != spec.bandwidth {
            self.rate = spec.bandwidth.map_or(0, Rate::bytes_per_sec);
            if !self.environment.profile.capacity_estimate_stale {
                self.autorate.peak = self.rate;
            }
        }
        self.configure();
        for tin in self.layout.count()..self.tins.len() {
            self.clear(tin, drops);
        }
        if self.layout.count() < crate::diffserv::MAX_TINS {
            self.current_tin = 0;
        }
    }

    /// Everything `tc -s qdisc` shows.
    pub fn stats(&self) -> Stats {
        let least = |size: (u32, u32)| (size.0 != u32::MAX).then_some(size.0);
        Stats {
            sent_packets: self.counters.sent_packets,
            sent_bytes: self.counters.sent_bytes,
            drops: self.counters.drops,
            overlimits: self.counters.overlimits,
            backlog: self.backlog,
            memory_used: Bytes(self.memory.most),
            memory_limit: Bytes(self.memory.limit),
            capacity_estimate: Rate::from_bits_per_sec(self.autorate.peak.saturating_mul(8)),
            min_network_size: least(self.sizes.network),
            max_network_size: self.sizes.network.1,
            min_adj_size: least(self.sizes.line),
            max_adj_size: self.sizes.line.1,
            average_header_offset: self.sizes.offset,
            tins: self
                .layout
                .display
                .iter()
                .zip(self.layout.names)
                .map(|(&tin, &name)| tin_stats(tin, name, &self.tins[usize::from(tin)]))
                .collect(),
        }
    }

    /// Everything `tc -s class` shows: the queues that were ever used, tin by tin, in the order of their numbers.
    pub fn queue_stats(&self) -> Vec<QueueStats> {
        let tins = self.tins[..self.layout.count()].iter();
        tins.filter_map(|tin| tin.tables.as_ref())
            .flat_map(|tables| (0..tables::ENTRIES).map(|queue| tables.queues.flow_of(queue)))
            .filter(|flow| *flow != NOBODY)
            .map(|flow| self.one_queue(flow))
            .collect()
    }

    /// Checks that what is counted twice agrees, and panics if not.
    pub fn check_invariants(&self) {
        let mut sums = Backlog {
            packets: u32::from(self.peeked.is_some()),
            bytes: self.peeked.as_ref().map_or(0, |packet| packet.len().into()),
        };
        let mut memory = 0;
        for queue in &self.queues {
            let packets = self.store.iter(queue.packets).map(|(_, entry)| &entry.packet);
            let mut bytes = 0;
            for packet in packets {
                sums.packets += 1;
                bytes += packet.len();
                memory += u64::from(packet.truesize());
            }
            assert_eq!(bytes, queue.backlog, "a queue's bytes");
            sums.bytes += u64::from(bytes);
        }
        assert_eq!(sums, self.backlog, "all queues' packets");
        assert_eq!(memory, self.memory.used, "memory");
        for (number, tin) in self.tins.iter().enumerate() {
            let queues = self
                .queues
                .iter()
                .filter(|queue| usize::from(queue.tin) == number);
            let bytes: u64 = queues.clone().map(|queue| u64::from(queue.backlog)).sum();
            assert_eq!(bytes, tin.backlog, "a tin's bytes");
            let awake = queues.filter(|queue| queue.cobalt.drop_probability() > 0).count();
            assert_eq!(awake, usize::from(tin.unresponsive), "unresponsive flows");
            let Some(tables) = &tin.tables else { continue };
            let mut counts = [0_u16; 3];
            for (flow, fits) in tables.lists.listed(&self.turns) {
                assert!(fits, "flow {flow} is on the list of its state");
                counts[match self.turns[usize::from(flow)].state {
                    State::Bulk => 1,
                    State::Decaying => 2,
                    _ => 0,
                }] += 1;
            }
            assert_eq!(counts, [tin.sparse, tin.bulk, tin.decaying], "flows by state");
            let listed = counts.into_iter().map(usize::from).sum::<usize>();
            let busy = |(flow, queue): &(usize, &Queue)| {
                usize::from(queue.tin) == number && self.turns[*flow].state != State::Idle
            };
            assert_eq!(
                self.queues.iter().enumerate().filter(busy).count(),
                listed,
                "listed flows"
            );
        }
        let idle_with_packets = |(queue, turn): (&Queue, &Turn)| {
            !queue.packets.is_empty() && !matches!(turn.state, State::Sparse | State::Bulk)
        };
        assert!(
            !self.queues.iter().zip(&self.turns).any(idle_with_packets),
            "packets wait in flows that are served"
        );
    }

    /// Derives everything that follows from the specification and the rate.
    fn configure(&mut self) {
        let profile = self.environment.profile;
        self.layout = Layout::of(self.spec.tins);
        self.fair = fairness(self.spec.isolation);
        self.shaper.pace = Pace::of(self.rate);
        let missing = self.layout.count().saturating_sub(self.tins.len());
        self.tins.reserve_exact(missing);
        self.tins.extend((0..missing).map(|_| Tin::new()));
        let rtt = self.spec.rtt.as_micros();
        let target = (rtt / 20).max(1);
        for (tin, (threshold, weight)) in self.tins.iter_mut().zip(self.layout.shares(self.rate)) {
            tin.configure(
                threshold,
                weight,
                self.environment.mtu,
                target * 1000,
                rtt * 1000,
                profile,
            );
            if !profile.tin_deficit_unbounded {
                tin.deficit = 0;
            }
        }
        self.memory.limit = self.buffer_limit(rtt);
    }

    /// Four times what the line carries in `rtt` microseconds, unless told otherwise.
    fn buffer_limit(&self, rtt: u64) -> u64 {
        let given = self
            .spec
            .memlimit
            .map_or(0, |limit| limit.0.min(u64::from(u32::MAX)));
        let wanted = match (given, self.rate) {
            (0, 0) => u64::from(u32::MAX),
            (0, rate) => {
                let product = (u128::from(rate) * u128::from(rtt) / 250_000) as u64;
                let product = if self.environment.profile.buffer_limit_32_bits {
                    product & 0xffff_ffff
                } else {
                    product
                };
                product.max(LEAST_LIMIT)
            }
            (limit, _) => limit,
        };
        wanted.min((u64::from(self.environment.mtu) * LIMIT_PACKETS).max(given))
    }

    fn forget_sizes(&mut self) {
        self.sizes.network = Sizes::NONE;
        self.sizes.line = Sizes::NONE;
    }

    /// Gives up what waits in a tin that is no longer in use.
    fn clear(&mut self, tin: usize, drops: &mut dyn Drops<P>) {
        let flows = 0..tables::ENTRIES;
        let Some(tables) = &self.tins[tin].tables else {
            return;
        };
        let flows: Vec<FlowId> = flows
            .map(|queue| tables.queues.flow_of(queue))
            .filter(|flow| *flow != NOBODY)
            .collect();
        for flow in flows {
            while let Some(entry) = self.take(tin, flow) {
                drops.dropped(entry.packet, DropReason::Reconfigure);
            }
        }
    }

    fn one_queue(&self, flow: FlowId) -> QueueStats {
        let queue = &self.queues[usize::from(flow)];
        let from_now = |time: u64| (time.wrapping_sub(self.now) as i64) / 1000;
        let blue = queue.cobalt.drop_probability();
        QueueStats {
            tin: queue.tin,
            queue: queue.number,
            deficit: self.turns[usize::from(flow)].deficit,
            count: queue.cobalt.count(),
            drop_next: queue.cobalt.drop_next().map(from_now),
            blue_probability: blue,
            blue_timer: (blue > 0).then(|| from_now(queue.cobalt.blue_timer())),
            drops: queue.drops,
            backlog: Backlog {
                packets: self.store.iter(queue.packets).count() as u32,
                bytes: u64::from(queue.backlog),
            },
        }
    }
}

impl<P: Packet, R: Random> Qdisc<P> for Cake<P, R> {
    #[inline]
    fn enqueue(&mut self, mut packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        let now = self.advance(now);
        let view = packet.view();
        let tin = self.choose_tin(&packet, &view);
        if self.spec.wash {
            packet.clear_dscp();
        }
        let hashes = self.hashes(&view.key);
        let flow = self.choose_queue(tin, hashes);
        self.wake(tin, now);

        let len = packet.len();
        let counters = &mut self.tins[tin].counters;
        counters.max_len = counters.max_len.max(len);
        if self.spec.split_gso && packet.aggregate().is_some() {
            packet
                .split(|segment| self.append(tin, flow, segment, view.network_offset, Summary::UNREAD, now));
        } else if self.spec.ack_filter == AckFilter::Off {
            self.append(tin, flow, packet, view.network_offset, Summary::UNREAD, now);
        } else {
            self.append_filtered(tin, flow, packet, view.network_offset, now, drops);
        }
        if self.overflow.is_live() {
            self.overflow.grew(flow, rank(&self.queues[usize::from(flow)]));
        }
        self.follow_arrivals(len, now);
        self.list(tin, flow);

        self.memory.most = self.memory.most.max(self.memory.used);
        while self.memory.used > self.memory.limit {
            self.drop_fattest(now, drops);
        }
        self.debug_check();
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let packet = match self.peeked.take() {
            Some(packet) => {
                self.backlog.packets -= 1;
                self.backlog.bytes -= u64::from(packet.len());
                packet
            }
            None => match self.decide(now, drops) {
                Dequeued::Packet(packet) => packet,
                nothing => return nothing,
            },
        };
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += u64::from(packet.len());
        self.debug_check();
        Dequeued::Packet(packet)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl<P: Packet, R: Random> Peek<P> for Cake<P, R> {
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        if let Some(packet) = &self.peeked {
            return Dequeued::Packet(packet.len());
        }
        match self.decide(now, drops) {
            Dequeued::Packet(packet) => {
                let len = packet.len();
                self.backlog.packets += 1;
                self.backlog.bytes += u64::from(len);
                self.peeked = Some(packet);
                Dequeued::Packet(len)
            }
            Dequeued::NotBefore(later) => Dequeued::NotBefore(later),
            Dequeued::Empty => Dequeued::Empty,
        }
    }
}

impl<P, R> fmt::Debug for Cake<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cake")
            .field("spec", &self.spec)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

/// Arrival, in the order in which a packet meets these.
impl<P: Packet, R: Random> Cake<P, R> {
    /// Time inside never runs backwards.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.0);
        self.now
    }

    #[inline]
    fn choose_tin(&self, packet: &P, view: &View) -> usize {
        let layout = self.layout;
        if layout.count() == 1 {
            return 0;
        }
        if self.spec.fwmark != 0 {
            let place = (packet.mark() & self.spec.fwmark) >> self.spec.fwmark.trailing_zeros();
            if let Some(tin) = layout.displayed(place) {
                return usize::from(tin);
            }
        }
        let handle = u32::from(self.environment.handle);
        let priority = packet.priority();
        if handle != 0
            && priority >> 16 == handle
            && let Some(tin) = layout.displayed(priority & 0xffff)
        {
            return usize::from(tin);
        }
        usize::from(layout.tin_of(view.network, view.ds_field))
    }

    #[inline]
    fn hashes(&mut self, key: &FlowKey) -> Hashes {
        let mut hashes = match key {
            FlowKey::Hashes(hashes) => *hashes,
            FlowKey::Tuple(tuple) => {
                let before_nat = match &mut self.nat {
                    Some(resolve) if self.spec.nat => resolve(tuple),
                    _ => None,
                };
                self.environment
                    .hash_key
                    .hashes(before_nat.as_ref().unwrap_or(tuple))
            }
        };
        hashes.flow = match self.spec.isolation {
            Isolation::Flowblind => 0,
            Isolation::Srchost => hashes.source,
            Isolation::Dsthost => hashes.destination,
            Isolation::Hosts => hashes.source ^ hashes.destination,
            Isolation::Flows | Isolation::DualSrchost | Isolation::DualDsthost | Isolation::TripleIsolate => {
                hashes.flow
            }
        };
        hashes
    }

    #[inline]
    fn choose_queue(&mut self, tin: usize, hashes: Hashes) -> FlowId {
        let number = tin as u8;
        let tin = &mut self.tins[tin];
        let queues = &mut tin.tables().queues;
        let Found { mut flow, queue, how } = match self.spec.isolation {
            Isolation::Flowblind => queues.only(),
            _ => queues.find(hashes.flow, &self.turns),
        };
        if flow == NOBODY {
            flow = self.turns.len() as FlowId;
            queues.settle(queue, flow);
            self.turns.push(Turn::IDLE);
            self.queues.push(Queue {
                cobalt: Cobalt::new(self.environment.profile),
                packets: List::EMPTY,
                backlog: 0,
                drops: 0,
                number: queue,
                tin: number,
            });
        }
        let turn = &mut self.turns[usize::from(flow)];
        let assign = match how {
            How::Direct => return flow,
            How::Tag { moved } => {
                tin.counters.hits += u64::from(moved);
                turn.state == State::Idle
            }
            How::Free => {
                tin.counters.misses += 1;
                true
            }
            How::Shared => {
                tin.counters.collisions += 1;
                true
            }
        };
        if assign {
            let fair = self.fair;
            let tables = tin.tables();
            let bulk = turn.state == State::Bulk;
            if bulk {
                tables.remove_bulk(turn, fair);
            }
            if fair.sources {
                turn.source = tables.sources.find(hashes.source);
            }
            if fair.destinations {
                turn.destination = tables.destinations.find(hashes.destination);
            }
            if bulk {
                tables.add_bulk(turn, fair);
            }
        }
        flow
    }

    /// After idle time the clocks begin anew.
    #[inline]
    fn wake(&mut self, tin: usize, now: u64) {
        let tin = &mut self.tins[tin];
        if tin.backlog == 0 {
            tin.clock.wake(now);
            if self.backlog.packets == 0 && self.shaper.wake(now) {
                self.counters.overlimits += 1;
            }
        }
    }

    /// Appends a packet, which the ACK filter may have summarised.
    #[inline]
    fn append(&mut self, tin: usize, flow: FlowId, packet: P, offset: u16, ack: Summary, now: u64) {
        let len = packet.len();
        let framing = &self.spec.framing;
        let counted = framing.counted_len(len, offset);
        let line_len = match packet.aggregate() {
            Some(aggregate) => framing.aggregate_line_len(len, offset, aggregate),
            None => framing.line_len(counted),
        };
        self.sizes.note(counted, line_len, offset);
        self.memory.used += u64::from(packet.truesize());
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(len);
        let tin = &mut self.tins[tin];
        tin.backlog += u64::from(len);
        tin.counters.packets += 1;
        tin.counters.bytes += u64::from(len);
        let queue = &mut self.queues[usize::from(flow)];
        queue.backlog += len;
        self.store.push_back(
            &mut queue.packets,
            Entry {
                packet,
                since: now,
                line_len,
                ack,
            },
        );
    }

    /// Appends a packet in place of one that it makes redundant.
    fn append_filtered(
        &mut self,
        tin: usize,
        flow: FlowId,
        packet: P,
        offset: u16,
        now: u64,
        drops: &mut dyn Drops<P>,
    ) {
        let fragments = self.environment.profile.ack_filter_fragments;
        let summary = Summary::of(&packet, fragments);
        let queue = &mut self.queues[usize::from(flow)];
        let waiting = self
            .store
            .iter(queue.packets)
            .map(|(place, entry)| (place, &entry.packet, entry.ack));
        let aggressive = self.spec.ack_filter == AckFilter::Aggressive;
        let redundant = ack_filter::redundant(waiting, (&packet, summary), aggressive, fragments);
        let removed = redundant.and_then(|place| self.store.remove_at(&mut queue.packets, place));
        if let Some(entry) = removed {
            self.forget(tin, flow, &entry);
            self.tins[tin].counters.ack_drops += 1;
            self.counters.drops += 1;
            if self.spec.ingress {
                self.charge_dropped(tin, entry.line_len, now);
            }
            drops.dropped(entry.packet, DropReason::Ack);
        }
        self.append(tin, flow, packet, offset, summary, now);
    }

    #[inline]
    fn follow_arrivals(&mut self, len: u32, now: u64) {
        if !self.spec.autorate_ingress {
            self.autorate.idle(now);
            return;
        }
        let guarded = !self.environment.profile.autorate_unguarded;
        if let Some(rate) = self.autorate.arrived(len, now, guarded) {
            self.rate = rate;
            self.configure();
        }
    }

    /// A flow with a new packet is on a list.
    #[inline]
    fn list(&mut self, tin: usize, flow: FlowId) {
        let tin = &mut self.tins[tin];
        let turn = &mut self.turns[usize::from(flow)];
        match turn.state {
            State::Sparse | State::Bulk => {}
            State::SparseWait => {
                turn.state = State::Bulk;
                tin.sparse -= 1;
                tin.bulk += 1;
                let turn = *turn;
                tin.tables().add_bulk(&turn, self.fair);
            }
            state @ (State::Idle | State::Decaying) => {
                turn.state = State::Sparse;
                tin.sparse += 1;
                let (quantum, fair) = (tin.quantum, self.fair);
                let decaying = state == State::Decaying;
                tin.decaying -= u16::from(decaying);
                let tables = tin.tables();
                turn.deficit = dithered(tables.share(turn, fair, quantum), &mut self.random);
                if decaying {
                    tables.lists.move_to_new(&mut self.turns, flow);
                } else {
                    tables.lists.join_new(&mut self.turns, flow);
                }
            }
        }
    }

    /// Drops the head of the fattest queue.
    #[cold]
    fn drop_fattest(&mut self, now: u64, drops: &mut dyn Drops<P>) {
        let shallow = self.environment.profile.overflow_heap_shallow;
        let Some(flow) = self.overflow.victim(shallow, self.queues.iter().map(rank)) else {
            return;
        };
        let queue = &mut self.queues[usize::from(flow)];
        let Some(entry) = self.store.pop_front(&mut queue.packets) else {
            return;
        };
        let tin = usize::from(queue.tin);
        queue.drops += 1;
        let blue = queue.cobalt.on_overflow(&self.tins[tin].params, now);
        self.forget(tin, flow, &entry);
        self.tins[tin].note(blue);
        self.tins[tin].counters.drops += 1;
        self.counters.drops += 1;
        if self.spec.ingress {
            self.charge_dropped(tin, entry.line_len, now);
        }
        self.overflow.dropped(flow, rank(&self.queues[usize::from(flow)]));
        drops.dropped(entry.packet, DropReason::Overflow);
    }
}

/// Departure.
impl<P: Packet, R: Random> Cake<P, R> {
    /// The next packet, taken out.
    #[inline]
    fn decide(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let now = self.advance(now);
        let mut decaying_first = true;
        loop {
            if self.backlog.packets == 0 {
                return Dequeued::Empty;
            }
            if let Some(at) = self.shaper.blocked_until(now) {
                self.counters.overlimits += 1;
                return Dequeued::NotBefore(Instant(at));
            }
            let Some(tin) = self.next_tin(now) else {
                return Dequeued::Empty;
            };
            if let Some(packet) = self.serve(tin, now, &mut decaying_first, drops) {
                return Dequeued::Packet(packet);
            }
        }
    }

    /// The tin that gives the next packet.
    #[inline]
    fn next_tin(&mut self, now: u64) -> Option<usize> {
        if !self.shaper.pace.is_unlimited() {
            self.current_tin = self.most_urgent_tin(now)?;
            return Some(self.current_tin);
        }
        let count = self.layout.count();
        let mut found_flows = false;
        let mut wrapped = false;
        loop {
            let tin = &mut self.tins[self.current_tin];
            if tin.deficit >= 0 && tin.has_flows() {
                return Some(self.current_tin);
            }
            if tin.deficit <= 0 {
                tin.deficit += i64::from(tin.weight);
            }
            found_flows |= tin.has_flows();
            self.current_tin += 1;
            if self.current_tin >= count {
                self.current_tin = 0;
                if wrapped && !found_flows {
                    return None;
                }
                wrapped = true;
            }
        }
    }

    /// The last tin within its share of the rate, or else the one that will be first.
    #[inline]
    fn most_urgent_tin(&self, now: u64) -> Option<usize> {
        let mut best = None;
        let mut least_ahead = i64::MAX;
        for (number, tin) in self.tins[..self.layout.count()].iter().enumerate() {
            if !tin.has_flows() {
                continue;
            }
            let ahead = tin.clock.ahead(now);
            if ahead <= 0 || ahead <= least_ahead {
                least_ahead = ahead;
                best = Some(number);
            }
        }
        best
    }

    /// A packet of the flow whose turn it is. None if that flow was empty, or dropped all it had.
    #[inline]
    fn serve(
        &mut self,
        tin: usize,
        now: u64,
        decaying_first: &mut bool,
        drops: &mut dyn Drops<P>,
    ) -> Option<P> {
        loop {
            let tables = self.tins[tin].tables();
            let flow = tables.lists.front(core::mem::take(decaying_first))?;
            if self.turns[usize::from(flow)].deficit <= 0 {
                self.refill(tin, flow);
                continue;
            }
            loop {
                let Some(mut entry) = self.take(tin, flow) else {
                    self.retire(tin, flow, now);
                    return None;
                };
                let verdict = self.judge(tin, flow, &mut entry, now);
                if !verdict.drop || self.queues[usize::from(flow)].packets.is_empty() {
                    return Some(self.deliver(tin, flow, entry, verdict.marked, now));
                }
                self.queues[usize::from(flow)].drops += 1;
                self.tins[tin].counters.drops += 1;
                self.counters.drops += 1;
                if self.spec.ingress {
                    self.charge_dropped(tin, entry.line_len, now);
                    self.turns[usize::from(flow)].deficit -= entry.line_len as i32;
                    self.tins[tin].deficit -= i64::from(entry.line_len);
                }
                drops.dropped(entry.packet, DropReason::Aqm);
                if self.spec.ingress {
                    break;
                }
            }
        }
    }

    /// A flow that used up its deficit waits for another turn among the old ones.
    #[inline]
    fn refill(&mut self, tin: usize, flow: FlowId) {
        let tin = &mut self.tins[tin];
        let turn = &mut self.turns[usize::from(flow)];
        if turn.state == State::Sparse {
            if self.queues[usize::from(flow)].packets.is_empty() {
                turn.state = State::SparseWait;
            } else {
                turn.state = State::Bulk;
                tin.sparse -= 1;
                tin.bulk += 1;
                let turn = *turn;
                tin.tables().add_bulk(&turn, self.fair);
            }
        }
        let quantum = tin.quantum;
        let tables = tin.tables();
        let share = tables.share(turn, self.fair, quantum);
        if self.environment.profile.round_by_round {
            turn.deficit += dithered(share, &mut self.random);
            tables.lists.rotate(&mut self.turns, flow);
            return;
        }
        let rounds = rounds_needed(turn.deficit, share);
        let credit = u64::from(share) * u64::from(rounds) + u64::from(self.random.r16());
        turn.deficit += (credit >> 16) as i32;
        tables.lists.defer(&mut self.turns, flow, rounds);
    }

    /// Takes the head of a queue.
    #[inline]
    fn take(&mut self, tin: usize, flow: FlowId) -> Option<Entry<P>> {
        let queue = &mut self.queues[usize::from(flow)];
        let entry = self.store.pop_front(&mut queue.packets)?;
        self.forget(tin, flow, &entry);
        if self.overflow.is_live() {
            self.overflow.shrank(flow, rank(&self.queues[usize::from(flow)]));
        }
        Some(entry)
    }

    /// A packet is no longer queued.
    #[inline]
    fn forget(&mut self, tin: usize, flow: FlowId, entry: &Entry<P>) {
        let len = entry.packet.len();
        self.queues[usize::from(flow)].backlog -= len;
        self.tins[tin].backlog -= u64::from(len);
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(len);
        self.memory.used -= u64::from(entry.packet.truesize());
    }

    #[inline]
    fn judge(&mut self, tin: usize, flow: FlowId, entry: &mut Entry<P>, now: u64) -> Verdict {
        let tin = &self.tins[tin];
        let bulk_flows = if self.spec.ingress { u32::from(tin.bulk) } else { 0 };
        let Entry { packet, since, .. } = entry;
        self.queues[usize::from(flow)].cobalt.judge(
            &tin.params,
            now,
            now.saturating_sub(*since),
            bulk_flows,
            || packet.set_ce(),
            &mut self.random,
        )
    }

    #[inline]
    fn deliver(&mut self, tin: usize, flow: FlowId, entry: Entry<P>, marked: bool, now: u64) -> P {
        let tin = &mut self.tins[tin];
        tin.counters.marks += u64::from(marked);
        tin.delivered(now.saturating_sub(entry.since));
        if !self.shaper.pace.is_unlimited() {
            tin.clock.charge(entry.line_len, now);
            self.shaper.sent(entry.line_len);
        }
        self.turns[usize::from(flow)].deficit -= entry.line_len as i32;
        tin.deficit -= i64::from(entry.line_len);
        self.overflow.delivered();
        entry.packet
    }

    /// A packet that had crossed the line was dropped.
    fn charge_dropped(&mut self, tin: usize, line_len: u32, now: u64) {
        if !self.shaper.pace.is_unlimited() {
            self.tins[tin].clock.charge(line_len, now);
            self.shaper.dropped(line_len);
        }
    }

    /// An empty flow leaves, or decays first.
    #[inline]
    fn retire(&mut self, tin: usize, flow: FlowId, now: u64) {
        let fair = self.fair;
        let tin = &mut self.tins[tin];
        let cobalt = &mut self.queues[usize::from(flow)].cobalt;
        let blue = cobalt.on_empty(&tin.params, now);
        let rests = cobalt.is_at_rest(now);
        tin.note(blue);
        let turn = &mut self.turns[usize::from(flow)];
        let was = core::mem::replace(&mut turn.state, if rests { State::Idle } else { State::Decaying });
        match was {
            State::Idle => {}
            State::Sparse | State::SparseWait => tin.sparse -= 1,
            State::Bulk => {
                tin.bulk -= 1;
                let turn = *turn;
                tin.tables().remove_bulk(&turn, fair);
            }
            State::Decaying => tin.decaying -= 1,
        }
        if rests {
            tin.tables().lists.leave(&mut self.turns, flow);
        } else {
            tin.decaying += 1;
            tin.tables().lists.move_to_decaying(&mut self.turns, flow);
        }
    }

    #[inline]
    fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }
}

/// The least number of rounds after which `deficit` is positive, 1 to [`MOST_ROUNDS`]. `share` is what a round brings, in
/// 65536ths of a byte.
#[inline]
fn rounds_needed(deficit: i32, share: u32) -> u32 {
    let missing = u64::from(deficit.unsigned_abs()) << 16;
    if missing < u64::from(share) {
        return 1;
    }
    let rounds = missing / u64::from(share) + 1;
    rounds.min(u64::from(MOST_ROUNDS)) as u32
}

const fn fairness(isolation: Isolation) -> Fairness {
    Fairness {
        sources: matches!(isolation, Isolation::DualSrchost | Isolation::TripleIsolate),
        destinations: matches!(isolation, Isolation::DualDsthost | Isolation::TripleIsolate),
    }
}

const fn rank(queue: &Queue) -> Rank {
    Rank {
        backlog: queue.backlog,
        queue: queue.number,
        tin: queue.tin,
    }
}

fn tin_stats(number: u8, name: &'static str, tin: &Tin) -> TinStats {
    let counters = &tin.counters;
    TinStats {
        name,
        tin: number,
        threshold_rate: Rate::from_bits_per_sec(tin.threshold.saturating_mul(8)),
        target: Nanos(tin.params.target),
        interval: Nanos(tin.params.interval),
        peak_delay: Nanos(counters.peak_delay),
        average_delay: Nanos(counters.average_delay),
        base_delay: Nanos(counters.base_delay),
        sent_packets: counters.packets,
        sent_bytes: counters.bytes,
        backlog_bytes: tin.backlog,
        way_indirect_hits: counters.hits,
        way_misses: counters.misses,
        way_collisions: counters.collisions,
        drops: counters.drops,
        ecn_marks: counters.marks,
        ack_drops: counters.ack_drops,
        sparse_flows: u32::from(tin.sparse),
        decaying_flows: u32::from(tin.decaying),
        bulk_flows: u32::from(tin.bulk),
        unresponsive_flows: u32::from(tin.unresponsive),
        max_packet_len: counters.max_len,
        flow_quantum: tin.quantum,
    }
}
