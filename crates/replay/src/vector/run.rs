//! Plays a scenario: changes, arrivals and polls in the order that the format defines.

use anyhow::Context;
use sqm_core::handle::Handle;
use sqm_core::qdisc::{Dequeued, DropReason, Drops};
use sqm_core::units::Instant;

use super::file::{Polling, Vector};
use super::packet::VectorPacket;
use super::subject::Subject;
use crate::error::Error;

/// One packet that left the queue.
pub struct Deed {
    /// The time at which the packet left, nanoseconds on the scenario's clock.
    pub t_ns: u64,
    /// The packet's number in the scenario.
    pub id: u64,
    /// The packet's DS field when it left.
    pub(super) ds_field: u8,
    /// How the packet left.
    pub what: What,
}

/// How a packet left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The device took it.
    Sent,
    /// The queue dropped it.
    Dropped(DropReason),
}

impl Deed {
    /// True if the packet has Congestion Experienced.
    pub fn ce(&self) -> u8 {
        u8::from(self.ds_field & 0b11 == 0b11)
    }
}

/// Plays `vector`. Returns the packets that left, and the rules of the qdisc interface that the queue broke.
pub(super) fn run(vector: &Vector, subject: &mut Subject) -> Result<(Vec<Deed>, Vec<String>), Error> {
    let mut play = Play {
        vector,
        subject,
        deeds: Vec::new(),
        complaints: Vec::new(),
        timer: None,
        link_busy: false,
    };
    if let Polling::Tick { first_ns, .. } = vector.dequeue {
        play.timer = Some(Instant(first_ns));
    }
    play.run()?;
    Ok((play.deeds, play.complaints))
}

struct Play<'a> {
    vector: &'a Vector,
    subject: &'a mut Subject,
    deeds: Vec<Deed>,
    complaints: Vec<String>,
    /// The wake-up that the queue asked for, the end of a transmission, or the next tick.
    timer: Option<Instant>,
    link_busy: bool,
}

/// The next event. Events at the same time happen in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Change,
    Arrival,
    Timer,
}

impl Play<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let vector = self.vector;
        let (mut changes, mut packets) = (vector.events.iter().peekable(), vector.packets.iter().peekable());
        loop {
            let change = changes.peek().map(|change| (change.t_ns, Next::Change));
            let arrival = packets.peek().map(|packet| (packet.t_ns, Next::Arrival));
            let timer = self.timer.map(|t| (t.0, Next::Timer));
            let Some((t_ns, next)) = [change, arrival, timer].into_iter().flatten().min() else {
                return Ok(());
            };
            if t_ns > vector.end_ns {
                return Ok(());
            }
            let now = Instant(t_ns);
            match next {
                Next::Change => {
                    let words = changes.next().map_or("", |change| &change.change);
                    let mut drops = Vec::new();
                    self.subject.change(words, now, &mut drops)?;
                    self.dropped(now, drops);
                }
                Next::Arrival => {
                    let Some(packet) = packets.next() else { continue };
                    let class = packet.class.as_deref().map(|class| {
                        Handle::parse(class)
                            .with_context(|| format!("packet {}: '{class}' is not a class", packet.id))
                            .map_err(Error::Input)
                    });
                    let packet = VectorPacket::new(packet, class.transpose()?, vector.truesize);
                    let mut drops = Vec::new();
                    self.subject.enqueue(packet, now, &mut drops);
                    self.dropped(now, drops);
                    self.after_arrival(now);
                }
                Next::Timer => {
                    self.timer = None;
                    let more = changes.peek().is_some() || packets.peek().is_some();
                    self.after_timer(now, more);
                }
            }
        }
    }

    fn after_arrival(&mut self, now: Instant) {
        match self.vector.dequeue {
            Polling::Drain => self.drain(now),
            Polling::Link { bits_per_sec } if !self.link_busy => self.send_one(now, bits_per_sec),
            Polling::Link { .. } | Polling::Tick { .. } => {}
        }
    }

    fn after_timer(&mut self, now: Instant, more_to_come: bool) {
        match self.vector.dequeue {
            Polling::Drain => self.drain(now),
            Polling::Link { bits_per_sec } => {
                self.link_busy = false;
                self.send_one(now, bits_per_sec);
            }
            Polling::Tick { period_ns, .. } => {
                self.drain(now);
                let empty = self.timer.is_none();
                let next = now.0.checked_add(period_ns).map(Instant);
                self.timer = if empty && !more_to_come { None } else { next };
            }
        }
    }

    /// Polls until the queue has no packet to send; the timer is then the queue's wake-up.
    fn drain(&mut self, now: Instant) {
        while self.poll(now).is_some() {}
    }

    fn send_one(&mut self, now: Instant, bits_per_sec: u64) {
        if let Some(length) = self.poll(now) {
            let nanos = u128::from(length) * 8 * 1_000_000_000 / u128::from(bits_per_sec);
            self.link_busy = true;
            self.timer = u64::try_from(nanos)
                .ok()
                .and_then(|nanos| now.0.checked_add(nanos))
                .map(Instant);
        }
    }

    /// Dequeues once. Returns the length of the packet, or sets the timer and returns `None`.
    fn poll(&mut self, now: Instant) -> Option<u32> {
        use sqm_core::packet::Packet as _;

        let mut drops = Vec::new();
        let outcome = self.subject.dequeue(now, &mut drops as &mut dyn Drops<_>);
        self.dropped(now, drops);
        self.timer = None;
        match outcome {
            Dequeued::Packet(packet) => {
                self.did(now, &packet, What::Sent);
                Some(packet.len())
            }
            Dequeued::NotBefore(later) => {
                if later > now {
                    self.timer = Some(later);
                } else {
                    let (now, later) = (now.0, later.0);
                    self.complaints.push(format!(
                        "at {now} the queue asked for a wake-up at {later}, which is not later"
                    ));
                }
                None
            }
            Dequeued::Empty => None,
        }
    }

    fn dropped(&mut self, now: Instant, drops: Vec<(VectorPacket, DropReason)>) {
        for (packet, reason) in drops {
            self.did(now, &packet, What::Dropped(reason));
        }
    }

    fn did(&mut self, now: Instant, packet: &VectorPacket, what: What) {
        self.deeds.push(Deed {
            t_ns: now.0,
            id: packet.id,
            ds_field: packet.ds_field(),
            what,
        });
    }
}
