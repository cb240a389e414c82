//! Which direction a queue is laid to, where only round trips are known or only silence speaks.

use crate::controller::{MIN_DELAY_CHANGE, RateController};
use crate::delay::SEEN_AFTER;
use crate::throughput::{ACTIVE_PERMILLE, BUSY_PERMILLE, NEARLY_FILLED, QUEUE_LASTS, STARVED_LOAD_RATIO};
use crate::{Autorate, scale};
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

/// Whose a queue was when that was sure, and how long it was: with the other one's, if both were loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastKnownBottleneck {
    direction: Direction,
    at: Instant,
    queue: Nanos,
}

/// Who is cut for a longer round trip while both directions could have done it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspect {
    None,
    Primary(Direction),
    /// The other one was cut before, and it did not help.
    Secondary(Direction),
    PerDirection,
    /// Each direction is known but for what only a silence says, which may be of either.
    Undecided,
}

/// Who has to answer for a longer round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribution {
    None,
    Alone,
    Shared,
}

/// A download of which this much arrives, in thousandths of its rate, is held back by our shaper and not by the line.
const FILLED: u64 = 950;
/// A line that falls is noticed sooner than this.
const NOT_FILLED: Nanos = Nanos::from_millis(700);
/// A download of less than this, thousandths of what may pass, is held back by the line only if as much waits there as senders sent
/// before they heard of it, or more than is usual otherwise: on a long path they come up to the line's rate slowly.
const LESS: u64 = 850;
const SHORT: Nanos = Nanos::from_millis(20);
/// A queue of this much, heard of in one direction, is what silences probes: of an upload it holds acknowledgements back, too.
const KNOWN: Nanos = Nanos::from_millis(15);
/// More than this is what senders send before they hear of the shaper's drops.
const OVERSHOT: u64 = 1080;
/// What its line carries was overestimated if a direction has a queue again so soon.
const RETURNS: Nanos = Nanos::from_millis(1500);
/// The same where the other one explores, which is as likely to have a queue.
const RETURNS_SOON: Nanos = Nanos::from_millis(400);

impl Autorate {
    /// Whether this direction has to answer for a longer round trip.
    pub(crate) fn attribution(&self, direction: Direction) -> Attribution {
        let other = direction.other();
        match (self.is_suspect(direction), self.is_suspect(other)) {
            (true, false) => Attribution::Alone,
            (false, true) => Attribution::None,
            (true, true) => match self.suspect {
                Suspect::Primary(suspect) | Suspect::Secondary(suspect) if suspect == direction => {
                    Attribution::Alone
                }
                Suspect::PerDirection | Suspect::Undecided => Attribution::Shared,
                _ => Attribution::None,
            },
            (false, false) if self.throughput[direction].share() >= self.throughput[other].share() => {
                Attribution::Alone
            }
            (false, false) => Attribution::None,
        }
    }

    /// Whose a queue is, is sure while only one direction is loaded, or while answers tell of one that it has most of what they tell of.
    pub(crate) fn record_bottleneck(&mut self, loaded: [bool; 2]) {
        let bottleneck = match loaded {
            [true, false] => Some((Direction::Download, self.queue)),
            [false, true] => Some((Direction::Upload, self.queue)),
            [true, true] if !self.delays.is_round_trip_only(self.now) => {
                let queues = Direction::BOTH.map(|direction| self.queue_if_blamed(direction));
                let whole = Nanos(queues[0].0 + queues[1].0);
                has_most(queues).map(|direction| (direction, whole))
            }
            _ => None,
        };
        if let Some((direction, queue)) = bottleneck {
            self.bottleneck = Some(LastKnownBottleneck {
                direction,
                at: self.now,
                queue,
            });
        }
    }

    /// While both directions are loaded and only round trips are known: one is accused, and cut. If that does not help, it was
    /// the other one, and if that does not help either, both.
    pub(crate) fn attribute(&mut self) {
        if !self.delays.is_round_trip_only(self.now) {
            return self.suspect = self.attribute_timeout();
        }
        match Direction::BOTH.map(|direction| self.is_suspect(direction)) {
            [true, true] => {}
            [false, true] => return self.attribute_single(Direction::Upload),
            [true, false] => return self.attribute_single(Direction::Download),
            [false, false] => return self.suspect = Suspect::None,
        }
        let drains = Direction::BOTH.map(|direction| self.controllers[direction].is_draining());
        let first = || self.first_suspect().map_or(Suspect::None, Suspect::Primary);
        self.suspect = match (self.suspect, drains) {
            (_, [false, false]) | (Suspect::Undecided, [true, true]) => first(),
            (Suspect::Undecided, [false, true]) => Suspect::Primary(Direction::Upload),
            (Suspect::Undecided, [true, false]) => Suspect::Primary(Direction::Download),
            (Suspect::Primary(suspect), _) if self.controllers[suspect].keeps_growing() => {
                Suspect::PerDirection
            }
            (Suspect::Primary(suspect), _) if self.controllers[suspect].cut_had_no_effect() => {
                self.controllers[suspect].retract_cut(self.now);
                Suspect::Secondary(suspect.other())
            }
            (Suspect::Secondary(suspect), _) if self.controllers[suspect].cut_had_no_effect() => {
                Suspect::PerDirection
            }
            (as_before, _) => as_before,
        };
    }

    /// Each direction is known but for the probes that are overdue: where these wait.
    fn attribute_timeout(&self) -> Suspect {
        let [arrives, passes] = [
            self.throughput.download.latest().bits_per_sec(),
            self.throughput.download.allowed,
        ];
        let is_as_allowed = arrives >= scale(passes, STARVED_LOAD_RATIO, 1000);
        // What is allowed to a download that has fallen far is hardly more than arrives.
        let may_be_innocent = !self.controllers.download.has_collapsed();
        match self.known_queue() {
            Some(Direction::Download) => Suspect::Primary(Direction::Download),
            Some(Direction::Upload) if may_be_innocent => Suspect::Primary(Direction::Upload),
            None if may_be_innocent && is_as_allowed => Suspect::Primary(Direction::Upload),
            _ => Suspect::Undecided,
        }
    }

    /// Only this one has the traffic for a queue. If cutting it does not help, it is the other's, whose traffic the line holds back.
    fn attribute_single(&mut self, suspect: Direction) {
        let other = suspect.other();
        self.suspect = if self.controllers[suspect].cut_had_no_effect() && self.has_traffic(other) {
            self.controllers[suspect].retract_cut(self.now);
            Suspect::Secondary(other)
        } else {
            Suspect::Primary(suspect)
        };
    }

    /// Of two loaded directions the one whose queue a longer round trip must be.
    ///
    /// While the line holds a queue of the download, what arrives is less than what our shaper lets through. Where as much
    /// arrives, it is the upload's; where more arrives than that, senders have just overshot, which our shaper is about to tell
    /// them.
    fn first_suspect(&self) -> Option<Direction> {
        let arrives = self.throughput.download.latest().bits_per_sec();
        let passes = self.throughput.download.allowed;
        // Senders go on for a round trip when the line falls to what arrives now; when they stop, nothing waits.
        let waits = scale(self.delays.rtt().0, passes.saturating_sub(arrives), arrives);
        // Nothing is left to be cut of one at its least rate.
        let can_be_uploads = !self.controllers.upload.is_at_least();
        let is_starved = arrives < scale(passes, STARVED_LOAD_RATIO, 1000);
        let is_little = arrives < scale(passes, LESS, 1000);
        let is_short = if is_starved {
            self.queue.0 < waits
        } else {
            is_little && self.queue.0 < waits.min(SHORT.0)
        };
        if arrives > scale(passes, OVERSHOT, 1000) {
            None
        } else if self.throughput.download.has_just_begun(self.now) {
            Some(Direction::Download)
        } else if is_short || !self.throughput.download.was_loaded_within(self.now, QUEUE_LASTS) {
            Some(Direction::Upload)
        } else if is_starved {
            Some(Direction::Download)
        } else if self.now.since(self.throughput.download.filled_at) > NOT_FILLED
            && self.throughput.upload.share_lately() >= NEARLY_FILLED
            && can_be_uploads
        {
            // The download has not had enough for a while to make a queue now.
            Some(Direction::Upload)
        } else if arrives >= scale(passes, FILLED, 1000)
            && !self.controllers.download.is_exploring()
            && can_be_uploads
        {
            Some(Direction::Upload)
        } else {
            Some(self.most_likely_direction())
        }
    }

    /// Nothing tells them apart but what they did: who explores makes a queue, and who has just had one has it again.
    fn most_likely_direction(&self) -> Direction {
        let is_heard_late = |at| self.now.since(at) < Nanos(self.delays.rtt().0 + SEEN_AFTER.0);
        // A queue that was there before the other one's load, and is no longer by now, was not made by that; nor is it another's when
        // the answers end that told whose it was.
        if let Some(bottleneck) = self.bottleneck
            && is_heard_late(bottleneck.at)
            && self.queue.0 <= bottleneck.queue.0 + MIN_DELAY_CHANGE
        {
            return bottleneck.direction;
        }
        // What is heard so soon after a turn was made in the one before.
        let turn = if is_heard_late(self.turn_began) {
            self.turn.other()
        } else {
            self.turn
        };
        let [turns, others] = [turn, turn.other()].map(|direction| &self.controllers[direction]);
        let returns = |one: &RateController, another: &RateController, within| {
            one.was_cut_within(self.now, within) && !another.was_cut_within(self.now, within)
        };
        let is_others = match (turns.is_exploring(), others.is_exploring()) {
            (false, true) => !returns(turns, others, RETURNS_SOON),
            (false, false) => returns(others, turns, RETURNS),
            (true, _) => returns(others, turns, RETURNS_SOON),
        };
        let likely = if is_others { turn.other() } else { turn };
        // Nothing is left to be cut of one at its least rate.
        if self.controllers[likely].is_at_least() {
            likely.other()
        } else {
            likely
        }
    }

    pub(crate) fn queue_if_blamed(&self, direction: Direction) -> Nanos {
        let vote = self.delays.vote(direction, self.now, true);
        vote.map_or(Nanos(0), |vote| vote.queue)
    }

    /// The direction of which the answers say that it has a queue, and the other hardly one.
    fn known_queue(&self) -> Option<Direction> {
        let queues = Direction::BOTH.map(|direction| {
            let vote = self.delays.vote(direction, self.now, false);
            vote.map_or(Nanos(0), |vote| vote.queue)
        });
        has_most(queues).filter(|_| queues[0].max(queues[1]) > KNOWN)
    }

    /// Whether it has the traffic to make a queue, or had it until the line held it back.
    fn is_suspect(&self, direction: Direction) -> bool {
        let load = &self.throughput[direction];
        // An ACK stream of the other direction is no load that a queue came from.
        let remains = match direction {
            Direction::Download => ACTIVE_PERMILLE * 3 / 2,
            Direction::Upload => BUSY_PERMILLE / 4,
        };
        load.share().max(load.share_lately()) >= BUSY_PERMILLE
            || load.has_just_begun(self.now)
            || matches!(self.suspect, Suspect::Secondary(suspect) if suspect == direction)
                && self.has_traffic(direction)
            || load.was_loaded_within(self.now, QUEUE_LASTS) && load.share_lately() >= remains
    }
}

/// The direction whose queue is more than twice the other one's. In the order of [`Direction::BOTH`].
fn has_most([download, upload]: [Nanos; 2]) -> Option<Direction> {
    if download.0 > 2 * upload.0 {
        Some(Direction::Download)
    } else if upload.0 > 2 * download.0 {
        Some(Direction::Upload)
    } else {
        None
    }
}
