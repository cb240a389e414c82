//! CAKE: a shaper, priorities, fairness between hosts and flows, and an AQM in one queue (Høiland-Jørgensen, Täht and
//! Morton 2018, "Piece of CAKE"; `tc-cake`(8)).
//!
//! A packet's way: its DSCP or mark chooses a tin ([`diffserv`](crate::diffserv)), its addresses and ports a queue of
//! that tin and the hosts it is counted at (`tables`). When the shaper lets a packet go ([`shaper`](crate::shaper)), the
//! most urgent tin gives one from the flow whose turn it is (`turns`), if COBALT does not drop it
//! ([`cobalt`](crate::cobalt)). The way in is in `arrival`, the way out in `departure`.
//!
//! With [`Profile::KERNEL`](crate::profile::Profile::KERNEL) every decision is that of Linux 6.12.

mod arrival;
mod autorate;
mod departure;
mod flow_lists;
mod invariants;
mod overflow;
mod stats;
mod tables;
mod tin;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::ack_filter::Summary;
use crate::cobalt::Cobalt;
use crate::diffserv::{Layout, MAX_TINS};
use crate::narrow::low_u64;
use crate::packet::{Packet, Tuple};
use crate::packet_list::{List, Store};
use crate::profile::Profile;
use crate::qdisc::{Backlog, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::rng::Random;
use crate::shaper::{Pace, Shaper};
use crate::spec::ParseError;
use crate::spec::cake::{AckFilter, Cake as Spec, Isolation};
use crate::units::{Instant, Rate};

pub use stats::{QueueStats, Stats, TinStats};

use arrival::Place;
use autorate::Autorate;
use flow_lists::{FlowId, FlowSched, NO_FLOW};
use overflow::{Overflow, Rank};
use tin::{Fairness, Tin};

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
    scheds: Vec<FlowSched>,
    queues: Vec<Queue>,
    store: Store<Entry<P>>,
    overflow: Overflow,
    memory: Memory,
    sizes: Sizes,
    counters: Counters,
    backlog: Backlog,
    /// The packet that [`Peek::peek`] chose. It counts as queued.
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
    /// Its share of the memory limit, bytes.
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
            scheds: Vec::new(),
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

    /// Sets the function that looks up the addresses before NAT, which the keyword `nat` needs. Without one the addresses of the
    /// packet count.
    pub fn resolve_nat(&mut self, resolver: Option<NatResolver>) {
        self.nat = resolver;
    }

    /// The parameters in force. With `autorate-ingress` the bandwidth is the estimated one.
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

    /// The counters that every discipline has.
    pub const fn counters(&self) -> &Counters {
        &self.counters
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
                let product = low_u64(u128::from(rate) * u128::from(rtt) / 250_000);
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
            .filter(|flow| *flow != NO_FLOW)
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

    /// Time inside never runs backwards, and never so far that adding to it could overflow.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.0.min(END_OF_TIME));
        self.now
    }

    /// A packet that had crossed the line was dropped.
    fn charge_dropped(&mut self, tin: usize, line_len: u32, now: u64) {
        if !self.shaper.pace.is_unlimited() {
            self.tins[tin].clock.charge(line_len, now);
            self.shaper.dropped(line_len);
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
        self.tins[tin].admit(&mut self.scheds, flow, self.fair, &mut self.random);
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

impl<P, R> fmt::Debug for Cake<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cake")
            .field("spec", &self.spec)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
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

#[cfg(test)]
mod tests;
