//! A tin: one priority of CAKE, with its share of the rate, its queues and hosts.

use alloc::boxed::Box;

use super::ewma;
use super::flow_lists::{FlowId, FlowSched, Lists, MOST_ROUNDS, State};
use super::tables::{Hosts, Queues};
use crate::cobalt::{Blue, Params};
use crate::narrow::{fits_u32, low_u32};
use crate::packet::Hashes;
use crate::profile::Profile;
use crate::rng::Random;
use crate::shaper::{Pace, TinClock};

/// Least and greatest flow quantum, bytes.
const QUANTUM: core::ops::RangeInclusive<u64> = 300..=1514;

/// One tin.
#[derive(Clone, Debug)]
pub(super) struct Tin {
    pub(super) clock: TinClock,
    pub(super) params: Params,
    /// Up to this many bytes per second it comes before other tins.
    pub(super) threshold: u64,
    /// Bytes per flow and round, before they are divided among a host's flows.
    pub(super) quantum: u32,
    /// Its part of the unlimited rate.
    pub(super) weight: u16,
    /// Bytes it may send in the present round of an unlimited rate.
    pub(super) deficit: i64,
    pub(super) sparse: u16,
    pub(super) bulk: u16,
    pub(super) decaying: u16,
    /// Queues whose BLUE is awake.
    pub(super) unresponsive: u16,
    pub(super) backlog: u64,
    pub(super) counters: Counters,
    /// None until its first packet.
    pub(super) tables: Option<Box<Tables>>,
}

/// Counters of a tin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Offered, whatever became of them.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: u64,
    pub(super) ack_drops: u64,
    pub(super) marks: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) collisions: u64,
    pub(super) average_delay: u64,
    pub(super) peak_delay: u64,
    pub(super) base_delay: u64,
    pub(super) max_len: u32,
}

/// The part of a tin that grows with its flows.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) queues: Queues,
    pub(super) sources: Hosts,
    pub(super) destinations: Hosts,
    pub(super) lists: Lists,
}

/// Between which hosts the flows of a tin are fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fairness {
    pub(super) sources: bool,
    pub(super) destinations: bool,
}

impl Tin {
    /// A tin that was never used, to be given its share.
    pub(super) fn new() -> Self {
        Self {
            clock: TinClock::default(),
            params: Params::default(),
            threshold: 0,
            quantum: fits_u32(*QUANTUM.end()),
            weight: 0,
            deficit: 0,
            sparse: 0,
            bulk: 0,
            decaying: 0,
            unresponsive: 0,
            backlog: 0,
            counters: Counters::default(),
            tables: None,
        }
    }

    /// Its share of the rate, bytes per second, 0 for none; times in nanoseconds.
    pub(super) fn configure(
        &mut self,
        threshold: u64,
        weight: u16,
        mtu: u32,
        target: u64,
        rtt: u64,
        profile: Profile,
    ) {
        self.threshold = threshold;
        self.weight = weight;
        self.clock.pace = Pace::of(threshold);
        self.quantum = fits_u32(match threshold {
            0 => *QUANTUM.end(),
            rate => (rate >> 12).clamp(*QUANTUM.start(), *QUANTUM.end()),
        });
        let mtu_time = self.clock.pace.duration(mtu);
        let tin_target = target.max(mtu_time * 3 / 2);
        let tin_interval = (rtt + tin_target - target).max(2 * tin_target);
        self.params = Params::new(tin_target, tin_interval, mtu_time, profile);
    }

    /// Flows that may have something to send.
    #[inline]
    pub(super) const fn has_flows(&self) -> bool {
        self.sparse | self.bulk > 0
    }

    /// A flow with a new packet is on a list.
    #[inline]
    pub(super) fn admit(
        &mut self,
        scheds: &mut [FlowSched],
        flow: FlowId,
        fair: Fairness,
        random: &mut impl Random,
    ) {
        let sched = &mut scheds[usize::from(flow)];
        let Some(tables) = &mut self.tables else { return };
        let state = sched.state;
        match state {
            State::Sparse | State::Bulk => {}
            State::SparseWait => {
                sched.state = State::Bulk;
                self.sparse -= 1;
                self.bulk += 1;
                tables.add_bulk(sched, fair);
            }
            State::Idle | State::Decaying => {
                sched.state = State::Sparse;
                sched.deficit = dithered(tables.share(sched, fair, self.quantum), random);
                self.sparse += 1;
                if state == State::Decaying {
                    self.decaying -= 1;
                    tables.lists.leave(scheds, flow);
                }
                tables.lists.push_new(scheds, flow);
            }
        }
    }

    /// A flow that used up its deficit waits for another turn among the old ones.
    #[inline]
    pub(super) fn refill(
        &mut self,
        scheds: &mut [FlowSched],
        flow: FlowId,
        is_empty: bool,
        fair: Fairness,
        round_by_round: bool,
        random: &mut impl Random,
    ) {
        let sched = &mut scheds[usize::from(flow)];
        let Some(tables) = &mut self.tables else { return };
        if sched.state == State::Sparse {
            if is_empty {
                sched.state = State::SparseWait;
            } else {
                sched.state = State::Bulk;
                self.sparse -= 1;
                self.bulk += 1;
                tables.add_bulk(sched, fair);
            }
        }
        let share = tables.share(sched, fair, self.quantum);
        if round_by_round {
            sched.deficit += dithered(share, random);
            tables.lists.rotate(scheds, flow);
            return;
        }
        let rounds = rounds_needed(sched.deficit, share);
        let credit = u64::from(share) * u64::from(rounds) + u64::from(random.r16());
        sched.deficit += low_u32(credit >> 16).cast_signed();
        tables.lists.defer(scheds, flow, rounds);
    }

    /// A flow that was found empty leaves, or decays first if COBALT is not at rest.
    #[inline]
    pub(super) fn retire(&mut self, scheds: &mut [FlowSched], flow: FlowId, rests: bool, fair: Fairness) {
        let sched = &mut scheds[usize::from(flow)];
        let Some(tables) = &mut self.tables else { return };
        match sched.state {
            State::Idle => {}
            State::Sparse | State::SparseWait => self.sparse -= 1,
            State::Bulk => {
                self.bulk -= 1;
                tables.remove_bulk(sched, fair);
            }
            State::Decaying => self.decaying -= 1,
        }
        if rests {
            sched.state = State::Idle;
            tables.lists.leave(scheds, flow);
        } else {
            sched.state = State::Decaying;
            self.decaying += 1;
            tables.lists.move_to_decaying(scheds, flow);
        }
    }

    /// A packet was delivered after `delay` nanoseconds.
    #[inline]
    pub(super) fn delivered(&mut self, delay: u64) {
        let counters = &mut self.counters;
        counters.average_delay = ewma(counters.average_delay, delay, 8);
        let rises = delay > counters.peak_delay;
        counters.peak_delay = ewma(counters.peak_delay, delay, if rises { 2 } else { 8 });
        let falls = delay < counters.base_delay;
        counters.base_delay = ewma(counters.base_delay, delay, if falls { 2 } else { 8 });
    }

    pub(super) const fn note(&mut self, blue: Blue) {
        match blue {
            Blue::Unchanged => {}
            Blue::Awoke => self.unresponsive += 1,
            Blue::Rested => self.unresponsive = self.unresponsive.saturating_sub(1),
        }
    }
}

impl Tables {
    #[cold]
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            queues: Queues::new(),
            sources: Hosts::new(),
            destinations: Hosts::new(),
            lists: Lists::new(),
        })
    }

    /// The bytes that a flow may send per round, in 65536ths: the quantum, divided by the bulk flows of its busier host.
    #[inline]
    pub(super) fn share(&self, sched: &FlowSched, fair: Fairness, quantum: u32) -> u32 {
        let mut share = u16::MAX;
        if fair.sources {
            share = self.sources.share(sched.source);
        }
        if fair.destinations {
            share = share.min(self.destinations.share(sched.destination));
        }
        quantum * u32::from(share)
    }

    /// Counts a flow at the hosts of a packet from now on.
    pub(super) fn assign(&mut self, sched: &mut FlowSched, hashes: &Hashes, fair: Fairness) {
        let is_bulk = sched.state == State::Bulk;
        if is_bulk {
            self.remove_bulk(sched, fair);
        }
        if fair.sources {
            sched.source = self.sources.find(hashes.source);
        }
        if fair.destinations {
            sched.destination = self.destinations.find(hashes.destination);
        }
        if is_bulk {
            self.add_bulk(sched, fair);
        }
    }

    /// One of its flows became bulk.
    pub(super) fn add_bulk(&mut self, sched: &FlowSched, fair: Fairness) {
        if fair.sources {
            self.sources.add_bulk(sched.source);
        }
        if fair.destinations {
            self.destinations.add_bulk(sched.destination);
        }
    }

    /// One of its flows is no longer bulk.
    pub(super) fn remove_bulk(&mut self, sched: &FlowSched, fair: Fairness) {
        if fair.sources {
            self.sources.remove_bulk(sched.source);
        }
        if fair.destinations {
            self.destinations.remove_bulk(sched.destination);
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
    fits_u32(rounds.min(u64::from(MOST_ROUNDS)))
}

/// `share` as whole bytes; what is lost is given back at random, so that it is right on average.
#[inline]
fn dithered(share: u32, random: &mut impl Random) -> i32 {
    ((share + u32::from(random.r16())) >> 16).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u16);

    impl Random for Fixed {
        fn r16(&mut self) -> u16 {
            self.0
        }

        fn r32(&mut self) -> u32 {
            0
        }
    }

    #[test]
    fn a_full_quantum_divides_by_the_load() {
        const FAIR: Fairness = Fairness {
            sources: true,
            destinations: true,
        };
        let mut tables = Tables::new();
        let expected = [1513, 756, 504, 378, 302, 252, 216, 189];
        for low in expected {
            tables.add_bulk(&FlowSched::IDLE, FAIR);
            let share = tables.share(&FlowSched::IDLE, FAIR, 1514);
            assert_eq!(dithered(share, &mut Fixed(0)), low);
            assert_eq!(dithered(share, &mut Fixed(u16::MAX)), low + 1);
        }
    }

    /// Rates in bytes per second, times in microseconds.
    #[test]
    fn slow_tins_get_time_for_their_packets() {
        for (rate, target, interval, quantum) in [
            (8000, 283_875, 567_750, 300),
            (125_000, 18_168, 113_168, 300),
            (1_250_000, 5_000, 100_000, 305),
            (12_500_000, 5_000, 100_000, 1514),
            (781_250, 5_000, 100_000, 300),
            (78_125, 29_068, 124_068, 300),
            (312_500, 7_267, 102_267, 300),
            (7_812, 290_706, 581_413, 300),
            (31_250, 72_672, 167_672, 300),
            (156_250, 14_534, 109_534, 300),
            (0, 5_000, 100_000, 1514),
        ] {
            let mut tin = Tin::new();
            tin.configure(rate, 1, 1514, 5_000_000, 100_000_000, Profile::KERNEL);
            let params = &tin.params;
            assert_eq!(
                (params.target / 1000, params.interval / 1000, tin.quantum),
                (target, interval, quantum),
                "{rate}"
            );
        }
    }
}
