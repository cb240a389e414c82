//! What the line carries, as far as a queue shows it.

use super::{Cut, MIN_DELAY_CHANGE, Point, RateController};
use crate::observation::Observation;
use crate::scale;
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

/// A slope of the delay needs points so far apart.
const SLOPE: u64 = 150_000_000;
/// Half of it is enough where the delay grew by as much in that time, which no jitter does: the line fell only just.
const STEEP: (u64, i64) = (75_000_000, 15_000_000);
/// What is measured counts half after this.
const LEARNS: u64 = 100_000_000;
/// A delay that changes by less than this share of the time, thousandths, is almost even.
const EVEN: u64 = 100;
/// The last tenth of a second counts alone if it brought less than this of the last fifth, thousandths.
const SUDDEN: u64 = 850;
/// A moment's outage is over within this.
pub(crate) const MOMENT: Nanos = Nanos::from_millis(400);
/// A queue of this is no burst of the other direction's that was laid to this one.
const LONG: u64 = 30_000_000;
/// While a queue does not grow, the line is not thought to carry less than this of what it did at first, thousandths.
const HOLD_RATIO: u64 = 930;

impl RateController {
    /// Whether it is news.
    pub(crate) fn note(&mut self, sent: Instant, queue: u64) -> bool {
        if let Some(last) = &mut self.delay_history[Self::POINTS - 1]
            && sent <= last.sent
        {
            // A probe that is overdue says more the longer it is.
            let is_more = sent == last.sent && queue > last.queue;
            last.queue = if sent == last.sent { queue } else { last.queue };
            return is_more;
        }
        self.delay_history.rotate_left(1);
        self.delay_history[Self::POINTS - 1] = Some(Point { sent, queue });
        true
    }

    /// What the line carries while there is a queue: what arrives from it; for what is sent to it, as the delay grows.
    pub(crate) fn measured(&self, observation: &Observation) -> Option<u64> {
        let [latest, mean] = [observation.latest, observation.achieved].map(Rate::bits_per_sec);
        match self.direction {
            // A busy line delivers what it can, whatever our own shaper then does with it; just now it was idle, or away, or on a long
            // path between bursts.
            Direction::Download
                if observation.has_just_begun || observation.had_gap || observation.is_high_rtt =>
            {
                Some(observation.peak.bits_per_sec())
            }
            Direction::Download if latest < scale(mean, SUDDEN, 1000) => Some(latest),
            Direction::Download => Some(mean),
            Direction::Upload => {
                let Slope { from, time, growth } = self.slope()?;
                let sent = mean.min(scale(self.rate, 1100, 1000).max(latest));
                let sent = sent_then(observation, from, Instant(from.0 + time)).unwrap_or(sent);
                let taken = (i128::from(time) + i128::from(growth)).max(i128::from(time / 10));
                Some(scale(sent, time, u64::try_from(taken).unwrap_or(u64::MAX)))
            }
        }
    }

    pub(crate) fn learn(&mut self, elapsed: u64, queue: u64, observation: &Observation) {
        let (Some(capacity), Some(measured)) = (self.capacity, self.measured(observation)) else {
            return;
        };
        let has_stopped = self
            .found
            .is_some_and(|found| measured < capacity && self.has_stopped(found, measured, observation));
        if !observation.carries || has_stopped {
            return;
        }
        // What does not grow may be no queue at all, and then what is measured is only what was sent.
        let drain_check = self.cut.and_then(|cut| cut.drain_check);
        let is_filled = observation.latest.bits_per_sec() >= scale(self.rate, HOLD_RATIO, 1000);
        let least = drain_check
            .filter(|drain_check| is_filled && queue <= drain_check.point.queue + MIN_DELAY_CHANGE)
            .map_or(0, |drain_check| scale(drain_check.level, HOLD_RATIO, 1000));
        let measured = measured.max(least);
        let measured = measured.clamp(self.min, self.max);
        let weight = elapsed.clamp(20_000_000, LEARNS);
        let next = if measured < capacity {
            capacity - scale(capacity - measured, weight, LEARNS)
        } else {
            capacity + scale(measured - capacity, weight, LEARNS)
        };
        self.capacity = Some(next);
    }

    /// What the line carried since the queue was longest: one that went faster than the line was thought to carry was a moment's
    /// outage. So it was if the arrivals show a gap.
    pub(super) fn carried_since(&self, cut: &Cut, queue: u64, observation: &Observation) -> u64 {
        if self.direction == Direction::Download && observation.had_gap {
            return observation.peak.bits_per_sec().min(cut.before);
        }
        if observation.sent.since(cut.began_at) > MOMENT {
            return 0;
        }
        let carries = match self.direction {
            Direction::Download => observation.latest.bits_per_sec(),
            Direction::Upload => {
                let time = observation.sent.since(cut.peak.sent).0;
                // A long one that is laid to the other direction by now has not become shorter by that.
                let left = if cut.peak.queue > LONG {
                    queue.max(observation.total_queue_delay.0)
                } else {
                    queue
                };
                let fell = cut.peak.queue.saturating_sub(left);
                let sent = observation.achieved.bits_per_sec().min(self.rate);
                let sent = sent_then(observation, cut.peak.sent, observation.sent).unwrap_or(sent);
                scale(sent, time, time.saturating_sub(fell).max(time / 8))
            }
        };
        carries.min(cut.before)
    }

    /// Growth of the delay over the last points.
    fn slope(&self) -> Option<Slope> {
        let (span, much) = STEEP;
        self.growth_in(span)
            .filter(|slope| slope.growth >= much)
            .or_else(|| self.growth_in(SLOPE))
    }

    /// Whether the delay hardly changes.
    pub(crate) fn is_almost_even(&self) -> bool {
        self.growth_in(SLOPE)
            .is_some_and(|slope| slope.growth.unsigned_abs() < scale(slope.time, EVEN, 1000))
    }

    fn growth_in(&self, span: u64) -> Option<Slope> {
        let last = self.delay_history[Self::POINTS - 1]?;
        let first = self
            .delay_history
            .iter()
            .rev()
            .flatten()
            .find(|point| last.sent.since(point.sent).0 >= span)?;
        let growth = i64::try_from(last.queue).ok()? - i64::try_from(first.queue).ok()?;
        Some(Slope {
            from: first.sent,
            time: last.sent.since(first.sent).0,
            growth,
        })
    }
}

/// How the delay grew.
#[derive(Clone, Copy)]
struct Slope {
    /// From when on.
    from: Instant,
    /// In which time, nanoseconds.
    time: u64,
    /// By how much, nanoseconds.
    growth: i64,
}

/// What was sent when probes met the queue, where that is long ago: what is sent now is less, as it was cut since.
fn sent_then(observation: &Observation, from: Instant, to: Instant) -> Option<u64> {
    observation
        .history
        .rate(from, to)
        .filter(|_| observation.is_high_rtt)
        .map(Rate::bits_per_sec)
}
