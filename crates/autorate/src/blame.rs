//! Which direction a queue is laid to, where only round trips are known or only silence speaks.

use super::law::{Law, MOVED};
use super::{
    ACTIVE_PERMILLE, Autorate, BUSY_PERMILLE, Direction, NEARLY_FILLED, QUEUE_LASTS, SEEN_AFTER, STARVED,
    other, scale,
};
use sqm_core::units::{Instant, Nanos};

/// Whose a queue was when that was sure, and how long it was: with the other one's, if both were loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    direction: Direction,
    at: Instant,
    queue: Nanos,
}

/// Who is cut for a longer round trip while both directions could have done it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accused {
    Nobody,
    First(Direction),
    /// The other one was cut before, and it did not help.
    Second(Direction),
    Both,
    /// Each direction is known but for what only a silence says, which may be of either.
    Either,
}

/// Who has to answer for a longer round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
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
    pub(super) fn blame(&self, direction: Direction) -> Blame {
        let other = other(direction);
        match (self.is_suspect(direction), self.is_suspect(other)) {
            (true, false) => Blame::Alone,
            (false, true) => Blame::None,
            (true, true) => match self.accused {
                Accused::First(accused) | Accused::Second(accused) if accused == direction => Blame::Alone,
                Accused::Both | Accused::Either => Blame::Shared,
                _ => Blame::None,
            },
            (false, false) if self.loads[direction].share() >= self.loads[other].share() => Blame::Alone,
            (false, false) => Blame::None,
        }
    }

    /// Whose a queue is, is sure while only one direction is loaded, or while answers tell of one that it has most of what they tell of.
    pub(super) fn note_owner(&mut self, loaded: [bool; 2]) {
        let owner = match loaded {
            [true, false] => Some((Direction::Ingress, self.queue)),
            [false, true] => Some((Direction::Egress, self.queue)),
            [true, true] if !self.evidence.is_round_trip_only(self.now) => {
                let queues = Direction::BOTH.map(|direction| self.queue_if_blamed(direction));
                let whole = Nanos(queues[0].0 + queues[1].0);
                has_most(queues).map(|direction| (direction, whole))
            }
            _ => None,
        };
        if let Some((direction, queue)) = owner {
            self.owner = Some(Owner {
                direction,
                at: self.now,
                queue,
            });
        }
    }

    /// While both directions are loaded and only round trips are known: one is accused, and cut. If that does not help, it was
    /// the other one, and if that does not help either, both.
    pub(super) fn accuse(&mut self) {
        if !self.evidence.is_round_trip_only(self.now) {
            return self.accused = self.who_silences();
        }
        match Direction::BOTH.map(|direction| self.is_suspect(direction)) {
            [true, true] => {}
            [false, true] => return self.accuse_only(Direction::Egress),
            [true, false] => return self.accuse_only(Direction::Ingress),
            [false, false] => return self.accused = Accused::Nobody,
        }
        let drains = Direction::BOTH.map(|direction| self.laws[direction].is_draining());
        let first = || self.first_suspect().map_or(Accused::Nobody, Accused::First);
        self.accused = match (self.accused, drains) {
            (_, [false, false]) | (Accused::Either, [true, true]) => first(),
            (Accused::Either, [false, true]) => Accused::First(Direction::Egress),
            (Accused::Either, [true, false]) => Accused::First(Direction::Ingress),
            (Accused::First(accused), _) if self.laws[accused].is_failing() => Accused::Both,
            (Accused::First(accused), _) if self.laws[accused].is_stuck() => {
                self.laws[accused].acquit(self.now);
                Accused::Second(other(accused))
            }
            (Accused::Second(accused), _) if self.laws[accused].is_stuck() => Accused::Both,
            (as_before, _) => as_before,
        };
    }

    /// Each direction is known but for the probes that are overdue: where these wait.
    fn who_silences(&self) -> Accused {
        let [arrives, passes] = [
            self.loads.ingress.latest().bits_per_sec(),
            self.loads.ingress.allowed,
        ];
        let is_as_allowed = arrives >= scale(passes, STARVED, 1000);
        // What is allowed to a download that has fallen far is hardly more than arrives.
        let may_be_innocent = !self.laws.ingress.has_collapsed();
        match self.known_queue() {
            Some(Direction::Ingress) => Accused::First(Direction::Ingress),
            Some(Direction::Egress) if may_be_innocent => Accused::First(Direction::Egress),
            None if may_be_innocent && is_as_allowed => Accused::First(Direction::Egress),
            _ => Accused::Either,
        }
    }

    /// Only this one has the traffic for a queue. If cutting it does not help, it is the other's, whose traffic the line holds back.
    fn accuse_only(&mut self, suspect: Direction) {
        let other = other(suspect);
        self.accused = if self.laws[suspect].is_stuck() && self.has_traffic(other) {
            self.laws[suspect].acquit(self.now);
            Accused::Second(other)
        } else {
            Accused::First(suspect)
        };
    }

    /// Of two loaded directions the one whose queue a longer round trip must be.
    ///
    /// While the line holds a queue of the download, what arrives is less than what our shaper lets through. Where as much
    /// arrives, it is the upload's; where more arrives than that, senders have just overshot, which our shaper is about to tell
    /// them.
    fn first_suspect(&self) -> Option<Direction> {
        let arrives = self.loads.ingress.latest().bits_per_sec();
        let passes = self.loads.ingress.allowed;
        // Senders go on for a round trip when the line falls to what arrives now; when they stop, nothing waits.
        let waits = scale(self.evidence.rtt().0, passes.saturating_sub(arrives), arrives);
        // Nothing is left to be cut of one at its least rate.
        let can_be_uploads = !self.laws.egress.is_at_least();
        let is_starved = arrives < scale(passes, STARVED, 1000);
        let is_little = arrives < scale(passes, LESS, 1000);
        let is_short = if is_starved {
            self.queue.0 < waits
        } else {
            is_little && self.queue.0 < waits.min(SHORT.0)
        };
        if arrives > scale(passes, OVERSHOT, 1000) {
            None
        } else if self.loads.ingress.has_just_begun(self.now) {
            Some(Direction::Ingress)
        } else if is_short || !self.loads.ingress.was_loaded_within(self.now, QUEUE_LASTS) {
            Some(Direction::Egress)
        } else if is_starved {
            Some(Direction::Ingress)
        } else if self.now.since(self.loads.ingress.filled_at) > NOT_FILLED
            && self.loads.egress.share_lately() >= NEARLY_FILLED
            && can_be_uploads
        {
            // The download has not had enough for a while to make a queue now.
            Some(Direction::Egress)
        } else if arrives >= scale(passes, FILLED, 1000)
            && !self.laws.ingress.is_exploring()
            && can_be_uploads
        {
            Some(Direction::Egress)
        } else {
            Some(self.likelier())
        }
    }

    /// Nothing tells them apart but what they did: who explores makes a queue, and who has just had one has it again.
    fn likelier(&self) -> Direction {
        let is_heard_late = |at| self.now.since(at) < Nanos(self.evidence.rtt().0 + SEEN_AFTER.0);
        // A queue that was there before the other one's load, and is no longer by now, was not made by that; nor is it another's when
        // the answers end that told whose it was.
        if let Some(owner) = self.owner
            && is_heard_late(owner.at)
            && self.queue.0 <= owner.queue.0 + MOVED
        {
            return owner.direction;
        }
        // What is heard so soon after a turn was made in the one before.
        let turn = if is_heard_late(self.turn_began) {
            other(self.turn)
        } else {
            self.turn
        };
        let [turns, others] = [turn, other(turn)].map(|direction| &self.laws[direction]);
        let returns = |one: &Law, another: &Law, within| {
            one.was_cut_within(self.now, within) && !another.was_cut_within(self.now, within)
        };
        let is_others = match (turns.is_exploring(), others.is_exploring()) {
            (false, true) => !returns(turns, others, RETURNS_SOON),
            (false, false) => returns(others, turns, RETURNS),
            (true, _) => returns(others, turns, RETURNS_SOON),
        };
        let likely = if is_others { other(turn) } else { turn };
        // Nothing is left to be cut of one at its least rate.
        if self.laws[likely].is_at_least() {
            other(likely)
        } else {
            likely
        }
    }

    pub(super) fn queue_if_blamed(&self, direction: Direction) -> Nanos {
        let vote = self.evidence.vote(direction, self.now, true);
        vote.map_or(Nanos(0), |vote| vote.queue)
    }

    /// The direction of which the answers say that it has a queue, and the other hardly one.
    fn known_queue(&self) -> Option<Direction> {
        let queues = Direction::BOTH.map(|direction| {
            let vote = self.evidence.vote(direction, self.now, false);
            vote.map_or(Nanos(0), |vote| vote.queue)
        });
        has_most(queues).filter(|_| queues[0].max(queues[1]) > KNOWN)
    }

    /// Whether it has the traffic to make a queue, or had it until the line held it back.
    fn is_suspect(&self, direction: Direction) -> bool {
        let load = &self.loads[direction];
        // An ACK stream of the other direction is no load that a queue came from.
        let remains = match direction {
            Direction::Ingress => ACTIVE_PERMILLE * 3 / 2,
            Direction::Egress => BUSY_PERMILLE / 4,
        };
        load.share().max(load.share_lately()) >= BUSY_PERMILLE
            || load.has_just_begun(self.now)
            || matches!(self.accused, Accused::Second(accused) if accused == direction)
                && self.has_traffic(direction)
            || load.was_loaded_within(self.now, QUEUE_LASTS) && load.share_lately() >= remains
    }
}

/// The direction whose queue is more than twice the other one's. In the order of [`Direction::BOTH`].
fn has_most([download, upload]: [Nanos; 2]) -> Option<Direction> {
    if download.0 > 2 * upload.0 {
        Some(Direction::Ingress)
    } else if upload.0 > 2 * download.0 {
        Some(Direction::Egress)
    } else {
        None
    }
}
