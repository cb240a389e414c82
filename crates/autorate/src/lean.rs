//! A lean controller: one law, one estimate of the capacity and one of its variability for each direction. A contender of the bench.
//!
//! ```text
//! queue above the target:  cruise follows the capacity down
//!                          rate = min(cruise, capacity * (1 - (queue delay - target) / 100 ms))
//! no queue, loaded:        cruise grows: slowly at the reference or the newest capacity, faster the further away
//!                          rate = cruise
//! ```
//!
//! The capacity is what passes while there is a queue for at least a round trip. The reference is the median of the capacities that
//! the last five queues showed, and the variability is the median of their changes, so that some wrong ones change neither. On a
//! line that varies, cruise follows a dip more slowly, because most dips are short, and grows faster.
//!
//! A delay that does not change although the rate was cut far is not this direction's: it is the path's, or the other direction's.
//! [`attribution`] decides between the directions where only round trips are known.

mod attribution;
mod capacity;
mod event;
mod params;
mod rate;

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

use crate::autorate::{IDLE_AFTER, PROBE_ACTIVE, PROBE_LOADED, PROBE_URGENT, SUSPECTED};
use crate::delay::DelayEstimator;
use crate::throughput::{LOADED_RATIO, Throughput};
use crate::{Bounds, Choice, Controller, Decision, Probes, Sample, Signal};

use attribution::{Attribution, Evidence, Situation};
pub use params::Params;
use rate::{Action, Delay, Observation, RateController};

/// The lean controller of a line.
#[derive(Clone, Debug)]
pub struct Lean {
    params: Params,
    now: Instant,
    delays: DelayEstimator,
    throughput: PerDirection<Throughput>,
    controllers: PerDirection<RateController>,
    attribution: Attribution,
}

/// Longer steps count as this much time, seconds.
const STEP_MAX: f64 = 1.0;
/// A direction is suspect for this long after its load ended…
const SUSPECT_AFTER_LOAD: Nanos = Nanos::from_millis(1000);
/// …and its own delay counts for this long. Choices.
const BUSY_AFTER_LOAD: Nanos = Nanos::from_millis(600);
/// With a queue above this, milliseconds, probes are as frequent as under load. A choice.
const PROBED_QUEUE: f64 = 5.0;

impl Lean {
    /// A controller that starts at `now`.
    pub fn new(now: Instant, bounds: PerDirection<Bounds>, params: Params) -> Self {
        Self {
            params,
            now,
            delays: DelayEstimator::default(),
            throughput: PerDirection::from_fn(|_| Throughput::new(now)),
            controllers: PerDirection::from_fn(|direction| {
                RateController::new(now, direction, bounds[direction])
            }),
            attribution: Attribution::new(now),
        }
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
            Signal::Hour(_) => {}
            signal => self.delays.add(self.now, sample.at, signal),
        }
    }

    fn is_suspect(&self, direction: Direction) -> bool {
        let throughput = &self.throughput[direction];
        let traffic = bits(throughput.mean_rate().max(throughput.latest_rate()));
        self.controllers[direction].is_much(&self.params, traffic)
            || throughput.was_loaded_within(self.now, SUSPECT_AFTER_LOAD)
    }

    fn attribute(&mut self) {
        let directions = PerDirection::from_fn(|direction| {
            let controller = &self.controllers[direction];
            Evidence {
                is_busy: self.is_suspect(direction),
                has_traffic: self.throughput[direction].has_any_traffic(),
                is_known: self.delays.knows(direction, self.now),
                is_cut: controller.is_cut(),
                waits_for_turn: controller.waits_at(&self.params).is_some(),
                rate_by_highest: controller.rate_by_highest(),
            }
        });
        let download = &self.throughput.download;
        let situation = Situation {
            now: self.now,
            directions,
            queue: millis(self.delays.queue_if_ours(Direction::Download, self.now)),
            base_rtt: millis(self.delays.base_rtt()),
            deficit: 1.0 - bits(download.latest_rate()) / (download.allowed as f64).max(1.0),
        };
        self.attribution.update(&self.params, &situation);
    }

    /// Traffic of the last 200 ms, or of the last 100 ms if it has just begun, bits per second.
    fn passes(&self, direction: Direction) -> f64 {
        let throughput = &self.throughput[direction];
        let (mean, latest) = (bits(throughput.mean_rate()), bits(throughput.latest_rate()));
        if latest > self.params.just_begun_at * mean {
            latest
        } else {
            mean
        }
    }

    fn observation(&self, direction: Direction) -> Observation {
        let now = self.now;
        let share = self.attribution.share(direction);
        let throughput = &self.throughput[direction];
        let estimate = self.delays.estimate(direction, now, share > 0.0);
        let is_known = self.delays.knows(direction, now);
        let delay = estimate.map(|estimate| {
            let share = if is_known && !estimate.is_overdue {
                1.0
            } else {
                share
            };
            Delay {
                lower: millis(estimate.queue_delay) * share,
                upper: millis(estimate.upper_median),
                is_overdue: estimate.is_overdue,
            }
        });
        let load = throughput.load_ratio() as f64 / 1000.0;
        Observation {
            delay,
            passes: self.passes(direction),
            load,
            is_loaded: throughput.is_loaded(now),
            is_busy: load >= self.params.busy || throughput.was_loaded_within(now, BUSY_AFTER_LOAD),
            has_traffic: throughput.has_any_traffic(),
            is_known,
            is_ambiguous: self.attribution.is_ambiguous(direction),
            may_explore: self.attribution.may_explore(direction),
            teaches: self.attribution.teaches(direction),
            base_rtt: millis(self.delays.base_rtt()),
        }
    }

    fn decide(&mut self, direction: Direction, elapsed: f64) -> Choice {
        let seen = self.observation(direction);
        let params = self.params;
        let controller = &mut self.controllers[direction];
        let action = controller.step(self.now, elapsed, &params, &seen);
        let choice = Choice {
            rate: Rate::from_bits_per_sec(controller.rate as u64),
            reason: controller.reason,
        };
        match action {
            Action::None => {}
            Action::Rebase => self.delays.rebase(direction),
            Action::Acquit => self.attribution.acquit(direction),
        }
        choice
    }

    fn probes(&self) -> Probes {
        let any = |test: &dyn Fn(Direction) -> bool| Direction::BOTH.into_iter().any(test);
        let is_loaded = |direction: Direction| {
            self.throughput[direction].load_ratio() >= LOADED_RATIO / 2
                || self.controllers[direction].queue() > PROBED_QUEUE
        };
        let is_active =
            |direction: Direction| self.now.since(self.throughput[direction].active_at) < IDLE_AFTER;
        if any(&is_loaded) {
            let is_urgent = self.delays.newest(self.now) > SUSPECTED;
            Probes::Every(if is_urgent { PROBE_URGENT } else { PROBE_LOADED })
        } else if any(&is_active) {
            Probes::Every(PROBE_ACTIVE)
        } else {
            Probes::Off
        }
    }
}

impl Controller for Lean {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        let before = self.now;
        self.now = self.now.max(now);
        let elapsed = (self.now.since(before).0 as f64 / 1e9).min(STEP_MAX);
        let idle = Direction::BOTH.map(|direction| self.throughput[direction].is_idle(self.now));
        self.delays.set_idle(idle);
        for sample in samples {
            self.add(sample);
        }
        for direction in Direction::BOTH {
            self.throughput[direction].on_time(self.now);
        }
        self.attribute();
        Decision {
            rates: PerDirection {
                download: self.decide(Direction::Download, elapsed),
                upload: self.decide(Direction::Upload, elapsed),
            },
            probes: self.probes(),
        }
    }
}

fn bits(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
