//! CoDel, Controlled Delay (Nichols and Jacobson, RFC 8289), with the arithmetic of Linux (`codel_impl.h`).
//!
//! CoDel looks at how long each packet waited. If that never falls below `target` for an `interval`, it drops (or marks)
//! one packet, the next one `interval/√2` later, then `interval/√3`, until the delay is below target.
//!
//! [`State`] decides for one queue, [`fq_codel`](crate::fq_codel) has one for each flow; [`Codel`] is the discipline with
//! a single queue.
//!
//! Where Linux differs from RFC 8289, and we follow Linux:
//!
//! * a queue is above target only *after* `first_above`, not at it;
//! * the inverse square root has 16 bits and takes one Newton step for each signal, so that the second gap is a half of
//!   the interval, not 1/√2;
//! * `count` grows before a drop, whether or not the next packet is still late;
//! * times are whole units of 1.024 µs.
//!
//! Linux keeps these times in 32 bits: after half an hour of silence, "not long ago" comes again. Ours have 64 unless
//! [`Profile::codel_clock_32_bits`] asks for the kernel's.

use alloc::collections::VecDeque;

use crate::narrow::fits_u32;
use crate::packet::Packet;
use crate::profile::Profile;
use crate::qdisc::{Backlog, Counters, Dequeued, DropReason, Drops, Environment, Peek, Qdisc};
use crate::spec;
use crate::spec::fq_codel::Selector;
use crate::units::{Instant, Nanos};

/// A unit of CoDel's clock is 2^10 ns.
const UNIT_SHIFT: u32 = 10;

/// The kernel's value for "no `ce_threshold`", units. A packet that waited longer is marked all the same.
const KERNEL_DISABLED_THRESHOLD: u64 = 0x7fff_ffff;

/// Signals resume from the last count if the last episode ended less than this many intervals ago (RFC 8289 §4.3 and
/// appendix A, "hysteresis").
const RECENT_INTERVALS: u64 = 16;

/// The inverse square root of 1, as near as 16 bits of fraction come.
const INVERSE_SQRT_OF_1: u16 = u16::MAX;

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Acceptable standing delay, units.
    target: u64,
    /// Window in which the delay must have fallen below target once, units.
    interval: u64,
    /// Delay above which every packet is marked, units.
    ce_threshold: u64,
    /// For which packets `ce_threshold` is; mask 0 is all.
    selector: Selector,
    /// With no more than this many bytes left in the queue, a delay is not held against it.
    mtu: u64,
    /// Mark instead of dropping where the packet allows it.
    ecn: bool,
    /// Upper bits of a 64-bit time that the clock does not have.
    missing_bits: u32,
}

impl Params {
    /// The parameters of the discipline `codel`.
    pub fn of_codel(spec: &spec::codel::Codel, environment: &Environment) -> Self {
        Self::new(
            (spec.target, spec.interval),
            spec.ce_threshold,
            None,
            spec.ecn,
            environment,
        )
    }

    /// The parameters of each flow of `fq_codel`.
    pub fn of_fq_codel(spec: &spec::fq_codel::FqCodel, environment: &Environment) -> Self {
        Self::new(
            (spec.target, spec.interval),
            spec.ce_threshold,
            spec.ce_threshold_selector,
            spec.ecn,
            environment,
        )
    }

    fn new(
        (target, interval): (Nanos, Nanos),
        ce_threshold: Option<Nanos>,
        selector: Option<Selector>,
        ecn: bool,
        environment: &Environment,
    ) -> Self {
        let Profile {
            codel_clock_32_bits, ..
        } = environment.profile;
        let never = match codel_clock_32_bits {
            true => KERNEL_DISABLED_THRESHOLD,
            false => i64::MAX as u64,
        };
        Self {
            target: units(target),
            interval: units(interval),
            ce_threshold: ce_threshold.map_or(never, units),
            selector: selector.unwrap_or(Selector { value: 0, mask: 0 }),
            mtu: environment.mtu.into(),
            ecn,
            missing_bits: if codel_clock_32_bits { 32 } else { 0 },
        }
    }

    /// Target in whole units of 1.024 µs, as it is kept.
    pub const fn target_units(&self) -> u64 {
        self.target
    }

    /// Interval in whole units of 1.024 µs, as it is kept.
    pub const fn interval_units(&self) -> u64 {
        self.interval
    }

    /// The clock at `now`, units.
    #[inline]
    pub(crate) const fn clock(&self, now: Instant) -> u64 {
        self.wrapped(now.0 >> UNIT_SHIFT)
    }

    #[inline]
    const fn wrapped(&self, time: u64) -> u64 {
        time << self.missing_bits >> self.missing_bits
    }

    /// True if `a` is later than `b` by serial-number arithmetic (RFC 1982).
    #[inline]
    const fn after(&self, a: u64, b: u64) -> bool {
        (a.wrapping_sub(b) << self.missing_bits).cast_signed() > 0
    }

    /// When the next signal is due after one at `time`: `interval / √count` later.
    #[inline]
    const fn control(&self, time: u64, inverse_sqrt: u16) -> u64 {
        time.wrapping_add((self.interval * ((inverse_sqrt as u64) << 16)) >> 32)
    }
}

/// A span in units, rounded down.
const fn units(span: Nanos) -> u64 {
    span.0 >> UNIT_SHIFT
}

/// The state of CoDel for one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// When the delay will have been above target for an interval; 0 while it is not above.
    first_above: u64,
    /// When the next signal is due, or was.
    drop_next: u64,
    /// Signals since dropping began, more or less: it resumes from an earlier episode, and overflow adds to it.
    pub count: u32,
    /// `count` when dropping began.
    pub lastcount: u32,
    /// How long the packet waited that was taken last, units.
    ldelay: u32,
    /// 1/√count in 16 bits of fraction.
    inverse_sqrt: u16,
    /// True during an episode of dropping.
    pub dropping: bool,
}

const _: () = assert!(size_of::<State>() <= 32);

/// Counters of CoDel. Several queues may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets marked in place of a drop.
    pub ecn_mark: u64,
    /// Packets marked because of `ce_threshold`.
    pub ce_mark: u64,
    /// Longest packet taken from the queue, bytes.
    pub maxpacket: u32,
}

/// The queue that CoDel takes packets from.
pub(crate) trait Source<P> {
    /// The oldest packet and when it came, units.
    fn pop(&mut self) -> Option<(P, u64)>;

    /// Bytes left.
    fn backlog(&self) -> u64;

    /// Takes back a packet that shall not be sent.
    fn drop(&mut self, packet: P);
}

impl State {
    /// How long the packet waited that was taken last.
    pub const fn ldelay(&self) -> Nanos {
        Nanos((self.ldelay as u64) << UNIT_SHIFT)
    }

    /// Time from `now` to the next signal, or since, if an episode is on (`tc` shows it so).
    pub const fn drop_next(&self, params: &Params, now: Instant) -> Option<i64> {
        if !self.dropping {
            return None;
        }
        let units = (self.drop_next.wrapping_sub(params.clock(now)) << params.missing_bits).cast_signed();
        Some(units >> params.missing_bits << UNIT_SHIFT)
    }

    /// True if the queue never had a delay above target: such a state need not be kept.
    pub(crate) const fn is_new(&self) -> bool {
        self.count == 0
            && self.lastcount == 0
            && self.drop_next == 0
            && self.first_above == 0
            && !self.dropping
    }

    /// Packets were dropped because of a limit, which counts against the queue.
    pub(crate) const fn on_overflow(&mut self, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    /// The next packet to send, after what has to be dropped before it.
    #[inline]
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        params: &Params,
        stats: &mut Stats,
        now: u64,
        source: &mut impl Source<P>,
    ) -> Option<P> {
        let Some((packet, enqueued)) = source.pop() else {
            self.first_above = 0;
            self.dropping = false;
            return None;
        };
        let mut packet = match (
            self.is_above(params, stats, now, Some((&packet, enqueued)), source),
            self.dropping,
        ) {
            (false, _) => {
                self.dropping = false;
                packet
            }
            (true, true) => self.go_on(params, stats, now, source, packet)?,
            (true, false) => self.begin(params, stats, now, source, packet)?,
        };
        if params.after(self.ldelay.into(), params.ce_threshold) {
            mark_above_threshold(params, stats, &mut packet);
        }
        Some(packet)
    }

    /// Decides by the packet that has just left the queue whether the delay has been above target for longer than an interval.
    /// `None` if the queue was empty.
    #[inline]
    fn is_above<P: Packet>(
        &mut self,
        params: &Params,
        stats: &mut Stats,
        now: u64,
        taken: Option<(&P, u64)>,
        source: &impl Source<P>,
    ) -> bool {
        let Some((packet, enqueued)) = taken else {
            self.first_above = 0;
            return false;
        };
        let delay = params.wrapped(now.wrapping_sub(enqueued));
        self.ldelay = u32::try_from(delay).unwrap_or(u32::MAX);
        stats.maxpacket = stats.maxpacket.max(packet.len());
        // A full packet less than the device's MTU is no standing queue (RFC 8289 §4.4).
        if params.after(params.target, delay) || source.backlog() <= params.mtu {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = params.wrapped(now.wrapping_add(params.interval));
            return false;
        }
        params.after(now, self.first_above)
    }

    /// An episode goes on: signals that have become due.
    fn go_on<P: Packet>(
        &mut self,
        params: &Params,
        stats: &mut Stats,
        now: u64,
        source: &mut impl Source<P>,
        mut packet: P,
    ) -> Option<P> {
        while self.dropping && !params.after(self.drop_next, now) {
            self.count = self.count.wrapping_add(1);
            self.newton_step();
            if params.ecn && packet.set_ce() {
                stats.ecn_mark += 1;
                self.drop_next = params.control(self.drop_next, self.inverse_sqrt);
                break;
            }
            source.drop(packet);
            let next = source.pop();
            let taken = next.as_ref().map(|(packet, enqueued)| (packet, *enqueued));
            if self.is_above(params, stats, now, taken, source) {
                self.drop_next = params.control(self.drop_next, self.inverse_sqrt);
            } else {
                self.dropping = false;
            }
            packet = next?.0;
        }
        Some(packet)
    }

    /// An episode begins: the first signal. The packet after a dropped one is sent whatever its delay.
    fn begin<P: Packet>(
        &mut self,
        params: &Params,
        stats: &mut Stats,
        now: u64,
        source: &mut impl Source<P>,
        mut packet: P,
    ) -> Option<P> {
        let kept = if params.ecn && packet.set_ce() {
            stats.ecn_mark += 1;
            Some(packet)
        } else {
            source.drop(packet);
            let next = source.pop();
            let taken = next.as_ref().map(|(packet, enqueued)| (packet, *enqueued));
            self.is_above(params, stats, now, taken, source);
            next.map(|(packet, _)| packet)
        };
        self.dropping = true;
        let signals = self.count.wrapping_sub(self.lastcount);
        let silence = now.wrapping_sub(self.drop_next);
        if signals > 1 && params.after(RECENT_INTERVALS.wrapping_mul(params.interval), silence) {
            self.count = signals;
            self.newton_step();
        } else {
            self.count = 1;
            self.inverse_sqrt = INVERSE_SQRT_OF_1;
        }
        self.lastcount = self.count;
        self.drop_next = params.control(now, self.inverse_sqrt);
        kept
    }

    /// One step of Newton's method towards 1/√count: x(3 - count·x²)/2.
    const fn newton_step(&mut self) {
        let root = (self.inverse_sqrt as u64) << 16;
        let square = (root * root) >> 32;
        let three_less = (3u64 << 32).wrapping_sub((self.count as u64).wrapping_mul(square)) >> 2;
        let next = three_less.wrapping_mul(root) >> 31;
        self.inverse_sqrt = (next >> 16) as u16;
    }
}

#[cold]
fn mark_above_threshold<P: Packet>(params: &Params, stats: &mut Stats, packet: &mut P) {
    let Selector { value, mask } = params.selector;
    if (mask == 0 || packet.view().ds_field & mask == value) && packet.set_ce() {
        stats.ce_mark += 1;
    }
}

/// The discipline `codel`: one queue, and a limit at which it drops arriving packets.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    spec: spec::codel::Codel,
    params: Params,
    state: State,
    queue: VecDeque<(P, u64)>,
    bytes: u64,
    peeked: Option<P>,
    /// The latest time that any call brought.
    now: Instant,
    stats: Stats,
    drop_overlimit: u64,
    counters: Counters,
}

impl<P: Packet> Codel<P> {
    /// An empty queue.
    pub fn new(spec: &spec::codel::Codel, environment: &Environment) -> Self {
        Self {
            spec: spec.clone(),
            params: Params::of_codel(spec, environment),
            state: State::default(),
            queue: VecDeque::new(),
            bytes: 0,
            peeked: None,
            now: Instant(0),
            stats: Stats::default(),
            drop_overlimit: 0,
            counters: Counters::NONE,
        }
    }

    /// Its parameters as they were given.
    pub const fn spec(&self) -> &spec::codel::Codel {
        &self.spec
    }

    /// Its parameters as the algorithm uses them.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Replaces the parameters. Beyond a lower limit the oldest packets are dropped.
    pub fn reconfigure(
        &mut self,
        spec: &spec::codel::Codel,
        environment: &Environment,
        drops: &mut dyn Drops<P>,
    ) {
        self.params = Params::of_codel(spec, environment);
        self.spec = spec.clone();
        while self.backlog().packets > self.spec.limit
            && let Some((packet, _)) = self.queue.pop_front()
        {
            self.bytes -= u64::from(packet.len());
            self.counters.dropped += 1;
            drops.dropped(packet, DropReason::Reconfigure);
        }
    }

    /// Its state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Counters of CoDel.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Packets refused because the queue was full.
    pub const fn drop_overlimit(&self) -> u64 {
        self.drop_overlimit
    }

    /// The counters that every discipline has.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The clock, which never goes back.
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now);
        self.params.clock(self.now)
    }

    fn decide(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Option<P> {
        let now = self.advance(now);
        let mut source = Queue {
            packets: &mut self.queue,
            bytes: &mut self.bytes,
            counters: &mut self.counters,
            drops,
        };
        self.state
            .dequeue(&self.params, &mut self.stats, now, &mut source)
    }

    fn check_invariants(&self) {
        debug_assert_eq!(
            self.bytes,
            self.queue.iter().map(|(packet, _)| u64::from(packet.len())).sum()
        );
        debug_assert!(self.backlog().packets <= self.spec.limit);
    }
}

impl<P: Packet> Qdisc<P> for Codel<P> {
    fn enqueue(&mut self, packet: P, now: Instant, drops: &mut dyn Drops<P>) {
        if self.backlog().packets < self.spec.limit {
            self.bytes += u64::from(packet.len());
            let now = self.advance(now);
            self.queue.push_back((packet, now));
        } else {
            self.drop_overlimit += 1;
            self.counters.dropped += 1;
            drops.dropped(packet, DropReason::Tail);
        }
        self.check_invariants();
    }

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

    fn backlog(&self) -> Backlog {
        let peeked = self.peeked.as_ref();
        Backlog {
            packets: fits_u32(self.queue.len() as u64) + u32::from(peeked.is_some()),
            bytes: self.bytes + peeked.map_or(0, |packet| packet.len().into()),
        }
    }
}

impl<P: Packet> Peek<P> for Codel<P> {
    fn peek(&mut self, now: Instant, drops: &mut dyn Drops<P>) -> Dequeued<u32> {
        if self.peeked.is_none() {
            self.peeked = self.decide(now, drops);
        }
        match &self.peeked {
            Some(packet) => Dequeued::Packet(packet.len()),
            None => Dequeued::Empty,
        }
    }
}

/// The parts of a [`Codel`] that [`State::dequeue`] needs.
struct Queue<'a, P> {
    packets: &'a mut VecDeque<(P, u64)>,
    bytes: &'a mut u64,
    counters: &'a mut Counters,
    drops: &'a mut dyn Drops<P>,
}

impl<P: Packet> Source<P> for Queue<'_, P> {
    fn pop(&mut self) -> Option<(P, u64)> {
        let (packet, enqueued) = self.packets.pop_front()?;
        *self.bytes -= u64::from(packet.len());
        Some((packet, enqueued))
    }

    fn backlog(&self) -> u64 {
        *self.bytes
    }

    fn drop(&mut self, packet: P) {
        self.counters.dropped += 1;
        self.drops.dropped(packet, DropReason::Aqm);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::test_packet::{START, TestPacket, at_micros, ethernet};

    fn state_at(count: u32) -> State {
        let mut state = State {
            count: 1,
            inverse_sqrt: INVERSE_SQRT_OF_1,
            ..State::default()
        };
        while state.count < count {
            state.count += 1;
            state.newton_step();
        }
        state
    }

    #[test]
    fn the_inverse_square_root_is_computed_as_in_the_kernel() {
        let sequence: Vec<u16> = (1..=8).map(|count| state_at(count).inverse_sqrt).collect();
        assert_eq!(sequence, [65535, 32769, 36864, 31968, 28935, 26481, 24588, 23037]);
    }

    /// The formula that the integers stand for.
    #[test]
    fn the_inverse_square_root_is_near_the_true_one_from_count_16_on() {
        let mut state = state_at(15);
        for count in 16..=1_000_000u32 {
            state.count = count;
            state.newton_step();
            let square = u128::from(state.inverse_sqrt).pow(2) * u128::from(count);
            let one = 1u128 << 32;
            // Cut to 16 bits: at a count of 10⁶ a bit is 1.5 % of the root.
            assert!(
                square.abs_diff(one) * 25 < one,
                "count {count}: {}",
                state.inverse_sqrt
            );
        }
    }

    /// A queue of 1000-byte packets that is never short, in which each packet waited `sojourn` milliseconds.
    struct Deep {
        sojourn: u64,
        now: u64,
        dropped: u32,
    }

    impl Source<TestPacket> for Deep {
        fn pop(&mut self) -> Option<(TestPacket, u64)> {
            Some((
                TestPacket::new(0, 1000),
                (self.now - self.sojourn * 1_000_000) >> UNIT_SHIFT,
            ))
        }

        fn backlog(&self) -> u64 {
            100_000
        }

        fn drop(&mut self, _: TestPacket) {
            self.dropped += 1;
        }
    }

    struct Signal {
        at_ms: u64,
        count: u32,
        next_us: u64,
    }

    /// Asks every 10 ms until `end_ms`; the sojourn time is 20 ms except in `short`, where it is 1 ms.
    fn signals(profile: Profile, short: core::ops::Range<u64>, end_ms: u64) -> Vec<Signal> {
        let params = Params::of_codel(&spec::codel::Codel::default(), &ethernet(profile));
        let (mut state, mut stats) = (State::default(), Stats::default());
        let mut signals = Vec::new();
        for at_ms in (0..end_ms).step_by(10) {
            let now = at_micros(at_ms * 1000);
            let mut source = Deep {
                sojourn: if short.contains(&at_ms) { 1 } else { 20 },
                now: now.0,
                dropped: 0,
            };
            let packet = state.dequeue(&params, &mut stats, params.clock(now), &mut source);
            assert!(packet.is_some());
            for _ in 0..source.dropped {
                signals.push(Signal {
                    at_ms,
                    count: state.count,
                    next_us: ((state.drop_next << UNIT_SHIFT) - START) / 1000,
                });
            }
        }
        signals
    }

    fn times(signals: &[Signal]) -> Vec<u64> {
        signals.iter().map(|signal| signal.at_ms).collect()
    }

    #[test]
    fn signals_occur_at_the_kernels_times() {
        let signals = signals(Profile::KERNEL, 0..0, 770);
        assert_eq!(
            times(&signals),
            [
                110, 210, 260, 320, 370, 410, 450, 490, 530, 560, 590, 620, 650, 680, 710, 730, 760
            ]
        );
        let next: Vec<u64> = signals.iter().take(4).map(|signal| signal.next_us).collect();
        for (next, expected) in next.into_iter().zip([209_997, 259_998, 316_248, 365_026]) {
            assert!(next.abs_diff(expected) <= 1, "{next} {expected}");
        }
    }

    #[test]
    fn a_second_episode_resumes_where_the_last_one_ended_if_that_is_not_long_ago() {
        let soon = signals(Profile::KERNEL, 400..600, 900);
        assert_eq!(times(&soon), [110, 210, 260, 320, 370, 710, 760, 810, 850, 890]);
        assert_eq!((soon[4].count, soon[5].count), (5, 4));
        assert!(soon[5].next_us.abs_diff(759_011) <= 1);
        let late = signals(Profile::KERNEL, 400..2400, 2520);
        assert_eq!((late[5].at_ms, late[5].count), (2510, 1));
    }

    /// 2^32 units are 4398 s: half of it, and "16 intervals ago" seems to lie ahead again.
    #[test]
    fn only_the_kernels_32_bit_clock_mistakes_an_hour_ago_for_just_now() {
        let count_after = |profile, silence_ms: u64| {
            let signals = signals(profile, 400..400 + silence_ms, 600 + silence_ms);
            signals[5].count
        };
        assert_eq!(count_after(Profile::KERNEL, 2_000), 1);
        assert_eq!(count_after(Profile::KERNEL, 3_000_000), 4);
        assert_eq!(count_after(Profile::FIXED, 3_000_000), 1);
    }

    #[test]
    fn packets_above_the_ce_threshold_are_marked_if_they_allow_it() {
        let spec = spec::codel::Codel {
            ce_threshold: Some(Nanos::from_millis(1)),
            ..spec::codel::Codel::default()
        };
        let mut codel = Codel::new(&spec, &ethernet(Profile::KERNEL));
        let mut marks = Vec::new();
        for (n, (wait_us, ecn)) in (0..).zip([(500, 2), (2000, 0), (2000, 1), (2000, 2)]) {
            let came_us = n * 10_000;
            codel.enqueue(TestPacket::new(0, 1000).ecn(ecn), at_micros(came_us), &mut ());
            let Dequeued::Packet(packet) = codel.dequeue(at_micros(came_us + wait_us), &mut ()) else {
                panic!("it was queued");
            };
            marks.push(packet.ds_field);
        }
        assert_eq!(marks, [2, 0, 3, 3]);
        assert_eq!(codel.stats().ce_mark, 2);
    }

    #[test]
    fn a_peeked_packet_leaves_next_and_counts_as_queued_until_then() {
        let spec = spec::codel::Codel {
            limit: 2,
            ..spec::codel::Codel::default()
        };
        let mut codel = Codel::new(&spec, &ethernet(Profile::FIXED));
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        codel.enqueue(TestPacket::new(1, 100), at_micros(0), &mut drops);
        assert_eq!(codel.peek(at_micros(1), &mut drops), Dequeued::Packet(100));
        codel.enqueue(TestPacket::new(2, 200), at_micros(1), &mut drops);
        codel.enqueue(TestPacket::new(3, 300), at_micros(1), &mut drops);
        assert_eq!(drops, [(TestPacket::new(3, 300), DropReason::Tail)]);
        assert_eq!(
            codel.backlog(),
            Backlog {
                packets: 2,
                bytes: 300
            }
        );
        let first = codel.dequeue(at_micros(2), &mut drops);
        assert_eq!(first, Dequeued::Packet(TestPacket::new(1, 100)));
    }
}
