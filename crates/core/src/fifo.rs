//! First in, first out: `pfifo`, `bfifo` and `pfifo_head_drop` (Linux `sch_fifo`).
//!
//! A full `pfifo` (counted in packets) or `bfifo` (in bytes) drops the arriving packet; `pfifo_head_drop` drops its
//! oldest packet instead.

use alloc::collections::VecDeque;

use crate::narrow::fits_u32;
use crate::packet::Packet;
use crate::qdisc::{Backlog, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::spec;
use crate::units::Instant;

/// A plain queue.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    limit: Limit,
    queue: VecDeque<P>,
    bytes: u64,
    counters: Counters,
}

/// When a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At this many packets.
    Packets(u32),
    /// When a packet more would exceed this many bytes.
    Bytes(u32),
    /// At this many packets, and then the oldest goes.
    PacketsHeadDrop(u32),
}

impl Limit {
    /// `pfifo`'s.
    pub fn packets(spec: spec::fifo::Fifo, environment: &Environment) -> Self {
        Self::Packets(spec.limit.unwrap_or(environment.tx_queue_len))
    }

    /// `bfifo`'s.
    pub fn bytes(spec: spec::fifo::Fifo, environment: &Environment) -> Self {
        let device = || environment.tx_queue_len.saturating_mul(environment.mtu);
        Self::Bytes(spec.limit.unwrap_or_else(device))
    }

    /// `pfifo_head_drop`'s.
    pub fn packets_head_drop(spec: spec::fifo::Fifo, environment: &Environment) -> Self {
        Self::PacketsHeadDrop(spec.limit.unwrap_or(environment.tx_queue_len))
    }

    /// The limit of the queue that `tbf` creates inside itself.
    pub fn of_tbf(spec: &spec::tbf::Tbf) -> Self {
        Self::Bytes(u32::try_from(spec.limit.0).unwrap_or(u32::MAX))
    }
}

impl<P> Fifo<P> {
    /// An empty queue.
    pub const fn new(limit: Limit) -> Self {
        Self {
            limit,
            queue: VecDeque::new(),
            bytes: 0,
            counters: Counters::NONE,
        }
    }

    /// When it is full.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Another limit for what comes from now on; what waits stays.
    pub const fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Its own counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<P: Packet> Qdisc<P> for Fifo<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, _: Instant, drops: &mut dyn Drops<P>) {
        let length = u64::from(packet.len());
        let has_room = match self.limit {
            Limit::Packets(limit) | Limit::PacketsHeadDrop(limit) => self.queue.len() < limit as usize,
            Limit::Bytes(limit) => self.bytes + length <= u64::from(limit),
        };
        if !has_room {
            self.counters.dropped += 1;
            let oldest = match self.limit {
                Limit::PacketsHeadDrop(_) => self.queue.pop_front(),
                Limit::Packets(_) | Limit::Bytes(_) => None,
            };
            let Some(oldest) = oldest else {
                return drops.dropped(packet, DropReason::Tail);
            };
            self.bytes -= u64::from(oldest.len());
            drops.dropped(oldest, DropReason::Overflow);
        }
        self.bytes += length;
        self.queue.push_back(packet);
    }

    #[inline]
    fn dequeue(&mut self, _: Instant, _: &mut dyn Drops<P>) -> Dequeued<P> {
        let Some(packet) = self.queue.pop_front() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.counters.sent(packet.len());
        Dequeued::Packet(packet)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: fits_u32(self.queue.len() as u64),
            bytes: self.bytes,
        }
    }
}

impl<P: Packet> Peek<P> for Fifo<P> {
    #[inline]
    fn peek(&mut self, _: Instant, _: &mut dyn Drops<P>) -> Dequeued<u32> {
        match self.queue.front() {
            Some(packet) => Dequeued::Packet(packet.len()),
            None => Dequeued::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::test_packet::{TestPacket, drain, ethernet};

    fn fill(limit: Limit) -> (Vec<u32>, Vec<(u32, DropReason)>) {
        let mut fifo = Fifo::new(limit);
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        for (id, len) in [(1, 100), (2, 200), (3, 300), (4, 50)] {
            fifo.enqueue(TestPacket::new(id, len), Instant(0), &mut drops);
        }
        let sent = drain(&mut fifo, Instant(0), &mut ());
        let dropped: Vec<_> = drops
            .iter()
            .map(|(packet, reason)| (packet.id, *reason))
            .collect();
        assert_eq!(fifo.counters().dropped, dropped.len() as u64);
        assert_eq!(fifo.backlog(), Backlog::default());
        (sent, dropped)
    }

    #[test]
    fn a_full_queue_refuses_a_packet_or_drops_its_oldest() {
        use DropReason::{Overflow, Tail};
        assert_eq!(
            fill(Limit::Packets(2)),
            (vec(&[1, 2]), [(3, Tail), (4, Tail)].into())
        );
        assert_eq!(fill(Limit::Bytes(350)), (vec(&[1, 2, 4]), [(3, Tail)].into()));
        let head = Limit::PacketsHeadDrop;
        assert_eq!(
            fill(head(2)),
            (vec(&[3, 4]), [(1, Overflow), (2, Overflow)].into())
        );
        assert_eq!(fill(head(0)).0, []);
        assert_eq!(fill(head(0)).1[0], (1, Tail));
    }

    fn vec(ids: &[u32]) -> Vec<u32> {
        ids.into()
    }

    #[test]
    fn limits_come_from_the_device_unless_given() {
        let environment = ethernet(crate::profile::Profile::FIXED);
        let none = spec::fifo::Fifo { limit: None };
        assert_eq!(Limit::packets(none, &environment), Limit::Packets(1000));
        assert_eq!(Limit::bytes(none, &environment), Limit::Bytes(1_514_000));
        let some = spec::fifo::Fifo { limit: Some(7) };
        assert_eq!(
            Limit::packets_head_drop(some, &environment),
            Limit::PacketsHeadDrop(7)
        );
    }
}
