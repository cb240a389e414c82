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

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use crate::observation::Delay;
use crate::{Signal, millis};

use consensus::{NewestSamples, SAMPLES};
use disagreement::agreed_delay;
use source::{Answer, DelayKind, FRESH_SLOW, QueueDelays, Source, SourceId};

/// All sources that have answered lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayEstimator {
    sources: Vec<Source>,
    /// When the last probe was sent that returned without a queue, and when it returned.
    undelayed: (Instant, Instant),
    now: Instant,
    /// Directions that have had too little traffic for a queue.
    idle: PerDirection<bool>,
    /// When both directions last had too little traffic for a queue.
    idle_at: Instant,
}

/// Says which sources count.
type Filter = fn(&Source) -> bool;

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
/// The base round trip is limited to this, whatever the clock of a reflector says. A choice.
const MAX_RTT: Nanos = Nanos::from_millis(10_000);
/// An answer with less queue delay than this met no queue that could hold other probes back. A choice.
const UNDELAYED: Nanos = Nanos::from_millis(15);

impl DelayEstimator {
    /// Begins a step. The delays of an idle direction, which has had too little traffic for a queue, are those of the path.
    pub(crate) const fn begin_step(&mut self, now: Instant, idle: PerDirection<bool>) {
        self.now = now;
        self.idle = idle;
        if idle.download && idle.upload {
            self.idle_at = now;
        }
    }

    /// Adds a sample that was observed at `at`.
    pub(crate) fn add(&mut self, at: Instant, signal: Signal) {
        match signal {
            Signal::Echo { reflector, sent, rtt } => {
                let rtt = Some(i64::try_from(rtt.0).unwrap_or(i64::MAX));
                let answer = Answer::new(sent, at, rtt, rtt);
                self.answer(SourceId::Reflector(reflector), DelayKind::RoundTrip, answer);
            }
            Signal::OneWay {
                reflector,
                sent,
                download,
                upload,
            } => {
                let answer = Answer::new(sent, at, Some(download), Some(upload));
                self.answer(SourceId::Reflector(reflector), DelayKind::OneWay, answer);
            }
            Signal::Flow {
                flow,
                sent,
                download,
                upload,
            } => {
                let answer = Answer::new(sent, at, Some(download), upload);
                self.answer(SourceId::Flow(flow), DelayKind::OneWay, answer);
            }
            Signal::Waiting { reflector, sent } => {
                let (undelayed, idle_at) = (self.undelayed, self.idle_at);
                if let Some(source) = self.reflector(reflector) {
                    // A probe that was sent while there was no queue does not wait in one.
                    source.waiting = Some(sent).filter(|sent| *sent >= idle_at);
                    source.forget_overtaken(undelayed);
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

    /// The queue delay of a direction, and when the probe was sent that shows it; `None` while all sources are silent, or if most of
    /// them contradict each other.
    ///
    /// Round trips and overdue probes do not tell the direction. They count only if `is_attributed`, that is if the queue is
    /// attributed to this direction; otherwise this direction has no queue as far as they are concerned.
    pub(crate) fn estimate(&self, direction: Direction, is_attributed: bool) -> Option<(Delay, Instant)> {
        let samples = self.samples(direction, is_attributed, Source::is_trusted);
        let voters = self.voters(direction);
        let used = voters.filter(|source| source.kind == samples.kind);
        let (trusted, others): (Vec<_>, Vec<_>) = used.partition(|source| source.is_trusted());
        if trusted.len() < others.len() {
            return None;
        }
        let of_other = self.known_part_of_other(direction);
        let ours = |delay: Nanos| match samples.kind {
            DelayKind::OneWay => millis(delay),
            DelayKind::RoundTrip if is_attributed => millis(Nanos(delay.0.saturating_sub(of_other.0))),
            DelayKind::RoundTrip => 0.0,
        };
        let (lower, upper) = (samples.lower_median()?, samples.upper_median()?);
        let delay = Delay {
            lower: ours(lower.delay),
            upper: ours(upper.delay),
            is_overdue: lower.is_overdue,
        };
        Some((delay, lower.sent))
    }

    /// The delay that the newest sample of a trusted source shows, in either direction. It is enough to probe faster, not to change a
    /// rate.
    pub(crate) fn newest(&self) -> Nanos {
        let newest =
            Direction::BOTH.map(|direction| self.samples(direction, true, Source::is_trusted).newest);
        newest.into_iter().flatten().max().unwrap_or(Nanos(0))
    }

    /// True if the delay of a direction is known by itself, not only as a part of round trips.
    pub(crate) fn knows(&self, direction: Direction) -> bool {
        self.samples(direction, false, Source::is_trusted).kind == DelayKind::OneWay
    }

    /// The part of a round trip that the other direction is known to cause: the largest of its one-way samples. It is zero if the
    /// other direction is not known by itself, or if round trips do not include its queue.
    fn known_part_of_other(&self, direction: Direction) -> Nanos {
        let other = direction.other();
        let samples = self.samples(other, false, Source::is_trusted);
        let is_known = samples.kind == DelayKind::OneWay && !self.flows_lead(other);
        let largest = samples.by_delay.last().filter(|_| is_known);
        largest.map_or(Nanos(0), |sample| sample.delay)
    }

    /// The reflectors whose probes bypass the queue in which the user's connections wait, in either direction.
    pub(crate) fn bypassing(&self) -> impl Iterator<Item = u16> {
        let bypasses = |source: &&Source| Direction::BOTH.into_iter().any(|way| source.bypasses(way));
        let bypassing = self.sources.iter().filter(bypasses);
        bypassing.filter_map(|source| match source.id {
            SourceId::Reflector(reflector) => Some(reflector),
            SourceId::Flow(_) => None,
        })
    }

    /// The smallest round trip without a queue of any source; zero before the first answer.
    pub(crate) fn base_rtt(&self) -> Nanos {
        let sources = self.sources.iter();
        let flows_count = are_few_one_way(sources.clone());
        let counted = sources.filter(|source| flows_count || !source.is_flow());
        let rtts = counted.filter_map(Source::base_rtt);
        rtts.min().unwrap_or(Nanos(0)).min(MAX_RTT)
    }

    /// Makes the present delays of a direction the new baselines.
    pub(crate) fn rebase(&mut self, direction: Direction) {
        for source in &mut self.sources {
            source.rebase(direction);
        }
    }

    fn reflector(&mut self, reflector: u16) -> Option<&mut Source> {
        let id = SourceId::Reflector(reflector);
        self.sources.iter_mut().find(|source| source.id == id)
    }

    fn answer(&mut self, id: SourceId, kind: DelayKind, answer: Answer) {
        let index = self.index(id, kind);
        let source = &mut self.sources[index];
        let since_last = answer.at.since(source.heard_at);
        source.add(kind, answer, self.idle);
        let queues = QueueDelays::from_fn(|direction| source.queue(direction, &answer));
        let is_flow = source.is_flow();
        if !is_flow {
            self.compare_with_flows(index, since_last);
        }
        // The answer is compared with the estimate of all sources of its kind, including those that are not trusted, or none could
        // regain its trust. Overdue probes do not count here: they would be a sample of both directions, and contradict every answer
        // for the direction that has no queue.
        let estimates = QueueDelays::from_fn(|direction| {
            let samples = self.samples(direction, false, |_| true);
            let median = samples.lower_median().filter(|_| samples.kind == kind);
            median.map(|sample| sample.delay)
        });
        if estimates != QueueDelays::default() {
            self.sources[index].compare(queues, estimates);
        }
        let has_queue = queues.iter().any(|(_, queue)| *queue > Some(UNDELAYED));
        if !is_flow && !has_queue && answer.sent > self.undelayed.0 {
            self.undelayed = (answer.sent, answer.at);
            for source in &mut self.sources {
                source.forget_overtaken(self.undelayed);
            }
        }
    }

    /// Compares a reflector that has just answered with the connections of each direction that is not idle.
    fn compare_with_flows(&mut self, index: usize, since_last: Nanos) {
        for direction in Direction::BOTH {
            let needed = match self.sources[index].bypasses(direction.other()) {
                true => ENOUGH_FLOWS_AGAIN,
                false => ENOUGH_FLOWS,
            };
            let now = self.now;
            let flows = self.flows(direction);
            let smallest = flows.filter_map(|flow| flow.delays(direction, now).min());
            let agreed = agreed_delay(smallest.collect(), needed).filter(|_| !self.idle[direction]);
            let Some(agreed) = agreed else { continue };
            let shown: Vec<_> = self.sources[index].delays(direction, now).collect();
            let disagreements = &mut self.sources[index].disagreements;
            if disagreements[direction].add(since_last, &shown, agreed) {
                disagreements[direction.other()].expect();
                // Their answers disagreed with an estimate that was wrong.
                let flows = self.sources.iter_mut().filter(|source| source.is_flow());
                flows.for_each(|flow| flow.outlier_score = 0);
            }
        }
    }

    /// The sources that know a direction.
    fn current(&self, direction: Direction) -> impl Iterator<Item = &Source> + Clone {
        let sources = self.sources.iter();
        sources.filter(move |source| source.knows(direction, self.now, FRESH_SLOW))
    }

    /// The connections that know a direction.
    fn flows(&self, direction: Direction) -> impl Iterator<Item = &Source> {
        self.current(direction).filter(|source| source.is_flow())
    }

    /// True if connections know a direction, and the probes of a reflector bypass its queue.
    fn flows_know_better(&self, direction: Direction) -> bool {
        self.sources.iter().any(|source| source.bypasses(direction)) && self.flows(direction).next().is_some()
    }

    /// True if connections know a direction, and the probes of all trusted reflectors bypass its queue.
    fn flows_lead(&self, direction: Direction) -> bool {
        let confirms = |source: &Source| !source.is_flow() && source.is_trusted();
        self.flows_know_better(direction) && !self.voters(direction).any(confirms)
    }

    /// The sources that know a direction and count for it. A reflector whose probes bypass its queue does not where connections know
    /// the direction, and connections do not where other reflectors show it by itself.
    fn voters(&self, direction: Direction) -> impl Iterator<Item = &Source> {
        let flows_know_better = self.flows_know_better(direction);
        let is_right = move |source: &&Source| !(flows_know_better && source.bypasses(direction));
        let right = self.current(direction).filter(is_right);
        let flows_vote = are_few_one_way(right.clone());
        right.filter(move |source| flows_vote || !source.is_flow())
    }

    /// The place of a source, which is added if it is new.
    fn index(&mut self, id: SourceId, kind: DelayKind) -> usize {
        if let Some(index) = self.sources.iter().position(|source| source.id == id) {
            return index;
        }
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(Source::new(id, kind));
            return self.sources.len() - 1;
        }
        let heard_at = |index: &usize| self.sources[*index].heard_at;
        let silent = (0..MAX_SOURCES).rev().min_by_key(heard_at).unwrap_or(0);
        self.sources[silent] = Source::new(id, kind);
        silent
    }

    /// The newest samples for a direction, of the kind of source that is used. The sources share the four places evenly.
    fn samples(&self, direction: Direction, count_overdue: bool, is_allowed: Filter) -> NewestSamples {
        let voters = self.voters(direction);
        let allowed: Vec<_> = voters.filter(|source| is_allowed(source)).collect();
        let (kind, count) = self.kind_and_count(direction, &allowed);
        let share = SAMPLES.div_ceil(count.max(1));
        let confirmed = self.largest_of_reflectors(direction);
        let mut samples = Vec::new();
        for source in allowed.into_iter().filter(|source| source.kind == kind) {
            let counted = source.samples(direction, self.now);
            let counted = counted.filter(|sample| count_overdue || !sample.is_overdue);
            for mut sample in counted.take(share) {
                if source.is_flow() {
                    sample.delay = sample.delay.min(confirmed);
                }
                samples.push(sample);
            }
        }
        NewestSamples::new(kind, samples)
    }

    /// The largest delay that a trusted reflector with recent information reports, if there is one. A flow that reports more waits
    /// behind another line, or at its far host.
    fn largest_of_reflectors(&self, direction: Direction) -> Nanos {
        let confirms = |source: &&Source| {
            !source.is_flow() && source.is_trusted() && source.is_recent(direction, self.now)
        };
        let reflectors = self.voters(direction).filter(confirms);
        let newest = reflectors.filter_map(|source| source.delays(direction, self.now).next());
        newest.max().unwrap_or(Nanos(u64::MAX))
    }

    /// The kind of source that is used for a direction, and how many of these there are.
    fn kind_and_count(&self, direction: Direction, sources: &[&Source]) -> (DelayKind, usize) {
        let flows_lead = self.flows_lead(direction);
        let of_kind = |kind| sources.iter().filter(move |source| source.kind == kind);
        let recent = |kind| of_kind(kind).filter(|source| source.is_recent(direction, self.now));
        let count = |kind| match recent(kind).count() {
            recent @ ENOUGH.. => recent,
            _ => usize::from(of_kind(kind).any(|source| flows_lead || !source.is_flow())),
        };
        let (one_ways, round_trips) = (count(DelayKind::OneWay), count(DelayKind::RoundTrip));
        // One-way delays are preferred where several sources report them, or where reflectors confirm what a flow reports.
        let is_known = match round_trips {
            ENOUGH.. => one_ways >= ENOUGH || recent(DelayKind::OneWay).any(|source| source.is_flow()),
            _ => one_ways > 0,
        };
        match is_known {
            true => (DelayKind::OneWay, one_ways),
            false => (DelayKind::RoundTrip, round_trips),
        }
    }
}

/// True if so few reflectors show one-way delays that connections count.
fn are_few_one_way<'a>(sources: impl Iterator<Item = &'a Source>) -> bool {
    let one_ways = sources.filter(|source| source.kind == DelayKind::OneWay && !source.is_flow());
    one_ways.count() < ENOUGH_ONE_WAY
}
