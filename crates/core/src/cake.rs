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
use crate::cobalt::Cobalt;
use crate::diffserv::{Layout, MAX_TINS};
use crate::flow_hash::HashKey;
use crate::packet::{FlowKey, Hashed, Hashes, Packet, Tuple};
use crate::packet_list::{List, Store};
use crate::profile::Profile;
use crate::qdisc::{Backlog, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::rng::Random;
use crate::shaper::{Pace, Shaper};
use crate::spec::ParseError;
use crate::spec::cake::{AckFilter, Cake as Spec, Isolation};
use crate::units::{Bytes, Instant, Nanos, Rate};

pub use stats::{QueueStats, Stats, TinStats};

use autorate::Autorate;
use overflow::{Overflow, Rank};
use tables::{Found, How};
use tin::{Fairness, Tables, Tin};
use turns::{FlowId, NOBODY, State, Turn};

/// Least computed buffer limit, bytes.
const LEAST_LIMIT: u64 = 4 << 20;

/// 146 years, nanoseconds.
const END_OF_TIME: u64 = 1 << 62;

/// Most computed buffer limit, in packets of the device's MTU.
const LIMIT_PACKETS: u64 = 10240;

/// The addresses of a packet before NAT, if it was translated: IPv4 only.
pub type NatResolver = Box<dyn FnMut(&Tuple) -> Option<Tuple> + Send>;

/// One CAKE instance.
pub struct Cake<P, R> {
    spec: Spec,
    environment: Environment,
    layout: &'static Layout,
    tin_count: usize,
    fair: Fairness,
    /// Bytes per second; 0 is unlimited. Differs from the specification with `autorate-ingress`.
    rate: u64,
    shaper: Shaper,
    autorate: Autorate,
    /// As many as ever were configured; the first ones are in use.
    tins: Vec<Tin>,
    /// Where the search of the next tin begins without a rate.
    current_tin: usize,
    /// A bit for each tin with flows that may have something to send.
    busy: u8,
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

impl Queue {
    const fn new(number: u16, tin: u8, profile: Profile) -> Self {
        Self {
            cobalt: Cobalt::new(profile),
            packets: List::EMPTY,
            backlog: 0,
            drops: 0,
            number,
            tin,
        }
    }
}

/// A packet that waits.
#[derive(Clone, Debug)]
struct Entry<P> {
    packet: P,
    since: u64,
    /// Bytes on the line.
    line_len: u32,
    /// What it takes of the memory limit, bytes.
    truesize: u32,
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
            tin_count: 0,
            fair: fairness(spec.isolation),
            rate,
            shaper: Shaper::default(),
            autorate: Autorate::new(rate),
            tins: Vec::new(),
            current_tin: 0,
            busy: 0,
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
            counters: Counters::NONE,
            backlog: Backlog::default(),
            peeked: None,
            now: environment.now.0.min(END_OF_TIME),
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
        if self.layout.count() < MAX_TINS {
            self.current_tin = 0;
        }
    }

    /// What every discipline counts.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Everything `tc -s qdisc` shows.
    pub fn stats(&self) -> Stats {
        let least = |size: (u32, u32)| (size.0 != u32::MAX).then_some(size.0);
        Stats {
            sent_packets: self.counters.packets,
            sent_bytes: self.counters.bytes,
            drops: self.counters.dropped,
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
            let mut bytes = 0;
            for (_, entry) in self.store.iter(queue.packets) {
                sums.packets += 1;
                bytes += entry.packet.len();
                memory += u64::from(entry.truesize);
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
            assert_eq!(self.busy & 1 << number != 0, tin.has_flows(), "busy tins");
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
        self.tin_count = self.layout.count();
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
            let queue = &mut self.queues[usize::from(flow)];
            while let Some(entry) = self.store.pop_front(&mut queue.packets) {
                forget(
                    &entry,
                    queue,
                    &mut self.tins[tin],
                    &mut self.backlog,
                    &mut self.memory,
                );
                if self.overflow.is_live() {
                    self.overflow.shrank(flow, rank(queue));
                }
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
        let hashed = self.hashed(&packet);
        let tin = self.choose_tin(&packet, &hashed);
        if self.spec.wash {
            packet.clear_dscp();
        }
        let flow = self.choose_queue(tin, &hashed.hashes);
        self.wake(tin, now);

        let len = packet.len();
        let counters = &mut self.tins[tin].counters;
        counters.max_len = counters.max_len.max(len);
        let place = Place {
            tin,
            flow,
            offset: hashed.network_offset,
            connection: hashed.hashes.flow,
        };
        if self.spec.split_gso && packet.aggregate().is_some() {
            packet.split(|segment| self.append(place, segment, Summary::UNREAD, now));
        } else if self.spec.ack_filter == AckFilter::Off {
            self.append(place, packet, Summary::UNREAD, now);
        } else {
            self.append_filtered(place, packet, now, drops);
        }
        if self.overflow.is_live() {
            self.overflow.grew(flow, rank(&self.queues[usize::from(flow)]));
        }
        self.follow_arrivals(len, now);
        self.tins[tin].admit(&mut self.turns, flow, self.fair, &mut self.random);
        self.busy |= 1 << tin;

        self.memory.most = self.memory.most.max(self.memory.used);
        while self.memory.used > self.memory.limit {
            self.drop_fattest(now, drops);
        }
        self.debug_check();
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        if self.peeked.is_some() {
            return self.release();
        }
        let outcome = self.decide(now, drops);
        self.debug_check();
        outcome
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
                // It is queued until it is released, and counted as sent then.
                self.counters.packets -= 1;
                self.counters.bytes -= u64::from(len);
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

/// Where a packet belongs.
#[derive(Clone, Copy)]
struct Place {
    tin: usize,
    flow: FlowId,
    /// Where its network header begins.
    offset: u16,
    /// A hash of its connection.
    connection: u32,
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
    /// Time inside never runs backwards, and never so far that adding to it could overflow.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.0.min(END_OF_TIME));
        self.now
    }

    #[inline]
    fn choose_tin(&self, packet: &P, hashed: &Hashed) -> usize {
        if self.tin_count == 1 {
            return 0;
        }
        let layout = self.layout;
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
        usize::from(layout.tin_of(hashed.network, hashed.ds_field))
    }

    /// The packet's view with its hashes, which are those of the addresses before NAT where these are known.
    #[inline]
    fn hashed(&mut self, packet: &P) -> Hashed {
        let key = &self.environment.hash_key;
        match &mut self.nat {
            Some(resolve) if self.spec.nat => before_nat(packet, key, resolve),
            _ => packet.hashed(key),
        }
    }

    #[inline]
    fn choose_queue(&mut self, tin: usize, hashes: &Hashes) -> FlowId {
        let number = tin as u8;
        let tin = &mut self.tins[tin];
        let tables = tin.tables.get_or_insert_with(Tables::new);
        let hash = match self.spec.isolation {
            Isolation::Flowblind => None,
            Isolation::Srchost => Some(hashes.source),
            Isolation::Dsthost => Some(hashes.destination),
            Isolation::Hosts => Some(hashes.source ^ hashes.destination),
            Isolation::Flows | Isolation::DualSrchost | Isolation::DualDsthost | Isolation::TripleIsolate => {
                Some(hashes.flow)
            }
        };
        let Found { mut flow, queue, how } = match hash {
            Some(hash) => tables.queues.find(hash, &self.turns),
            None => tables.queues.only(),
        };
        if flow == NOBODY {
            flow = self.turns.len() as FlowId;
            tables.queues.settle(queue, flow);
            self.turns.push(Turn::IDLE);
            self.queues
                .push(Queue::new(queue, number, self.environment.profile));
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
            tables.assign(turn, hashes, self.fair);
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
    fn append(&mut self, place: Place, packet: P, ack: Summary, now: u64) {
        let len = packet.len();
        let framing = &self.spec.framing;
        let counted = framing.counted_len(len, place.offset);
        let line_len = match packet.aggregate() {
            Some(aggregate) => framing.aggregate_line_len(len, place.offset, aggregate),
            None => framing.line_len(counted),
        };
        self.sizes.note(counted, line_len, place.offset);
        let truesize = packet.truesize();
        self.memory.used += u64::from(truesize);
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(len);
        let tin = &mut self.tins[place.tin];
        tin.backlog += u64::from(len);
        tin.counters.packets += 1;
        tin.counters.bytes += u64::from(len);
        let queue = &mut self.queues[usize::from(place.flow)];
        queue.backlog += len;
        let entry = Entry {
            packet,
            since: now,
            line_len,
            truesize,
            ack,
        };
        self.store.push_back(&mut queue.packets, entry);
    }

    /// Appends a packet in place of one that it makes redundant. Apart, so that arrivals without a filter stay lean.
    #[inline(never)]
    fn append_filtered(&mut self, place: Place, packet: P, now: u64, drops: &mut dyn Drops<P>) {
        let fragments = self.environment.profile.ack_filter_fragments;
        let summary = Summary::of(&packet, place.connection, fragments);
        let queue = &mut self.queues[usize::from(place.flow)];
        let waiting = self
            .store
            .iter(queue.packets)
            .map(|(place, entry)| (place, &entry.packet, &entry.ack));
        let aggressive = self.spec.ack_filter == AckFilter::Aggressive;
        let redundant = ack_filter::redundant(waiting, (&packet, &summary), aggressive, fragments);
        if let Some(entry) = redundant.and_then(|place| self.store.remove_at(&mut queue.packets, place)) {
            let tin = &mut self.tins[place.tin];
            forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
            tin.counters.ack_drops += 1;
            self.counters.dropped += 1;
            if self.spec.ingress {
                self.charge_dropped(place.tin, entry.line_len, now);
            }
            drops.dropped(entry.packet, DropReason::Ack);
        }
        self.append(place, packet, summary, now);
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
        let number = usize::from(queue.tin);
        let tin = &mut self.tins[number];
        forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
        queue.drops += 1;
        tin.note(queue.cobalt.on_overflow(&tin.params, now));
        tin.counters.drops += 1;
        self.counters.dropped += 1;
        if self.spec.ingress {
            self.charge_dropped(number, entry.line_len, now);
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
            if self.shaper.is_ahead(now) {
                self.counters.overlimits += 1;
                return Dequeued::NotBefore(Instant(self.shaper.catches_up_at()));
            }
            let Some(tin) = self.next_tin(now) else {
                return Dequeued::Empty;
            };
            if let Some(packet) = self.serve(tin, now, &mut decaying_first, drops) {
                self.counters.sent(packet.len());
                return Dequeued::Packet(packet);
            }
        }
    }

    /// What was peeked at.
    #[cold]
    fn release(&mut self) -> Dequeued<P> {
        let Some(packet) = self.peeked.take() else {
            return Dequeued::Empty;
        };
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(packet.len());
        self.counters.sent(packet.len());
        self.debug_check();
        Dequeued::Packet(packet)
    }

    /// The tin that gives the next packet.
    #[inline]
    fn next_tin(&mut self, now: u64) -> Option<usize> {
        if !self.shaper.pace.is_unlimited() {
            self.current_tin = self.most_urgent_tin(now)?;
            return Some(self.current_tin);
        }
        let count = self.tin_count;
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
        if self.tin_count == 1 {
            return Some(0);
        }
        let mut best = None;
        let mut least_ahead = i64::MAX;
        let mut left = self.busy & (u8::MAX >> (MAX_TINS - self.tin_count));
        while left != 0 {
            let number = left.ilog2() as usize;
            left ^= 1 << number;
            let ahead = self.tins[number].clock.ahead(now);
            if ahead <= 0 {
                return Some(number);
            }
            if ahead < least_ahead {
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
        number: usize,
        now: u64,
        decaying_first: &mut bool,
        drops: &mut dyn Drops<P>,
    ) -> Option<P> {
        let ingress = self.spec.ingress;
        let tin = &mut self.tins[number];
        loop {
            let lists = &mut tin.tables.as_deref_mut()?.lists;
            let flow = lists.front(core::mem::take(decaying_first))?;
            let turn = &mut self.turns[usize::from(flow)];
            let queue = &mut self.queues[usize::from(flow)];
            if turn.deficit <= 0 {
                let round_by_round = self.environment.profile.round_by_round;
                let is_empty = queue.packets.is_empty();
                tin.refill(
                    &mut self.turns,
                    flow,
                    is_empty,
                    self.fair,
                    round_by_round,
                    &mut self.random,
                );
                continue;
            }
            loop {
                let Some(mut entry) = self.store.pop_front(&mut queue.packets) else {
                    tin.note(queue.cobalt.on_empty(&tin.params, now));
                    let rests = queue.cobalt.is_at_rest(now);
                    tin.retire(&mut self.turns, flow, rests, self.fair);
                    if !tin.has_flows() {
                        self.busy &= !(1 << number);
                    }
                    return None;
                };
                forget(&entry, queue, tin, &mut self.backlog, &mut self.memory);
                if self.overflow.is_live() {
                    self.overflow.shrank(flow, rank(queue));
                }
                let sojourn = now - entry.since;
                let bulk_flows = if ingress { u32::from(tin.bulk) } else { 0 };
                let mark = || entry.packet.set_ce();
                let verdict =
                    queue
                        .cobalt
                        .judge(&tin.params, now, sojourn, bulk_flows, mark, &mut self.random);
                if !verdict.drop || queue.packets.is_empty() {
                    tin.counters.marks += u64::from(verdict.marked);
                    tin.delivered(sojourn);
                    if !self.shaper.pace.is_unlimited() {
                        tin.clock.charge(entry.line_len, now);
                        self.shaper.sent(entry.line_len);
                    }
                    turn.deficit -= entry.line_len as i32;
                    tin.deficit -= i64::from(entry.line_len);
                    self.overflow.delivered();
                    return Some(entry.packet);
                }
                queue.drops += 1;
                tin.counters.drops += 1;
                self.counters.dropped += 1;
                drops.dropped(entry.packet, DropReason::Aqm);
                if ingress {
                    if !self.shaper.pace.is_unlimited() {
                        tin.clock.charge(entry.line_len, now);
                        self.shaper.dropped(entry.line_len);
                    }
                    turn.deficit -= entry.line_len as i32;
                    tin.deficit -= i64::from(entry.line_len);
                    break;
                }
            }
        }
    }

    /// A packet that had crossed the line was dropped.
    fn charge_dropped(&mut self, tin: usize, line_len: u32, now: u64) {
        if !self.shaper.pace.is_unlimited() {
            self.tins[tin].clock.charge(line_len, now);
            self.shaper.dropped(line_len);
        }
    }

    #[inline]
    fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }
}

#[inline(never)]
fn before_nat<P: Packet>(packet: &P, key: &HashKey, resolve: &mut NatResolver) -> Hashed {
    let mut view = packet.view();
    if let FlowKey::Tuple(tuple) = &mut view.key
        && let Some(before) = resolve(tuple)
    {
        *tuple = before;
    }
    view.hashed(key)
}

/// A packet is no longer queued.
#[inline]
fn forget<P: Packet>(
    entry: &Entry<P>,
    queue: &mut Queue,
    tin: &mut Tin,
    backlog: &mut Backlog,
    memory: &mut Memory,
) {
    let len = entry.packet.len();
    queue.backlog -= len;
    tin.backlog -= u64::from(len);
    backlog.packets -= 1;
    backlog.bytes -= u64::from(len);
    memory.used -= u64::from(entry.truesize);
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

#[cfg(test)]
mod tests;
