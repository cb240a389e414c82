//! One source of delay samples: a reflector, or one of the user's TCP connections.

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

use super::baseline::Baseline;
use super::consensus::{DelaySample, SAMPLES};
use super::disagreement::Disagreement;
use super::{FRESH, FRESH_FLOW, FRESH_SLOW, MAX_DELAY};

/// A probe that is overdue by more than this is lost rather than late. A choice, longer than any buffer should hold.
const DEAD: Nanos = Nanos::from_millis(3000);
/// A source that answered less than this many of 256 recent probes (80 %) is not believed when it is silent. A choice.
const RELIABLE: u32 = 205;
/// A source agrees with the estimate if it is within this of it, nanoseconds, or within half of it. A choice: answers that met the
/// same queue arrive at different times.
const AGREES_WITHIN: i64 = 30_000_000;
/// A source that disagreed in more than this many of 1024 recent answers (one half) is not trusted. A choice.
const MAX_OUTLIER_SCORE: u32 = 512;
/// A one-way delay that changes by more than this, nanoseconds, is a clock that was set, not a queue. A choice, beyond any queue.
const CLOCK_STEP: i64 = 10_000_000_000;

/// Identifies a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceId {
    Reflector(u16),
    Flow(u64),
}

impl SourceId {
    pub(super) const fn is_flow(self) -> bool {
        matches!(self, Self::Flow(_))
    }
}

/// The kind of delay that a source measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayKind {
    RoundTrip,
    OneWay,
}

/// A delay of each direction in nanoseconds, in the order of [`Direction::BOTH`], where it is known. A round trip is in both
/// places.
pub(super) type Delays = [Option<i64>; 2];

/// A source with its baselines, its last answers and its reputation.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) id: SourceId,
    pub(super) kind: DelayKind,
    /// In the order of [`Direction::BOTH`].
    baselines: [Baseline; 2],
    /// Newest last.
    answers: [Option<Answer>; SAMPLES],
    /// When the oldest unanswered probe was sent.
    pub(super) waiting: Option<Instant>,
    pub(super) heard_at: Instant,
    /// Moving average of answered probes, of 256.
    pub(super) reliability: u32,
    /// Moving average of answers that disagreed with the estimate, of 1024.
    outlier_score: u32,
    /// The evidence that a reflector's probes bypass the queue, in the order of [`Direction::BOTH`].
    disagreements: [Disagreement; 2],
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    sent: Instant,
    at: Instant,
    delays: Delays,
}

impl Source {
    pub(super) fn new(id: SourceId, kind: DelayKind) -> Self {
        Self {
            id,
            kind,
            baselines: [Baseline::default(); 2],
            answers: [None; SAMPLES],
            waiting: None,
            heard_at: Instant(0),
            reliability: 256,
            outlier_score: 0,
            disagreements: [Disagreement::default(); 2],
        }
    }

    /// Compares what a reflector has just answered with the queue delay that connections agree on. Returns true if this proves that
    /// its probes bypass the queue of the direction.
    pub(super) fn compare_with_flows(
        &mut self,
        direction: Direction,
        now: Instant,
        since_last: Nanos,
        agreed: i64,
    ) -> bool {
        let mut disagreement = self.disagreements[channel(direction)];
        let shown = self.samples(direction, now, true).map(|sample| sample.delay);
        let is_new_proof = disagreement.add(since_last, shown, agreed);
        self.disagreements[channel(direction)] = disagreement;
        if is_new_proof {
            self.disagreements[channel(direction.other())].expect();
        }
        is_new_proof
    }

    /// True if it is proven that the reflector's probes bypass the queue of the direction.
    pub(super) const fn bypasses(&self, direction: Direction) -> bool {
        self.disagreements[channel(direction)].is_proven()
    }

    /// Forgets how often its answers disagreed, because the estimate that they were compared with was wrong.
    pub(super) const fn forgive(&mut self) {
        self.outlier_score = 0;
    }

    pub(super) const fn is_trusted(&self) -> bool {
        self.outlier_score <= MAX_OUTLIER_SCORE
    }

    /// Updates the outlier score: does the newest answer agree with the estimates of all sources?
    pub(super) fn compare(&mut self, delays: Delays, estimates: [Option<DelaySample>; 2]) {
        let above = |channel: usize| Some(delays[channel]?.saturating_sub(self.baselines[channel].min()?));
        let disagrees = (0..2).any(|channel| match (above(channel), estimates[channel]) {
            (Some(above), Some(estimate)) => {
                (above - estimate.delay).abs() > AGREES_WITHIN.max(estimate.delay / 2)
            }
            _ => false,
        });
        self.outlier_score =
            self.outlier_score - self.outlier_score / 8 + if disagrees { 1024 / 8 } else { 0 };
    }

    /// Adds an answer. `idle` says which directions can have no queue.
    pub(super) fn add(
        &mut self,
        at: Instant,
        sent: Instant,
        delays: Delays,
        kind: DelayKind,
        idle: [bool; 2],
    ) {
        if kind != self.kind {
            *self = Self::new(self.id, kind);
        }
        let since_last = at.since(self.heard_at);
        let idle = match kind {
            DelayKind::RoundTrip => [idle == [true; 2]; 2],
            DelayKind::OneWay => idle,
        };
        for ((baseline, delay), is_idle) in self.baselines.iter_mut().zip(delays).zip(idle) {
            let Some(delay) = delay else { continue };
            if baseline.min().is_some_and(|min| (delay - min).abs() > CLOCK_STEP) {
                *baseline = Baseline::default();
                self.answers = [None; SAMPLES];
            }
            baseline.add(since_last, delay, is_idle);
        }
        self.answers.rotate_left(1);
        self.answers[SAMPLES - 1] = Some(Answer { sent, at, delays });
        self.heard_at = at;
        self.waiting = self.waiting.filter(|waiting| *waiting > sent);
        self.reliability += (256 - self.reliability) / 8;
    }

    /// True if a probe that was sent later has returned without a queue at a time when this one should have returned, too. Then this
    /// one does not wait in a queue: it is lost, or late for another reason.
    pub(super) fn is_overtaken(&self, waiting: Instant, undelayed: Option<(Instant, Instant)>) -> bool {
        let usual = u64::try_from(self.base_rtt().unwrap_or(MAX_DELAY)).unwrap_or(0);
        undelayed.is_some_and(|(sent, at)| waiting < sent && at.since(waiting).0 >= usual)
    }

    /// True if its newest information on a direction is recent.
    pub(super) fn is_recent(&self, direction: Direction, now: Instant) -> bool {
        let fresh = if self.id.is_flow() { FRESH_FLOW } else { FRESH };
        self.was_heard_within(direction, now, fresh) || self.overdue(now).is_some()
    }

    /// True if it has any information on a direction that still counts.
    pub(super) fn is_current(&self, direction: Direction, now: Instant) -> bool {
        self.was_heard_within(direction, now, FRESH_SLOW) || self.overdue(now).is_some()
    }

    fn was_heard_within(&self, direction: Direction, now: Instant, span: Nanos) -> bool {
        let mut known = self.answers.iter().rev().flatten();
        let newest = known.find(|answer| answer.delays[channel(direction)].is_some());
        newest.is_some_and(|answer| now.since(answer.at) <= span)
    }

    /// Its samples for a direction, newest first. An overdue probe is one of them if `count_overdue`.
    pub(super) fn samples(
        &self,
        direction: Direction,
        now: Instant,
        count_overdue: bool,
    ) -> impl Iterator<Item = DelaySample> + Clone {
        let channel = channel(direction);
        let baseline = self.baselines[channel].min();
        let mut answers = self
            .answers
            .iter()
            .rev()
            .flatten()
            .filter(move |answer| now.since(answer.at) <= FRESH_SLOW)
            .filter_map(move |answer| {
                Some(DelaySample {
                    delay: answer.delays[channel]?.saturating_sub(baseline?).max(0),
                    sent: answer.sent,
                    is_recent: now.since(answer.at) <= FRESH,
                    is_overdue: false,
                })
            });
        let newest = answers.next();
        // The age of an overdue probe is a lower bound. It is information only if it exceeds the delay of the last answer.
        let overdue = self.overdue(now).filter(|_| count_overdue);
        let overdue = overdue.filter(|overdue| newest.is_none_or(|answered| overdue.delay > answered.delay));
        overdue.into_iter().chain(newest).chain(answers)
    }

    /// The sample of an overdue probe, which may wait in the queue of either direction.
    fn overdue(&self, now: Instant) -> Option<DelaySample> {
        let sent = self.waiting?;
        let usual = self.base_rtt()?;
        let late = i64::try_from(now.since(sent).0).ok()?.saturating_sub(usual);
        let is_believed =
            self.reliability >= RELIABLE && late > 0 && late < i64::try_from(DEAD.0).unwrap_or(0);
        is_believed.then_some(DelaySample {
            delay: late,
            sent,
            is_recent: true,
            is_overdue: true,
        })
    }

    /// Round trip without a queue, nanoseconds. For one-way delays it is their sum, in which the clock offsets cancel.
    pub(super) fn base_rtt(&self) -> Option<i64> {
        let [download, upload] = [self.baselines[0].min()?, self.baselines[1].min()?];
        Some(match self.kind {
            DelayKind::RoundTrip => download,
            DelayKind::OneWay => download.saturating_add(upload).max(0),
        })
    }

    /// Makes the present delay of a direction its baseline. Only the last two answers count: older ones may be from before the path
    /// changed.
    pub(super) fn rebase(&mut self, direction: Direction) {
        let channels = match self.kind {
            DelayKind::RoundTrip => 0..2,
            DelayKind::OneWay => channel(direction)..channel(direction) + 1,
        };
        for channel in channels {
            let present = self.answers.iter().rev().take(2).flatten();
            let present = present.filter_map(|answer| answer.delays[channel]);
            if let Some(present) = present.min() {
                self.baselines[channel] = Baseline::default();
                self.baselines[channel].add(Nanos(0), present, false);
            }
        }
    }
}

/// The place of a direction in [`Delays`].
pub(super) const fn channel(direction: Direction) -> usize {
    match direction {
        Direction::Download => 0,
        Direction::Upload => 1,
    }
}
