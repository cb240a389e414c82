//! A controller without a queue to cut for: how a cut ends, and how the rate grows.
//!
//! Growth is fast far below the last capacity, slow near it, and faster and faster beyond it, as in CUBIC (RFC 9438 section 4.1).
//! Growth rates are in thousandths of the rate per second.

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

use super::cut::Cut;
use super::{
    Action, BELOW_CAPACITY, CAPACITY_DROP_RATIO, FAST_REGROWTH, FASTEST_GROWTH, HOLDOFF_MIN, RateController,
    SLOW_GROWTH, TARGET_DELAY,
};
use crate::delay::SEEN_AFTER;
use crate::observation::Observation;
use crate::{Reason, SECOND, scale};

/// The rate is at most this share of the traffic, thousandths: only traffic proves that the line carries a rate. A choice.
const PROVEN_RATIO: u64 = 1200;
/// The rate grows by at most this much, thousandths, before the controller can learn of a queue that this causes. A choice.
const GROWTH_AHEAD: u64 = 250;
/// [`SLOW_GROWTH`] where reflectors measure the directions apart, and no acknowledgements of a download wait: a rate that is too high
/// is recognised at once. A choice.
const SLOW_GROWTH_REFLECTED: u64 = 160;
/// Where directions explore in turns, slow growth is faster by this share of the variance of the capacity, thousandths. A choice: the
/// capacity of a line that varies must be found again within a turn.
const VARIANCE_GROWTH_GAIN: u64 = 500;
/// Below this share of the last capacity, thousandths, growth is fast. A choice.
const FAR_BELOW: u64 = 900;
/// Beyond this share of the last capacity, thousandths, growth accelerates…
const BEYOND: u64 = 1030;
/// …and doubles in this time. Choices.
const GROWTH_DOUBLES: Nanos = Nanos::from_millis(300);
/// The longest time without growth after a queue, where only round trips are known. A choice.
const HOLDOFF_MAX: Nanos = Nanos::from_millis(5_000);
/// [`HOLDOFF_MAX`] where the directions are measured apart: exploring costs less, because its queue is recognised at once and
/// attributed correctly. A choice.
const HOLDOFF_MAX_APART: Nanos = Nanos::from_millis(1_000);
/// Two capacities within this of each other confirm each other, thousandths. A choice.
const SAME_CAPACITY: u64 = 50;
/// A change of the capacity by more than this, thousandths, is not a dip: the line has moved to another level. A choice.
const JUMP: u64 = 300;
/// A dip counts for at most this, thousandths. A choice.
const DIP_MAX: u64 = 150;
/// After a queue, an upload that competes with a download continues with this share of the capacity, thousandths. A choice.
const COMPETING_UPLOAD_RATIO: u64 = 970;
/// While there is a queue too small to cut for, the direction whose turn it is not reduces its rate by this much, thousandths per
/// second, down to [`BELOW_CAPACITY`] of its place. A choice.
const YIELD_RATE: u64 = 50;
/// After a rest, a load may begin with the highest capacity of this time before the last one…
const RECENT: Nanos = Nanos::from_millis(60_000);
/// …but at most this share of the last one, thousandths. A choice: on a line that varies either is as likely, and senders find sooner
/// that a rate is too high than that it is too low.
const RECENT_MAX_RATIO: u64 = 2000;
/// Not if the rate was cut within this time. A choice.
const RECENTLY_CUT: Nanos = Nanos::from_millis(3000);

impl RateController {
    /// A step without a queue to cut for. `elapsed` is the time since the last step, `queue` the queue delay, both in nanoseconds.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        elapsed: u64,
        queue: u64,
        observation: &Observation,
    ) -> Action {
        let is_unconfirmed = |cut: Cut| cut.expected > 0 && cut.peak.queue <= TARGET_DELAY.0;
        if self.cut.is_some_and(is_unconfirmed) {
            // The senders have stopped, and the expected queue did not appear.
            self.retract_cut(now);
            // It is not known whether the whole rate passes now.
            if observation.other_has_collapsed && self.limit_to_latest(now, observation) {
                return Action::None;
            }
        }
        if self.must_hold_cut(now, observation) {
            return Action::None;
        }
        let action = self.end_cut(now, queue, observation);
        if self.slow_start_limit().is_some() {
            self.reason = Reason::SlowStartGuard;
            return action;
        }
        if !observation.is_loaded {
            self.reason = Reason::Unloaded;
            if observation.has_rested && !self.was_cut_within(now, RECENTLY_CUT) {
                self.rate = self.rate.max(self.rate_after_rest(now, observation));
            }
            return action;
        }
        let known_good = if observation.is_high_rtt {
            Some(self.conservative_rate(now))
        } else {
            self.last_capacity
                .map(|capacity| scale(capacity, FAR_BELOW, 1000))
        };
        let is_far_below = known_good.is_none_or(|known_good| self.rate < known_good);
        let small_queue = observation.target_delay.0 / 2 + self.noise() + observation.serialization_delay.0;
        let has_small_queue = observation.total_queue_delay.0 > small_queue;
        if !is_far_below && !observation.may_explore {
            self.yield_turn(elapsed, has_small_queue, observation);
            self.reason = Reason::Steady;
            return action;
        }
        if has_small_queue || observation.other_has_collapsed || !is_far_below && now < self.holdoff_until {
            self.reason = Reason::Steady;
            return action;
        }
        self.increase(elapsed, known_good, is_far_below, observation);
        self.reason = Reason::Grow;
        action
    }

    /// Keeps the rate below the capacity while the other direction explores, and reduces it while there is a small queue: that may be
    /// this direction's, if its capacity is slightly overestimated, and would otherwise be attributed to the one that explores.
    fn yield_turn(&mut self, elapsed: u64, has_small_queue: bool, observation: &Observation) {
        // On a high round trip the rate is conservative already, and would return only slowly.
        let below = if observation.is_high_rtt {
            1000
        } else {
            BELOW_CAPACITY
        };
        let place = scale(self.capacity.unwrap_or(self.rate), below, 1000);
        self.rate = self.rate.min(place);
        if has_small_queue {
            let less = scale(self.rate, YIELD_RATE * elapsed, 1000 * SECOND);
            self.rate = (self.rate - less)
                .max(scale(place, BELOW_CAPACITY, 1000))
                .min(self.rate);
        }
    }

    /// Increases the rate by what `elapsed` nanoseconds allow.
    fn increase(
        &mut self,
        elapsed: u64,
        known_good: Option<u64>,
        is_far_below: bool,
        observation: &Observation,
    ) {
        // A queue is recognised after this time, nanoseconds.
        let feedback = observation.base_rtt.0 + SEEN_AFTER.0;
        let growth = match (is_far_below, observation.is_high_rtt) {
            (true, _) => FASTEST_GROWTH,
            (false, true) => self.high_rtt_growth_rate(),
            (false, false) => self.growth_rate,
        };
        let growth = growth.min(scale(GROWTH_AHEAD, SECOND, feedback));
        let is_beyond = self
            .last_capacity
            .is_none_or(|capacity| self.rate > scale(capacity, BEYOND, 1000));
        if is_beyond && !observation.is_high_rtt {
            let faster = scale(self.growth_rate, elapsed, GROWTH_DOUBLES.0.max(feedback)).max(1);
            self.growth_rate = (self.growth_rate + faster).min(FASTEST_GROWTH);
        }
        let grown = self
            .rate
            .saturating_add(scale(self.rate, growth * elapsed, 1000 * SECOND));
        let proven = scale(observation.peak_rate.bits_per_sec(), PROVEN_RATIO, 1000);
        // Fast growth ends at the known rate.
        let known_good = known_good
            .filter(|known_good| self.rate < *known_good)
            .unwrap_or(u64::MAX);
        self.rate = grown.min(proven).min(known_good).max(self.rate);
        if let Some(capacity) = self.capacity {
            self.capacity = Some(capacity.max(self.rate));
        }
    }

    /// True if a cut must be held although the queue is gone, because a download's senders cannot have learned of it yet. On a high
    /// round trip the queue was a burst, and the next one arrives before they do.
    fn must_hold_cut(&self, now: Instant, observation: &Observation) -> bool {
        observation.is_high_rtt
            && self.direction == Direction::Download
            && self.cut.is_some_and(|cut| now < cut.effective_at)
    }

    /// Ends a cut, if there is one: its queue has drained. The capacity that it has shown becomes the rate.
    fn end_cut(&mut self, now: Instant, queue: u64, observation: &Observation) -> Action {
        let had_collapsed = self.has_collapsed();
        let Some(cut) = self.cut.take() else {
            return Action::None;
        };
        if self.drained_before_reaction(now, &cut, observation) {
            self.capacity = cut.capacity_before;
            self.rate = cut.rate_before;
            self.holdoff_until = now + HOLDOFF_MIN;
            return Action::None;
        }
        let capacity =
            self.capacity
                .unwrap_or(self.rate)
                .max(self.carried_since_peak(&cut, queue, observation));
        self.update_growth(capacity, &cut, observation);
        self.last_capacity = Some(capacity);
        self.record_max_capacity(now, capacity);
        self.record_min_capacity(now, capacity.min(cut.rate_before));
        self.holdoff_until = now + self.holdoff;
        self.capacity = Some(capacity);
        let place = if observation.competes_with_download {
            scale(capacity, COMPETING_UPLOAD_RATIO, 1000)
        } else {
            capacity
        };
        self.rate = place.min(cut.rate_before);
        if observation.is_high_rtt {
            self.rate = self.rate.min(self.conservative_rate(now));
        }
        if cut.is_ambiguous && self.direction == Direction::Download && !had_collapsed {
            // The capacity of the upload is estimated better. So the upload keeps its cut, and the download tries whether its own cut
            // was needed.
            self.rate = self.rate.max(scale(cut.rate_before, 900, 1000));
            return Action::TryAgain;
        }
        Action::Learn(Rate::from_bits_per_sec(capacity))
    }

    /// Sets the hold-off, the variance of the capacity and the growth rate after a queue that has shown `capacity`, bits per second.
    fn update_growth(&mut self, capacity: u64, cut: &Cut, observation: &Observation) {
        let is_same = self
            .last_capacity
            .is_some_and(|last| last.abs_diff(capacity) <= scale(capacity, SAME_CAPACITY, 1000));
        self.holdoff = if is_same && !cut.is_of_new_senders {
            let max = if observation.only_round_trips {
                HOLDOFF_MAX
            } else {
                HOLDOFF_MAX_APART
            };
            Nanos(self.holdoff.0 / 4 * 5).min(max)
        } else {
            HOLDOFF_MIN
        };
        let has_dropped = self
            .last_capacity
            .is_some_and(|last| capacity < scale(last, CAPACITY_DROP_RATIO, 1000));
        if let Some(last) = self.last_capacity {
            let change = scale(last.abs_diff(capacity), 1000, capacity).min(1000);
            self.capacity_variance = self.capacity_variance - self.capacity_variance / 4 + change / 4;
            let dip = if change > JUMP { 0 } else { change.min(DIP_MAX) };
            self.dip_ewma = self.dip_ewma - self.dip_ewma / 4 + dip * 1000 / 4;
        }
        let growth = if observation.only_round_trips {
            SLOW_GROWTH + scale(self.capacity_variance, VARIANCE_GROWTH_GAIN, 1000)
        } else if observation.has_one_way_reflectors && !observation.competes_with_download {
            SLOW_GROWTH_REFLECTED
        } else {
            SLOW_GROWTH
        };
        self.growth_rate = if has_dropped {
            growth.max(FAST_REGROWTH)
        } else {
            growth
        };
    }

    fn record_max_capacity(&mut self, now: Instant, capacity: u64) {
        let is_new = self
            .recent_max
            .is_none_or(|(max, at)| capacity >= max || now.since(at) > RECENT);
        if is_new {
            self.recent_max = Some((capacity, now));
        }
    }

    /// The rate for a load that begins after a rest, bits per second.
    fn rate_after_rest(&self, now: Instant, observation: &Observation) -> u64 {
        if observation.is_high_rtt {
            return self.conservative_rate(now);
        }
        let max = self.recent_max.map_or(0, |(max, _)| max);
        let last = self.last_capacity.unwrap_or(0);
        max.min(scale(last, RECENT_MAX_RATIO, 1000))
    }
}
