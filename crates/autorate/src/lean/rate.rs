//! The rate of one direction in the lean controller.

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

use super::params::Params;
use crate::controller::Limits;
use crate::{Bounds, Reason};

/// Input of the controller of one direction at each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Queue delay with noise, milliseconds; `None` without delay signals.
    pub(super) delay: Option<Delay>,
    /// Traffic of the last 200 ms, bits per second.
    pub(super) passes: f64,
    /// Traffic of the last 200 ms by the rate.
    pub(super) load: f64,
    /// There is enough traffic for the shaper to hold some back.
    pub(super) is_loaded: bool,
    /// There is, or was a moment ago, enough traffic for a queue.
    pub(super) is_busy: bool,
    /// Some traffic passes now.
    pub(super) has_traffic: bool,
    /// The queue may be the other direction's.
    pub(super) is_ambiguous: bool,
    /// The smallest round trip without a queue.
    pub(super) base_rtt: Nanos,
}

/// The delay that is attributed to this direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// Lower median of the newest samples, milliseconds.
    pub(super) lower: f64,
    /// Upper median of the newest samples, milliseconds.
    pub(super) upper: f64,
    /// It is the age of an unanswered probe.
    pub(super) is_overdue: bool,
}

/// A request to the caller after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing.
    None,
    /// Make the present delays the baselines: they are those of the path.
    Rebase,
    /// Attribute the queue to the other direction until it is gone.
    Acquit,
}

/// A time with a queue above the target.
#[derive(Clone, Copy, Debug)]
struct QueueEvent {
    /// Moving average of the capacity, bits per second.
    capacity: f64,
    /// The first estimate of the capacity, bits per second.
    capacity_before: f64,
    /// The cruise rate when the event began, bits per second.
    cruise_before: f64,
    /// Since when the delay has been about this, milliseconds.
    flat: (Instant, f64),
}

/// The controller of one direction. Rates are in bits per second.
#[derive(Clone, Debug)]
pub(super) struct RateController {
    direction: Direction,
    min: f64,
    base: f64,
    max: f64,
    /// The rate without a queue.
    cruise: f64,
    /// The rate of the shaper.
    pub(super) rate: f64,
    /// Capacity that queues have shown, as a moving average; `None` before the first queue.
    reference: Option<f64>,
    /// Moving average of the relative change from the reference to the next capacity.
    variability: f64,
    event: Option<QueueEvent>,
    /// The highest recent traffic, bits per second, which is forgotten slowly.
    highest: f64,
    /// Moving average of the distance between the medians of the delay samples, milliseconds.
    spread: f64,
    /// The latest queue delays with their times, milliseconds, oldest first.
    queues: [(Instant, f64); QUEUES],
    /// When delay signals were last known.
    known_at: Instant,
    pub(super) reason: Reason,
}

/// Bits of a full-size packet with its Ethernet header.
const PACKET: f64 = 1514.0 * 8.0;
/// Queue delays that are remembered, and the time between two of them: 200 ms together, as long as traffic is averaged.
const QUEUES: usize = 8;
const BETWEEN_QUEUES: Nanos = Nanos::from_millis(25);
/// With less history the growth of the queue is not known, milliseconds.
const HISTORY_MIN: f64 = 40.0;
/// A queue that drains shows at most this many times what an upload sends as capacity. A choice.
const CAPACITY_MAX: f64 = 2.0;
/// Time constant of the capacity of a queue event, seconds.
const CAPACITY_TIME: f64 = 0.2;
/// Time constant of the spread, seconds, and its limit, milliseconds: a larger one is that of a queue that grows.
const SPREAD_TIME: f64 = 5.0;
const SPREAD_MAX: f64 = 10.0;
/// Without delay signals the rate stays for this long, and then moves towards base by this share in a second.
const KEEP_RATE: Nanos = Nanos::from_millis(5000);
const DECAY: f64 = 0.02;
/// Variability of a line of which nothing is known.
const VARIABILITY_START: f64 = 0.1;

impl RateController {
    pub(super) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let limits = Limits::new(bounds);
        let base = limits.base as f64;
        Self {
            direction,
            min: limits.min as f64,
            base,
            max: limits.max as f64,
            cruise: base,
            rate: base,
            reference: None,
            variability: VARIABILITY_START,
            event: None,
            highest: 0.0,
            spread: 0.0,
            queues: [(Instant(0), 0.0); QUEUES],
            known_at: now,
            reason: Reason::Start,
        }
    }

    /// The rate by the highest recent traffic.
    pub(super) fn rate_by_highest(&self) -> f64 {
        self.rate / self.highest.max(1.0)
    }

    /// The newest queue delay, milliseconds.
    pub(super) const fn queue(&self) -> f64 {
        self.queues[QUEUES - 1].1
    }

    /// Decides on the rate. `elapsed` is the time since the last step, seconds.
    pub(super) fn step(&mut self, now: Instant, elapsed: f64, params: &Params, seen: &Observation) -> Action {
        if seen.is_busy {
            self.highest = seen
                .passes
                .max(self.highest * (1.0 - elapsed / params.highest_time));
        }
        let action = match seen.delay {
            None => {
                self.step_blind(now, elapsed, seen);
                Action::None
            }
            Some(delay) => self.step_known(now, elapsed, params, seen, delay),
        };
        self.cruise = self.cruise.clamp(self.min, self.max);
        self.rate = self.rate.clamp(self.min, self.max);
        action
    }

    fn step_blind(&mut self, now: Instant, elapsed: f64, seen: &Observation) {
        self.reason = Reason::SignalsLost;
        if now.since(self.known_at) > KEEP_RATE && seen.is_loaded {
            self.cruise += (self.base - self.cruise) * DECAY * elapsed;
            self.rate = self.cruise;
            self.reason = Reason::Decay;
        }
    }

    fn step_known(
        &mut self,
        now: Instant,
        elapsed: f64,
        params: &Params,
        seen: &Observation,
        delay: Delay,
    ) -> Action {
        self.known_at = now;
        if delay.lower < params.target_ms {
            let spread = (delay.upper - delay.lower).clamp(0.0, SPREAD_MAX);
            self.spread += (spread - self.spread) * (elapsed / SPREAD_TIME).min(1.0);
        }
        let packet = PACKET / self.rate * 1e3;
        let target = params.target_ms + packet;
        let queue = (delay.lower - self.spread * params.noise - packet).max(0.0);
        let capacity = self.capacity(now, queue, seen.passes);
        self.remember(now, queue);
        let is_possible = seen.is_busy || queue > params.long_queue_ms && seen.load >= params.active;
        let is_silent = delay.is_overdue && !seen.has_traffic;
        if queue > target && is_possible && !is_silent {
            return self.cut(now, elapsed, params, seen, (delay, queue, target), capacity);
        }
        if seen.is_loaded {
            self.grow(elapsed, params, (1.0 - queue / target).max(0.0));
        } else {
            self.reason = Reason::Unloaded;
        }
        self.rate = self.cruise;
        Action::None
    }

    /// The capacity of the line, as far as the last 200 ms show it. All that arrives of a download has crossed the line. What an
    /// upload sends crosses it, or makes its queue longer.
    fn capacity(&self, now: Instant, queue: f64, passes: f64) -> f64 {
        let (at, before) = self.queues[0];
        let span = now.since(at).0 as f64 / 1e6;
        let is_known = (HISTORY_MIN..=1000.0).contains(&span);
        if self.direction == Direction::Download || !is_known {
            return passes;
        }
        passes * (span / (span + queue - before).max(span / CAPACITY_MAX))
    }

    fn remember(&mut self, now: Instant, queue: f64) {
        if now.since(self.queues[QUEUES - 1].0) >= BETWEEN_QUEUES {
            self.queues.rotate_left(1);
            self.queues[QUEUES - 1] = (now, queue);
        }
    }

    /// The control law. The cruise rate follows the capacity down, and the rate is further below it by what drains the queue.
    fn cut(
        &mut self,
        now: Instant,
        elapsed: f64,
        params: &Params,
        seen: &Observation,
        (delay, queue, target): (Delay, f64, f64),
        capacity: f64,
    ) -> Action {
        let cruise_before = self.cruise;
        let follow = params.follow + params.follow_by_variability * self.variability;
        self.cruise += (capacity - self.cruise).min(0.0) * (elapsed / follow).min(1.0);
        let mut event = self.event.unwrap_or(QueueEvent {
            capacity,
            capacity_before: capacity,
            cruise_before,
            flat: (now, queue),
        });
        event.capacity += (capacity - event.capacity) * (elapsed / CAPACITY_TIME).min(1.0);
        let change = queue - event.flat.1;
        if change.max(-change) > params.flat_ms + event.flat.1 / 10.0 {
            event.flat = (now, queue);
        }
        self.event = Some(event);
        let flat_for = now.since(event.flat.0).0 as f64 / 1e6;
        let is_flat = flat_for > params.flat_for_ms + seen.base_rtt.0 as f64 / 1e6;
        if is_flat && !delay.is_overdue && self.rate < params.flat_at * event.capacity_before {
            return self.retract(event, queue, seen.is_ambiguous);
        }
        let least = match self.direction {
            Direction::Download => params.least_download,
            Direction::Upload => params.least_upload,
        };
        let share = (1.0 - (queue - target) / params.drain_ms).max(least);
        let wanted = self.cruise.min(capacity * share);
        let delay = Nanos((queue * 1e6) as u64);
        self.reason = if wanted >= self.rate {
            Reason::Draining { delay }
        } else if queue > params.long_queue_ms {
            Reason::Bufferbloat { delay }
        } else {
            Reason::SmallQueue { delay }
        };
        self.rate = wanted;
        Action::None
    }

    /// Takes a cut back that had no effect on the delay.
    fn retract(&mut self, event: QueueEvent, queue: f64, is_ambiguous: bool) -> Action {
        self.event = None;
        self.cruise = event.cruise_before;
        self.rate = self.cruise;
        if is_ambiguous && self.direction == Direction::Upload {
            self.reason = Reason::Steady;
            return Action::Acquit;
        }
        let by = Nanos((queue * 1e6) as u64);
        self.reason = Reason::PathChanged { by };
        Action::Rebase
    }

    /// Grows: slowly at the reference capacity, faster the further away. `room` is the part of the target that no queue fills.
    fn grow(&mut self, elapsed: f64, params: &Params, room: f64) {
        if let Some(event) = self.event.take() {
            let last = self.reference.unwrap_or(event.capacity);
            let change = event.capacity - last;
            let relative = change.max(-change) / event.capacity.max(last).max(1.0);
            self.variability += (relative - self.variability) * params.variability_weight;
            self.reference = Some(last + change * params.reference_weight);
        }
        let distance = self
            .reference
            .map_or(1.0, |reference| self.cruise / reference.max(1.0) - 1.0);
        let growth = params.growth
            + params.growth_by_variability * self.variability
            + params.growth_by_distance * distance.max(-distance);
        self.cruise *= 1.0 + growth.min(params.growth_max) * elapsed * room;
        self.reason = Reason::Grow;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use sqm_core::units::Rate;

    use super::*;

    const STEP: Nanos = Nanos::from_millis(50);

    /// A controller at 20 Mbit/s, between 1 and 80.
    fn controller(direction: Direction) -> RateController {
        let mbit = |n: u64| Some(Rate::from_kbits_per_sec(n * 1000));
        let bounds = Bounds {
            min: mbit(1),
            base: mbit(20),
            max: mbit(80),
        };
        RateController::new(Instant(0), direction, bounds)
    }

    /// An observation of a loaded direction alone, with this queue delay and traffic.
    fn seen(queue: f64, passes: f64, rate: f64) -> Observation {
        Observation {
            delay: Some(Delay {
                lower: queue,
                upper: queue,
                is_overdue: false,
            }),
            passes,
            load: passes / rate,
            is_loaded: true,
            is_busy: true,
            has_traffic: true,
            is_ambiguous: false,
            base_rtt: Nanos::from_millis(20),
        }
    }

    /// Steps for this many milliseconds. The queue delay and the traffic follow from the rate.
    fn run(
        controller: &mut RateController,
        now: &mut Instant,
        millis: u64,
        mut line: impl FnMut(f64) -> (f64, f64),
    ) -> Vec<Action> {
        let steps = 0..millis * 1_000_000 / STEP.0;
        let mut step = |_| {
            *now = *now + STEP;
            let (queue, passes) = line(controller.rate);
            let seen = seen(queue, passes, controller.rate);
            controller.step(*now, 0.05, &Params::default(), &seen)
        };
        steps.map(&mut step).collect()
    }

    #[test]
    fn a_rate_without_a_queue_grows_to_the_maximum() {
        let mut controller = controller(Direction::Download);
        run(&mut controller, &mut Instant(0), 10_000, |rate| (0.0, rate));
        assert!(controller.rate >= 80e6, "{controller:?}");
    }

    #[test]
    fn a_queue_holds_the_rate_below_the_capacity_and_its_end_gives_it_back() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        run(&mut controller, &mut now, 200, |_| (60.0, 8e6));
        assert!((5e6..7e6).contains(&controller.rate), "{controller:?}");
        run(&mut controller, &mut now, 100, |rate| (0.0, rate));
        assert!(controller.rate > 8e6, "the dip was short: {controller:?}");
    }

    #[test]
    fn an_uploads_capacity_is_what_its_queue_lets_through() {
        let mut controller = controller(Direction::Upload);
        // The line carries 10 of 20 Mbit/s: the queue grows by as much time as passes.
        let mut queue = 0.0;
        run(&mut controller, &mut Instant(0), 300, |rate| {
            queue += 50.0 * (rate / 10e6 - 1.0);
            (queue, rate)
        });
        assert!((2e6..10e6).contains(&controller.rate), "{controller:?}");
    }

    #[test]
    fn a_delay_that_does_not_follow_the_rate_is_that_of_the_path() {
        let mut controller = controller(Direction::Download);
        let actions = run(&mut controller, &mut Instant(0), 1500, |rate| (40.0, rate));
        let at = actions.iter().position(|action| *action == Action::Rebase);
        assert!(at.is_some_and(|at| at >= 8), "{actions:?}");
    }
}
