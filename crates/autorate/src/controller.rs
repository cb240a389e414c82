//! The rate of one direction, from its queue delay and its traffic.
//!
//! The control law is in [`RateController::cut_rate`]: `rate = capacity * (1 - (queue delay - target) / DRAIN_TIME)`. Around it:
//! [`capacity`] estimates the capacity while there is a queue, [`cut`] finds out whether the delay follows the rate, [`growth`]
//! increases the rate while there is no queue, [`outage`] decides without delay signals. [`slow_start_guard`], [`high_rtt`] and
//! [`baseline_shift`] are special cases.
//!
//! Inside, rates are in bits per second and delays in nanoseconds.

mod baseline_shift;
mod capacity;
mod cut;
mod delay_history;
mod growth;
mod high_rtt;
mod limits;
mod outage;
mod slow_start_guard;

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

use crate::observation::Observation;
use crate::{Bounds, Choice, Reason, SECOND, scale};

use baseline_shift::BaselineShift;
use cut::Cut;
use delay_history::{DelayHistory, Point};
pub(crate) use limits::Limits;
use slow_start_guard::SlowStartGuard;

/// A request to the caller after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// Make the present delays the baselines: they are those of the path.
    Rebase,
    /// Learn that the line carries this and no more.
    Learn(Rate),
    /// Give the next turn to this direction: it may have been cut for the other one's queue.
    TryAgain,
}

/// The controller of one direction.
#[derive(Clone, Debug)]
pub(crate) struct RateController {
    direction: Direction,
    limits: Limits,
    rate: u64,
    reason: Reason,
    /// Estimate of the capacity; `None` before the first queue.
    capacity: Option<u64>,
    /// Growth near and beyond the last capacity, thousandths of the rate per second.
    growth_rate: u64,
    /// Moving average of the relative change from one capacity to the next, thousandths.
    capacity_variance: u64,
    /// [`Self::capacity_variance`] without changes to another level, millionths.
    dip_ewma: u64,
    /// How long growth waits after a queue: longer if the same capacity is found again and again.
    holdoff: Nanos,
    holdoff_until: Instant,
    /// The capacity that the last queue has shown.
    last_capacity: Option<u64>,
    /// The highest capacity of the last minute, and when it was found.
    recent_max: Option<(u64, Instant)>,
    /// The lowest capacity of the last minutes, and when it was found.
    recent_min: Option<(u64, Instant)>,
    delay_history: DelayHistory,
    cut: Option<Cut>,
    baseline_shift: Option<BaselineShift>,
    slow_start_guard: Option<SlowStartGuard>,
    /// Since when there has been a queue above the limit.
    queue_since: Instant,
    /// Since when there has been a queue, but none above the limit.
    small_queue_since: Instant,
    /// Moving average of the distance between the medians of the delay samples while no cut is in progress, nanoseconds.
    spread: u64,
    /// When delay signals were last known.
    known_at: Instant,
    /// When a cut was last in progress; `None` if the last one was retracted.
    cut_at: Option<Instant>,
    /// When the rate was last limited because of the other direction, and the rate before.
    silenced: Option<(Instant, u64)>,
    stepped_at: Instant,
}

/// The queue delay to aim at, above noise: enough to know that the line is busy. It is the default target of CoDel (RFC 8289
/// section 4.3).
pub(crate) const TARGET_DELAY: Nanos = Nanos::from_millis(5);
/// The target of an upload while a download is active and several sources measure the directions apart. A choice: the upload's queue
/// varies the download's round trip, whose senders then do not fill the line.
pub(crate) const TARGET_DELAY_UPLOAD_WITH_DOWNLOAD: Nanos = Nanos::from_micros(1500);
/// The target of both queues together, where the directions are not measured apart. A choice.
pub(crate) const TARGET_DELAY_BOTH: Nanos = Nanos::from_micros(6500);
/// The target grows by what the average dip of the capacity takes away in this time, so that the line stays busy through a dip…
const DIP_TIME: Nanos = Nanos::from_millis(150);
/// …and by at most this. Choices.
const DIP_QUEUE_MAX: Nanos = Nanos::from_millis(15);
/// A queue below [`TARGET_DELAY`] but above the target of this direction counts only after this time. A choice: by then all samples
/// are newer.
const BELIEVED_AFTER: Nanos = Nanos::from_millis(300);
/// A queue that is too small for a cut and lasts this long may instead be a path that has become slightly longer. Growth then
/// continues, and shows which it is. A choice.
const LINGERS: Nanos = Nanos::from_millis(300);
/// The control law drains the queue above the target in about this time, nanoseconds. A choice.
const DRAIN_TIME: u64 = 150_000_000;
/// An upload is never cut below this share of its capacity, thousandths. A choice: its queue drains by what is not sent to it.
const UPLOAD_CUT_MIN: u64 = 50;
/// A download is never cut below this share of its capacity, thousandths. A choice: its queue drains as its senders slow down, once in
/// a round trip, and a queue in our own shaper would lengthen that.
const DOWNLOAD_CUT_MIN: u64 = 700;
/// A direction with little traffic is cut only for a queue above this, nanoseconds: half of what cake-autorate counts as delayed.
const LONG_QUEUE: u64 = 15_000_000;
/// The noise of the estimate by the spread of the samples, percent. If the jitter of four delays is exponential, the third is half of
/// its mean above the second, and the second is seldom more than one and a quarter of that above the baseline.
const NOISE_BY_SPREAD: u64 = 120;
/// A larger spread, nanoseconds, is that of a queue that grows or drains. A choice.
const SPREAD_MAX: u64 = 10_000_000;
/// Time constant of the spread, nanoseconds. A choice.
const SPREAD_TIME: u64 = 5 * SECOND;
/// A full-size packet with its Ethernet header, bits.
const PACKET_BITS: u64 = 1514 * 8;
/// The fastest growth, thousandths of the rate per second: the rate doubles in 0.7 s. A choice.
const FASTEST_GROWTH: u64 = 1000;
/// Growth near the last capacity, thousandths of the rate per second. A choice.
const SLOW_GROWTH: u64 = 50;
/// A capacity below this share of the last one, thousandths, is a far drop. A choice.
const CAPACITY_DROP_RATIO: u64 = 700;
/// Growth after a far drop or a change of the path, thousandths of the rate per second. A choice: the capacity may rise again as soon.
const FAST_REGROWTH: u64 = 4 * SLOW_GROWTH;
/// A capacity below this share of the rate before, thousandths, has collapsed…
const COLLAPSED_RATIO: u64 = 333;
/// …if there is also a queue of more than this, nanoseconds. It may have collapsed in both directions then. Choices.
const COLLAPSED_QUEUE: u64 = 50_000_000;
/// The other direction's collapse is recognised at most this long before one's own. A choice.
const COLLAPSED_TOGETHER: Nanos = Nanos::from_millis(500);
/// The shortest time without growth after a queue. A choice.
const HOLDOFF_MIN: Nanos = Nanos::from_millis(200);
/// Where the rate must not exceed the capacity, it is this share of it, thousandths. A choice.
const BELOW_CAPACITY: u64 = 960;
/// A delay that changes by less than this, nanoseconds, is unchanged. A choice, above the jitter of most paths.
pub(crate) const MIN_DELAY_CHANGE: u64 = 3_000_000;

impl RateController {
    pub(crate) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let limits = Limits::new(bounds);
        Self {
            direction,
            limits,
            rate: limits.base,
            reason: Reason::Start,
            capacity: None,
            growth_rate: FASTEST_GROWTH,
            capacity_variance: 0,
            dip_ewma: 0,
            holdoff: HOLDOFF_MIN,
            holdoff_until: now,
            last_capacity: None,
            recent_max: None,
            recent_min: None,
            delay_history: DelayHistory::default(),
            cut: None,
            baseline_shift: None,
            slow_start_guard: None,
            queue_since: now,
            small_queue_since: now,
            spread: 0,
            known_at: now,
            cut_at: None,
            silenced: None,
            stepped_at: now,
        }
    }

    /// The rate that the shaper should have.
    pub(crate) fn rate(&self) -> Rate {
        let limit = self.slow_start_limit().unwrap_or(self.rate);
        Rate::from_bits_per_sec(self.rate.min(limit))
    }

    /// Time that a full-size packet takes at this rate.
    pub(crate) fn serialization_delay(&self) -> Nanos {
        Nanos(scale(PACKET_BITS, SECOND, self.rate))
    }

    /// The queue delay to aim at where reflectors measure this direction: the longer, the more the capacity dips.
    pub(crate) fn target_delay(&self) -> Nanos {
        Nanos(TARGET_DELAY.0 + scale(self.dip_ewma, DIP_TIME.0, 1_000_000).min(DIP_QUEUE_MAX.0))
    }

    /// True if the rate is at or above the last capacity.
    pub(crate) fn is_exploring(&self) -> bool {
        self.last_capacity
            .is_none_or(|capacity| self.rate > scale(capacity, BELOW_CAPACITY + 10, 1000))
    }

    /// True if no cut is in progress, and this queue would not cause one.
    pub(crate) fn is_quiet(&self, queue: Nanos) -> bool {
        self.cut.is_none() && queue.0 <= TARGET_DELAY.0 / 2 + self.noise() + self.serialization_delay().0
    }

    /// True if a cut is in progress.
    pub(crate) const fn is_draining(&self) -> bool {
        self.cut.is_some()
    }

    pub(crate) const fn is_at_min(&self) -> bool {
        self.rate <= self.limits.min
    }

    /// True if the delay has not followed the cut in progress.
    pub(crate) fn cut_had_no_effect(&self) -> bool {
        self.cut.is_some_and(|cut| cut.had_no_effect)
    }

    /// True if the queue grows as if the rate had not been cut.
    pub(crate) fn keeps_growing(&self) -> bool {
        self.cut.is_some_and(|cut| cut.keeps_growing)
    }

    /// True if the capacity has dropped to a fraction, with a long queue.
    pub(crate) fn has_collapsed(&self) -> bool {
        let Some(cut) = self.cut else { return false };
        // A direction that was limited because of the other one may then turn out to have dropped itself. Its rate before is that
        // from before the limit.
        let silenced = self
            .silenced
            .filter(|(at, _)| cut.began_at.since(*at) <= COLLAPSED_TOGETHER);
        let before = silenced.map_or(cut.rate_before, |(_, before)| cut.rate_before.max(before));
        cut.peak.queue.max(cut.expected) > COLLAPSED_QUEUE
            && self
                .capacity
                .is_some_and(|capacity| capacity < scale(before, COLLAPSED_RATIO, 1000))
    }

    pub(crate) fn was_cut_within(&self, now: Instant, span: Nanos) -> bool {
        self.cut_at.is_some_and(|at| now.since(at) <= span)
    }

    /// Takes back a cut, because the queue was not this direction's.
    pub(crate) fn retract_cut(&mut self, now: Instant) {
        self.cut_at = None;
        if let Some(cut) = self.cut.take() {
            self.capacity = cut.capacity_before;
            self.rate = self.last_capacity.map_or(cut.rate_before, |capacity| {
                cut.rate_before.min(scale(capacity, BELOW_CAPACITY, 1000))
            });
            self.holdoff_until = now + HOLDOFF_MIN;
        }
    }

    /// Takes back a cut, because the delay belongs to the path. What changed the path may have changed the capacity, too, so that growth
    /// is fast.
    fn change_path(&mut self, now: Instant, queue: u64) {
        self.retract_cut(now);
        self.baseline_shift = None;
        self.growth_rate = self.growth_rate.max(FAST_REGROWTH);
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// Continues with the capacity that is usual at this hour.
    pub(crate) fn start_at(&mut self, usual: Rate) {
        let usual = usual.bits_per_sec();
        self.rate = scale(usual, BELOW_CAPACITY, 1000).clamp(self.limits.min, self.limits.max);
        self.capacity = Some(usual);
        self.last_capacity = self.capacity;
        self.recent_max = None;
        self.recent_min = None;
        self.cut = None;
        self.holdoff = HOLDOFF_MIN;
        self.reason = Reason::Learned;
    }

    /// Decides on the rate.
    pub(crate) fn step(&mut self, now: Instant, observation: &Observation) -> (Choice, Action) {
        let elapsed = now.since(self.stepped_at).0.min(SECOND);
        self.stepped_at = now;
        self.update_slow_start_guard(now, observation);
        let action = match observation.queue_delay {
            None => {
                self.step_blind(now, elapsed, observation);
                Action::None
            }
            Some(queue) => {
                self.known_at = now;
                self.update_spread(elapsed, observation);
                self.step_known(now, elapsed, queue.0, observation)
            }
        };
        if self.cut.is_some() {
            self.cut_at = Some(now);
        }
        self.rate = self.rate.clamp(self.limits.min, self.limits.max);
        let choice = Choice {
            rate: self.rate(),
            reason: self.reason,
        };
        (choice, action)
    }

    /// A step with a known delay: the rate is cut, stays, or grows.
    fn step_known(&mut self, now: Instant, elapsed: u64, delay: u64, observation: &Observation) -> Action {
        let floor = self.noise() + observation.serialization_delay.0;
        let is_new = self.delay_history.add(observation.probe_sent_at, delay);
        let queue = delay.saturating_sub(floor);
        let limit = if self.cut.is_none() && !observation.is_busy {
            LONG_QUEUE
        } else {
            // Now and then a probe waits behind one packet more.
            observation.target_delay.0 + observation.serialization_delay.0
        };
        if observation.is_silenced_by_other && self.cut.is_none() && self.limit_to_latest(now, observation) {
            return Action::None;
        }
        if self.delay_is_baseline(now, queue, observation) && queue > limit / 2 {
            self.change_path(now, queue);
            return Action::Rebase;
        }
        let is_clear = queue <= limit / 2 && !self.is_drop_not_measured_yet(now, observation);
        let is_silent = observation.is_from_overdue_probe && !observation.has_any_traffic;
        if is_clear || !observation.is_active || is_silent {
            (self.queue_since, self.small_queue_since) = (now, now);
            return self.grow(now, elapsed, queue, observation);
        }
        if queue > limit || self.cut.is_some() {
            self.small_queue_since = now;
        }
        if queue <= limit {
            self.queue_since = now;
            if now.since(self.small_queue_since) >= LINGERS {
                return self.grow(now, elapsed, queue, observation);
            }
        }
        let is_believed = queue > TARGET_DELAY.0 + observation.serialization_delay.0
            || now.since(self.queue_since) >= BELIEVED_AFTER;
        // While there is a queue at the line, traffic passes. Without traffic, answers are late for another reason.
        if self.cut.is_none() && (queue <= limit || !is_believed || !observation.has_any_traffic) {
            self.reason = if observation.is_loaded {
                Reason::Steady
            } else {
                Reason::Unloaded
            };
            return Action::None;
        }
        self.update_cut(now, queue, limit, observation);
        if is_new {
            self.update_capacity(elapsed, queue, observation);
            if self.delay_is_of_path(now, queue, observation) {
                return Action::Rebase;
            }
        }
        self.cut_rate(now, queue, floor, observation);
        Action::None
    }

    /// Begins a cut if none is in progress, and records its longest queue.
    fn update_cut(&mut self, now: Instant, queue: u64, limit: u64, observation: &Observation) {
        if self.cut.is_none() {
            self.begin_cut(now, observation);
        }
        if let Some(cut) = &mut self.cut {
            if queue > limit {
                cut.above_target_at = now;
            }
            if queue >= cut.peak.queue {
                cut.peak = Point {
                    sent: observation.probe_sent_at,
                    queue,
                };
            }
        }
    }

    /// The control law: the rate is the capacity, less what drains the queue above the target in [`DRAIN_TIME`]. `floor` is the part of
    /// the delay that is not a queue.
    fn cut_rate(&mut self, now: Instant, queue: u64, floor: u64, observation: &Observation) {
        let present = self
            .present_queue(now, queue, observation)
            .max(self.expected_queue(observation));
        let capacity = self.capacity.unwrap_or(self.rate);
        let least = match self.direction {
            Direction::Download => DOWNLOAD_CUT_MIN,
            Direction::Upload => UPLOAD_CUT_MIN,
        };
        let above_target = present.saturating_sub(observation.target_delay.0);
        let less = scale(above_target, 1000, DRAIN_TIME).min(1000 - least);
        let wanted = scale(capacity, 1000 - less, 1000);
        let test = self.cut.and_then(|cut| cut.test_rate(now, capacity, observation));
        let wanted = test.map_or(wanted, |test| wanted.min(test));
        let delay = Nanos(queue + floor);
        self.reason = if wanted >= self.rate {
            Reason::Draining { delay }
        } else if queue > LONG_QUEUE {
            Reason::Bufferbloat { delay }
        } else {
            Reason::SmallQueue { delay }
        };
        self.rate = wanted.min(self.cut.map_or(wanted, |cut| cut.rate_before));
    }

    /// True if the delay belongs to the path, because ever more of a download arrives and the delay does not change. Only for a download
    /// that is measured apart from the upload.
    fn delay_is_baseline(&mut self, now: Instant, queue: u64, observation: &Observation) -> bool {
        let is_measured = self.direction == Direction::Download && !observation.only_round_trips;
        is_measured
            && queue < COLLAPSED_QUEUE
            && BaselineShift::update(&mut self.baseline_shift, now, queue, observation)
            && !observation.is_from_overdue_probe
            && !observation.is_losing_probes
    }

    /// Follows the beginning of a download on a path with a high round trip.
    fn update_slow_start_guard(&mut self, now: Instant, observation: &Observation) {
        self.slow_start_guard = if self.direction == Direction::Download && observation.is_high_rtt {
            let rates = (self.rate, self.limits.min);
            SlowStartGuard::update(self.slow_start_guard, now, rates, observation)
        } else {
            None
        };
    }

    /// The rate that a new download may have until its senders have left slow start.
    fn slow_start_limit(&self) -> Option<u64> {
        self.slow_start_guard.and_then(|guard| guard.limit())
    }

    /// Follows how far delay samples of the same time are apart. While there is no queue, their lower median is seldom more above the
    /// baselines than [`NOISE_BY_SPREAD`] of that.
    fn update_spread(&mut self, elapsed: u64, observation: &Observation) {
        if self.cut.is_some() {
            return;
        }
        let queue = observation.queue_delay.unwrap_or(Nanos(0)).0;
        let spread = observation
            .upper_median_delay
            .0
            .saturating_sub(queue)
            .min(SPREAD_MAX);
        let weight = elapsed.min(SPREAD_TIME);
        self.spread =
            self.spread - scale(self.spread, weight, SPREAD_TIME) + scale(spread, weight, SPREAD_TIME);
    }

    /// The part of a delay that is noise.
    const fn noise(&self) -> u64 {
        self.spread * NOISE_BY_SPREAD / 100
    }
}
