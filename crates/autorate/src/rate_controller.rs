//! The rate of one direction.

use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

use crate::known_capacity::KnownCapacity;
use crate::limits::Limits;
use crate::millis;
use crate::observation::{Delay, Observation};
use crate::params::Params;
use crate::queue_event::{Cut, QueueEvent};
use crate::{Bounds, Reason};

/// A request to the caller after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// Make the present delays the baselines: they are those of the path.
    Rebase,
    /// Attribute the queue to another direction: the cut had no effect.
    Acquit,
    /// Learn that the line carries this and no more.
    Learn(Rate),
}

/// The controller of one direction. Rates are in bits per second.
#[derive(Clone, Debug)]
pub(crate) struct RateController {
    direction: Direction,
    min: f64,
    base: f64,
    max: f64,
    /// The rate without a queue.
    cruise: f64,
    /// The rate of the shaper.
    pub(crate) rate: f64,
    known: KnownCapacity,
    event: Option<QueueEvent>,
    /// The highest recent traffic, bits per second, which is forgotten slowly.
    highest: f64,
    /// Moving average of the distance between the medians of the delay samples, milliseconds.
    spread: f64,
    /// The latest queue delays with their times, milliseconds, oldest first.
    queues: [(Instant, f64); QUEUES],
    /// When delay signals were last known, or not needed.
    known_at: Instant,
    /// When there was last no traffic.
    quiet_at: Instant,
    pub(crate) reason: Reason,
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
/// Time constant of the spread, seconds, and its limit, milliseconds: a larger one is that of a queue that grows.
const SPREAD_TIME: f64 = 5.0;
const SPREAD_MAX: f64 = 10.0;
/// Delay signals are missed after this time under load. A choice: answers may wait in a queue for as long.
const BLIND_AFTER: Nanos = Nanos::from_millis(1500);
/// Without delay signals the rate stays for this long, and then moves towards base by this share in a second.
const KEEP_RATE: Nanos = Nanos::from_millis(5000);
const DECAY: f64 = 0.02;
/// A line is started at this share of its usual capacity. A choice.
const BELOW_USUAL: f64 = 0.96;
/// From this round trip on, milliseconds, what is known of the line is old. A choice between terrestrial paths, which seldom exceed
/// it, and geostationary satellites, which take 500 ms and more.
pub(crate) const HIGH_RTT: f64 = 300.0;
/// Traffic below this share of the rate is none.
const QUIET: f64 = 0.05;

impl RateController {
    pub(crate) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let limits = Limits::new(bounds);
        let base = limits.base as f64;
        Self {
            direction,
            min: limits.min as f64,
            base,
            max: limits.max as f64,
            cruise: base,
            rate: base,
            known: KnownCapacity::new(),
            event: None,
            highest: base,
            spread: 0.0,
            queues: [(Instant(0), 0.0); QUEUES],
            known_at: now,
            quiet_at: now,
            reason: Reason::Start,
        }
    }

    /// True if this traffic, bits per second, can cause a queue: it is not far below the rate, or below the highest recent traffic
    /// where the line carries less than the rate.
    pub(crate) fn is_much(&self, params: &Params, traffic: f64) -> bool {
        traffic >= params.busy * self.rate.min(self.highest)
    }

    /// The newest queue delay, milliseconds.
    pub(crate) const fn queue(&self) -> f64 {
        self.queues[QUEUES - 1].1
    }

    /// True if a cut is in progress.
    pub(crate) const fn is_cut(&self) -> bool {
        self.event.is_some()
    }

    /// The rate at which this direction waits for its turn to explore, on a line that varies little.
    pub(crate) fn waits_at(&self, params: &Params) -> Option<f64> {
        let share = params.wait_at + params.wait_at_by_variability * self.known.variability();
        let reference = self.known.reference();
        (share < 1.0).then(|| reference.map_or(self.cruise, |reference| reference * share))
    }

    /// Decides on the rate.
    pub(crate) fn step(&mut self, params: &Params, seen: &Observation) -> Action {
        if seen.is_busy {
            self.highest = seen
                .passes
                .max(self.highest * (1.0 - seen.elapsed / params.highest_time));
        }
        let action = match seen.delay {
            None => self.step_blind(seen),
            Some(delay) => self.step_known(params, seen, delay),
        };
        self.cruise = self.cruise.clamp(self.min, self.max);
        if !seen.may_explore
            && let Some(waits_at) = self.waits_at(params)
        {
            self.rate = self.rate.min(waits_at);
        }
        if self.is_in_slow_start(params, seen) {
            self.rate = self.rate.min(self.cruise * params.slow_start_share);
            if matches!(self.reason, Reason::Grow | Reason::Steady | Reason::Unloaded) {
                self.reason = Reason::SlowStartGuard;
            }
        }
        self.rate = self.rate.clamp(self.min, self.max);
        action
    }

    /// True for a download that has just begun on a path with a high round trip.
    fn is_in_slow_start(&mut self, params: &Params, seen: &Observation) -> bool {
        if seen.load < QUIET && seen.passes < QUIET * self.cruise {
            self.quiet_at = seen.now;
        }
        let rounds = millis(seen.now.since(self.quiet_at)) / seen.base_rtt.max(1.0);
        self.direction == Direction::Download
            && seen.base_rtt >= HIGH_RTT
            && rounds < params.slow_start_rounds
    }

    /// Continues with the capacity that is usual at this hour, bits per second.
    pub(crate) fn start_at(&mut self, usual: f64) {
        self.cruise = (usual * BELOW_USUAL).clamp(self.min, self.max);
        self.rate = self.cruise;
        self.known = KnownCapacity::new();
        self.known.add(usual);
        self.event = None;
        self.reason = Reason::Learned;
    }

    /// A step without delay signals. The rate stays for a while, because a long queue may hold the answers.
    fn step_blind(&mut self, seen: &Observation) -> Action {
        if !seen.is_loaded {
            self.known_at = seen.now;
        }
        let blind = seen.now.since(self.known_at);
        if blind <= BLIND_AFTER {
            return Action::None;
        }
        self.reason = Reason::SignalsLost;
        if blind > KEEP_RATE {
            // The probes that were late have never returned, and have shown nothing.
            if let Some(event) = self.event.take() {
                self.cruise = event.cruise_before;
            }
            self.cruise += (self.base - self.cruise) * (DECAY * seen.elapsed);
            self.rate = self.cruise;
            self.reason = Reason::Decay;
        }
        Action::None
    }

    fn step_known(&mut self, params: &Params, seen: &Observation, delay: Delay) -> Action {
        self.known_at = seen.now;
        if self.event.is_none() {
            let spread = (delay.upper - delay.lower).clamp(0.0, SPREAD_MAX);
            self.spread += (spread - self.spread) * (seen.elapsed / SPREAD_TIME).min(1.0);
        }
        let packet = PACKET / self.rate * 1e3;
        let aim = if seen.is_known {
            params.target_ms
        } else {
            params.target_both_ms
        };
        let target = packet + aim;
        let queue = (delay.lower - self.spread * params.noise - packet).max(0.0);
        let capacity = self.capacity(queue, delay.is_overdue, seen);
        self.remember(seen.now, queue);
        let is_possible = seen.has_traffic && (seen.is_loaded || queue > params.long_queue_ms);
        if queue > target && is_possible {
            let cut = Cut {
                rate: self.rate,
                is_lowest: self.rate <= self.min,
                queue,
                target,
                is_overdue: delay.is_overdue,
                capacity,
                shows_capacity: seen.teaches && self.shows_capacity(target, queue),
            };
            return self.cut(params, seen, &cut);
        }
        let action = self.end_event(seen);
        if seen.is_loaded {
            self.grow(params, seen, (1.0 - queue / target).max(0.0));
        } else {
            self.reason = Reason::Unloaded;
        }
        self.rate = self.cruise;
        action
    }

    /// Ends a queue event, if there is one. Without traffic the senders have stopped, and the traffic before that shows nothing.
    fn end_event(&mut self, seen: &Observation) -> Action {
        let Some(event) = self.event.take() else {
            return Action::None;
        };
        if !seen.has_traffic || event.is_burst(seen) {
            self.cruise = event.cruise_before;
            return Action::None;
        }
        if !event.teaches {
            return Action::None;
        }
        self.known.add(event.capacity);
        Action::Learn(Rate::from_bits_per_sec(event.capacity as u64))
    }

    /// True if traffic that meets this queue shows the capacity. A download with a queue of up to twice the target may be as fast as our
    /// rate allows, and a little delay may come from elsewhere. A rate that followed such traffic down would fall again and again.
    fn shows_capacity(&self, target: f64, queue: f64) -> bool {
        self.direction == Direction::Upload || queue > 2.0 * target
    }

    /// The capacity of the line, as far as the last 200 ms show it. All that arrives of a download has crossed the line. What an
    /// upload sends crosses it, or makes its queue longer. On a long path the rate has been cut since then. The age of an unanswered
    /// probe grows with the time, whatever the queue does, so that it shows no growth where it is all that is known.
    fn capacity(&self, queue: f64, is_overdue: bool, seen: &Observation) -> f64 {
        let (at, before) = self.queues[0];
        let span = millis(seen.now.since(at));
        let is_growth_known = (HISTORY_MIN..=1000.0).contains(&span) && (seen.is_known || !is_overdue);
        if self.direction == Direction::Download || !is_growth_known {
            return seen.passes;
        }
        seen.passed_before * (span / (span + queue - before).max(span / CAPACITY_MAX))
    }

    fn remember(&mut self, now: Instant, queue: f64) {
        if now.since(self.queues[QUEUES - 1].0) >= BETWEEN_QUEUES {
            self.queues.rotate_left(1);
            self.queues[QUEUES - 1] = (now, queue);
        }
    }

    /// The control law. The cruise rate follows the capacity down, and the rate is further below it by what drains the queue. While
    /// the traffic does not show the capacity, the cruise rate stays, and the rate is below what passed when the queue appeared.
    fn cut(&mut self, params: &Params, seen: &Observation, cut: &Cut) -> Action {
        let Cut { queue, capacity, .. } = *cut;
        let delay = Nanos((queue * 1e6) as u64);
        let mut event = self
            .event
            .unwrap_or_else(|| QueueEvent::new(seen, cut, self.cruise));
        event.update(params, cut, seen);
        if seen.is_ambiguous && event.has_no_effect(params, cut, seen) {
            if seen.teaches {
                return self.retract(event, Reason::Steady, Action::Acquit);
            }
            // Both directions are cut, and not deeply enough.
            event = QueueEvent::new(seen, cut, event.cruise_before);
        }
        self.event = Some(event);
        if !cut.is_overdue && event.is_flat(params, cut, seen) {
            return self.retract(event, Reason::PathChanged { by: delay }, Action::Rebase);
        }
        let capacity = if cut.shows_capacity {
            let follow = params.follow + params.follow_by_variability * self.known.variability();
            self.cruise += (capacity - self.cruise).min(0.0) * (seen.elapsed / follow).min(1.0);
            capacity
        } else {
            // The traffic may be less than the capacity only because of this cut.
            capacity.max(event.capacity)
        };
        let least = match self.direction {
            Direction::Download => params.least_download,
            Direction::Upload => params.least_upload,
        };
        let share = (1.0 - (queue - cut.target) / params.drain_ms).max(least);
        let test = event.test_rate(params, cut, seen).unwrap_or(self.max);
        let wanted = self.cruise.min(capacity * share).min(test);
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

    /// Takes back a cut, because the queue is another direction's, or because the delay does not follow the rate: it is the path's.
    fn retract(&mut self, event: QueueEvent, reason: Reason, action: Action) -> Action {
        self.event = None;
        self.cruise = event.cruise_before;
        self.rate = self.cruise;
        self.reason = reason;
        action
    }

    /// Grows: slowly at a known capacity, faster the further away. `room` is the part of the target that no queue fills.
    fn grow(&mut self, params: &Params, seen: &Observation, room: f64) {
        if !seen.may_explore && self.waits_at(params).is_some_and(|rate| self.cruise >= rate) {
            self.reason = Reason::Steady;
            return;
        }
        let distance = self.known.distance(self.cruise);
        let growth = params.growth
            + params.growth_by_variability * self.known.variability()
            + params.growth_by_distance * distance;
        let by_rtt = if seen.base_rtt < HIGH_RTT {
            1.0
        } else if self.cruise < params.regrow_to * self.known.reference().unwrap_or(0.0).max(self.highest) {
            params.regrow
        } else {
            params.high_rtt_growth
        };
        self.cruise *= 1.0 + growth.min(params.growth_max) * by_rtt * seen.elapsed * room;
        self.reason = if self.cruise < self.max {
            Reason::Grow
        } else {
            Reason::Steady
        };
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
            now: Instant(0),
            elapsed: 0.05,
            delay: Some(Delay {
                lower: queue,
                upper: queue,
                is_overdue: false,
            }),
            passes,
            passed_before: passes,
            load: passes / rate,
            is_loaded: true,
            is_busy: true,
            has_traffic: true,
            is_known: true,
            is_ambiguous: false,
            may_explore: true,
            teaches: true,
            base_rtt: 20.0,
            other_queue: 0.0,
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
            controller.step(&Params::default(), &Observation { now: *now, ..seen })
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
    fn traffic_that_stops_while_there_is_a_queue_shows_no_capacity() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        run(&mut controller, &mut now, 200, |_| (20.0, 18e6));
        for passes in [12e6, 6e6, 0.0] {
            now = now + STEP;
            let stopped = Observation {
                has_traffic: passes > 6e6,
                ..seen(20.0, passes, 20e6)
            };
            controller.step(&Params::default(), &Observation { now, ..stopped });
        }
        assert!(controller.rate >= 18e6, "{controller:?}");
        assert!(controller.known.reference().is_none(), "{controller:?}");
    }

    #[test]
    fn a_burst_that_is_shorter_than_a_round_trip_shows_no_capacity() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        let mut known_after = |millis: u64| {
            for step in 0..=millis / 50 {
                now = now + STEP;
                let queue = if step < millis / 50 { 30.0 } else { 0.0 };
                let seen = Observation {
                    base_rtt: 150.0,
                    ..seen(queue, 10e6, controller.rate.min(10e6))
                };
                controller.step(&Params::default(), &Observation { now, ..seen });
            }
            controller.known.reference()
        };
        assert_eq!(known_after(100), None);
        assert!(known_after(300).is_some());
    }

    #[test]
    fn a_deep_cut_without_effect_is_taken_back_where_the_queue_may_be_the_other_directions() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        let mut action = Action::None;
        while action == Action::None && now.0 < 3_000_000_000 {
            now = now + STEP;
            let queue = 60.0 + PACKET / controller.rate * 1e3;
            let seen = Observation {
                is_ambiguous: true,
                ..seen(queue, controller.rate, controller.rate)
            };
            action = controller.step(&Params::default(), &Observation { now, ..seen });
        }
        assert_eq!(action, Action::Acquit);
        assert!(controller.rate >= 20e6, "{controller:?}");
    }

    #[test]
    fn a_direction_that_waits_for_its_turn_stays_below_the_capacity_of_a_line_that_does_not_vary() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        run(&mut controller, &mut now, 300, |_| (30.0, 10e6));
        run(&mut controller, &mut now, 100, |rate| (0.0, rate));
        let waiting = |rate| Observation {
            may_explore: false,
            ..seen(0.0, rate, rate)
        };
        for _ in 0..100 {
            now = now + STEP;
            let seen = waiting(controller.rate);
            controller.step(&Params::default(), &Observation { now, ..seen });
        }
        assert!((9e6..10e6).contains(&controller.rate), "{controller:?}");
    }

    #[test]
    fn a_download_begins_with_a_part_of_the_rate_where_the_round_trip_is_high() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        let mut rate_after = |millis: u64| {
            for _ in 0..millis / 50 {
                now = now + STEP;
                let seen = Observation {
                    base_rtt: 600.0,
                    ..seen(0.0, controller.rate, controller.rate)
                };
                controller.step(&Params::default(), &Observation { now, ..seen });
            }
            controller.rate
        };
        assert!((12e6..15e6).contains(&rate_after(4000)));
        let later = rate_after(10_000);
        assert!((19e6..22e6).contains(&later), "grows slowly: {later}");
    }

    #[test]
    fn a_small_delay_from_elsewhere_does_not_lower_a_download_again_and_again() {
        let mut controller = controller(Direction::Download);
        let mut now = Instant(0);
        for _ in 0..100 {
            // Noise hides the delay at times, so that no queue lasts for long enough to be tested.
            run(&mut controller, &mut now, 150, |rate| (4.0, rate));
            run(&mut controller, &mut now, 50, |rate| (0.5, rate));
        }
        assert!(controller.rate > 19e6, "{controller:?}");
    }

    /// Both directions are cut at once, and the line carries far less than passed when the queue appeared.
    #[test]
    fn a_cut_of_both_directions_without_effect_is_made_deeper() {
        let mut controller = controller(Direction::Upload);
        let mut now = Instant(0);
        for _ in 0..60 {
            now = now + STEP;
            let seen = Observation {
                is_ambiguous: true,
                is_known: false,
                teaches: false,
                ..seen(300.0, controller.rate, controller.rate)
            };
            controller.step(&Params::default(), &Observation { now, ..seen });
        }
        assert!(controller.rate < 0.3 * 0.3 * 20e6, "{controller:?}");
    }

    /// Samples of an upload return through the queue of the download, and are as old as that queue.
    #[test]
    fn a_cut_is_not_judged_before_its_samples_have_returned_through_the_other_directions_queue() {
        let rebased_after = |other_queue: f64| {
            let mut controller = controller(Direction::Upload);
            let mut now = Instant(0);
            for step in 0.. {
                now = now + STEP;
                let seen = Observation {
                    other_queue,
                    ..seen(60.0, controller.rate, controller.rate)
                };
                if controller.step(&Params::default(), &Observation { now, ..seen }) == Action::Rebase {
                    return step * 50;
                }
            }
            unreachable!("the delay never follows the rate")
        };
        assert!(rebased_after(500.0) >= rebased_after(0.0) + 500);
    }

    #[test]
    fn a_delay_that_does_not_follow_the_rate_is_that_of_the_path() {
        let mut controller = controller(Direction::Download);
        let actions = run(&mut controller, &mut Instant(0), 1500, |rate| (40.0, rate));
        let at = actions.iter().position(|action| *action == Action::Rebase);
        assert!(at.is_some_and(|at| at >= 8), "{actions:?}");
    }
}
