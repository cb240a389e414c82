//! A queue that can be peeked at, made of one that cannot: what it would send is taken out and kept.

use crate::packet::Packet;
use crate::qdisc::{Backlog, Dequeued, Drops, Peek, Qdisc};
use crate::units::Instant;

/// A queue and the packet that was peeked at, which counts as queued.
#[derive(Debug)]
pub struct Peekable<P, Q> {
    queue: Q,
    peeked: Option<P>,
}

impl<P: Packet, Q: Qdisc<P>> Peekable<P, Q> {
    /// Nothing peeked at yet.
    pub const fn new(queue: Q) -> Self {
        Self { queue, peeked: None }
    }

    /// The queue itself.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// The queue itself, to be changed.
    pub const fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Peekable<P, Q> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        self.queue.enqueue(packet, now, drops);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        match self.peeked.take() {
            Some(packet) => Dequeued::Packet(packet),
            None => self.queue.dequeue(now, drops),
        }
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        let backlog = self.queue.backlog();
        match &self.peeked {
            Some(packet) => Backlog {
                packets: backlog.packets + 1,
                bytes: backlog.bytes + u64::from(packet.len()),
            },
            None => backlog,
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Peek<P> for Peekable<P, Q> {
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        if self.peeked.is_none() {
            match self.queue.dequeue(now, drops) {
                Dequeued::Packet(packet) => self.peeked = Some(packet),
                Dequeued::NotBefore(time) => return Dequeued::NotBefore(time),
                Dequeued::Empty => return Dequeued::Empty,
            }
        }
        match &self.peeked {
            Some(packet) => Dequeued::Packet(packet.len()),
            None => Dequeued::Empty,
        }
    }
}
