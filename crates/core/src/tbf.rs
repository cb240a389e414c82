//! TBF, the token bucket filter: a shaper without classes (Linux `sch_tbf`).
//!
//! Tokens are time. A packet costs the time it takes at `rate`; the bucket holds what a `burst` takes. With a peak rate
//! there is a second bucket, of `mtu` at that rate, and a packet pays from both.
//!
//! The discipline below is asked for its next packet before there are tokens for it: an AQM there judges the packet
//! then, and it waits outside the AQM's reach.

use core::marker::PhantomData;

use crate::packet::Packet;
use crate::qdisc::{Backlog, Counted, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::rate_cost::RateCost;
use crate::spec;
use crate::units::{Instant, Nanos};

/// One token bucket filter over a queue `Q`.
#[derive(Clone, Debug)]
pub struct Tbf<P, Q> {
    rate: Bucket,
    peak: Option<Bucket>,
    /// Longest packet that the buckets can ever pay, bytes.
    max_size: u32,
    state: State,
    child: Q,
    counters: Counters,
    packets: PhantomData<P>,
}

/// Which tokens a packet pays.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    cost: RateCost,
    /// Most it holds.
    depth: i64,
}

/// Tokens in nanoseconds, as they were at `checked`.
#[derive(Clone, Copy, Debug)]
struct State {
    tokens: i64,
    peak_tokens: i64,
    checked: Instant,
}

/// Values computed from a specification.
struct Buckets {
    rate: Bucket,
    peak: Option<Bucket>,
    max_size: u32,
}

impl Buckets {
    fn new(spec: &spec::tbf::Tbf) -> Self {
        let bucket = |rate, burst: u32| {
            let cost = RateCost::new(rate, spec.framing);
            let depth = cost.of(burst).0.cast_signed();
            Bucket { cost, depth }
        };
        let bytes = |size: crate::units::Bytes| u32::try_from(size.0).unwrap_or(u32::MAX);
        let burst = bytes(spec.burst);
        Self {
            rate: bucket(spec.rate, burst),
            peak: spec.peak.map(|peak| bucket(peak.rate, bytes(peak.mtu))),
            max_size: spec.peak.map_or(burst, |peak| burst.min(bytes(peak.mtu))),
        }
    }
}

impl State {
    fn full(rate: &Bucket, peak: Option<&Bucket>, checked: Instant) -> Self {
        Self {
            tokens: rate.depth,
            peak_tokens: peak.map_or(0, |peak| peak.depth),
            checked,
        }
    }
}

/// State of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Tokens when the last packet had been paid.
    pub tokens: Nanos,
    /// Tokens of the peak rate at that time; 0 if there is none.
    pub peak_tokens: Nanos,
    /// Longest packet that passes, bytes.
    pub max_size: u32,
}

impl<P: Packet, Q: Peek<P>> Tbf<P, Q> {
    /// Full buckets over `child`.
    pub fn new(spec: &spec::tbf::Tbf, child: Q, environment: &Environment) -> Self {
        let Buckets { rate, peak, max_size } = Buckets::new(spec);
        Self {
            rate,
            peak,
            max_size,
            state: State::full(&rate, peak.as_ref(), environment.now),
            child,
            counters: Counters::NONE,
            packets: PhantomData,
        }
    }

    /// Replaces the parameters. The buckets are full then, and what waits stays.
    pub fn reconfigure(&mut self, spec: &spec::tbf::Tbf) {
        let Buckets { rate, peak, max_size } = Buckets::new(spec);
        self.state = State::full(&rate, peak.as_ref(), self.state.checked);
        (self.rate, self.peak, self.max_size) = (rate, peak, max_size);
    }

    /// Its state.
    pub const fn stats(&self) -> Stats {
        Stats {
            tokens: Nanos(self.state.tokens.cast_unsigned()),
            peak_tokens: Nanos(self.state.peak_tokens.cast_unsigned()),
            max_size: self.max_size,
        }
    }

    /// The counters that every discipline has; drops of the queue below included.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The queue below.
    pub const fn child(&self) -> &Q {
        &self.child
    }

    /// The queue below, to be changed.
    pub const fn child_mut(&mut self) -> &mut Q {
        &mut self.child
    }

    /// The state after a packet of `length` bytes has been paid, with a minus where the tokens do not suffice.
    fn after(&self, length: u32, now: Instant) -> State {
        let cost = |bucket: &Bucket| bucket.cost.of(length).0.cast_signed();
        let passed = now
            .since(self.state.checked)
            .0
            .min(self.rate.depth.cast_unsigned())
            .cast_signed();
        let tokens = (passed + self.state.tokens).min(self.rate.depth) - cost(&self.rate);
        let peak_tokens = self.peak.as_ref().map_or(0, |peak| {
            (passed + self.state.peak_tokens).min(peak.depth) - cost(peak)
        });
        State {
            tokens,
            peak_tokens,
            checked: now.max(self.state.checked),
        }
    }

    fn admit(&mut self, packet: P, now: Instant, drops: &mut Counted<'_, P>) {
        if packet.len() > self.max_size {
            drops.dropped(packet, DropReason::Oversize);
        } else {
            self.child.enqueue(packet, now, drops);
        }
    }

    fn check_invariants(&self) {
        let State {
            tokens, peak_tokens, ..
        } = self.state;
        debug_assert!((0..=self.rate.depth).contains(&tokens), "{tokens}");
        debug_assert!((0..=self.peak.map_or(0, |peak| peak.depth)).contains(&peak_tokens));
    }
}

impl<P: Packet, Q: Peek<P>> Qdisc<P> for Tbf<P, Q> {
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        let mut drops = Counted::new(drops);
        if packet.len() > self.max_size && packet.aggregate().is_some() {
            packet.split(|segment| self.admit(segment, now, &mut drops));
        } else {
            self.admit(packet, now, &mut drops);
        }
        self.counters.dropped += drops.count();
    }

    fn dequeue(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<P> {
        let mut drops = Counted::new(drops);
        let next = loop {
            match self.child.peek(now, &mut drops) {
                // It came when the buckets were larger.
                Dequeued::Packet(length) if length > self.max_size => {
                    if let Dequeued::Packet(packet) = self.child.dequeue(now, &mut drops) {
                        drops.dropped(packet, DropReason::Oversize);
                    }
                }
                next => break next,
            }
        };
        self.counters.dropped += drops.count();
        let length = match next {
            Dequeued::Packet(length) => length,
            Dequeued::NotBefore(time) => return Dequeued::NotBefore(time),
            Dequeued::Empty => return Dequeued::Empty,
        };
        let state = self.after(length, now);
        let missing = (-state.tokens).max(-state.peak_tokens);
        if missing > 0 {
            self.counters.overlimits += 1;
            return Dequeued::NotBefore(now.max(self.state.checked) + Nanos(missing.cast_unsigned()));
        }
        self.state = state;
        self.check_invariants();
        self.counters.sent(length);
        self.child.dequeue(now, &mut drops)
    }

    fn backlog(&self) -> Backlog {
        self.child.backlog()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::fifo::{Fifo, Limit};
    use crate::profile::Profile;
    use crate::test_packet::{TestPacket, at_micros, departures, ethernet};

    fn filter(words: &str) -> Tbf<TestPacket, Fifo<TestPacket>> {
        let spec = spec::tbf::Tbf::parse(words).unwrap();
        Tbf::new(
            &spec,
            Fifo::new(Limit::Bytes(spec.limit.0 as u32)),
            &ethernet(Profile::KERNEL),
        )
    }

    fn times(words: &str) -> Vec<u64> {
        let mut filter = filter(words);
        for id in 0..8 {
            filter.enqueue(TestPacket::new(id, 1000), at_micros(0), &mut ());
        }
        let departures = departures(&mut filter, 8);
        departures.into_iter().map(|(_, micros)| micros / 1000).collect()
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let words = "rate 1mbit burst 5000 limit 100000";
        assert_eq!(times(words), [0, 0, 0, 0, 0, 8, 16, 24]);
    }

    #[test]
    fn a_peak_rate_spreads_the_burst() {
        let words = "rate 1mbit burst 5000 peakrate 2mbit mtu 1500 limit 100000";
        assert_eq!(times(words), [0, 2, 6, 10, 14, 18, 22, 26]);
        assert_eq!(filter(words).stats().max_size, 1500);
    }

    #[test]
    fn a_packet_larger_than_the_bucket_is_dropped() {
        let mut filter = filter("rate 1mbit burst 1000 limit 1500");
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        for (id, len) in [(1, 1001), (2, 1000), (3, 600)] {
            filter.enqueue(TestPacket::new(id, len), at_micros(0), &mut drops);
        }
        let drops: Vec<_> = drops
            .iter()
            .map(|(packet, reason)| (packet.id, *reason))
            .collect();
        assert_eq!(drops, [(1, DropReason::Oversize), (3, DropReason::Tail)]);
        assert_eq!(filter.counters().dropped, 2);
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_tokens() {
        let mut filter = filter("rate 1mbit burst 1000 limit 9000");
        for id in 0..2 {
            filter.enqueue(TestPacket::new(id, 1000), at_micros(0), &mut ());
        }
        assert!(matches!(
            filter.dequeue(at_micros(0), &mut ()),
            Dequeued::Packet(_)
        ));
        let back = Instant(at_micros(0).0 - 1_000_000_000);
        assert_eq!(
            filter.dequeue(back, &mut ()),
            Dequeued::NotBefore(at_micros(8000))
        );
    }
}
