//! Which direction a queue is attributed to, where only round trips are known or a probe has not returned.
//!
//! A round trip grows with the queue of either direction. While both are loaded, [`Attributor`] picks one suspect, whose
//! controller cuts its rate. If the cut has no effect, it is retracted and the other direction becomes the suspect; if that has no
//! effect either, both are cut. The attributor reads the state of the controllers and never changes it.

use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos};

use crate::controller::{MIN_DELAY_CHANGE, RateController};
use crate::delay::{DelayEstimator, SEEN_AFTER};
use crate::scale;
use crate::throughput::{ACTIVE_RATIO, BUSY_RATIO, FULL_RATIO, QUEUE_LASTS, STARVED_LOAD_RATIO, Throughput};

/// How a longer round trip is attributed to a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribution {
    /// The other direction caused it.
    NotOurs,
    /// This direction caused it.
    Ours,
    /// Either direction may have caused it: both are cut.
    Ambiguous,
}

/// The direction that is cut for a longer round trip while both directions could have caused it.
#[derive(Clone, Copy, Debug)]
enum Suspect {
    /// No direction is suspected.
    None,
    /// The most likely direction.
    Primary(Direction),
    /// The other direction was cut before, without effect.
    Secondary(Direction),
    /// Cutting either direction alone had no effect.
    Both,
    /// An unanswered probe may wait in the queue of either direction.
    Undecided,
}

/// The direction that certainly had the queue, at the last moment when that was certain.
#[derive(Clone, Copy, Debug)]
struct LastKnownBottleneck {
    direction: Direction,
    at: Instant,
    /// The queue delay then, of both directions together if both were loaded.
    queue_delay: Nanos,
}

/// The direction that may explore beyond its known capacity, while only round trips are known and both directions are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) direction: Direction,
    pub(crate) began_at: Instant,
}

/// The information that an attribution is based on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) now: Instant,
    /// The queue delay of both directions together, as far as round trips show it.
    pub(crate) total_queue_delay: Nanos,
    pub(crate) delays: &'a DelayEstimator,
    pub(crate) throughput: &'a PerDirection<Throughput>,
    pub(crate) controllers: &'a PerDirection<RateController>,
    pub(crate) turn: Turn,
}

/// A download whose arrivals are at least this share of what is allowed is limited by our shaper and not by the line, thousandths.
/// A choice.
const SHAPER_LIMITED: u64 = 950;
/// If the capacity drops, the controller notices within this time. A download that has not been full for longer does not have the
/// queue that appears now. A choice.
const NOTICED_WITHIN: Nanos = Nanos::from_millis(700);
/// A download whose arrivals are below this share of what is allowed, thousandths, may be limited by the line or may still be
/// growing. It is limited by the line only if the queue is as long as a drop of the capacity makes it…
const LINE_LIMITED: u64 = 850;
/// …or as long as this. On a path with a high round trip senders approach the capacity slowly. Choices.
const USUAL_QUEUE: Nanos = Nanos::from_millis(20);
/// If answered probes show a queue of at least this in one direction alone, unanswered probes are attributed to that direction. An
/// upload's queue delays acknowledgements, too, so that arrivals say nothing then. A choice.
const CLEAR_QUEUE: Nanos = Nanos::from_millis(15);
/// Arrivals above this share of what is allowed, thousandths, are an overshoot that our shaper is about to correct. A choice.
const OVERSHOOT: u64 = 1080;
/// A direction that was cut within this time and has a queue again was probably overestimated. A choice.
const QUEUE_RETURNS: Nanos = Nanos::from_millis(1500);
/// As [`QUEUE_RETURNS`], where the other direction explores and is as likely to have the queue. A choice.
const QUEUE_RETURNS_SOON: Nanos = Nanos::from_millis(400);

/// Attributes queues to directions, step by step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributor {
    suspect: Suspect,
    bottleneck: Option<LastKnownBottleneck>,
}

impl Attributor {
    pub(crate) const fn new() -> Self {
        Self {
            suspect: Suspect::None,
            bottleneck: None,
        }
    }

    /// True if a longer round trip is attributed to `direction`.
    pub(crate) fn attribution(&self, direction: Direction, situation: &Situation<'_>) -> Attribution {
        let other = direction.other();
        let load_ratio = |direction: Direction| situation.throughput[direction].load_ratio();
        match (
            self.can_have_queue(direction, situation),
            self.can_have_queue(other, situation),
        ) {
            (true, false) => Attribution::Ours,
            (false, true) => Attribution::NotOurs,
            (true, true) => match self.suspect {
                Suspect::Primary(suspect) | Suspect::Secondary(suspect) if suspect == direction => {
                    Attribution::Ours
                }
                Suspect::Both | Suspect::Undecided => Attribution::Ambiguous,
                _ => Attribution::NotOurs,
            },
            (false, false) if load_ratio(direction) >= load_ratio(other) => Attribution::Ours,
            (false, false) => Attribution::NotOurs,
        }
    }

    /// True if both directions are cut, because cutting one alone had no effect.
    pub(crate) const fn suspects_both(&self) -> bool {
        matches!(self.suspect, Suspect::Both)
    }

    /// Updates the suspect. Returns a direction whose cut had no effect: the caller must retract it.
    pub(crate) fn update(&mut self, situation: &Situation<'_>) -> Option<Direction> {
        self.record_bottleneck(situation);
        let (suspect, retracted) = self.next_suspect(situation);
        self.suspect = suspect;
        retracted
    }

    /// The bottleneck is certain while only one direction is loaded, or while one-way delays show that one direction has most of
    /// the queue.
    fn record_bottleneck(&mut self, situation: &Situation<'_>) {
        let Situation { now, delays, .. } = *situation;
        let loaded = Direction::BOTH.map(|direction| situation.throughput[direction].is_loaded(now));
        let certain = match loaded {
            [true, false] => Some((Direction::Download, situation.total_queue_delay)),
            [false, true] => Some((Direction::Upload, situation.total_queue_delay)),
            [true, true] if !delays.is_round_trip_only(now) => {
                let queues = Direction::BOTH.map(|direction| delays.queue_if_ours(direction, now));
                let total = Nanos(queues[0].0 + queues[1].0);
                dominant(queues).map(|direction| (direction, total))
            }
            _ => None,
        };
        if let Some((direction, queue_delay)) = certain {
            self.bottleneck = Some(LastKnownBottleneck {
                direction,
                at: now,
                queue_delay,
            });
        }
    }

    /// The suspect from now on, and a direction whose cut had no effect.
    fn next_suspect(&self, situation: &Situation<'_>) -> (Suspect, Option<Direction>) {
        let controllers = situation.controllers;
        if !situation.delays.is_round_trip_only(situation.now) {
            return (attribute_timeout(situation), None);
        }
        match Direction::BOTH.map(|direction| self.can_have_queue(direction, situation)) {
            [true, true] => {}
            [false, true] => return attribute_single(Direction::Upload, situation),
            [true, false] => return attribute_single(Direction::Download, situation),
            [false, false] => return (Suspect::None, None),
        }
        let drains = Direction::BOTH.map(|direction| controllers[direction].is_draining());
        let primary = || {
            self.primary_suspect(situation)
                .map_or(Suspect::None, Suspect::Primary)
        };
        match (self.suspect, drains) {
            (_, [false, false]) | (Suspect::Undecided, [true, true]) => (primary(), None),
            (Suspect::Undecided, [false, true]) => (Suspect::Primary(Direction::Upload), None),
            (Suspect::Undecided, [true, false]) => (Suspect::Primary(Direction::Download), None),
            (Suspect::Primary(suspect), _) if controllers[suspect].keeps_growing() => (Suspect::Both, None),
            (Suspect::Primary(suspect), _) if controllers[suspect].cut_had_no_effect() => {
                (Suspect::Secondary(suspect.other()), Some(suspect))
            }
            (Suspect::Secondary(suspect), _) if controllers[suspect].cut_had_no_effect() => {
                (Suspect::Both, None)
            }
            (unchanged, _) => (unchanged, None),
        }
    }

    /// The direction that most likely caused a longer round trip while both are loaded; `None` if neither needs a cut.
    ///
    /// While the line holds a queue of the download, less arrives than our shaper lets pass. If as much arrives as it lets pass,
    /// the queue is the upload's. If more arrives, the download's senders have just overshot, and our shaper is about to tell them.
    fn primary_suspect(&self, situation: &Situation<'_>) -> Option<Direction> {
        let Situation {
            now,
            total_queue_delay: queue,
            delays,
            throughput,
            controllers,
            ..
        } = *situation;
        let arrives = throughput.download.latest_rate().bits_per_sec();
        let allowed = throughput.download.allowed;
        // If the capacity has dropped to what arrives now, senders have gone on for a round trip, and the excess is in the queue. If
        // the senders have stopped instead, there is none.
        let excess = scale(delays.base_rtt().0, allowed.saturating_sub(arrives), arrives);
        // A direction at its minimum rate cannot be cut further.
        let upload_can_be_cut = !controllers.upload.is_at_min();
        let is_starved = arrives < scale(allowed, STARVED_LOAD_RATIO, 1000);
        let is_reduced = arrives < scale(allowed, LINE_LIMITED, 1000);
        let queue_is_too_short = if is_starved {
            queue.0 < excess
        } else {
            is_reduced && queue.0 < excess.min(USUAL_QUEUE.0)
        };
        let has_not_been_full = now.since(throughput.download.full_at) > NOTICED_WITHIN;
        let upload_is_full = throughput.upload.latest_load_ratio() >= FULL_RATIO;
        let is_shaper_limited = arrives >= scale(allowed, SHAPER_LIMITED, 1000);
        if arrives > scale(allowed, OVERSHOOT, 1000) {
            None
        } else if throughput.download.has_just_begun(now) {
            Some(Direction::Download)
        } else if queue_is_too_short || !throughput.download.was_loaded_within(now, QUEUE_LASTS) {
            Some(Direction::Upload)
        } else if is_starved {
            Some(Direction::Download)
        } else if upload_can_be_cut
            && (has_not_been_full && upload_is_full
                || is_shaper_limited && !controllers.download.is_exploring())
        {
            Some(Direction::Upload)
        } else {
            Some(self.most_likely_direction(situation))
        }
    }

    /// The more likely direction where the traffic does not tell: one that explores causes a queue, and one that has just had a
    /// queue has it again.
    fn most_likely_direction(&self, situation: &Situation<'_>) -> Direction {
        let Situation {
            now,
            delays,
            controllers,
            turn,
            ..
        } = *situation;
        // An event of less than this ago is not visible in the delays yet.
        let is_not_visible_yet = |at| now.since(at) < Nanos(delays.base_rtt().0 + SEEN_AFTER.0);
        // If the queue existed before the other direction became loaded and has not grown since, that load did not cause it. The
        // same holds when one-way measurements end: the last attribution is kept as long as the queue does not grow.
        if let Some(bottleneck) = self.bottleneck
            && is_not_visible_yet(bottleneck.at)
            && situation.total_queue_delay.0 <= bottleneck.queue_delay.0 + MIN_DELAY_CHANGE
        {
            return bottleneck.direction;
        }
        // A queue that becomes visible just after a change of turns was caused in the turn before.
        let turn = if is_not_visible_yet(turn.began_at) {
            turn.direction.other()
        } else {
            turn.direction
        };
        let [ours, others] = [turn, turn.other()].map(|direction| &controllers[direction]);
        let returns = |one: &RateController, another: &RateController, within| {
            one.was_cut_within(now, within) && !another.was_cut_within(now, within)
        };
        let is_others = match (ours.is_exploring(), others.is_exploring()) {
            (false, true) => !returns(ours, others, QUEUE_RETURNS_SOON),
            (false, false) => returns(others, ours, QUEUE_RETURNS),
            (true, _) => returns(others, ours, QUEUE_RETURNS_SOON),
        };
        let likely = if is_others { turn.other() } else { turn };
        // A direction at its minimum rate cannot be cut further.
        if controllers[likely].is_at_min() {
            likely.other()
        } else {
            likely
        }
    }

    /// True if a direction has enough traffic to cause a queue, or had it until the line held it back.
    fn can_have_queue(&self, direction: Direction, situation: &Situation<'_>) -> bool {
        let now = situation.now;
        let throughput = &situation.throughput[direction];
        // The acknowledgements of the other direction must not count as the rest of a load.
        let rest_of_load = match direction {
            Direction::Download => ACTIVE_RATIO * 3 / 2,
            Direction::Upload => BUSY_RATIO / 4,
        };
        throughput.load_ratio().max(throughput.latest_load_ratio()) >= BUSY_RATIO
            || throughput.has_just_begun(now)
            || matches!(self.suspect, Suspect::Secondary(suspect) if suspect == direction)
                && throughput.can_cause_queue()
            || throughput.was_loaded_within(now, QUEUE_LASTS)
                && throughput.latest_load_ratio() >= rest_of_load
    }
}

/// The suspect where one-way delays are known and only unanswered probes are ambiguous: which queue do those wait in?
fn attribute_timeout(situation: &Situation<'_>) -> Suspect {
    let download = &situation.throughput.download;
    let arrives_as_allowed =
        download.latest_rate().bits_per_sec() >= scale(download.allowed, STARVED_LOAD_RATIO, 1000);
    // After a far drop, what is allowed is hardly more than what arrives, so that arrivals prove nothing.
    let has_not_collapsed = !situation.controllers.download.has_collapsed();
    match known_queue(situation) {
        Some(Direction::Download) => Suspect::Primary(Direction::Download),
        Some(Direction::Upload) if has_not_collapsed => Suspect::Primary(Direction::Upload),
        None if has_not_collapsed && arrives_as_allowed => Suspect::Primary(Direction::Upload),
        _ => Suspect::Undecided,
    }
}

/// The suspect where only one direction has enough traffic for a queue. If cutting it has no effect, the queue is the other's, whose
/// traffic the line holds back.
fn attribute_single(suspect: Direction, situation: &Situation<'_>) -> (Suspect, Option<Direction>) {
    let other = suspect.other();
    if situation.controllers[suspect].cut_had_no_effect() && situation.throughput[other].can_cause_queue() {
        (Suspect::Secondary(other), Some(suspect))
    } else {
        (Suspect::Primary(suspect), None)
    }
}

/// The direction that has a clear queue by answered probes, while the other one has hardly any.
fn known_queue(situation: &Situation<'_>) -> Option<Direction> {
    let queues = Direction::BOTH.map(|direction| {
        let estimate = situation.delays.estimate(direction, situation.now, false);
        estimate.map_or(Nanos(0), |estimate| estimate.queue_delay)
    });
    dominant(queues).filter(|_| queues[0].max(queues[1]) > CLEAR_QUEUE)
}

/// The direction whose queue is more than twice as long as the other's. In the order of [`Direction::BOTH`].
fn dominant([download, upload]: [Nanos; 2]) -> Option<Direction> {
    if download.0 > 2 * upload.0 {
        Some(Direction::Download)
    } else if upload.0 > 2 * download.0 {
        Some(Direction::Upload)
    } else {
        None
    }
}
