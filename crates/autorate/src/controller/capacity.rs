//! The capacity of the line, as far as a queue shows it: a line with a queue is busy, so that it delivers all that it carries.
//!
//! For a download, the capacity is the rate of arrivals. For an upload it is `sent * time / (time + growth of the delay)`, as for
//! packet trains (Dovrolis et al., INFOCOM 2001).

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

use super::cut::Cut;
use super::delay_history::Slope;
use super::{MIN_DELAY_CHANGE, RateController};
use crate::observation::Observation;
use crate::scale;

/// Time constant of the estimate, nanoseconds: after this a measurement counts fully. A choice: two reports of traffic.
const TIME_CONSTANT: u64 = 100_000_000;
/// A measurement counts as one for at least this time, nanoseconds. A choice.
const MIN_WEIGHT: u64 = 20_000_000;
/// If the last 100 ms brought less than this share of the last 200 ms, thousandths, the capacity has just dropped, and only the last
/// 100 ms count. A choice.
const SUDDEN_DROP: u64 = 850;
/// An interruption of the line is shorter than this. A choice.
pub(super) const INTERRUPTION: Nanos = Nanos::from_millis(400);
/// A longer queue, nanoseconds, is not a burst of the other direction that was attributed to this one. A choice.
const LONG_QUEUE: u64 = 30_000_000;
/// While a queue does not grow, the estimate does not fall below this share of the one at the beginning of the queue, thousandths. A
/// choice.
const HOLD_RATIO: u64 = 930;

impl RateController {
    /// The capacity measured now, bits per second; `None` if the delay is not known for long enough.
    pub(super) fn measured_capacity(&self, observation: &Observation) -> Option<u64> {
        let [latest, mean] = [observation.latest_rate, observation.mean_rate].map(Rate::bits_per_sec);
        match self.direction {
            // The means include a time without traffic: before it began, in a gap, or between two bursts on a high round trip.
            Direction::Download
                if observation.has_just_begun || observation.had_gap || observation.is_high_rtt =>
            {
                Some(observation.peak_rate.bits_per_sec())
            }
            Direction::Download if latest < scale(mean, SUDDEN_DROP, 1000) => Some(latest),
            Direction::Download => Some(mean),
            Direction::Upload => {
                let Slope { from, time, growth } = self.delay_history.slope()?;
                let sent = mean.min(scale(self.rate, 1100, 1000).max(latest));
                let sent = rate_met_by_probes(observation, from, Instant(from.0 + time)).unwrap_or(sent);
                // However fast the queue shrinks, the line does not carry more than ten times what is sent.
                let taken = (i128::from(time) + i128::from(growth)).max(i128::from(time / 10));
                Some(scale(sent, time, u64::try_from(taken).unwrap_or(u64::MAX)))
            }
        }
    }

    /// Moves the estimate towards the capacity measured now. `queue` is the queue delay, `elapsed` the time since the last step, both
    /// in nanoseconds.
    pub(super) fn update_capacity(&mut self, elapsed: u64, queue: u64, observation: &Observation) {
        let (Some(capacity), Some(measured)) = (self.capacity, self.measured_capacity(observation)) else {
            return;
        };
        let senders_stopped = self.last_capacity.is_some_and(|last| {
            measured < capacity && self.senders_have_stopped(last, measured, observation)
        });
        if !observation.has_any_traffic || senders_stopped {
            return;
        }
        // A delay that does not grow may be no queue at all. Then the measurement shows what was sent, not what the line carries.
        let check = self.cut.and_then(|cut| cut.drain_check);
        let is_full = observation.latest_rate.bits_per_sec() >= scale(self.rate, HOLD_RATIO, 1000);
        let least = check
            .filter(|check| is_full && queue <= check.point.queue + MIN_DELAY_CHANGE)
            .map_or(0, |check| scale(check.max_capacity, HOLD_RATIO, 1000));
        let measured = measured.max(least);
        let measured = measured.clamp(self.limits.min, self.limits.max);
        let weight = elapsed.clamp(MIN_WEIGHT, TIME_CONSTANT);
        let next = if measured < capacity {
            capacity - scale(capacity - measured, weight, TIME_CONSTANT)
        } else {
            capacity + scale(measured - capacity, weight, TIME_CONSTANT)
        };
        self.capacity = Some(next);
    }

    /// The rate that the line has carried since the queue was longest, bits per second. If the queue has drained faster than the estimate
    /// allows, or arrivals show a gap, the line was only interrupted for a moment. Zero if the cut is too old for that.
    pub(super) fn carried_since_peak(&self, cut: &Cut, queue: u64, observation: &Observation) -> u64 {
        if self.direction == Direction::Download && observation.had_gap {
            return observation.peak_rate.bits_per_sec().min(cut.rate_before);
        }
        if observation.probe_sent_at.since(cut.began_at) > INTERRUPTION {
            return 0;
        }
        let carries = match self.direction {
            Direction::Download => observation.latest_rate.bits_per_sec(),
            Direction::Upload => {
                let time = observation.probe_sent_at.since(cut.peak.sent).0;
                // A long queue that is attributed to the other direction by now has not drained for that reason.
                let left = if cut.peak.queue > LONG_QUEUE {
                    queue.max(observation.total_queue_delay.0)
                } else {
                    queue
                };
                let drained = cut.peak.queue.saturating_sub(left);
                let sent = observation.mean_rate.bits_per_sec().min(self.rate);
                let sent =
                    rate_met_by_probes(observation, cut.peak.sent, observation.probe_sent_at).unwrap_or(sent);
                scale(sent, time, time.saturating_sub(drained).max(time / 8))
            }
        };
        carries.min(cut.rate_before)
    }
}

/// On a path with a high round trip, the rate at which data was sent while the probes were, bits per second: the present rate is
/// lower, because it was cut since.
fn rate_met_by_probes(observation: &Observation, from: Instant, to: Instant) -> Option<u64> {
    observation
        .rate_history
        .rate(from, to)
        .filter(|_| observation.is_high_rtt)
        .map(Rate::bits_per_sec)
}
