//! One source of delay samples: a reflector, or one of the user's TCP connections.

use alloc::vec::Vec;

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use super::baseline::Baseline;
use super::consensus::{DelaySample, SAMPLES};
use super::disagreement::Disagreement;

/// An answer is recent for this long: six reflectors take turns within 300 ms, and a half more is the margin.
const FRESH: Nanos = Nanos::from_millis(450);
/// A flow whose last sample is older than this reports less often than reflectors do, so that reflectors are preferred.
const FRESH_FLOW: Nanos = Nanos::from_millis(150);
/// Answers older than this do not count at all. Slow probing, every 250 ms, takes 1.5 s for six reflectors.
pub(super) const FRESH_SLOW: Nanos = Nanos::from_millis(1600);
/// A probe that is overdue by this is lost rather than late. A choice, longer than any buffer should hold.
const DEAD: Nanos = Nanos::from_millis(3000);
/// A source that answered less than this many of 256 recent probes (80 %) is not believed when it is silent. A choice.
const RELIABLE: u32 = 205;
/// A source agrees with the estimate if it is within this of it, or within half of it. A choice: answers that met the same queue
/// arrive at different times.
const AGREES_WITHIN: Nanos = Nanos::from_millis(30);
/// A source that disagreed in more than this many of 1024 recent answers (one half) is not trusted. A choice.
const MAX_OUTLIER_SCORE: u32 = 512;
/// A one-way delay that changes by more than this, nanoseconds, is a clock that was set, not a queue. A choice, beyond any queue.
const CLOCK_STEP: i64 = 10_000_000_000;

/// Delays are limited to this, nanoseconds: 36 years. It is far beyond the offset of any two clocks, one of which may show the time of
/// day and the other one that since the machine's start, and far from overflow.
const MAX_DELAY: i64 = 1 << 60;

/// Identifies a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceId {
    Reflector(u16),
    Flow(u64),
}

/// The kind of delay that a source measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayKind {
    RoundTrip,
    OneWay,
}

/// An answer of a reflector, or a segment of a connection that answers another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) sent: Instant,
    pub(super) at: Instant,
    /// The delay of each direction, nanoseconds, where it is known. A round trip is that of both.
    pub(super) delays: PerDirection<Option<i64>>,
}

impl Answer {
    pub(super) fn new(sent: Instant, at: Instant, download: Option<i64>, upload: Option<i64>) -> Self {
        let delays = PerDirection { download, upload };
        let delays = delays.map(|delay| Some(delay?.clamp(-MAX_DELAY, MAX_DELAY)));
        Self { sent, at, delays }
    }
}

/// The queue delay of each direction, where it is known.
pub(super) type QueueDelays = PerDirection<Option<Nanos>>;

/// A source with its baselines, its last answers and its reputation.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) id: SourceId,
    pub(super) kind: DelayKind,
    baselines: PerDirection<Baseline>,
    /// Newest first.
    answers: Vec<Answer>,
    /// When the oldest unanswered probe was sent.
    pub(super) waiting: Option<Instant>,
    pub(super) heard_at: Instant,
    /// Moving average of answered probes, of 256.
    pub(super) reliability: u32,
    /// Moving average of answers that disagreed with the estimate, of 1024.
    pub(super) outlier_score: u32,
    /// The evidence that a reflector's probes bypass the queue.
    pub(super) disagreements: PerDirection<Disagreement>,
}

impl Source {
    pub(super) fn new(id: SourceId, kind: DelayKind) -> Self {
        Self {
            id,
            kind,
            baselines: PerDirection::default(),
            answers: Vec::new(),
            waiting: None,
            heard_at: Instant(0),
            reliability: 256,
            outlier_score: 0,
            disagreements: PerDirection::default(),
        }
    }

    pub(super) const fn is_flow(&self) -> bool {
        matches!(self.id, SourceId::Flow(_))
    }

    /// True if it is proven that the reflector's probes bypass the queue of the direction.
    pub(super) const fn bypasses(&self, direction: Direction) -> bool {
        self.disagreements.get(direction).is_proven
    }

    pub(super) const fn is_trusted(&self) -> bool {
        self.outlier_score <= MAX_OUTLIER_SCORE
    }

    /// Updates the outlier score: do these queue delays of the newest answer agree with the estimates of all sources?
    pub(super) fn compare(&mut self, queues: QueueDelays, estimates: QueueDelays) {
        let disagrees = |direction| match (queues[direction], estimates[direction]) {
            (Some(Nanos(queue)), Some(Nanos(estimate))) => {
                queue.abs_diff(estimate) > AGREES_WITHIN.0.max(estimate / 2)
            }
            _ => false,
        };
        let newest = if Direction::BOTH.into_iter().any(disagrees) {
            1024
        } else {
            0
        };
        self.outlier_score = self.outlier_score - self.outlier_score / 8 + newest / 8;
    }

    /// Adds an answer. `idle` says which directions can have no queue.
    pub(super) fn add(&mut self, kind: DelayKind, answer: Answer, idle: PerDirection<bool>) {
        if kind != self.kind {
            *self = Self::new(self.id, kind);
        }
        let since_last = answer.at.since(self.heard_at);
        for (direction, baseline) in self.baselines.iter_mut() {
            let is_idle = match kind {
                DelayKind::RoundTrip => idle.download && idle.upload,
                DelayKind::OneWay => idle[direction],
            };
            if let Some(delay) = answer.delays[direction] {
                if baseline.min().is_some_and(|min| (delay - min).abs() > CLOCK_STEP) {
                    *baseline = Baseline::default();
                    self.answers.clear();
                }
                baseline.add(since_last, delay, is_idle);
            }
        }
        self.answers.insert(0, answer);
        self.answers.truncate(SAMPLES);
        self.heard_at = answer.at;
        self.waiting = self.waiting.filter(|waiting| *waiting > answer.sent);
        self.reliability += (256 - self.reliability) / 8;
    }

    /// Forgets an unanswered probe if one that was `sent` later has returned without a queue `at` a time when this one should have
    /// returned, too. It does not wait in a queue: it is lost, or late for another reason.
    pub(super) fn forget_overtaken(&mut self, (sent, at): (Instant, Instant)) {
        let should_be_back = |probe: Instant| self.base_rtt().is_some_and(|usual| at.since(probe) >= usual);
        self.waiting = self
            .waiting
            .filter(|probe| *probe >= sent || !should_be_back(*probe));
    }

    /// True if its newest information on a direction is recent.
    pub(super) fn is_recent(&self, direction: Direction, now: Instant) -> bool {
        self.knows(direction, now, if self.is_flow() { FRESH_FLOW } else { FRESH })
    }

    /// True if its newest answer for a direction is not older than this, or if a probe is overdue.
    pub(super) fn knows(&self, direction: Direction, now: Instant, age: Nanos) -> bool {
        let mut answers = self.answers.iter();
        let newest = answers.find(|answer| answer.delays[direction].is_some());
        newest.is_some_and(|answer| now.since(answer.at) <= age) || self.overdue(now).is_some()
    }

    /// The delays of its samples for a direction, newest first.
    pub(super) fn delays(&self, direction: Direction, now: Instant) -> impl Iterator<Item = Nanos> {
        self.samples(direction, now).map(|sample| sample.delay)
    }

    /// Its samples for a direction, newest first. An overdue probe is one of them.
    pub(super) fn samples(&self, direction: Direction, now: Instant) -> impl Iterator<Item = DelaySample> {
        let answers = self.answers.iter();
        let fresh = answers.filter(move |answer| now.since(answer.at) <= FRESH_SLOW);
        let mut answers = fresh.filter_map(move |answer| {
            Some(DelaySample {
                delay: self.queue(direction, answer)?,
                sent: answer.sent,
                is_recent: now.since(answer.at) <= FRESH,
                is_overdue: false,
            })
        });
        let newest = answers.next();
        // The age of an overdue probe is a lower bound. It is information only if it exceeds the delay of the last answer.
        let exceeds = |overdue: &DelaySample| newest.is_none_or(|newest| overdue.delay > newest.delay);
        let overdue = self.overdue(now).filter(exceeds);
        overdue.into_iter().chain(newest).chain(answers)
    }

    /// The part of an answer's delay that is above the baseline.
    pub(super) fn queue(&self, direction: Direction, answer: &Answer) -> Option<Nanos> {
        let above = answer.delays[direction]? - self.baselines[direction].min()?;
        Some(positive(above))
    }

    /// The sample of an overdue probe, which may wait in the queue of either direction.
    fn overdue(&self, now: Instant) -> Option<DelaySample> {
        let sent = self.waiting?;
        let late = now.since(sent).0.checked_sub(self.base_rtt()?.0)?;
        let is_believed = self.reliability >= RELIABLE && late > 0 && late < DEAD.0;
        is_believed.then_some(DelaySample {
            delay: Nanos(late),
            sent,
            is_recent: true,
            is_overdue: true,
        })
    }

    /// Round trip without a queue. For one-way delays it is their sum, in which the clock offsets cancel.
    pub(super) fn base_rtt(&self) -> Option<Nanos> {
        let PerDirection { download, upload } = self.baselines;
        Some(positive(match self.kind {
            DelayKind::RoundTrip => download.min()?,
            DelayKind::OneWay => download.min()? + upload.min()?,
        }))
    }

    /// Makes the present delay of a direction its baseline. Only the last two answers count: older ones may be from before the path
    /// changed.
    pub(super) fn rebase(&mut self, direction: Direction) {
        for (of, baseline) in self.baselines.iter_mut() {
            let is_meant = of == direction || self.kind == DelayKind::RoundTrip;
            let present = self.answers.iter().take(2).filter_map(|answer| answer.delays[of]);
            if let Some(present) = present.min().filter(|_| is_meant) {
                *baseline = Baseline::default();
                baseline.add(Nanos(0), present, false);
            }
        }
    }
}

/// A delay that cannot be negative.
fn positive(nanos: i64) -> Nanos {
    Nanos(u64::try_from(nanos).unwrap_or(0))
}
