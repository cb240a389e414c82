//! The queue delay at the line, estimated from the delay samples of many reflectors and TCP connections.
//!
//! Each [`Source`] has a baseline: its smallest recent delay. The part of a sample above its baseline is queue delay. The estimate is
//! the lower median of the four newest samples, so that one bad source can neither cut the rate nor hide a queue.
//!
//! Reflectors lead: a connection counts for no more than they confirm, and not at all where they show one-way delays. They lose this
//! place in a direction while their probes bypass its queue ([`disagreement`]).

mod baseline;
mod consensus;
mod disagreement;
mod source;

use alloc::vec::Vec;

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

use crate::Signal;

use consensus::{NewestSamples, SAMPLES};
use disagreement::agreed_delay;
use source::{DelayKind, Delays, Source, SourceId, channel};

/// All sources that have answered lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayEstimator {
    sources: Vec<Source>,
    /// The last probe that returned without a queue: when it was sent, and when it returned.
    undelayed: Option<(Instant, Instant)>,
    /// Directions that have had too little traffic for a queue, in the order of [`Direction::BOTH`].
    idle: [bool; 2],
}

/// The estimate for one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayEstimate {
    /// Lower median of the newest samples.
    pub(crate) queue_delay: Nanos,
    /// Upper median of the newest samples. It exceeds [`Self::queue_delay`] while bursts come and go.
    pub(crate) upper_median: Nanos,
    /// When the probe was sent that shows this delay.
    pub(crate) sent: Instant,
    /// The delay is the age of a probe that has not returned.
    pub(crate) is_overdue: bool,
}

/// At most this many sources are kept. A new one replaces the one that has been silent for longest. A choice.
const MAX_SOURCES: usize = 32;
/// With fewer sources of one kind than this, the other kind is used. A single source cannot be checked by another.
const ENOUGH: usize = 2;
/// Connections do not count where this many reflectors show one-way delays. A choice: their median resists one bad reflector.
const ENOUGH_ONE_WAY: usize = 3;
/// This many connections must agree on a queue that a reflector does not show: the far end of one, or of two to one host, may be
/// slow…
const ENOUGH_FLOWS: usize = 3;
/// …or this many if the reflector's probes bypass the queue of the other direction. Choices.
const ENOUGH_FLOWS_AGAIN: usize = 2;
/// An answer is recent for this long: six reflectors take turns within 300 ms, and a half more is the margin.
const FRESH: Nanos = Nanos::from_millis(450);
/// A flow whose last sample is older than this reports less often than reflectors do, so that reflectors are preferred.
const FRESH_FLOW: Nanos = Nanos::from_millis(150);
/// Answers older than this do not count at all. Slow probing, every 250 ms, takes 1.5 s for six reflectors.
const FRESH_SLOW: Nanos = Nanos::from_millis(1600);
/// From this base round trip on, the capacity may have changed before the controller learns of it. A choice between terrestrial
/// paths, which seldom exceed it, and geostationary satellites, which take 500 ms and more.
const HIGH_RTT: Nanos = Nanos::from_millis(300);
/// The base round trip is limited to this, whatever the clock of a reflector says. A choice.
const MAX_RTT: Nanos = Nanos::from_millis(10_000);
/// An answer with less queue delay than this, nanoseconds, met no queue that could hold other probes back. A choice.
const UNDELAYED: i64 = 15_000_000;
/// Delays are limited to this, nanoseconds: 36 years. It is far beyond the offset of any two clocks, one of which may show the time of
/// day and the other one that since the machine's start, and far from overflow.
const MAX_DELAY: i64 = 1 << 60;

impl DelayEstimator {
    /// Adds a sample that was observed at `at`.
    pub(crate) fn add(&mut self, now: Instant, at: Instant, signal: Signal) {
        match signal {
            Signal::Echo { reflector, sent, rtt } => {
                let delay = i64::try_from(rtt.0).unwrap_or(MAX_DELAY);
                let id = SourceId::Reflector(reflector);
                self.answer(now, id, at, sent, [Some(delay); 2], DelayKind::RoundTrip);
            }
            Signal::OneWay {
                reflector,
                sent,
                download,
                upload,
            } => {
                let delays = [Some(download), Some(upload)];
                let id = SourceId::Reflector(reflector);
                self.answer(now, id, at, sent, delays, DelayKind::OneWay);
            }
            Signal::Flow {
                flow,
                sent,
                download,
                upload,
            } => {
                let delays = [Some(download), upload];
                self.answer(now, SourceId::Flow(flow), at, sent, delays, DelayKind::OneWay);
            }
            Signal::Waiting { reflector, sent } => {
                let undelayed = self.undelayed;
                if let Some(source) = self.reflector(reflector) {
                    source.waiting = Some(sent).filter(|sent| !source.is_overtaken(*sent, undelayed));
                }
            }
            Signal::Lost { reflector } => {
                if let Some(source) = self.reflector(reflector) {
                    source.reliability -= source.reliability / 8;
                }
            }
            Signal::Traffic { .. } | Signal::Hour(_) => {}
        }
    }

    /// The queue delay of a direction; `None` while all sources are silent, or if most of them contradict each other.
    ///
    /// Round trips and overdue probes do not tell the direction. They count only if `is_attributed`, that is if the queue is
    /// attributed to this direction; otherwise this direction has no queue as far as they are concerned.
    pub(crate) fn estimate(
        &self,
        direction: Direction,
        now: Instant,
        is_attributed: bool,
    ) -> Option<DelayEstimate> {
        let (samples, kind) = self.samples(direction, now, is_attributed, Source::is_trusted);
        let current = || {
            self.voters(direction, now)
                .filter(|source| source.kind == kind && source.is_current(direction, now))
        };
        let trusted = current().filter(|source| source.is_trusted()).count();
        if trusted * 2 < current().count() {
            return None;
        }
        let chosen = samples.lower_median()?;
        let of_other_direction = match kind {
            DelayKind::RoundTrip => self.known_part_of_other(direction, now),
            DelayKind::OneWay => None,
        };
        let counts = is_attributed || kind == DelayKind::OneWay;
        let delay = |delay: i64| {
            let delay = u64::try_from(delay - of_other_direction.unwrap_or(0)).ok();
            Nanos(delay.filter(|_| counts).unwrap_or(0))
        };
        Some(DelayEstimate {
            queue_delay: delay(chosen.delay),
            upper_median: delay(samples.upper_median().unwrap_or(chosen.delay)),
            sent: chosen.sent,
            is_overdue: chosen.is_overdue,
        })
    }

    /// The queue delay of a direction if all that is ambiguous is attributed to it; zero if nothing is known.
    pub(crate) fn queue_if_ours(&self, direction: Direction, now: Instant) -> Nanos {
        let estimate = self.estimate(direction, now, true);
        estimate.map_or(Nanos(0), |estimate| estimate.queue_delay)
    }

    /// The delay that the newest sample of a trusted source shows, in either direction. It is enough to probe faster, not to change a
    /// rate.
    pub(crate) fn newest(&self, now: Instant) -> Nanos {
        let newest = Direction::BOTH.into_iter().filter_map(|direction| {
            let (samples, _) = self.samples(direction, now, true, Source::is_trusted);
            samples.newest()
        });
        Nanos(u64::try_from(newest.max().unwrap_or(0)).unwrap_or(0))
    }

    /// True if the delay of a direction is known by itself, not only as a part of round trips.
    pub(crate) fn knows(&self, direction: Direction, now: Instant) -> bool {
        self.kind_and_count(direction, now, Source::is_trusted).0 == DelayKind::OneWay
    }

    /// The part of a round trip that the other direction is known to cause, nanoseconds: the largest of its one-way samples. `None` if
    /// the other direction is not known by itself, or if round trips do not include its queue.
    fn known_part_of_other(&self, direction: Direction, now: Instant) -> Option<i64> {
        let (samples, kind) = self.samples(direction.other(), now, false, Source::is_trusted);
        let largest = samples.iter().map(|sample| sample.delay).max();
        largest.filter(|_| kind == DelayKind::OneWay && !self.flows_lead(direction.other(), now))
    }

    /// The reflectors whose probes bypass the queue in which the user's connections wait, in either direction.
    pub(crate) fn bypassing(&self) -> impl Iterator<Item = u16> {
        self.sources.iter().filter_map(|source| match source.id {
            SourceId::Reflector(reflector) => {
                let bypasses = |direction| source.bypasses(direction);
                Direction::BOTH.into_iter().any(bypasses).then_some(reflector)
            }
            SourceId::Flow(_) => None,
        })
    }

    /// The smallest round trip without a queue of any source; zero before the first answer.
    pub(crate) fn base_rtt(&self) -> Nanos {
        let is_one_way = |source: &&Source| !source.id.is_flow() && source.kind == DelayKind::OneWay;
        let flows_count = self.sources.iter().filter(is_one_way).count() < ENOUGH_ONE_WAY;
        let counted = self
            .sources
            .iter()
            .filter(|source| flows_count || !source.id.is_flow());
        let rtts = counted.filter_map(Source::base_rtt);
        Nanos(u64::try_from(rtts.min().unwrap_or(0)).unwrap_or(0)).min(MAX_RTT)
    }

    /// True if the base round trip is so long that the capacity may have changed before the controller learns of it.
    pub(crate) fn is_high_rtt(&self) -> bool {
        self.base_rtt() >= HIGH_RTT
    }

    /// Sets which directions have had too little traffic for a queue, in the order of [`Direction::BOTH`]. The delays of an idle
    /// direction are those of the path.
    pub(crate) const fn set_idle(&mut self, idle: [bool; 2]) {
        self.idle = idle;
    }

    /// Makes the present delays of a direction the new baselines.
    pub(crate) fn rebase(&mut self, direction: Direction) {
        for source in &mut self.sources {
            source.rebase(direction);
        }
    }

    fn reflector(&mut self, reflector: u16) -> Option<&mut Source> {
        self.sources
            .iter_mut()
            .find(|source| source.id == SourceId::Reflector(reflector))
    }

    fn answer(
        &mut self,
        now: Instant,
        id: SourceId,
        at: Instant,
        sent: Instant,
        delays: Delays,
        kind: DelayKind,
    ) {
        let delays = delays.map(|delay| delay.map(|delay| delay.clamp(-MAX_DELAY, MAX_DELAY)));
        let index = self.index(id, kind, at);
        let since_last = at.since(self.sources[index].heard_at);
        self.sources[index].add(at, sent, delays, kind, self.idle);
        if !id.is_flow() {
            self.compare_with_flows(index, now, since_last);
        }
        // The answer is compared with the estimate of all sources of its kind, including those that are not trusted, or none could
        // regain its trust. Overdue probes do not count here: they would be a sample of both directions, and contradict every answer
        // for the direction that has no queue.
        let estimates = Direction::BOTH.map(|direction| {
            let (samples, used) = self.samples(direction, now, false, |_| true);
            samples.lower_median().filter(|_| used == kind)
        });
        if estimates.iter().any(Option::is_some) {
            self.sources[index].compare(delays, estimates);
        }
        let newest = |direction| self.sources[index].samples(direction, now, false).next();
        let has_queue = || {
            Direction::BOTH
                .into_iter()
                .filter_map(newest)
                .any(|sample| sample.delay > UNDELAYED)
        };
        let is_last = self.undelayed.is_none_or(|(last, _)| last < sent);
        if is_last && !id.is_flow() && !has_queue() {
            self.undelayed = Some((sent, at));
            for source in &mut self.sources {
                source.waiting = source
                    .waiting
                    .filter(|sent| !source.is_overtaken(*sent, self.undelayed));
            }
        }
    }

    /// Compares a reflector that has just answered with the connections of each direction that is not idle.
    fn compare_with_flows(&mut self, index: usize, now: Instant, since_last: Nanos) {
        for direction in Direction::BOTH {
            let needed = match self.sources[index].bypasses(direction.other()) {
                true => ENOUGH_FLOWS_AGAIN,
                false => ENOUGH_FLOWS,
            };
            let smallest = |flow: &Source| {
                flow.samples(direction, now, false)
                    .map(|sample| sample.delay)
                    .min()
            };
            let delays = self.flows(direction, now).filter_map(smallest);
            let agreed = agreed_delay(delays, needed).filter(|_| !self.idle[channel(direction)]);
            let is_new_proof = agreed.is_some_and(|agreed| {
                self.sources[index].compare_with_flows(direction, now, since_last, agreed)
            });
            if is_new_proof {
                let flows = self.sources.iter_mut().filter(|source| source.id.is_flow());
                flows.for_each(Source::forgive);
            }
        }
    }

    /// The connections that report a direction.
    fn flows(&self, direction: Direction, now: Instant) -> impl Iterator<Item = &Source> + Clone {
        self.sources
            .iter()
            .filter(move |source| source.id.is_flow() && source.is_current(direction, now))
    }

    /// The sources that count for a direction. A reflector whose probes bypass its queue does not where connections know the direction,
    /// and connections do not where other reflectors show it by itself.
    fn voters(&self, direction: Direction, now: Instant) -> impl Iterator<Item = &Source> {
        // Each step calls this often, and most lines have no bypassed queue, so the cheap tests come first.
        let has_flows = self.sources.iter().any(|source| source.id.is_flow());
        let flows_know =
            has_flows && self.is_bypassed(direction) && self.flows(direction, now).next().is_some();
        let is_wrong = move |source: &Source| flows_know && source.bypasses(direction);
        let one_ways = self.sources.iter().filter(|source| {
            source.kind == DelayKind::OneWay
                && !source.id.is_flow()
                && !is_wrong(source)
                && source.is_current(direction, now)
        });
        let flows_vote = has_flows && one_ways.take(ENOUGH_ONE_WAY).count() < ENOUGH_ONE_WAY;
        self.sources.iter().filter(move |source| match source.id {
            SourceId::Reflector(_) => !is_wrong(source),
            SourceId::Flow(_) => flows_vote,
        })
    }

    /// True if the probes of a reflector bypass the queue of a direction.
    fn is_bypassed(&self, direction: Direction) -> bool {
        self.sources.iter().any(|source| source.bypasses(direction))
    }

    /// True if connections know a direction, and the probes of all trusted reflectors bypass its queue.
    fn flows_lead(&self, direction: Direction, now: Instant) -> bool {
        let is_confirming = |source: &Source| {
            !source.id.is_flow() && source.is_trusted() && source.is_current(direction, now)
        };
        self.is_bypassed(direction)
            && self.flows(direction, now).next().is_some()
            && !self.voters(direction, now).any(is_confirming)
    }

    /// The place of a source, which is added if it is new.
    fn index(&mut self, id: SourceId, kind: DelayKind, at: Instant) -> usize {
        if let Some(index) = self.sources.iter().position(|source| source.id == id) {
            return index;
        }
        let source = Source::new(id, kind);
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(source);
            return self.sources.len() - 1;
        }
        let (index, _) = self
            .sources
            .iter()
            .enumerate()
            .max_by_key(|(_, source)| at.since(source.heard_at))
            .expect("there are sources");
        self.sources[index] = source;
        index
    }

    /// The newest samples for a direction, of the kind of source that is used, and that kind. The sources share the four places
    /// evenly.
    fn samples(
        &self,
        direction: Direction,
        now: Instant,
        count_overdue: bool,
        is_allowed: impl Fn(&Source) -> bool,
    ) -> (NewestSamples, DelayKind) {
        let (kind, count) = self.kind_and_count(direction, now, &is_allowed);
        let share = SAMPLES.div_ceil(count.max(1));
        let mut samples = NewestSamples::default();
        let used = || {
            self.voters(direction, now).filter(|source| {
                source.kind == kind && is_allowed(source) && source.is_current(direction, now)
            })
        };
        let confirmed = used()
            .any(|source| source.id.is_flow())
            .then(|| self.largest_of_reflectors(direction, now))
            .flatten();
        for source in used() {
            let limit = confirmed.filter(|_| source.id.is_flow());
            for sample in source.samples(direction, now, count_overdue).take(share) {
                samples.offer(sample.at_most(limit));
            }
        }
        (samples, kind)
    }

    /// The largest delay that a reflector reports, nanoseconds. A flow that reports more waits behind another line, or at its far host.
    fn largest_of_reflectors(&self, direction: Direction, now: Instant) -> Option<i64> {
        let newest = self
            .recent_reflectors(direction, now)
            .filter_map(|source| source.samples(direction, now, true).next());
        newest.map(|sample| sample.delay).max()
    }

    /// The trusted reflectors with recent information.
    fn recent_reflectors(&self, direction: Direction, now: Instant) -> impl Iterator<Item = &Source> {
        self.voters(direction, now).filter(move |source| {
            !source.id.is_flow() && source.is_trusted() && source.is_recent(direction, now)
        })
    }

    /// The kind of source that is used for a direction, and how many there are.
    fn kind_and_count(
        &self,
        direction: Direction,
        now: Instant,
        is_allowed: impl Fn(&Source) -> bool,
    ) -> (DelayKind, usize) {
        let allowed = |kind| {
            self.voters(direction, now)
                .filter(move |source| source.kind == kind)
                .filter(|source| is_allowed(source))
        };
        let recent = |kind| allowed(kind).filter(|source| source.is_recent(direction, now));
        let may_be_slow = |source: &Source| !source.id.is_flow() || self.flows_lead(direction, now);
        let is_slow = |source: &&Source| source.is_current(direction, now) && may_be_slow(source);
        let count = |kind| match recent(kind).count() {
            recent @ ENOUGH.. => recent,
            _ => allowed(kind).filter(is_slow).count().min(1),
        };
        let (one_ways, round_trips) = (count(DelayKind::OneWay), count(DelayKind::RoundTrip));
        // One-way delays are preferred where several sources report them, or where reflectors confirm what a flow reports.
        let is_confirmed = one_ways >= ENOUGH
            || round_trips >= ENOUGH && recent(DelayKind::OneWay).any(|source| source.id.is_flow());
        if is_confirmed || one_ways > 0 && round_trips < ENOUGH {
            (DelayKind::OneWay, one_ways.max(1))
        } else {
            (DelayKind::RoundTrip, round_trips)
        }
    }
}
