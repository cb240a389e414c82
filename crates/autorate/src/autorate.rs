//! The controller of a line: passes samples to the estimators, observations to the controllers of both directions, and decides how
//! often to probe.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use crate::attribution::{Attribution, Attributor, Situation, Turn};
use crate::controller::{
    Action, RateController, TARGET_DELAY, TARGET_DELAY_BOTH, TARGET_DELAY_UPLOAD_WITH_DOWNLOAD,
};
use crate::delay::DelayEstimator;
use crate::observation::Observation;
use crate::throughput::{BUSY_RATIO, LOADED_RATIO, QUEUE_LASTS, STARVED_LOAD_RATIO, Throughput};
use crate::{Bounds, CapacityByHour, Choice, Controller, Decision, Probes, Sample, Signal, scale};

/// sqm's controller for a line whose rate varies.
#[derive(Clone, Debug)]
pub struct Autorate {
    now: Instant,
    delays: DelayEstimator,
    /// Queue delay of both directions together, as far as round trips show it. Computed once in each step.
    total_queue_delay: Nanos,
    controllers: PerDirection<RateController>,
    throughput: PerDirection<Throughput>,
    learned: PerDirection<CapacityByHour>,
    hour: Option<u8>,
    turn: Turn,
    attributor: Attributor,
}

/// Between two probes under load: three of the four samples of an estimate within 0.2 s. 50 ms as in cake-autorate.
pub(crate) const PROBE_LOADED: Nanos = Nanos::from_millis(50);
/// Between two probes while a queue drains or is suspected: three of the four samples within 0.1 s. A choice: a queue grows by what
/// is not known for that time.
pub(crate) const PROBE_URGENT: Nanos = Nanos::from_millis(25);
/// A queue is suspected if the newest sample alone shows more than this. A choice.
pub(crate) const SUSPECTED: Nanos = Nanos::from_millis(10);
/// Between two probes while there is some traffic, to keep baselines current. A choice.
pub(crate) const PROBE_ACTIVE: Nanos = Nanos::from_millis(250);
/// Without traffic for this long, probing stops. A choice.
pub(crate) const IDLE_AFTER: Nanos = Nanos::from_millis(5000);
/// After this long without load, the usual rate of the hour replaces the last rate. A choice.
const FORGET_AFTER: Nanos = Nanos::from_millis(600_000);
/// Delay samples older than this are ignored. 500 ms as in cake-autorate.
const STALE: Nanos = Nanos::from_millis(500);
/// Senders that were loaded within this time and are silent now have fallen silent because of the present event. A choice.
const FELL_SILENT: Nanos = Nanos::from_millis(500);
/// How long a direction may explore before it is the other's turn, where only round trips are known. A choice.
const TURN: Nanos = Nanos::from_millis(4000);

impl Autorate {
    /// A controller that starts at `now`, with the capacities that an earlier one learned.
    pub fn new(now: Instant, bounds: PerDirection<Bounds>, learned: PerDirection<CapacityByHour>) -> Self {
        Self {
            now,
            delays: DelayEstimator::default(),
            total_queue_delay: Nanos(0),
            controllers: PerDirection::from_fn(|direction| {
                RateController::new(now, direction, bounds[direction])
            }),
            throughput: PerDirection::from_fn(|_| Throughput::new(now)),
            learned,
            hour: None,
            turn: Turn {
                direction: Direction::Download,
                began_at: now,
            },
            attributor: Attributor::new(),
        }
    }

    /// The capacities learned so far, to be kept across restarts.
    pub const fn learned(&self) -> &PerDirection<CapacityByHour> {
        &self.learned
    }

    /// The base round trip if it is high (300 ms or more): such a path needs a longer `interval` of the queue discipline, too.
    pub fn high_rtt(&self) -> Option<Nanos> {
        self.delays.is_high_rtt().then(|| self.delays.base_rtt())
    }

    /// The reflectors whose probes bypass a queue in which the user's connections wait.
    pub fn bypassing(&self) -> impl Iterator<Item = u16> {
        self.delays.bypassing()
    }

    fn add(&mut self, sample: &Sample) {
        let is_fresh = self.now.since(sample.at) <= STALE;
        match sample.signal {
            Signal::Traffic {
                direction,
                bytes,
                span,
            } => {
                let rate = self.controllers[direction].rate();
                self.throughput[direction].add(self.now, bytes, span, rate);
            }
            Signal::Hour(hour) => self.on_hour(hour),
            _ if !is_fresh => {}
            signal => self.delays.add(self.now, sample.at, signal),
        }
    }

    fn on_hour(&mut self, hour: u8) {
        let is_first = self.hour.is_none();
        self.hour = Some(hour);
        for direction in Direction::BOTH {
            let is_forgotten = self.now.since(self.throughput[direction].loaded_at) >= FORGET_AFTER;
            if let Some(rate) = self.learned[direction].at(hour)
                && (is_first || is_forgotten)
            {
                self.controllers[direction].start_at(rate);
            }
        }
    }

    const fn situation(&self) -> Situation<'_> {
        Situation {
            now: self.now,
            total_queue_delay: self.total_queue_delay,
            delays: &self.delays,
            throughput: &self.throughput,
            controllers: &self.controllers,
            turn: self.turn,
        }
    }

    fn attribute(&mut self) {
        let mut attributor = self.attributor;
        let without_effect = attributor.update(&self.situation());
        self.attributor = attributor;
        if let Some(direction) = without_effect {
            self.controllers[direction].retract_cut(self.now);
        }
    }

    fn decide(&mut self, direction: Direction, observation: &Observation) -> Choice {
        let (choice, action) = self.controllers[direction].step(self.now, observation);
        match action {
            Action::None => {}
            Action::Rebase => self.delays.rebase(direction),
            Action::Learn(capacity) => {
                if let Some(hour) = self.hour {
                    self.learned[direction].learn(hour, capacity);
                }
                self.begin_turn(self.turn.direction.other());
            }
            Action::TryAgain => self.begin_turn(direction),
        }
        choice
    }

    fn observation(&self, direction: Direction, may_explore: bool) -> Observation {
        let now = self.now;
        let throughput = &self.throughput[direction];
        let attribution = self.attributor.attribution(direction, &self.situation());
        let estimate = self
            .delays
            .estimate(direction, now, attribution != Attribution::NotOurs);
        let is_ambiguous = !self.delays.knows(direction, now);
        let [this, other] = [direction, direction.other()].map(|direction| &self.controllers[direction]);
        let other_contributes = is_ambiguous && self.throughput[direction.other()].can_cause_queue();
        // A probe waits for half of a packet on average while one is being sent.
        let other_serialization = if other_contributes {
            other.serialization_delay().0 / 2
        } else {
            0
        };
        Observation {
            queue_delay: estimate.map(|estimate| estimate.queue_delay),
            total_queue_delay: if is_ambiguous {
                self.total_queue_delay
            } else {
                Nanos(0)
            },
            upper_median_delay: estimate.map_or(Nanos(0), |estimate| estimate.upper_median),
            probe_sent_at: estimate.map_or(now, |estimate| estimate.sent),
            is_from_overdue_probe: estimate.is_some_and(|estimate| estimate.is_overdue),
            expected_queue_delay: self.expected_queue_delay(direction),
            target_delay: self.target_delay(direction),
            competes_with_download: self.competes_with_download(direction),
            has_one_way_reflectors: self.delays.has_one_way_reflectors(direction, now),
            base_rtt: self.delays.base_rtt(),
            is_high_rtt: self.delays.is_high_rtt(),
            is_losing_probes: self.delays.is_losing_probes(),
            mean_rate: throughput.mean_rate(),
            rate_history: throughput.history,
            peak_rate: throughput.peak_rate(),
            latest_rate: throughput.latest_rate(),
            is_loaded: throughput.is_loaded(now),
            has_just_begun: throughput.has_just_begun(now),
            had_gap: throughput.had_gap(),
            has_rested: throughput.has_rested(now),
            is_busy: throughput.load_ratio() >= BUSY_RATIO,
            is_active: now.since(throughput.active_at) <= QUEUE_LASTS,
            has_any_traffic: throughput.has_any_traffic(),
            serialization_delay: Nanos(this.serialization_delay().0 + other_serialization),
            may_explore,
            only_round_trips: self.delays.is_round_trip_only(now),
            is_ambiguous: is_ambiguous && attribution == Attribution::Ambiguous,
            may_rebase: !other_contributes || other.cut_had_no_effect(),
            other_has_drained: self.attributor.suspects_both() && !other.is_draining(),
            other_has_collapsed: other.has_collapsed(),
            is_silenced_by_other: other.has_collapsed()
                && self.throughput[direction.other()].has_any_traffic()
                && throughput.was_loaded_within(now, QUEUE_LASTS)
                && throughput.load_ratio() < STARVED_LOAD_RATIO,
        }
    }

    /// The queue delay to aim at. A round trip also includes what the other direction may keep in its queue.
    fn target_delay(&self, direction: Direction) -> Nanos {
        if self.competes_with_download(direction) {
            TARGET_DELAY_UPLOAD_WITH_DOWNLOAD
        } else if self.delays.has_one_way_reflectors(direction, self.now) && !self.delays.is_high_rtt() {
            self.controllers[direction].target_delay()
        } else if self.delays.knows(direction, self.now)
            || !self.throughput[direction.other()].can_cause_queue()
        {
            TARGET_DELAY
        } else {
            TARGET_DELAY_BOTH
        }
    }

    /// True if this is the upload, several sources report its delay, and the acknowledgements of a download wait in its queue.
    fn competes_with_download(&self, direction: Direction) -> bool {
        direction == Direction::Upload
            && self.throughput.download.can_cause_queue()
            && self.delays.is_confirmed(direction, self.now)
    }

    /// The queue delay that the data already under way will cause if the capacity has just dropped to the latest rate.
    fn expected_queue_delay(&self, direction: Direction) -> Nanos {
        let throughput = &self.throughput[direction];
        let [latest, allowed] = [throughput.latest_rate().bits_per_sec(), throughput.allowed];
        // No traffic at all means that no sender is active. On a high round trip there are gaps between bursts.
        let has_dropped = latest < scale(allowed, STARVED_LOAD_RATIO, 1000) && throughput.has_any_traffic();
        if !has_dropped || self.delays.is_high_rtt() || !throughput.was_loaded_within(self.now, FELL_SILENT) {
            return Nanos(0);
        }
        Nanos(scale(self.delays.base_rtt().0, allowed - latest, latest)).min(QUEUE_LASTS)
    }

    const fn begin_turn(&mut self, direction: Direction) {
        self.turn = Turn {
            direction,
            began_at: self.now,
        };
    }

    fn probes(&self) -> Probes {
        let any = |test: &dyn Fn(Direction) -> bool| Direction::BOTH.into_iter().any(test);
        let is_idle =
            |direction: Direction| self.now.since(self.throughput[direction].active_at) >= IDLE_AFTER;
        let drains = |direction: Direction| self.controllers[direction].is_draining();
        let is_loaded = |direction: Direction| {
            self.throughput[direction].load_ratio() >= LOADED_RATIO / 2 || drains(direction)
        };
        if Direction::BOTH.into_iter().all(is_idle) {
            Probes::Off
        } else if any(&is_loaded) {
            let is_urgent = any(&drains) || self.delays.newest(self.now) > SUSPECTED;
            Probes::Every(if is_urgent { PROBE_URGENT } else { PROBE_LOADED })
        } else {
            Probes::Every(PROBE_ACTIVE)
        }
    }
}

impl Controller for Autorate {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        self.now = self.now.max(now);
        let idle = Direction::BOTH.map(|direction| self.throughput[direction].is_idle(self.now));
        self.delays.set_idle(idle);
        for sample in samples {
            self.add(sample);
        }
        self.total_queue_delay = self.delays.queue_if_ours(Direction::Download, self.now);
        for direction in Direction::BOTH {
            self.throughput[direction].on_time(self.now);
        }
        // A turn lasts until the queue that it caused has drained.
        let is_quiet = Direction::BOTH
            .into_iter()
            .all(|direction| self.controllers[direction].is_quiet(self.total_queue_delay));
        if self.now.since(self.turn.began_at) >= TURN && is_quiet {
            self.begin_turn(self.turn.direction.other());
        }
        self.attribute();
        let are_loaded = Direction::BOTH
            .into_iter()
            .all(|direction| self.throughput[direction].is_loaded(self.now));
        let take_turns = self.delays.is_round_trip_only(self.now) && are_loaded;
        // Both observations are made before either controller acts. Otherwise the cut of the first one would change what the second
        // one observes.
        let [download, upload] = Direction::BOTH
            .map(|direction| self.observation(direction, !take_turns || self.turn.direction == direction));
        Decision {
            rates: PerDirection {
                download: self.decide(Direction::Download, &download),
                upload: self.decide(Direction::Upload, &upload),
            },
            probes: self.probes(),
        }
    }
}
