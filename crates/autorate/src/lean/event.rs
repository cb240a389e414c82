//! A time with a queue above the target, in which the rate is cut.

use sqm_core::units::Instant;

use super::millis;
use super::params::Params;
use super::rate::{Observation, ROUND_TRIP};

/// Time constant of the moving average of the capacity, seconds.
const CAPACITY_TIME: f64 = 0.2;

/// A time with a queue above the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueEvent {
    began_at: Instant,
    /// Moving average of the capacity, bits per second.
    capacity: f64,
    /// The first estimate of the capacity, bits per second.
    first_capacity: f64,
    /// The cruise rate when the event began, bits per second.
    pub(super) cruise_before: f64,
    /// Since when the rate has been cut deeply and the queue has not become shorter, and the queue then, milliseconds.
    not_shorter: (Instant, f64),
    /// Since when the rate has been cut deeply and the queue has not changed, and the queue then, milliseconds.
    unchanged: (Instant, f64),
    /// It has shown the capacity of this direction all the time.
    teaches: bool,
}

/// Input of an event at each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) now: Instant,
    /// Time since the last step, seconds.
    pub(super) elapsed: f64,
    /// Rate of the shaper before this step, bits per second.
    pub(super) rate: f64,
    /// Queue delay without noise, milliseconds.
    pub(super) queue: f64,
    /// The capacity as the last 200 ms show it, bits per second.
    pub(super) capacity: f64,
}

impl QueueEvent {
    pub(super) const fn new(now: Instant, cruise_before: f64, queue: f64, capacity: f64) -> Self {
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

    pub(super) fn update(&mut self, params: &Params, cut: &Cut, teaches: bool) {
        let Cut { now, queue, .. } = *cut;
        self.teaches &= teaches;
        self.capacity += (cut.capacity - self.capacity) * (cut.elapsed / CAPACITY_TIME).min(1.0);
        let is_deep = cut.rate <= params.deep_at * self.first_capacity;
        // A change within the target and a share of the queue is noise.
        let before = self.unchanged.1;
        let change = (queue - before).max(before - queue);
        if !is_deep || change > params.target_ms * ROUND_TRIP + before * params.effect {
            self.unchanged = (now, queue);
        }
        if !is_deep || queue < self.not_shorter.1 * (1.0 - params.effect) {
            self.not_shorter = (now, queue);
        }
    }

    /// True if a deep cut has not made the queue shorter, although there was time for it.
    pub(super) fn has_no_effect(&self, params: &Params, cut: &Cut, seen: &Observation) -> bool {
        lasts(params, cut, seen, self.not_shorter.0)
    }

    /// True if a deep cut has not changed the queue at all, although there was time for it.
    pub(super) fn is_flat(&self, params: &Params, cut: &Cut, seen: &Observation) -> bool {
        lasts(params, cut, seen, self.unchanged.0)
    }

    /// The capacity that the event has shown, bits per second, if it has ended now. A queue that lasted for less than a round trip is a
    /// burst, and what passed meanwhile is not what the line carries.
    pub(super) fn lesson(&self, now: Instant, seen: &Observation) -> Option<f64> {
        let is_burst = millis(now.since(self.began_at)) < seen.base_rtt;
        (self.teaches && !is_burst).then_some(self.capacity)
    }
}

/// True if a state has lasted for so long that a cut would have ended it. Senders learn of a cut after a round trip, and the samples
/// are as old as the queue that they waited in, before and after the cut.
fn lasts(params: &Params, cut: &Cut, seen: &Observation, since: Instant) -> bool {
    millis(cut.now.since(since)) > params.no_effect_for_ms + seen.base_rtt + 2.0 * cut.queue
}
