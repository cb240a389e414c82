//! A rate cut in progress: was there really a queue, did this direction cause it, and when does the cut end?
//!
//! If the queue is this direction's, a cut drains it at a rate that follows from the estimated capacity. A [`DrainCheck`] adds up how
//! much should have drained since the delay last became shorter. If much more than the delay itself should have drained, the delay
//! does not depend on the rate: the cut had no effect, and either the other direction or the path causes the delay.

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

use super::capacity::INTERRUPTION;
use super::delay_history::Point;
use super::{FASTEST_GROWTH, MIN_DELAY_CHANGE, RateController, TARGET_DELAY};
use crate::delay::SEEN_AFTER;
use crate::observation::Observation;
use crate::{Reason, SECOND, scale};

/// Arrivals below this share of the last capacity, thousandths, mean that the capacity has dropped or that senders have stopped. If
/// it is the capacity, the data under way forms a queue. A choice.
const STOPPED_RATIO: u64 = 500;
/// A queue below this, nanoseconds, may be the rest of an earlier one; a drop of the capacity soon causes a longer one. A choice.
const REMNANT: u64 = 10_000_000;
/// Probes sent before a drop of the capacity return within two round trips and this. A choice.
const STRAGGLERS: Nanos = Nanos::from_millis(200);
/// If the last capacity is at least this share of what was sent, thousandths, a new queue belongs to the same line. A choice.
const SAME_LINE: u64 = 800;
/// The first measurement does not prove a capacity below this part of what was sent: a quarter. A choice.
const FIRST_MEASUREMENT: u64 = 4;
/// Arrivals show the capacity until this long after senders can have learned of our shaper's rate. Later they may be what our own
/// shaper lets pass. A choice.
const SHOWS_CAPACITY: Nanos = Nanos::from_millis(100);
/// A queue is not expected to follow the cut before this. A choice.
const CHECK_AFTER: Nanos = Nanos::from_millis(200);
/// A queue that has grown by this much, nanoseconds, although the rate was cut is the other direction's, too. A choice.
const GREW_ANYWAY: u64 = 40_000_000;
/// A rate below this share of the capacity, thousandths, must drain a queue. A few percent less may be an error of the estimate.
const CLEARLY_LESS: u64 = 950;
/// Senders that follow our shaper send at most this share of its rate, thousandths. A choice.
const COMPLIANT_RATIO: u64 = 1150;
/// A delay that has not changed for this long is tested…
const STANDS: Nanos = Nanos::from_millis(1000);
/// …by a rate of this share of the capacity, thousandths. What still stands is not a queue. Choices.
const TEST_RATIO: u64 = 880;
/// The delay is not the senders' queue if they have slowed down enough to drain it this many times over. A choice.
const CERTAIN_DRAINS: u64 = 3;
/// The rest of a round trip may be a path that has become longer only if it is less than this, nanoseconds. A choice.
const SMALL_SHIFT: u64 = 15_000_000;

/// A delay, and by how much it should have become shorter since it was met.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainCheck {
    pub(super) point: Point,
    /// Until which probe [`Self::expected_drain`] is added up.
    seen: Instant,
    /// The highest capacity that the line may have by what is known, bits per second.
    pub(super) max_capacity: u64,
    /// The queue delay that should have drained since, nanoseconds.
    expected_drain: u64,
}

impl DrainCheck {
    const fn new(point: Point, max_capacity: u64) -> Self {
        Self {
            point,
            seen: point.sent,
            max_capacity,
            expected_drain: 0,
        }
    }

    /// Adds what a direction drains that sends `less` than the line carries, until the probe sent at `sent`.
    fn add(&mut self, sent: Instant, less: u64, capacity: u64) {
        self.expected_drain += scale(sent.since(self.seen).0, less, capacity);
    }
}

/// The state of a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The rate before the cut, bits per second.
    pub(super) rate_before: u64,
    pub(super) capacity_before: Option<u64>,
    /// Probes sent before this met traffic at the rate before the cut.
    pub(super) effective_at: Instant,
    /// Compares the delay with the rate.
    pub(super) drain_check: Option<DrainCheck>,
    /// Compares the shortest delay of a download with what its senders send: they follow our shaper.
    sender_check: Option<DrainCheck>,
    /// When to reduce the rate so far that a queue must drain.
    test_at: Instant,
    /// The delay did not follow the rate.
    pub(super) had_no_effect: bool,
    /// The delay has become shorter: at least a part of it was a queue.
    has_drained: bool,
    /// The queue grows as if the rate had not been cut.
    pub(super) keeps_growing: bool,
    /// The other direction is cut for the same delay.
    pub(super) is_ambiguous: bool,
    pub(super) began_at: Instant,
    /// When the queue was first compared, or last became longer: arrivals show the capacity then.
    compared_at: Instant,
    /// The queue is the burst of senders that have just begun, which says little about the line.
    pub(super) is_of_new_senders: bool,
    /// The queue delay at the beginning, nanoseconds.
    queue_at_begin: u64,
    /// At the minimum rate: when that was reached, or the queue last became shorter.
    at_min: Option<Point>,
    /// When there was last a queue above the target.
    pub(super) above_target_at: Instant,
    /// The longest queue.
    pub(super) peak: Point,
    /// The longest [`Observation::expected_queue_delay`], nanoseconds.
    pub(super) expected: u64,
}

impl Cut {
    /// The highest rate for the test whether a standing queue drains; `None` before it is time for the test.
    ///
    /// If the delay has not changed for long, the test is below the highest capacity that the line may have. Below the estimate alone
    /// the rate might never fall far enough to show anything.
    pub(super) fn test_rate(&self, now: Instant, capacity: u64, observation: &Observation) -> Option<u64> {
        let stands = |check: &DrainCheck| observation.probe_sent_at.since(check.point.sent) >= STANDS;
        let max_capacity = self.drain_check.filter(stands).map(|check| check.max_capacity);
        let capacity = max_capacity.map_or(capacity, |max| max.min(capacity));
        (now >= self.test_at).then(|| scale(capacity, TEST_RATIO, 1000))
    }

    /// True if the rest of a round trip belongs to the path, given that it is not this direction's queue.
    fn rest_is_of_path(&self, queue: u64, observation: &Observation) -> bool {
        let is_since_peak = |check: DrainCheck| check.point.sent > self.peak.sent;
        queue < SMALL_SHIFT
            && self.sender_check.is_some_and(is_since_peak)
            && !observation.is_losing_probes
            && (observation.may_rebase || observation.other_has_drained)
    }
}

impl RateController {
    /// Begins a cut, and estimates the capacity for the first time.
    pub(super) fn begin_cut(&mut self, now: Instant, observation: &Observation) {
        self.cut = Some(Cut {
            rate_before: self.rate,
            capacity_before: self.capacity,
            effective_at: now + self.reaction_time(observation),
            drain_check: None,
            sender_check: None,
            test_at: now + STANDS,
            had_no_effect: false,
            has_drained: false,
            keeps_growing: false,
            is_ambiguous: observation.is_ambiguous,
            began_at: now,
            compared_at: now,
            is_of_new_senders: observation.has_just_begun,
            queue_at_begin: observation.queue_delay.unwrap_or(Nanos(0)).0,
            at_min: None,
            above_target_at: now,
            peak: Point {
                sent: observation.probe_sent_at,
                queue: 0,
            },
            expected: 0,
        });
        let sent = observation
            .peak_rate
            .bits_per_sec()
            .min(self.rate)
            .max(self.limits.min);
        let measured = self.measured_capacity(observation).unwrap_or(sent);
        // While nothing speaks against it, the capacity is the last one.
        let last = self.last_capacity.filter(|last| {
            *last < sent && *last > scale(sent, SAME_LINE, 1000)
                || self.senders_have_stopped(*last, measured, observation)
        });
        // The queue began when the rate was lower than now.
        let growth = self.growth_rate.min(FASTEST_GROWTH);
        let growth_since = scale(
            sent,
            growth * (observation.base_rtt.0 + SEEN_AFTER.0),
            1000 * SECOND,
        );
        let sent_then = sent - growth_since.min(sent / 2);
        let most = match self.direction {
            Direction::Upload if self.reason == Reason::Grow => sent_then,
            _ => sent,
        };
        self.capacity = Some(last.unwrap_or_else(|| measured.clamp(sent / FIRST_MEASUREMENT, most)));
    }

    /// True if little of a download arrives because its senders have stopped. If the capacity had dropped, they would have gone on for
    /// a round trip, and the queue would be longer. Rates are in bits per second.
    pub(super) fn senders_have_stopped(
        &self,
        last_capacity: u64,
        arrivals: u64,
        observation: &Observation,
    ) -> bool {
        let excess = scale(
            observation.base_rtt.0,
            last_capacity.saturating_sub(arrivals),
            arrivals,
        );
        self.direction == Direction::Download
            && arrivals < scale(last_capacity, STOPPED_RATIO, 1000)
            && observation
                .queue_delay
                .is_some_and(|queue| queue.0 < excess.min(REMNANT))
    }

    /// The queue delay that no probe has met yet, because the capacity has only just dropped, nanoseconds. While probes are overdue, the
    /// capacity is at most what passes.
    pub(super) fn expected_queue(&mut self, observation: &Observation) -> u64 {
        let Some(cut) = &mut self.cut else { return 0 };
        if !observation.is_from_overdue_probe && observation.probe_sent_at >= cut.began_at {
            return 0;
        }
        cut.expected = cut.expected.max(observation.expected_queue_delay.0);
        if observation.is_from_overdue_probe && observation.expected_queue_delay.0 > 0 {
            let passes = observation.latest_rate.bits_per_sec().max(self.limits.min);
            self.capacity = self.capacity.map(|capacity| capacity.min(passes));
        }
        cut.expected
    }

    /// The queue delay that is left now, nanoseconds. `queue` is what the probe met; an upload's queue has drained since.
    pub(super) fn present_queue(&self, now: Instant, queue: u64, observation: &Observation) -> u64 {
        if self.direction == Direction::Download {
            return queue;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let age = now.since(observation.probe_sent_at).0;
        queue.saturating_sub(scale(age, capacity.saturating_sub(self.rate), capacity))
    }

    /// True if the rate was cut for a drop of the capacity, and all that is known about the delay is from before it.
    pub(super) fn is_drop_not_measured_yet(&self, now: Instant, observation: &Observation) -> bool {
        self.cut.is_some_and(|cut| {
            cut.expected > 0
                && observation.probe_sent_at < cut.began_at
                && now.since(cut.began_at).0 < 2 * observation.base_rtt.0 + STRAGGLERS.0
        })
    }

    /// Compares the delay with the rate. Returns whether the delay belongs to the path because it does not follow the rate; the cut is
    /// then retracted. `queue` is the queue delay, nanoseconds.
    pub(super) fn delay_is_of_path(&mut self, now: Instant, queue: u64, observation: &Observation) -> bool {
        let Some(mut cut) = self.cut else { return false };
        let sent = observation.probe_sent_at;
        cut.is_ambiguous |= observation.is_ambiguous;
        cut.keeps_growing |= now > cut.effective_at + CHECK_AFTER && queue > cut.queue_at_begin + GREW_ANYWAY;
        let point = Point { sent, queue };
        if self.min_rate_has_no_effect(now, &mut cut, queue, observation) {
            cut.had_no_effect = true;
            if !observation.is_losing_probes && observation.may_rebase {
                self.restart_from_min(queue);
                return true;
            }
        }
        if sent < cut.effective_at {
            self.cut = Some(cut);
            return false;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let check = cut
            .drain_check
            .unwrap_or_else(|| DrainCheck::new(point, capacity));
        if cut.drain_check.is_none() {
            cut.compared_at = now;
        }
        let drains = self.responsive_drain_ratio(&mut cut.sender_check, point, observation);
        cut.had_no_effect |= observation.only_round_trips && drains >= 1;
        if observation.only_round_trips && drains >= CERTAIN_DRAINS && cut.rest_is_of_path(queue, observation)
        {
            self.change_path(now, queue);
            return true;
        }
        let max_capacity = self.max_capacity(now, &cut, check.max_capacity, observation);
        let check = cut.drain_check.insert(DrainCheck {
            max_capacity,
            ..check
        });
        let passes = observation.mean_rate.bits_per_sec();
        let capacity = self.capacity_to_check(capacity, max_capacity, observation);
        if passes >= scale(capacity, CLEARLY_LESS, 1000) {
            check.expected_drain = 0;
        } else {
            check.add(sent, capacity - passes, capacity);
        }
        check.seen = sent;
        let margin = MIN_DELAY_CHANGE.max(check.point.queue / 8);
        // If a part has drained, at least that part was a queue: stronger evidence is needed.
        let needed_drain = (check.point.queue + 2 * MIN_DELAY_CHANGE) * if cut.has_drained { 3 } else { 1 };
        if queue + margin < check.point.queue {
            *check = DrainCheck::new(point, capacity);
            cut.had_no_effect = false;
            cut.has_drained |= queue + 2 * margin < cut.peak.queue;
        } else if queue > check.point.queue + margin {
            // The queue grows: the capacity is lower than estimated, or the queue is not this direction's.
            cut.had_no_effect |= check.expected_drain > 2 * MIN_DELAY_CHANGE;
            *check = DrainCheck::new(point, capacity);
            cut.compared_at = now;
        } else if check.expected_drain > needed_drain {
            cut.had_no_effect = true;
            if !observation.is_losing_probes && observation.may_rebase {
                let carries = self.capacity;
                self.change_path(now, queue);
                if cut.has_drained {
                    self.capacity = carries;
                    self.rate = carries.unwrap_or(self.rate).min(self.rate);
                }
                return true;
            }
        }
        self.cut = Some(cut);
        false
    }

    /// The highest capacity that the line may have, bits per second; `before` is the one until now.
    ///
    /// A measurement just after a drop still includes traffic from before it, so that the estimate is too high. The rate that should
    /// drain the queue is then just what the line carries, the queue stands, and would be taken for the path. So a lower measurement
    /// replaces the highest capacity, as long as arrivals show the line: later they may show what our own shaper lets pass.
    fn max_capacity(&self, now: Instant, cut: &Cut, before: u64, observation: &Observation) -> u64 {
        let shows_line = now <= cut.compared_at + Nanos(self.reaction_time(observation).0 + SHOWS_CAPACITY.0);
        if !shows_line || cut.peak.queue <= 2 * TARGET_DELAY.0 || observation.only_round_trips {
            return before;
        }
        let carries = match self.direction {
            Direction::Download => observation.latest_rate.bits_per_sec(),
            Direction::Upload => self.measured_capacity(observation).unwrap_or(before),
        };
        carries.min(before)
    }

    /// The capacity that a drain is expected from, bits per second.
    ///
    /// While the round trip is almost constant, the measured capacity of an upload is just what is sent, however far the rate is cut,
    /// as if the capacity had dropped with each cut. The more likely explanation is that the queue is the other direction's, so that
    /// the estimate does not count then.
    fn capacity_to_check(&self, capacity: u64, max_capacity: u64, observation: &Observation) -> u64 {
        if observation.only_round_trips
            && self.direction == Direction::Upload
            && self.delay_history.is_almost_constant()
        {
            max_capacity
        } else {
            capacity.min(max_capacity)
        }
    }

    /// How many times over the shortest queue should have drained by now, given how little a download's senders send. They follow our
    /// shaper, so that what still stands is not their queue: while a queue of theirs is left at the line, arrivals are what the line
    /// carries, whatever our shaper lets pass.
    fn responsive_drain_ratio(
        &self,
        check: &mut Option<DrainCheck>,
        point: Point,
        observation: &Observation,
    ) -> u64 {
        if self.direction == Direction::Upload {
            return 0;
        }
        let new = DrainCheck::new(point, self.capacity.unwrap_or(self.rate));
        let check = check.get_or_insert(new);
        let arrivals = observation.mean_rate.bits_per_sec();
        if arrivals <= scale(self.rate, COMPLIANT_RATIO, 1000) {
            let less = check.max_capacity.saturating_sub(arrivals.max(self.rate));
            check.add(observation.probe_sent_at, less, check.max_capacity);
        }
        check.seen = observation.probe_sent_at;
        if point.queue + MIN_DELAY_CHANGE < check.point.queue {
            *check = new;
        }
        check.expected_drain / (check.point.queue + 3 * MIN_DELAY_CHANGE)
    }

    /// True if the minimum rate has not made the queue shorter for a while. The line carries that rate, so that what stands is the
    /// path's delay, or waits in our own shaper, which then has hardly room for the acknowledgements of the other direction.
    fn min_rate_has_no_effect(
        &self,
        now: Instant,
        cut: &mut Cut,
        queue: u64,
        observation: &Observation,
    ) -> bool {
        if self.rate > self.limits.min {
            cut.at_min = None;
            return false;
        }
        let here = Point { sent: now, queue };
        let shortest = cut.at_min.get_or_insert(here);
        if queue + MIN_DELAY_CHANGE.max(shortest.queue / 8) < shortest.queue {
            *shortest = here;
        }
        observation.probe_sent_at.since(shortest.sent) >= STANDS
    }

    /// Starts again from twice the minimum rate, as if nothing were known about the line.
    fn restart_from_min(&mut self, queue: u64) {
        self.cut = None;
        self.capacity = None;
        self.last_capacity = None;
        self.rate = 2 * self.limits.min;
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// True if a download's queue had drained before its senders can have reacted to the cut: an interruption of the line, or a burst.
    /// Neither says anything about the capacity.
    pub(super) fn drained_before_reaction(&self, now: Instant, cut: &Cut, observation: &Observation) -> bool {
        let drained_soon = if observation.is_high_rtt {
            // The cut was held until the senders could react.
            cut.above_target_at.since(cut.began_at) < observation.base_rtt
        } else {
            observation.probe_sent_at < cut.effective_at && now.since(cut.began_at) <= INTERRUPTION
        };
        self.direction == Direction::Download && observation.may_rebase && drained_soon
    }

    /// Time from a change of the rate until less traffic reaches the queue: the senders of a download must learn of it first.
    const fn reaction_time(&self, observation: &Observation) -> Nanos {
        match self.direction {
            Direction::Download => observation.base_rtt,
            Direction::Upload => Nanos(0),
        }
    }
}
