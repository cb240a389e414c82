//! The controller of a line: both directions together.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use crate::attribution::{Attribution, LastKnownBottleneck, Suspect};
use crate::controller::{
    Action, RateController, TARGET_DELAY, TARGET_DELAY_BOTH, TARGET_DELAY_UPLOAD_WITH_DOWNLOAD,
};
use crate::delay::DelayEstimator;
use crate::observation::Observation;
use crate::throughput::{BUSY_PERMILLE, LOADED_PERMILLE, QUEUE_LASTS, STARVED_LOAD_RATIO, Throughput};
use crate::{Bounds, CapacityByHour, Choice, Controller, Decision, Probes, Sample, Signal, scale};

/// Our controller.
#[derive(Clone, Debug)]
pub struct Autorate {
    pub(crate) now: Instant,
    pub(crate) delays: DelayEstimator,
    /// What samples say of the queue, whosever it is; worked out once a step, because it is asked for often.
    pub(crate) queue: Nanos,
    pub(crate) controllers: PerDirection<RateController>,
    pub(crate) throughput: PerDirection<Throughput>,
    pub(crate) learned: PerDirection<CapacityByHour>,
    pub(crate) hour: Option<u8>,
    /// While only round trips are known and both directions are loaded, one explores at a time.
    pub(crate) turn: Direction,
    pub(crate) turn_began: Instant,
    /// Whose the queue was when that was last sure.
    pub(crate) bottleneck: Option<LastKnownBottleneck>,
    pub(crate) suspect: Suspect,
}

/// Between any two probes under load: three of four votes within 0.2 s.
pub(crate) const PROBE_LOADED: Nanos = Nanos::from_millis(50);
/// While a queue is emptied, or the last answer tells of more than [`SUSPECTED`]: three of four votes within 0.1 s. What is not
/// known in that time grows.
const PROBE_HURRIED: Nanos = Nanos::from_millis(25);
const SUSPECTED: Nanos = Nanos::from_millis(10);
/// Between any two probes while there is some traffic, to keep baselines.
const PROBE_ACTIVE: Nanos = Nanos::from_millis(250);
/// Without traffic for this long, no probes.
const IDLE_AFTER: Nanos = Nanos::from_millis(5000);
/// After this long without load, what is learned counts more than the last rate.
const FORGET_AFTER: Nanos = Nanos::from_millis(600_000);
/// Delay samples older than this say nothing of now; 500 ms as in cake-autorate.
const STALE: Nanos = Nanos::from_millis(500);
/// Senders that fell silent within this time did so because of what they hear now.
const FELL_SILENT: Nanos = Nanos::from_millis(500);
/// How long a direction may explore before the other's turn, where only round trips are known.
const TURN: Nanos = Nanos::from_millis(4000);

impl Autorate {
    /// A controller that starts at `now`, with what an earlier one learned.
    pub fn new(now: Instant, bounds: PerDirection<Bounds>, learned: PerDirection<CapacityByHour>) -> Self {
        let law = |direction: Direction| RateController::new(now, direction, bounds[direction]);
        Self {
            now,
            delays: DelayEstimator::default(),
            queue: Nanos(0),
            controllers: PerDirection {
                download: law(Direction::Download),
                upload: law(Direction::Upload),
            },
            throughput: PerDirection {
                download: Throughput::new(now),
                upload: Throughput::new(now),
            },
            learned,
            hour: None,
            turn: Direction::Download,
            turn_began: now,
            bottleneck: None,
            suspect: Suspect::None,
        }
    }

    /// What was learned of the capacity by hour, to be kept across restarts.
    pub const fn learned(&self) -> &PerDirection<CapacityByHour> {
        &self.learned
    }

    /// The round trip of the nearest path, if it is so long that news of the line is old.
    pub fn long_path(&self) -> Option<Nanos> {
        self.delays.is_high_rtt().then(|| self.delays.rtt())
    }

    fn take_in(&mut self, sample: &Sample) {
        let fresh = self.now.since(sample.at) <= STALE;
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
            _ if !fresh => {}
            signal => self.delays.add(self.now, sample.at, signal),
        }
    }

    fn on_hour(&mut self, hour: u8) {
        let first = self.hour.is_none();
        self.hour = Some(hour);
        for direction in Direction::BOTH {
            let forgotten = self.now.since(self.throughput[direction].loaded_at) >= FORGET_AFTER;
            if let Some(rate) = self.learned[direction].at(hour)
                && (first || forgotten)
            {
                self.controllers[direction].start_at(rate);
            }
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
                self.pass_turn();
            }
            Action::TryAgain => {
                self.turn = direction;
                self.turn_began = self.now;
            }
        }
        choice
    }

    fn observation(&self, direction: Direction, exploring: bool) -> Observation {
        let load = &self.throughput[direction];
        let loaded = load.is_loaded(self.now);
        let attribution = self.attribution(direction);
        let vote = self
            .delays
            .vote(direction, self.now, attribution != Attribution::None);
        let ambiguous = !self.delays.knows(direction, self.now);
        let other = direction.other();
        let is_in_it = ambiguous && self.has_traffic(other);
        // A probe waits for half of a packet that is on the wire.
        let others_wire = if is_in_it {
            self.controllers[other].serialization_delay().0 / 2
        } else {
            0
        };
        Observation {
            queue: vote.map(|vote| vote.queue),
            total_queue_delay: if ambiguous { self.queue } else { Nanos(0) },
            upper_median: vote.map_or(Nanos(0), |vote| vote.upper_median),
            sent: vote.map_or(self.now, |vote| vote.sent),
            is_overdue: vote.is_some_and(|vote| vote.is_overdue),
            expected: self.expected(direction),
            aim: self.aim(direction),
            competes_with_download: self.competes_with_download(direction),
            is_reflected: self.delays.is_reflected(direction, self.now),
            rtt: self.delays.rtt(),
            is_high_rtt: self.delays.is_high_rtt(),
            losing_probes: self.delays.is_losing_probes(),
            achieved: load.achieved(),
            history: load.history,
            peak: load.peak(),
            latest: load.latest(),
            loaded,
            has_just_begun: load.has_just_begun(self.now),
            had_gap: load.had_gap(),
            has_rested: load.has_rested(self.now),
            busy: load.share() >= BUSY_PERMILLE,
            active: self.now.since(load.active_at) <= QUEUE_LASTS,
            carries: load.has_traffic(),
            serialization_delay: Nanos(self.controllers[direction].serialization_delay().0 + others_wire),
            may_explore: exploring,
            takes_turns: self.delays.is_round_trip_only(self.now),
            is_shared: ambiguous && attribution == Attribution::Shared,
            may_rebase: !ambiguous || !self.has_traffic(other) || self.controllers[other].cut_had_no_effect(),
            is_others_too_small: matches!(self.suspect, Suspect::PerDirection)
                && !self.controllers[other].is_draining(),
            has_other_collapsed: self.controllers[other].has_collapsed(),
            has_other_fallen: self.controllers[other].has_collapsed()
                && self.throughput[other].has_traffic()
                && load.was_loaded_within(self.now, QUEUE_LASTS)
                && load.share() < STARVED_LOAD_RATIO,
        }
    }

    /// The queue that a direction may keep. A round trip has, besides, what the other one may keep of its own.
    fn aim(&self, direction: Direction) -> Nanos {
        if self.competes_with_download(direction) {
            TARGET_DELAY_UPLOAD_WITH_DOWNLOAD
        } else if self.delays.is_reflected(direction, self.now) && !self.delays.is_high_rtt() {
            self.controllers[direction].aim()
        } else if self.delays.knows(direction, self.now) || !self.has_traffic(direction.other()) {
            TARGET_DELAY
        } else {
            TARGET_DELAY_BOTH
        }
    }

    /// Whether it is an upload in whose queue the acknowledgements of a download would wait, and known for sure.
    fn competes_with_download(&self, direction: Direction) -> bool {
        direction == Direction::Upload
            && self.has_traffic(Direction::Download)
            && self.delays.is_agreed_on(direction, self.now)
    }

    /// The queue that senders make of what is under way when the line falls to what passes now.
    fn expected(&self, direction: Direction) -> Nanos {
        let load = &self.throughput[direction];
        let [passes, allowed] = [load.latest().bits_per_sec(), load.allowed];
        // Nothing at all passes when nobody sends, and hardly anything between the bursts of senders that are far.
        let is_little = passes < scale(allowed, STARVED_LOAD_RATIO, 1000) && load.has_traffic();
        if !is_little || self.delays.is_high_rtt() || !load.was_loaded_within(self.now, FELL_SILENT) {
            return Nanos(0);
        }
        Nanos(scale(self.delays.rtt().0, allowed - passes, passes)).min(QUEUE_LASTS)
    }

    pub(crate) fn has_traffic(&self, direction: Direction) -> bool {
        self.throughput[direction].share() >= BUSY_PERMILLE / 4
    }

    fn pass_turn(&mut self) {
        self.turn = self.turn.other();
        self.turn_began = self.now;
    }

    fn probes(&self) -> Probes {
        let quiet = |direction: Direction| self.now.since(self.throughput[direction].active_at) >= IDLE_AFTER;
        let drains = |direction: Direction| self.controllers[direction].is_draining();
        let loaded = |direction: Direction| {
            self.throughput[direction].share() >= LOADED_PERMILLE / 2 || drains(direction)
        };
        if Direction::BOTH.into_iter().all(quiet) {
            Probes::Off
        } else if Direction::BOTH.into_iter().any(loaded) {
            let is_urgent =
                Direction::BOTH.into_iter().any(drains) || self.delays.newest(self.now) > SUSPECTED;
            Probes::Every(if is_urgent { PROBE_HURRIED } else { PROBE_LOADED })
        } else {
            Probes::Every(PROBE_ACTIVE)
        }
    }
}

impl Controller for Autorate {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        self.now = self.now.max(now);
        let rests = Direction::BOTH.map(|direction| self.throughput[direction].has_no_queue(self.now));
        self.delays.set_idle(rests);
        for sample in samples {
            self.take_in(sample);
        }
        self.queue = self.queue_if_blamed(Direction::Download);
        for direction in Direction::BOTH {
            self.throughput[direction].on_time(self.now);
        }
        // A queue is seen to its end by the one whose turn it was.
        let is_quiet = Direction::BOTH
            .into_iter()
            .all(|direction| self.controllers[direction].is_quiet(self.queue));
        if self.now.since(self.turn_began) >= TURN && is_quiet {
            self.pass_turn();
        }
        let loaded = Direction::BOTH.map(|direction| self.throughput[direction].is_loaded(self.now));
        self.record_bottleneck(loaded);
        self.attribute();
        let contended = self.delays.is_round_trip_only(self.now) && loaded == [true, true];
        // Both look before either acts, or the first one's cut would acquit the second.
        let observations = Direction::BOTH
            .map(|direction| self.observation(direction, !contended || self.turn == direction));
        let rates = PerDirection {
            download: self.decide(Direction::Download, &observations[0]),
            upload: self.decide(Direction::Upload, &observations[1]),
        };
        Decision {
            rates,
            probes: self.probes(),
        }
    }
}
