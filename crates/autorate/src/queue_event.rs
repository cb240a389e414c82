//! A time with a queue above the target, in which the rate is cut.

use sqm_core::units::Instant;

use crate::millis;
use crate::observation::Observation;
use crate::params::Params;

/// A change of the queue by less than this, milliseconds, and a share of it is noise. A choice.
const NOISE: f64 = 5.5;
/// Time constant of the moving average of the capacity, seconds.
const CAPACITY_TIME: f64 = 0.2;

/// A time with a queue above the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueEvent {
    began_at: Instant,
    /// Moving average of the capacity, as far as the traffic has shown it, bits per second.
    pub(crate) capacity: f64,
    /// The capacity when the event began, bits per second.
    first_capacity: f64,
    /// The cruise rate when the event began, bits per second.
    pub(crate) cruise_before: f64,
    /// Since when the rate has been cut deeply and the queue has not become shorter, and the queue then, milliseconds.
    not_shorter: (Instant, f64),
    /// Since when the queue has not changed, and the queue then, milliseconds.
    unchanged: (Instant, f64),
    /// It shows the capacity of this direction now.
    pub(crate) teaches: bool,
}

/// Input of an event at each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Rate of the shaper before this step, bits per second.
    pub(crate) rate: f64,
    /// It is the lowest rate that the user allows.
    pub(crate) is_lowest: bool,
    /// Queue delay without noise, milliseconds.
    pub(crate) queue: f64,
    /// Queue delay to aim at, milliseconds.
    pub(crate) target: f64,
    /// The queue delay is the age of an unanswered probe.
    pub(crate) is_overdue: bool,
    /// The capacity as the last 200 ms show it, bits per second.
    pub(crate) capacity: f64,
    /// The traffic shows the capacity of this direction: the line holds it back, and not this cut.
    pub(crate) shows_capacity: bool,
}

impl QueueEvent {
    pub(crate) const fn new(seen: &Observation, cut: &Cut, cruise_before: f64) -> Self {
        let (now, queue, capacity) = (seen.now, cut.queue, cut.capacity);
        Self {
            began_at: now,
            capacity,
            first_capacity: capacity,
            cruise_before,
            not_shorter: (now, queue),
            unchanged: (now, queue),
            teaches: true,
        }
    }

    /// Adds a step. A queue that grows shows that the line carries less, even if it is not known for which direction.
    pub(crate) fn update(&mut self, params: &Params, cut: &Cut, seen: &Observation) {
        let (now, queue) = (seen.now, cut.queue);
        self.teaches = seen.teaches;
        let before = self.unchanged.1;
        let noise = NOISE + before * params.effect;
        if cut.shows_capacity || queue > before + noise {
            self.capacity += (cut.capacity - self.capacity) * (seen.elapsed / CAPACITY_TIME).min(1.0);
        }
        let is_deep = cut.is_lowest || cut.rate <= params.deep_at * self.first_capacity;
        let change = (queue - before).max(before - queue);
        if change > noise {
            self.unchanged = (now, queue);
        }
        if !is_deep || queue < self.not_shorter.1 * (1.0 - params.effect) {
            self.not_shorter = (now, queue);
        }
    }

    /// True if a deep cut has not made the queue shorter, although there was time for it.
    pub(crate) fn has_no_effect(&self, params: &Params, cut: &Cut, seen: &Observation) -> bool {
        lasts(params, cut, seen, self.not_shorter.0)
    }

    /// True if a deep cut has not changed the queue at all, although there was time for it.
    pub(crate) fn is_flat(&self, params: &Params, cut: &Cut, seen: &Observation) -> bool {
        lasts(params, cut, seen, self.unchanged.0.max(self.not_shorter.0))
    }

    /// The highest rate that shows whether the delay follows the rate, bits per second, if the queue has not changed for long.
    pub(crate) fn test_rate(&self, params: &Params, cut: &Cut, seen: &Observation) -> Option<f64> {
        lasts(params, cut, seen, self.unchanged.0).then_some(params.deep_at * self.first_capacity)
    }

    /// True if the event lasted for less than a round trip: what passed meanwhile is not what the line carries.
    pub(crate) fn is_burst(&self, seen: &Observation) -> bool {
        millis(seen.now.since(self.began_at)) < seen.base_rtt
    }
}

/// True if a state has lasted for so long that a cut would have ended it. Senders learn of a cut after a round trip. Samples are as old
/// as the queues that they waited in: that of this direction before and after the cut, and that of the other one.
fn lasts(params: &Params, cut: &Cut, seen: &Observation, since: Instant) -> bool {
    millis(seen.now.since(since))
        > params.no_effect_for_ms + seen.base_rtt + seen.other_queue + 2.0 * cut.queue
}
