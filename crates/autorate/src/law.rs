//! How the rate of one direction follows from the queue at the line and the traffic.

mod capacity;
mod flat;
mod long;
mod onset;
mod trial;

use super::view::View;
use super::{Bounds, Choice, Direction, Reason, SECOND, SEEN_AFTER, scale};
use sqm_core::units::{Instant, Nanos, Rate};

use flat::Flat;
use onset::Onset;

/// What the rest of the controller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// The present delays are those of the path.
    Rebase,
    /// The line carries this and no more.
    Learn(Rate),
    /// It may have been cut for the other's queue: it is the one to be tried out now.
    TryAgain,
}

/// The state of one direction.
#[derive(Clone, Debug)]
pub(super) struct Law {
    direction: Direction,
    min: u64,
    base: u64,
    max: u64,
    rate: u64,
    reason: Reason,
    /// What the line seems to carry; none before the first queue.
    capacity: Option<u64>,
    /// Growth of what it is thought to carry, thousandths per second.
    pace: u64,
    /// By how much what was found differs from what was found before, averaged, thousandths.
    unrest: u64,
    /// The same without falls and rises to elsewhere, millionths.
    dips: u64,
    /// How long growth waits after a queue: longer where the same capacity is found again and again.
    hold: Nanos,
    hold_until: Instant,
    /// The last queue that ended growth, and what was carried then.
    found: Option<u64>,
    /// The most that was found until the last, and when.
    most: Option<(u64, Instant)>,
    /// The least that was found lately, and when.
    least: Option<(u64, Instant)>,
    /// Newest last.
    track: [Option<Point>; Self::POINTS],
    trial: Option<Trial>,
    flat: Option<Flat>,
    onset: Option<Onset>,
    /// When there was last no queue to cut for.
    clear_at: Instant,
    /// When there was last none at all, or one to cut for.
    decided_at: Instant,
    /// How far votes are apart while nothing is cut, averaged, nanoseconds.
    spread: u64,
    known_at: Instant,
    /// When it was last cut for a queue; none if that was taken back.
    cut_at: Option<Instant>,
    /// When it last had to wait for the other direction's fall, and its rate before.
    waited: Option<(Instant, u64)>,
    stepped_at: Instant,
}

/// A queue as some probe met it.
#[derive(Clone, Copy, Debug)]
struct Point {
    sent: Instant,
    queue: u64,
}

/// A delay, and by how much it should have become less since.
#[derive(Clone, Copy, Debug)]
struct Reference {
    point: Point,
    seen: Instant,
    /// The most that the line may carry, by what was known then.
    level: u64,
    owed: u64,
}

/// Less is being sent to see whether the delay follows.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rate before.
    before: u64,
    capacity_before: Option<u64>,
    /// Probes sent before this met the traffic of before.
    effective_at: Instant,
    /// What a later one met, and what follows from it.
    reference: Option<Reference>,
    /// The shortest queue that was met, and what should have gone of it by how much less arrives.
    obeyed: Option<Reference>,
    /// When to send so much less that a queue must go.
    test_at: Instant,
    /// What was sent less should have shown.
    is_helpless: bool,
    /// Whether the delay has become less: then some of it was a queue.
    has_followed: bool,
    /// The queue grows as if nothing had been done.
    is_failing: bool,
    /// It may be the other direction's, which is cut too.
    is_shared: bool,
    began_at: Instant,
    /// When the queue was first compared, or last became longer: what arrives then shows what the line carries.
    shown_at: Instant,
    /// It is the burst of senders that have just begun, which says little of the line.
    is_of_beginning: bool,
    /// The queue that it began with.
    began_with: u64,
    /// When it came down to the least rate, or the queue last became less there.
    least: Option<Point>,
    /// When there was last one to cut for.
    seen_at: Instant,
    /// The longest that was met.
    peak: Point,
    /// The most of [`View::expected`].
    expected: u64,
}

/// The queue that is aimed at, above noise: enough to know that the line is busy. It is the target of CoDel (RFC 8289).
pub(super) const AIM: Nanos = Nanos::from_millis(5);
/// Of an upload beside a download, where they are told apart by more than one path: its queue comes and goes in the round trips
/// of the download, whose senders then do not fill what they may.
pub(super) const AIM_BESIDE: Nanos = Nanos::from_micros(1500);
/// And after a queue it begins again with this of what was found, thousandths.
const BESIDE: u64 = 970;
/// Where they are not told apart: both queues together.
pub(super) const AIM_TOGETHER: Nanos = Nanos::from_micros(6500);
/// A restless line is kept busy through its dips by a queue of as much as its unrest takes away in this time,
const DIP: Nanos = Nanos::from_millis(150);
/// and of no more than this.
const DIPS_MOST: Nanos = Nanos::from_millis(15);
/// A change by more, thousandths, is no dip: the line fell or rose to another place.
const JUMP: u64 = 300;
/// No dip counts for more than this, thousandths.
const DIP_MOST: u64 = 150;
/// A queue of less than [`AIM`] must last for this long to be believed: as what several votes say, none of whose probes is another's.
const LASTS: Nanos = Nanos::from_millis(300);
/// A queue too small to cut for that lasts for so long may as well be a path that became a little longer: growing shows which.
const LINGERS: Nanos = Nanos::from_millis(300);
/// A queue above [`AIM`] is emptied in about this time.
const DRAIN: u64 = 150_000_000;
/// But never with less than this of the capacity, thousandths: of an upload, whose queue takes no more than what is sent to it.
const LEAST_SENT: u64 = 50;
/// Of a download, whose queue goes when senders reduce: once in a round trip, which our own queue makes longer.
const LEAST_LET_IN: u64 = 700;
/// A direction with little traffic is cut only for a queue of this much; half of what counts as "delayed" in cake-autorate.
const BLOAT: u64 = 15_000_000;
/// Of four delays with exponential jitter the third is half of its mean above the second, and the second seldom above one
/// and a quarter.
const SPREADS_PERCENT: u64 = 120;
/// Votes further apart are of a queue that comes or goes.
const NOISE_MAX: u64 = 10_000_000;
const NOISE_LEARNS: u64 = 5 * SECOND;
const MTU_BITS: u64 = 1514 * 8;
/// The rate is at most this much of what passed, thousandths.
const PROVEN: u64 = 1200;
/// Growth where nothing speaks against it, thousandths per second: it doubles in 0.7 s.
const QUICK: u64 = 1000;
/// And before a queue of it is heard of, thousandths.
const AHEAD: u64 = 250;
/// Growth with which exploring begins.
const SLOW: u64 = 50;
/// The same where reflectors tell the directions apart, and nobody's acknowledgements wait: what is too much is seen at once.
const SLOW_REFLECTED: u64 = 160;
/// And this part of the line's unrest more, thousandths, where directions explore in turns: one that is seldom the same must be
/// found again within a turn.
const UNREST: u64 = 500;
/// After a fall to less than this of what was found before, thousandths, and on another path, it begins with more.
const FELL: u64 = 700;
const SOONER: u64 = 4 * SLOW;
/// A line that fell to less than this of what was sent, thousandths, with more than this queue, may have done so both ways.
const COLLAPSED: u64 = 333;
const COLLAPSED_QUEUE: u64 = 50_000_000;
/// The other's fall is known before one's own by no more than this.
const FELL_AS_WELL: Nanos = Nanos::from_millis(500);
/// Beyond this share of what was found last, thousandths, exploring doubles its pace in this time.
const BEYOND: u64 = 1030;
const PACE_DOUBLES: Nanos = Nanos::from_millis(300);
const HOLD_MIN: Nanos = Nanos::from_millis(200);
const HOLD_MAX: Nanos = Nanos::from_millis(5_000);
/// The same where directions are told apart: a queue of what is tried is seen at once, and it is known whose it is.
const HOLD_MAX_APART: Nanos = Nanos::from_millis(1_000);
/// Capacities within this of each other confirm each other, thousandths.
const SAME: u64 = 50;
/// Where more is not to be tried: of the capacity, thousandths.
const BELOW: u64 = 960;
/// While there is a queue too small to cut for, the one whose turn it is not gives way by so many thousandths per second, down to
/// [`BELOW`] of its place.
const GIVES_WAY: u64 = 50;
/// A delay that changes by less has not moved.
pub(super) const MOVED: u64 = 3_000_000;
/// What the other direction may send when the line has fallen far for both, of what passes, thousandths: some of it queues.
const OTHERS_FALL: u64 = 900;
/// A line that carries this much of what it may, thousandths, is not what silenced the probes.
const FLOWS: u64 = 600;
/// A load that begins after a rest may have the most that was found in so long before the last, no more than this of the last,
/// thousandths: of a line that varies it is as likely as the last, and senders find sooner what is too much than what is too little.
const LATELY: Nanos = Nanos::from_millis(60_000);
const MOST_MORE: u64 = 2000;
/// Not while what was cut for is still fresh.
const CUT_LATELY: Nanos = Nanos::from_millis(3000);
/// Without signals the rate stays for this long, then goes to base by so many thousandths per second.
const HOLD_BLIND: Nanos = Nanos::from_millis(5000);
const DECAY: u64 = 20;
const BLIND_AFTER: Nanos = Nanos::from_millis(1500);

impl Law {
    const POINTS: usize = 12;

    pub(super) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let [min, base, max] = resolve(bounds);
        Self {
            direction,
            min,
            base,
            max,
            rate: base,
            reason: Reason::Start,
            capacity: None,
            pace: QUICK,
            unrest: 0,
            dips: 0,
            hold: HOLD_MIN,
            hold_until: now,
            found: None,
            most: None,
            least: None,
            track: [None; Self::POINTS],
            trial: None,
            flat: None,
            onset: None,
            clear_at: now,
            decided_at: now,
            spread: 0,
            known_at: now,
            cut_at: None,
            waited: None,
            stepped_at: now,
        }
    }

    /// What the shaper should be set to.
    pub(super) fn rate(&self) -> Rate {
        let most = self.lets_in().unwrap_or(self.rate);
        Rate::from_bits_per_sec(self.rate.min(most))
    }

    /// What a packet of full size takes.
    pub(super) fn wire(&self) -> Nanos {
        Nanos(scale(MTU_BITS, SECOND, self.rate))
    }

    /// The queue that keeps a line busy that is as restless as this one.
    pub(super) fn aim(&self) -> Nanos {
        Nanos(AIM.0 + scale(self.dips, DIP.0, 1_000_000).min(DIPS_MOST.0))
    }

    /// Whether it is as fast as what is known to be good, or faster.
    pub(super) fn is_exploring(&self) -> bool {
        self.found
            .is_none_or(|found| self.rate > scale(found, BELOW + 10, 1000))
    }

    /// Whether it neither empties a queue nor would begin to for this one.
    pub(super) fn is_quiet(&self, queue: Nanos) -> bool {
        self.trial.is_none() && queue.0 <= AIM.0 / 2 + self.noise() + self.wire().0
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.trial.is_some()
    }

    /// Whether it has the least rate.
    pub(super) const fn is_at_least(&self) -> bool {
        self.rate <= self.min
    }

    /// Whether cutting has not helped so far.
    pub(super) const fn is_stuck(&self) -> bool {
        matches!(
            self.trial,
            Some(Trial {
                is_helpless: true,
                ..
            })
        )
    }

    /// Whether the queue grows as if nothing had been done.
    pub(super) const fn is_failing(&self) -> bool {
        matches!(self.trial, Some(Trial { is_failing: true, .. }))
    }

    /// Whether the line has fallen far.
    pub(super) fn has_collapsed(&self) -> bool {
        let Some(trial) = self.trial else { return false };
        // One that had to wait for the other may then turn out to be the one that fell.
        let waited = self
            .waited
            .filter(|(at, _)| trial.began_at.since(*at) <= FELL_AS_WELL);
        let before = waited.map_or(trial.before, |(_, before)| trial.before.max(before));
        trial.peak.queue.max(trial.expected) > COLLAPSED_QUEUE
            && self
                .capacity
                .is_some_and(|capacity| capacity < scale(before, COLLAPSED, 1000))
    }

    pub(super) fn was_cut_within(&self, now: Instant, span: Nanos) -> bool {
        self.cut_at.is_some_and(|at| now.since(at) <= span)
    }

    /// It was not this direction's queue.
    pub(super) fn acquit(&mut self, now: Instant) {
        self.cut_at = None;
        if let Some(trial) = self.trial.take() {
            self.capacity = trial.capacity_before;
            self.rate = self
                .found
                .map_or(trial.before, |found| trial.before.min(scale(found, BELOW, 1000)));
            self.hold_until = now + HOLD_MIN;
        }
    }

    /// It was nobody's queue. Whatever made the path another one may have made the line another, too.
    fn change_path(&mut self, now: Instant, queue: u64) {
        self.acquit(now);
        self.flat = None;
        self.pace = self.pace.max(SOONER);
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// Continues with what was learned.
    pub(super) fn start_at(&mut self, usual: Rate) {
        self.rate = scale(usual.bits_per_sec(), BELOW, 1000).clamp(self.min, self.max);
        self.capacity = Some(usual.bits_per_sec());
        self.found = self.capacity;
        self.most = None;
        self.least = None;
        self.trial = None;
        self.hold = HOLD_MIN;
        self.reason = Reason::Learned;
    }

    pub(super) fn step(&mut self, now: Instant, view: &View) -> (Choice, Action) {
        let elapsed = now.since(self.stepped_at).0.min(SECOND);
        self.stepped_at = now;
        self.note_onset(now, view);
        let action = match view.queue {
            None => {
                self.blind(now, elapsed, view);
                Action::None
            }
            Some(queue) => {
                self.known_at = now;
                self.note_noise(elapsed, view);
                self.follow(now, elapsed, queue.0, view)
            }
        };
        if self.trial.is_some() {
            self.cut_at = Some(now);
        }
        self.rate = self.rate.clamp(self.min, self.max);
        let choice = Choice {
            rate: self.rate(),
            reason: self.reason,
        };
        (choice, action)
    }

    /// Nothing is known of the delay.
    fn blind(&mut self, now: Instant, elapsed: u64, view: &View) {
        let blind_for = now.since(self.known_at);
        if blind_for < BLIND_AFTER {
            return;
        }
        self.reason = Reason::SignalsLost;
        // Traffic flows on: it was the signals that failed, not the line.
        if let Some(trial) = self.trial {
            let flows = view.achieved.bits_per_sec();
            if flows > trial.before / 2 {
                self.rate = trial.before;
                self.capacity = trial.capacity_before;
            } else if flows > scale(self.rate, FLOWS, 1000) {
                self.rate = self.rate.max(self.base.min(trial.before));
                self.reason = Reason::Decay;
            }
        }
        self.trial = None;
        if !view.loaded {
            self.known_at = now;
            self.reason = Reason::Unloaded;
            return;
        }
        if blind_for >= HOLD_BLIND {
            let step = scale(self.rate, DECAY * elapsed, 1000 * SECOND).max(1);
            self.rate = if self.rate > self.base {
                (self.rate - step).max(self.base)
            } else {
                (self.rate + step).min(self.base)
            };
            self.reason = Reason::Decay;
        }
    }

    fn follow(&mut self, now: Instant, elapsed: u64, queue: u64, view: &View) -> Action {
        let floor = self.noise() + view.wire.0;
        let is_new = self.note(view.sent, queue);
        let queue = queue.saturating_sub(floor);
        let limit = if self.trial.is_none() && !view.busy {
            BLOAT
        } else {
            // One more packet may be ahead of a probe, now and then.
            view.aim.0 + view.wire.0
        };
        if view.has_other_fallen && self.trial.is_none() && self.waits_for(now, view) {
            return Action::None;
        }
        let is_path = self.is_unmoved(now, queue, view) && !view.is_overdue && !view.losing_probes;
        if is_path && queue > limit / 2 {
            self.change_path(now, queue);
            return Action::Rebase;
        }
        let is_none = queue <= limit / 2 && !self.is_unheard(now, view);
        if is_none || !view.active || view.is_overdue && !view.carries {
            (self.clear_at, self.decided_at) = (now, now);
            return self.grow(now, elapsed, queue, view);
        }
        if queue > limit || self.trial.is_some() {
            self.decided_at = now;
        }
        if queue <= limit {
            self.clear_at = now;
            if now.since(self.decided_at) >= LINGERS {
                return self.grow(now, elapsed, queue, view);
            }
        }
        let is_believed = queue > AIM.0 + view.wire.0 || now.since(self.clear_at) >= LASTS;
        // A queue at the line passes traffic on: where none is, late answers were late elsewhere.
        if self.trial.is_none() && (queue <= limit || !is_believed || !view.carries) {
            self.reason = if view.loaded {
                Reason::Steady
            } else {
                Reason::Unloaded
            };
            return Action::None;
        }
        if self.trial.is_none() {
            self.begin(now, view);
        }
        if let Some(trial) = &mut self.trial {
            if queue > limit {
                trial.seen_at = now;
            }
            if queue >= trial.peak.queue {
                trial.peak = Point {
                    sent: view.sent,
                    queue,
                };
            }
        }
        if is_new {
            self.learn(elapsed, queue, view);
            if self.is_of_the_path(now, queue, view) {
                return Action::Rebase;
            }
        }
        let present = self.present(now, queue, view).max(self.expected(view));
        let capacity = self.capacity.unwrap_or(self.rate);
        let least = match self.direction {
            Direction::Ingress => LEAST_LET_IN,
            Direction::Egress => LEAST_SENT,
        };
        let less = scale(present.saturating_sub(view.aim.0), 1000, DRAIN).min(1000 - least);
        let wanted = scale(capacity, 1000 - less, 1000);
        let test = self.trial.and_then(|trial| trial.test(now, capacity, view));
        let wanted = test.map_or(wanted, |test| wanted.min(test));
        let delay = Nanos(queue + floor);
        self.reason = if wanted >= self.rate {
            Reason::Drain { delay }
        } else if queue > BLOAT {
            Reason::Bloat { delay }
        } else {
            Reason::Settle { delay }
        };
        self.rate = wanted.min(self.trial.map_or(wanted, |trial| trial.before));
        Action::None
    }

    /// Senders that hear nothing come back in a burst: limited to what they sent last, not to what the line carried before.
    fn waits_for(&mut self, now: Instant, view: &View) -> bool {
        let [mean, latest] = [view.achieved, view.latest].map(Rate::bits_per_sec);
        // Of a round trip it is not known which direction fell. If it was this one, too, what waits must go.
        let most = if view.takes_turns {
            scale(latest, BELOW, 1000)
        } else {
            scale(mean.min(latest), OTHERS_FALL, 1000)
        };
        let most = most.max(self.min);
        let waits = most < self.rate;
        if waits {
            self.waited = Some((now, self.rate));
            self.rate = most;
            self.reason = Reason::OtherFell;
        }
        waits
    }

    /// No queue.
    fn grow(&mut self, now: Instant, elapsed: u64, queue: u64, view: &View) -> Action {
        let is_unfounded = |trial: Trial| trial.expected > 0 && trial.peak.queue <= AIM.0;
        if self.trial.is_some_and(is_unfounded) {
            // Senders stopped, and no queue came of it.
            self.acquit(now);
            // But not all at once what nobody knows to pass now.
            if view.has_other_collapsed && self.waits_for(now, view) {
                return Action::None;
            }
        }
        if self.is_not_heard_yet(now, view) {
            return Action::None;
        }
        let action = self.end_trial(now, queue, view);
        if self.lets_in().is_some() {
            self.reason = Reason::Begins;
            return action;
        }
        if !view.loaded {
            self.reason = Reason::Unloaded;
            if view.has_rested && !self.was_cut_within(now, CUT_LATELY) {
                self.rate = self.rate.max(self.most_after_a_rest(now, view));
            }
            return action;
        }
        let near = if view.is_long {
            Some(self.surely(now))
        } else {
            self.found.map(|found| scale(found, 900, 1000))
        };
        let is_far = near.is_none_or(|near| self.rate < near);
        let is_someones = view.anyones.0 > view.aim.0 / 2 + self.noise() + view.wire.0;
        if !is_far && !view.may_explore {
            // Of a long path it is already at what the line surely carries, and what it gave up would come back slowly.
            let below = if view.is_long { 1000 } else { BELOW };
            let most = scale(self.capacity.unwrap_or(self.rate), below, 1000);
            self.rate = self.rate.min(most);
            if is_someones {
                // It may be this one's, if what was found is a little too much: cut for, it would be the other's fault.
                let less = scale(self.rate, GIVES_WAY * elapsed, 1000 * SECOND);
                self.rate = (self.rate - less).max(scale(most, BELOW, 1000)).min(self.rate);
            }
            self.reason = Reason::Steady;
            return action;
        }
        if is_someones || view.has_other_collapsed || !is_far && now < self.hold_until {
            self.reason = Reason::Steady;
            return action;
        }
        // What is tried must not go far before it is heard of.
        let news = view.rtt.0 + SEEN_AFTER.0;
        let pace = match (is_far, view.is_long) {
            (true, _) => QUICK,
            (false, true) => self.pace_of_long(),
            (false, false) => self.pace,
        };
        let pace = pace.min(scale(AHEAD, SECOND, news));
        // What was found holds no more.
        let is_beyond = self
            .found
            .is_none_or(|found| self.rate > scale(found, BEYOND, 1000));
        if is_beyond && !view.is_long {
            self.pace = (self.pace + scale(self.pace, elapsed, PACE_DOUBLES.0.max(news)).max(1)).min(QUICK);
        }
        let grown = self
            .rate
            .saturating_add(scale(self.rate, pace * elapsed, 1000 * SECOND));
        // Not far ahead of the traffic, which is what proves that the line carries it.
        let proven = scale(view.peak.bits_per_sec(), PROVEN, 1000);
        let near = near.filter(|near| self.rate < *near).unwrap_or(u64::MAX);
        self.rate = grown.min(proven).min(near).max(self.rate);
        if let Some(capacity) = self.capacity {
            self.capacity = Some(capacity.max(self.rate));
        }
        self.reason = Reason::Grow;
        action
    }

    /// Whether a download's senders cannot know yet that they were cut for a queue that is gone. On a long path that was a burst, and the
    /// next one comes before they do.
    fn is_not_heard_yet(&self, now: Instant, view: &View) -> bool {
        view.is_long
            && self.direction == Direction::Ingress
            && self.trial.is_some_and(|trial| now < trial.effective_at)
    }

    /// The queue that it was cut for is gone.
    fn end_trial(&mut self, now: Instant, queue: u64, view: &View) -> Action {
        let has_collapsed = self.has_collapsed();
        let Some(trial) = self.trial.take() else {
            return Action::None;
        };
        if self.went_by_itself(now, &trial, view) {
            self.capacity = trial.capacity_before;
            self.rate = trial.before;
            self.hold_until = now + HOLD_MIN;
            return Action::None;
        }
        let capacity = self
            .capacity
            .unwrap_or(self.rate)
            .max(self.carried_since(&trial, queue, view));
        let is_same = self
            .found
            .is_some_and(|found| found.abs_diff(capacity) <= scale(capacity, SAME, 1000));
        self.hold = if is_same && !trial.is_of_beginning {
            let most = if view.takes_turns {
                HOLD_MAX
            } else {
                HOLD_MAX_APART
            };
            Nanos(self.hold.0 / 4 * 5).min(most)
        } else {
            HOLD_MIN
        };
        // A line that has just fallen far may rise as soon.
        let fell = self
            .found
            .is_some_and(|found| capacity < scale(found, FELL, 1000));
        if let Some(found) = self.found {
            let change = scale(found.abs_diff(capacity), 1000, capacity).min(1000);
            self.unrest = self.unrest - self.unrest / 4 + change / 4;
            let dip = if change > JUMP { 0 } else { change.min(DIP_MOST) };
            self.dips = self.dips - self.dips / 4 + dip * 1000 / 4;
        }
        let pace = if view.takes_turns {
            SLOW + scale(self.unrest, UNREST, 1000)
        } else if view.is_reflected && !view.is_beside {
            SLOW_REFLECTED
        } else {
            SLOW
        };
        self.pace = if fell { pace.max(SOONER) } else { pace };
        self.found = Some(capacity);
        self.note_most(now, capacity);
        self.note_least(now, capacity.min(trial.before));
        self.hold_until = now + self.hold;
        self.capacity = Some(capacity);
        let place = if view.is_beside {
            scale(capacity, BESIDE, 1000)
        } else {
            capacity
        };
        self.rate = place.min(trial.before);
        if view.is_long {
            self.rate = self.rate.min(self.surely(now));
        }
        if trial.is_shared && self.direction == Direction::Ingress && !has_collapsed {
            // The upload is estimated better, so it keeps its cut while the download tries whether it was innocent.
            self.rate = self.rate.max(scale(trial.before, 900, 1000));
            return Action::TryAgain;
        }
        Action::Learn(Rate::from_bits_per_sec(capacity))
    }

    fn note_most(&mut self, now: Instant, found: u64) {
        let is_new = self
            .most
            .is_none_or(|(most, at)| found >= most || now.since(at) > LATELY);
        if is_new {
            self.most = Some((found, now));
        }
    }

    fn most_after_a_rest(&self, now: Instant, view: &View) -> u64 {
        if view.is_long {
            return self.surely(now);
        }
        let [most, last] = [self.most.map(|(most, _)| most), self.found].map(|found| found.unwrap_or(0));
        most.min(scale(last, MOST_MORE, 1000))
    }

    /// Follows how far votes of the same time are apart. While there is no queue, what they agree on is seldom more above the
    /// baselines than [`SPREADS_PERCENT`] of that.
    fn note_noise(&mut self, elapsed: u64, view: &View) {
        if self.trial.is_some() {
            return;
        }
        let queue = view.queue.unwrap_or(Nanos(0)).0;
        let spread = view.typical.0.saturating_sub(queue).min(NOISE_MAX);
        let weight = elapsed.min(NOISE_LEARNS);
        self.spread =
            self.spread - scale(self.spread, weight, NOISE_LEARNS) + scale(spread, weight, NOISE_LEARNS);
    }

    const fn noise(&self) -> u64 {
        self.spread * SPREADS_PERCENT / 100
    }
}

/// min, base and max in bits per second: `min <= base <= max`, whatever is given; where they contradict, max wins.
fn resolve(bounds: Bounds) -> [u64; 3] {
    /// Less is no link, and the arithmetic wants more than nothing.
    const LEAST: u64 = 1000;
    const FLOOR: u64 = 128_000;
    const START: u64 = 10_000_000;
    const CEILING: u64 = 10_000_000_000;
    /// Room for every product below.
    const LARGEST: u64 = 1 << 50;
    let [min, base, max] = [bounds.min, bounds.base, bounds.max].map(|rate| rate.map(Rate::bits_per_sec));
    let most = max.unwrap_or_else(|| CEILING.max(base.unwrap_or(0)).max(min.unwrap_or(0)));
    let most = most.min(LARGEST);
    let usual = base.or(max).map_or(FLOOR, |rate| (rate / 64).max(FLOOR));
    let least = min.unwrap_or(usual).max(LEAST).min(most);
    [least, base.unwrap_or(START).clamp(least, most), most]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_order_whatever_is_given() {
        let kbit = Rate::from_kbits_per_sec;
        let resolved = |min, base, max| resolve(Bounds { min, base, max }).map(|rate| rate / 1000);
        assert_eq!(resolved(None, None, None), [128, 10_000, 10_000_000]);
        assert_eq!(
            resolved(None, Some(kbit(64_000)), None),
            [1000, 64_000, 10_000_000]
        );
        assert_eq!(resolved(None, None, Some(kbit(2000))), [128, 2000, 2000]);
        assert_eq!(resolved(Some(kbit(9)), Some(kbit(5)), Some(kbit(7))), [7, 7, 7]);
    }
}
