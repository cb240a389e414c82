//! The controller of a line: passes samples to the estimators, attributes queues to directions, and lets each direction decide.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use crate::attribution::{Attribution, Evidence, Situation};
use crate::delay::DelayEstimator;
use crate::observation::Observation;
use crate::params::Params;
use crate::rate_controller::{Action, HIGH_RTT, RateController};
use crate::throughput::{LOADED, Throughput};
use crate::{Bounds, CapacityByHour, Choice, Controller, Decision, Probes, Sample, Signal, bits, millis};

/// sqm's controller for a line whose rate varies.
#[derive(Clone, Debug)]
pub struct Autorate {
    params: Params,
    now: Instant,
    delays: DelayEstimator,
    throughput: PerDirection<Throughput>,
    controllers: PerDirection<RateController>,
    attribution: Attribution,
    learned: PerDirection<CapacityByHour>,
    hour: Option<u8>,
}

/// Between two probes under load: three of the four samples of an estimate within 0.2 s. 50 ms as in cake-autorate.
const PROBE_LOADED: Nanos = Nanos::from_millis(50);
/// Between two probes while a queue drains or is suspected: three of the four samples within 0.1 s. A choice: a queue grows by what
/// is not known for that time.
const PROBE_URGENT: Nanos = Nanos::from_millis(25);
/// A queue is suspected if the newest sample alone shows more than this. A choice.
const SUSPECTED: Nanos = Nanos::from_millis(10);
/// Between two probes while there is some traffic, to keep baselines current. A choice.
const PROBE_ACTIVE: Nanos = Nanos::from_millis(250);
/// Without traffic for this long, probing stops. A choice.
const IDLE_AFTER: Nanos = Nanos::from_millis(5000);
/// After this long without load, the usual rate of the hour replaces the last rate. A choice.
const FORGET_AFTER: Nanos = Nanos::from_millis(600_000);
/// Delay samples older than this are ignored. 500 ms as in cake-autorate.
const STALE: Nanos = Nanos::from_millis(500);
/// Longer steps count as this much time, seconds.
const STEP_MAX: f64 = 1.0;
/// A direction stays loaded for this long between bursts of packets. A choice.
const LOAD_LASTS: Nanos = Nanos::from_millis(400);
/// A direction is suspect for this long after its load ended…
const SUSPECT_AFTER_LOAD: Nanos = Nanos::from_millis(1000);
/// …and its own delay counts for this long. Choices.
const BUSY_AFTER_LOAD: Nanos = Nanos::from_millis(600);
/// With a queue above this, milliseconds, probes are as frequent as under load. A choice.
const PROBED_QUEUE: f64 = 5.0;

impl Autorate {
    /// A controller that starts at `now`, with the capacities that an earlier one learned.
    pub fn new(now: Instant, bounds: PerDirection<Bounds>, learned: PerDirection<CapacityByHour>) -> Self {
        let controller = |direction| RateController::new(now, direction, bounds[direction]);
        Self {
            params: Params::default(),
            now,
            delays: DelayEstimator::default(),
            throughput: PerDirection::from_fn(|_| Throughput::new(now)),
            controllers: PerDirection::from_fn(controller),
            attribution: Attribution::new(now),
            learned,
            hour: None,
        }
    }

    /// This controller with other parameters, for the bench.
    #[must_use]
    pub fn with_params(self, params: Params) -> Self {
        Self { params, ..self }
    }

    /// The capacities learned so far, to be kept across restarts.
    pub const fn learned(&self) -> &PerDirection<CapacityByHour> {
        &self.learned
    }

    /// The base round trip if it is high (300 ms or more): such a path needs a longer `interval` of the queue discipline, too.
    pub fn high_rtt(&self) -> Option<Nanos> {
        Some(self.delays.base_rtt()).filter(|rtt| millis(*rtt) >= HIGH_RTT)
    }

    /// The reflectors whose probes bypass a queue in which the user's connections wait.
    pub fn bypassing(&self) -> impl Iterator<Item = u16> {
        self.delays.bypassing()
    }

    fn add(&mut self, sample: &Sample) {
        match sample.signal {
            Signal::Traffic {
                direction,
                bytes,
                span,
            } => {
                let rate = Rate::from_bits_per_sec(self.controllers[direction].rate as u64);
                self.throughput[direction].add(self.now, bytes, span, rate);
            }
            Signal::Hour(hour) => self.on_hour(hour),
            signal if self.now.since(sample.at) <= STALE => self.delays.add(sample.at, signal),
            _ => {}
        }
    }

    fn on_hour(&mut self, hour: u8) {
        let is_first = self.hour.replace(hour).is_none();
        for direction in Direction::BOTH {
            let is_forgotten = self.now.since(self.throughput[direction].loaded_at) >= FORGET_AFTER;
            if let Some(rate) = self.learned[direction].at(hour)
                && (is_first || is_forgotten)
            {
                self.controllers[direction].start_at(bits(rate));
            }
        }
    }

    fn evidence(&self, direction: Direction) -> Evidence {
        let (controller, throughput) = (&self.controllers[direction], &self.throughput[direction]);
        let traffic = throughput.mean_rate().max(throughput.latest_rate());
        Evidence {
            is_busy: controller.is_much(&self.params, traffic)
                || throughput.was_loaded_within(self.now, SUSPECT_AFTER_LOAD),
            has_traffic: throughput.has_any_traffic(),
            is_known: self.delays.knows(direction),
            is_cut: controller.is_cut(),
        }
    }

    fn attribute(&mut self) {
        let varies_little = |direction| self.controllers[direction].waits_at(&self.params).is_some();
        let queue = self.delays.estimate(Direction::Download, true);
        let situation = Situation {
            now: self.now,
            directions: PerDirection::from_fn(|direction| self.evidence(direction)),
            varies_little: Direction::BOTH.into_iter().any(varies_little),
            queue: queue.map_or(0.0, |(delay, _)| delay.lower),
        };
        self.attribution.update(&self.params, &situation);
    }

    fn observation(&self, direction: Direction, elapsed: f64) -> Observation {
        let (attribution, throughput) = (&self.attribution, &self.throughput[direction]);
        let (load, passes) = (throughput.load(), throughput.mean_rate());
        let estimate = self.delays.estimate(direction, attribution.answers(direction));
        // The newest delay is that of a probe which has met the traffic of an earlier time.
        let passed_before = estimate.and_then(|(_, sent)| throughput.mean_rate_at(sent));
        let is_known = self.delays.knows(direction);
        let other = &self.controllers[direction.other()];
        Observation {
            now: self.now,
            elapsed,
            delay: estimate.map(|(delay, _)| delay),
            passes,
            passed_before: passed_before.unwrap_or(passes),
            load,
            is_loaded: throughput.was_loaded_within(self.now, LOAD_LASTS),
            is_busy: load >= self.params.busy || throughput.was_loaded_within(self.now, BUSY_AFTER_LOAD),
            has_traffic: throughput.has_any_traffic(),
            is_known,
            is_ambiguous: attribution.is_ambiguous(),
            may_explore: attribution.may_explore(direction),
            teaches: attribution.teaches(direction),
            base_rtt: millis(self.delays.base_rtt()),
            other_queue: if is_known { other.queue() } else { 0.0 },
        }
    }

    fn decide(&mut self, direction: Direction, elapsed: f64) -> Choice {
        let seen = self.observation(direction, elapsed);
        let controller = &mut self.controllers[direction];
        let action = controller.step(&self.params, &seen);
        let choice = Choice {
            rate: Rate::from_bits_per_sec(controller.rate as u64),
            reason: controller.reason,
        };
        match (action, self.hour) {
            (Action::Rebase, _) => self.delays.rebase(direction),
            (Action::Acquit, _) => self.attribution.acquit(direction),
            (Action::Learn(capacity), Some(hour)) => self.learned[direction].learn(hour, capacity),
            (Action::Learn(_), None) | (Action::None, _) => {}
        }
        choice
    }

    fn probes(&self) -> Probes {
        let is_loaded = |direction: Direction| {
            self.throughput[direction].load() >= LOADED / 2.0
                || self.controllers[direction].queue() > PROBED_QUEUE
        };
        let is_active =
            |direction: Direction| self.now.since(self.throughput[direction].active_at) < IDLE_AFTER;
        if Direction::BOTH.into_iter().any(is_loaded) {
            let is_urgent = self.delays.newest() > SUSPECTED;
            Probes::Every(if is_urgent { PROBE_URGENT } else { PROBE_LOADED })
        } else if Direction::BOTH.into_iter().any(is_active) {
            Probes::Every(PROBE_ACTIVE)
        } else {
            Probes::Off
        }
    }
}

impl Controller for Autorate {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        let before = self.now;
        self.now = self.now.max(now);
        let elapsed = (self.now.since(before).0 as f64 / 1e9).min(STEP_MAX);
        let idle = PerDirection::from_fn(|direction| self.throughput[direction].is_idle(self.now));
        self.delays.begin_step(self.now, idle);
        for sample in samples {
            self.add(sample);
        }
        for direction in Direction::BOTH {
            self.throughput[direction].on_time(self.now);
        }
        self.attribute();
        Decision {
            rates: PerDirection::from_fn(|direction| self.decide(direction, elapsed)),
            probes: self.probes(),
        }
    }
}
