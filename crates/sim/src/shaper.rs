//! The shaper whose rate a controller sets: `sqm_core`'s fq_codel at a variable rate.
//!
//! All traffic passes its queues, including sparse traffic (ACKs, probes, games), which leaves first.

use sqm_core::flow_hash::HashKey;
use sqm_core::fq_codel::FqCodel;
use sqm_core::packet::Packet;
use sqm_core::qdisc::{Dequeued, Drops, Environment, Qdisc};
use sqm_core::spec;
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// The shaper of one direction.
#[derive(Debug)]
pub struct Shaper<P> {
    rate: Rate,
    queue: FqCodel<P>,
    /// When the last packet will have been sent.
    free_at: Instant,
    sent: Bytes,
}

impl<P: Packet> Shaper<P> {
    /// An empty shaper. Its CoDel has this interval and a twentieth of it as target, as with CAKE's `rtt`. It drops packets and does not
    /// mark them, because most flows on the internet do not use ECN.
    pub fn new(rate: Rate, interval: Nanos, now: Instant) -> Self {
        let spec = spec::fq_codel::FqCodel {
            ecn: false,
            interval,
            target: Nanos(interval.0 / 20),
            ..Default::default()
        };
        Self {
            rate,
            queue: FqCodel::new(&spec, &Environment::ethernet(now, HashKey(0, 0))),
            free_at: now,
            sent: Bytes(0),
        }
    }

    /// Changes the rate, from the next packet on.
    pub const fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Bytes sent so far.
    pub const fn sent(&self) -> Bytes {
        self.sent
    }

    /// Adds a packet.
    pub fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        self.queue.enqueue(packet, now, drops);
    }

    /// When to call [`dequeue`](Self::dequeue) next; `None` while the shaper is empty.
    pub fn ready_at(&self, now: Instant) -> Option<Instant> {
        (self.queue.backlog().packets > 0).then(|| self.free_at.max(now))
    }

    /// Sends the next packet, if the last one has been sent.
    pub fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Option<P> {
        if self.free_at > now {
            return None;
        }
        let Dequeued::Packet(packet) = self.queue.dequeue(now, drops) else {
            return None;
        };
        let size = Bytes(packet.len().into());
        self.free_at = now + self.takes(size);
        self.sent.0 += size.0;
        Some(packet)
    }

    /// How long sparse traffic waits: until the present packet has been sent.
    pub fn sparse_delay(&self, now: Instant) -> Nanos {
        self.free_at.since(now)
    }

    fn takes(&self, size: Bytes) -> Nanos {
        let bits = u128::from(size.0) * 8 * 1_000_000_000;
        let nanos = bits.div_ceil(u128::from(self.rate.bits_per_sec().max(1)));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqm_core::packet::{FlowKey, Hashes, Network, Tcp, View};

    const START: Instant = Instant(1_000_000_000);

    /// Flow and number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Full(u32, u32);

    impl Packet for Full {
        fn len(&self) -> u32 {
            1500
        }

        fn view(&self) -> View {
            View {
                network_offset: 14,
                network: Network::Ipv4,
                ds_field: 0,
                key: FlowKey::Hashes(Hashes {
                    flow: self.0 << 22 | 1,
                    source: 1,
                    destination: 1,
                }),
            }
        }

        fn set_ce(&mut self) -> bool {
            false
        }

        fn clear_dscp(&mut self) {}

        fn tcp(&self) -> Option<Tcp<'_>> {
            None
        }
    }

    #[test]
    fn flows_share_the_rate_in_turns() {
        let mut shaper = Shaper::new(Rate::from_kbits_per_sec(12_000), Nanos::from_millis(100), START);
        for packet in [Full(0, 0), Full(0, 1), Full(0, 2), Full(1, 0)] {
            shaper.enqueue(packet, START, &mut ());
        }
        let mut now = START;
        let mut sent = Vec::new();
        while let Some(ready) = shaper.ready_at(now) {
            now = ready;
            sent.extend(shaper.dequeue(now, &mut ()));
        }
        // The quantum is 1514 bytes, so that a second packet is sent in the first turn.
        assert_eq!(sent, [Full(0, 0), Full(0, 1), Full(1, 0), Full(0, 2)]);
        assert_eq!(now, START + Nanos::from_millis(3));
        assert_eq!(shaper.sparse_delay(now), Nanos::from_millis(1));
        assert_eq!(shaper.sent(), Bytes(6000));
    }

    #[test]
    fn a_new_rate_applies_from_the_next_packet_on() {
        let mut shaper = Shaper::new(Rate::from_kbits_per_sec(12_000), Nanos::from_millis(100), START);
        shaper.enqueue(Full(0, 0), START, &mut ());
        shaper.enqueue(Full(0, 1), START, &mut ());
        shaper.dequeue(START, &mut ());
        shaper.set_rate(Rate::from_kbits_per_sec(6000));
        let ready = START + Nanos::from_millis(1);
        assert_eq!(shaper.ready_at(START), Some(ready));
        shaper.dequeue(ready, &mut ());
        assert_eq!(shaper.sparse_delay(ready), Nanos::from_millis(2));
    }
}
