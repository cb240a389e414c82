//! The contract between a queueing discipline and its caller.
//!
//! * Time is an argument. Every decision in one call uses the same `now`; later calls may bring the same value again.
//! * A queue owns its packets. Each comes back once: sent by [`dequeue`](Qdisc::dequeue), or dropped into the
//!   [`Drops`] of the call that decided so. The victim of an enqueue may be another packet than the one offered.
//! * After [`Dequeued::NotBefore`] the caller comes back at that time, or earlier after an enqueue. Coming too early is
//!   harmless.

use alloc::vec::Vec;

use crate::flow_hash::HashKey;
use crate::packet::Packet;
use crate::profile::Profile;
use crate::units::Instant;

/// The facts about its surroundings that a queue needs besides its specification.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// The device's MTU with its link header: 1514 on Ethernet, 1500 on a tunnel without one. Bytes.
    pub mtu: u32,
    /// The device's `txqueuelen`, packets; 1000 on Ethernet.
    pub tx_queue_len: u32,
    /// The queue's own number, the major part of its handle: a packet whose priority names it chooses its class. 0: none
    /// can.
    pub handle: u16,
    /// When the queue is created.
    pub now: Instant,
    /// Which of the kernel's defects it has.
    pub profile: Profile,
    /// The secret of its flow hash.
    pub hash_key: HashKey,
}

impl Environment {
    /// An Ethernet device at `now`, defects repaired.
    pub const fn ethernet(now: Instant, hash_key: HashKey) -> Self {
        Self {
            mtu: 1514,
            tx_queue_len: 1000,
            handle: 0,
            now,
            profile: Profile::FIXED,
            hash_key,
        }
    }
}

/// A whole queueing discipline.
pub trait Qdisc<P: Packet> {
    /// Takes a packet in. Packets that are dropped to make room go to `drops`.
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>);

    /// Asks for the next packet to send.
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P>;

    /// Packets and bytes in the queue.
    fn backlog(&self) -> Backlog;
}

/// A queue that can say what it would send. A shaper above it needs that, because a packet costs tokens by its length.
pub trait Peek<P: Packet>: Qdisc<P> {
    /// Decides which packet leaves next, and answers with its length: the next [`dequeue`](Qdisc::dequeue) gives that
    /// very packet, whenever it comes. An AQM judges the packet now, not then.
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32>;
}

/// The counters that every discipline has (`tc -s qdisc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub packets: u64,
    /// Their bytes, as the discipline counts them.
    pub bytes: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Times that a limit was met: a shaper made a packet wait, a queue was full.
    pub overlimits: u64,
}

impl Counters {
    /// Nothing yet.
    pub const NONE: Self = Self {
        packets: 0,
        bytes: 0,
        dropped: 0,
        overlimits: 0,
    };

    /// A packet of `length` bytes was sent.
    #[inline]
    pub(crate) const fn sent(&mut self, length: u32) {
        self.packets += 1;
        self.bytes += length as u64;
    }
}

/// The answer to "what may be sent now?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued<P> {
    /// This packet.
    Packet(P),
    /// Something is queued, and nothing may leave before this time, which is later than now.
    NotBefore(Instant),
    /// Nothing is queued.
    Empty,
}

/// Packets and bytes in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: u32,
    /// Their bytes, as the discipline counts them.
    pub bytes: u64,
}

/// Receives what a queue drops.
pub trait Drops<P> {
    /// Takes `packet` back.
    fn dropped(&mut self, packet: P, reason: DropReason);
}

/// Lets dropped packets go.
impl<P> Drops<P> for () {
    fn dropped(&mut self, _: P, _: DropReason) {}
}

impl<P> Drops<P> for Vec<(P, DropReason)> {
    fn dropped(&mut self, packet: P, reason: DropReason) {
        self.push((packet, reason));
    }
}

/// Counts what passes through it on its way to the caller's.
pub(crate) struct Counted<'a, P> {
    drops: &'a mut dyn Drops<P>,
    count: u64,
}

impl<'a, P> Counted<'a, P> {
    pub(crate) fn new(drops: &'a mut dyn Drops<P>) -> Self {
        Self { drops, count: 0 }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

impl<P> Drops<P> for Counted<'_, P> {
    fn dropped(&mut self, packet: P, reason: DropReason) {
        self.count += 1;
        self.drops.dropped(packet, reason);
    }
}

/// Why a packet was dropped. The names are those of the trace files and of JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// CoDel, COBALT or BLUE: it waited too long.
    Aqm,
    /// The queue's memory or packet limit, and it was the victim.
    Overflow,
    /// A later acknowledgement says all that it said.
    Ack,
    /// The queue it should have joined was full.
    Tail,
    /// Longer than the token bucket ever holds.
    Oversize,
    /// No class takes it.
    Unclassified,
    /// Its queue went away in a reconfiguration.
    Reconfigure,
}

impl DropReason {
    /// The name in files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aqm => "aqm",
            Self::Overflow => "overflow",
            Self::Ack => "ack",
            Self::Tail => "tail",
            Self::Oversize => "oversize",
            Self::Unclassified => "unclassified",
            Self::Reconfigure => "reconfigure",
        }
    }
}
