//! How the rate of one direction follows from the queue at the line and the traffic.

mod baseline_shift;
mod capacity;
mod cut;
mod high_rtt;
mod slow_start_guard;

use crate::delay::SEEN_AFTER;
use crate::observation::Observation;
use crate::{Bounds, Choice, Reason, SECOND, scale};
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos, Rate};

use baseline_shift::BaselineShift;
use slow_start_guard::SlowStartGuard;

/// What the rest of the controller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
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
pub(crate) struct RateController {
    direction: Direction,
    min: u64,
    base: u64,
    max: u64,
    rate: u64,
    reason: Reason,
    /// What the line seems to carry; none before the first queue.
    capacity: Option<u64>,
    /// Growth of what it is thought to carry, thousandths per second.
    growth_rate: u64,
    /// By how much what was found differs from what was found before, averaged, thousandths.
    capacity_variance: u64,
    /// The same without falls and rises to elsewhere, millionths.
    dip_ewma: u64,
    /// How long growth waits after a queue: longer where the same capacity is found again and again.
    holdoff: Nanos,
    holdoff_until: Instant,
    /// The last queue that ended growth, and what was carried then.
    found: Option<u64>,
    /// The most that was found until the last, and when.
    most: Option<(u64, Instant)>,
    /// The least that was found lately, and when.
    least: Option<(u64, Instant)>,
    /// Newest last.
    delay_history: [Option<Point>; Self::POINTS],
    cut: Option<Cut>,
    baseline_shift: Option<BaselineShift>,
    slow_start_guard: Option<SlowStartGuard>,
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
struct DrainCheck {
    point: Point,
    seen: Instant,
    /// The most that the line may carry, by what was known then.
    level: u64,
    expected_drain: u64,
}

/// Less is being sent to see whether the delay follows.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The rate before.
    before: u64,
    capacity_before: Option<u64>,
    /// Probes sent before this met the traffic of before.
    effective_at: Instant,
    /// What a later one met, and what follows from it.
    drain_check: Option<DrainCheck>,
    /// The shortest queue that was met, and what should have gone of it by how much less arrives.
    responsive_drain: Option<DrainCheck>,
    /// When to send so much less that a queue must go.
    test_at: Instant,
    /// What was sent less should have shown.
    had_no_effect: bool,
    /// Whether the delay has become less: then some of it was a queue.
    has_followed: bool,
    /// The queue grows as if nothing had been done.
    keeps_growing: bool,
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
    /// The most of [`Observation::expected`].
    expected: u64,
}

/// The queue that is aimed at, above noise: enough to know that the line is busy. It is the target of CoDel (RFC 8289).
pub(crate) const TARGET_DELAY: Nanos = Nanos::from_millis(5);
/// Of an upload beside a download, where they are told apart by more than one path: its queue comes and goes in the round trips
/// of the download, whose senders then do not fill what they may.
pub(crate) const TARGET_DELAY_UPLOAD_WITH_DOWNLOAD: Nanos = Nanos::from_micros(1500);
/// And after a queue it begins again with this of what was found, thousandths.
const BESIDE: u64 = 970;
/// Where they are not told apart: both queues together.
pub(crate) const TARGET_DELAY_BOTH: Nanos = Nanos::from_micros(6500);
/// A restless line is kept busy through its dips by a queue of as much as its unrest takes away in this time,
const DIP: Nanos = Nanos::from_millis(150);
/// and of no more than this.
const DIPS_MOST: Nanos = Nanos::from_millis(15);
/// A change by more, thousandths, is no dip: the line fell or rose to another place.
const JUMP: u64 = 300;
/// No dip counts for more than this, thousandths.
const DIP_MOST: u64 = 150;
/// A queue of less than [`TARGET_DELAY`] must last for this long to be believed: as what several votes say, none of whose probes is another's.
const LASTS: Nanos = Nanos::from_millis(300);
/// A queue too small to cut for that lasts for so long may as well be a path that became a little longer: growing shows which.
const LINGERS: Nanos = Nanos::from_millis(300);
/// A queue above [`TARGET_DELAY`] is emptied in about this time.
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
const VARIANCE_GROWTH_GAIN: u64 = 500;
/// After a fall to less than this of what was found before, thousandths, and on another path, it begins with more.
const CAPACITY_DROP_RATIO: u64 = 700;
const FAST_REGROWTH: u64 = 4 * SLOW;
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
const YIELD_RATE: u64 = 50;
/// A delay that changes by less has not moved.
pub(crate) const MIN_DELAY_CHANGE: u64 = 3_000_000;
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

impl RateController {
    const POINTS: usize = 12;

    pub(crate) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let [min, base, max] = resolve(bounds);
        Self {
            direction,
            min,
            base,
            max,
            rate: base,
            reason: Reason::Start,
            capacity: None,
            growth_rate: QUICK,
            capacity_variance: 0,
            dip_ewma: 0,
            holdoff: HOLD_MIN,
            holdoff_until: now,
            found: None,
            most: None,
            least: None,
            delay_history: [None; Self::POINTS],
            cut: None,
            baseline_shift: None,
            slow_start_guard: None,
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
    pub(crate) fn rate(&self) -> Rate {
        let most = self.slow_start_limit().unwrap_or(self.rate);
        Rate::from_bits_per_sec(self.rate.min(most))
    }

    /// What a packet of full size takes.
    pub(crate) fn serialization_delay(&self) -> Nanos {
        Nanos(scale(MTU_BITS, SECOND, self.rate))
    }

    /// The queue that keeps a line busy that is as restless as this one.
    pub(crate) fn aim(&self) -> Nanos {
        Nanos(TARGET_DELAY.0 + scale(self.dip_ewma, DIP.0, 1_000_000).min(DIPS_MOST.0))
    }

    /// Whether it is as fast as what is known to be good, or faster.
    pub(crate) fn is_exploring(&self) -> bool {
        self.found
            .is_none_or(|found| self.rate > scale(found, BELOW + 10, 1000))
    }

    /// Whether it neither empties a queue nor would begin to for this one.
    pub(crate) fn is_quiet(&self, queue: Nanos) -> bool {
        self.cut.is_none() && queue.0 <= TARGET_DELAY.0 / 2 + self.noise() + self.serialization_delay().0
    }

    pub(crate) const fn is_draining(&self) -> bool {
        self.cut.is_some()
    }

    /// Whether it has the least rate.
    pub(crate) const fn is_at_least(&self) -> bool {
        self.rate <= self.min
    }

    /// Whether cutting has not helped so far.
    pub(crate) const fn cut_had_no_effect(&self) -> bool {
        matches!(
            self.cut,
            Some(Cut {
                had_no_effect: true,
                ..
            })
        )
    }

    /// Whether the queue grows as if nothing had been done.
    pub(crate) const fn keeps_growing(&self) -> bool {
        matches!(
            self.cut,
            Some(Cut {
                keeps_growing: true,
                ..
            })
        )
    }

    /// Whether the line has fallen far.
    pub(crate) fn has_collapsed(&self) -> bool {
        let Some(cut) = self.cut else { return false };
        // One that had to wait for the other may then turn out to be the one that fell.
        let waited = self
            .waited
            .filter(|(at, _)| cut.began_at.since(*at) <= FELL_AS_WELL);
        let before = waited.map_or(cut.before, |(_, before)| cut.before.max(before));
        cut.peak.queue.max(cut.expected) > COLLAPSED_QUEUE
            && self
                .capacity
                .is_some_and(|capacity| capacity < scale(before, COLLAPSED, 1000))
    }

    pub(crate) fn was_cut_within(&self, now: Instant, span: Nanos) -> bool {
        self.cut_at.is_some_and(|at| now.since(at) <= span)
    }

    /// It was not this direction's queue.
    pub(crate) fn retract_cut(&mut self, now: Instant) {
        self.cut_at = None;
        if let Some(cut) = self.cut.take() {
            self.capacity = cut.capacity_before;
            self.rate = self
                .found
                .map_or(cut.before, |found| cut.before.min(scale(found, BELOW, 1000)));
            self.holdoff_until = now + HOLD_MIN;
        }
    }

    /// It was nobody's queue. Whatever made the path another one may have made the line another, too.
    fn change_path(&mut self, now: Instant, queue: u64) {
        self.retract_cut(now);
        self.baseline_shift = None;
        self.growth_rate = self.growth_rate.max(FAST_REGROWTH);
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// Continues with what was learned.
    pub(crate) fn start_at(&mut self, usual: Rate) {
        self.rate = scale(usual.bits_per_sec(), BELOW, 1000).clamp(self.min, self.max);
        self.capacity = Some(usual.bits_per_sec());
        self.found = self.capacity;
        self.most = None;
        self.least = None;
        self.cut = None;
        self.holdoff = HOLD_MIN;
        self.reason = Reason::Learned;
    }

    pub(crate) fn step(&mut self, now: Instant, observation: &Observation) -> (Choice, Action) {
        let elapsed = now.since(self.stepped_at).0.min(SECOND);
        self.stepped_at = now;
        self.update_slow_start_guard(now, observation);
        let action = match observation.queue {
            None => {
                self.blind(now, elapsed, observation);
                Action::None
            }
            Some(queue) => {
                self.known_at = now;
                self.note_noise(elapsed, observation);
                self.follow(now, elapsed, queue.0, observation)
            }
        };
        if self.cut.is_some() {
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
    fn blind(&mut self, now: Instant, elapsed: u64, observation: &Observation) {
        let blind_for = now.since(self.known_at);
        if blind_for < BLIND_AFTER {
            return;
        }
        self.reason = Reason::SignalsLost;
        // Traffic flows on: it was the signals that failed, not the line.
        if let Some(cut) = self.cut {
            let flows = observation.achieved.bits_per_sec();
            if flows > cut.before / 2 {
                self.rate = cut.before;
                self.capacity = cut.capacity_before;
            } else if flows > scale(self.rate, FLOWS, 1000) {
                self.rate = self.rate.max(self.base.min(cut.before));
                self.reason = Reason::Decay;
            }
        }
        self.cut = None;
        if !observation.loaded {
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

    fn follow(&mut self, now: Instant, elapsed: u64, queue: u64, observation: &Observation) -> Action {
        let floor = self.noise() + observation.serialization_delay.0;
        let is_new = self.note(observation.sent, queue);
        let queue = queue.saturating_sub(floor);
        let limit = if self.cut.is_none() && !observation.busy {
            BLOAT
        } else {
            // One more packet may be ahead of a probe, now and then.
            observation.aim.0 + observation.serialization_delay.0
        };
        if observation.has_other_fallen && self.cut.is_none() && self.waits_for(now, observation) {
            return Action::None;
        }
        let is_path = self.delay_is_baseline(now, queue, observation)
            && !observation.is_overdue
            && !observation.losing_probes;
        if is_path && queue > limit / 2 {
            self.change_path(now, queue);
            return Action::Rebase;
        }
        let is_none = queue <= limit / 2 && !self.is_unheard(now, observation);
        if is_none || !observation.active || observation.is_overdue && !observation.carries {
            (self.clear_at, self.decided_at) = (now, now);
            return self.grow(now, elapsed, queue, observation);
        }
        if queue > limit || self.cut.is_some() {
            self.decided_at = now;
        }
        if queue <= limit {
            self.clear_at = now;
            if now.since(self.decided_at) >= LINGERS {
                return self.grow(now, elapsed, queue, observation);
            }
        }
        let is_believed =
            queue > TARGET_DELAY.0 + observation.serialization_delay.0 || now.since(self.clear_at) >= LASTS;
        // A queue at the line passes traffic on: where none is, late answers were late elsewhere.
        if self.cut.is_none() && (queue <= limit || !is_believed || !observation.carries) {
            self.reason = if observation.loaded {
                Reason::Steady
            } else {
                Reason::Unloaded
            };
            return Action::None;
        }
        if self.cut.is_none() {
            self.begin(now, observation);
        }
        if let Some(cut) = &mut self.cut {
            if queue > limit {
                cut.seen_at = now;
            }
            if queue >= cut.peak.queue {
                cut.peak = Point {
                    sent: observation.sent,
                    queue,
                };
            }
        }
        if is_new {
            self.learn(elapsed, queue, observation);
            if self.is_of_the_path(now, queue, observation) {
                return Action::Rebase;
            }
        }
        let present = self
            .present(now, queue, observation)
            .max(self.expected(observation));
        let capacity = self.capacity.unwrap_or(self.rate);
        let least = match self.direction {
            Direction::Download => LEAST_LET_IN,
            Direction::Upload => LEAST_SENT,
        };
        let less = scale(present.saturating_sub(observation.aim.0), 1000, DRAIN).min(1000 - least);
        let wanted = scale(capacity, 1000 - less, 1000);
        let test = self.cut.and_then(|cut| cut.test(now, capacity, observation));
        let wanted = test.map_or(wanted, |test| wanted.min(test));
        let delay = Nanos(queue + floor);
        self.reason = if wanted >= self.rate {
            Reason::Draining { delay }
        } else if queue > BLOAT {
            Reason::Bufferbloat { delay }
        } else {
            Reason::SmallQueue { delay }
        };
        self.rate = wanted.min(self.cut.map_or(wanted, |cut| cut.before));
        Action::None
    }

    /// Senders that hear nothing come back in a burst: limited to what they sent last, not to what the line carried before.
    fn waits_for(&mut self, now: Instant, observation: &Observation) -> bool {
        let [mean, latest] = [observation.achieved, observation.latest].map(Rate::bits_per_sec);
        // Of a round trip it is not known which direction fell. If it was this one, too, what waits must go.
        let most = if observation.takes_turns {
            scale(latest, BELOW, 1000)
        } else {
            scale(mean.min(latest), OTHERS_FALL, 1000)
        };
        let most = most.max(self.min);
        let waits = most < self.rate;
        if waits {
            self.waited = Some((now, self.rate));
            self.rate = most;
            self.reason = Reason::OtherDirectionDropped;
        }
        waits
    }

    /// No queue.
    fn grow(&mut self, now: Instant, elapsed: u64, queue: u64, observation: &Observation) -> Action {
        let unconfirmed = |cut: Cut| cut.expected > 0 && cut.peak.queue <= TARGET_DELAY.0;
        if self.cut.is_some_and(unconfirmed) {
            // Senders stopped, and no queue came of it.
            self.retract_cut(now);
            // But not all at once what nobody knows to pass now.
            if observation.has_other_collapsed && self.waits_for(now, observation) {
                return Action::None;
            }
        }
        if self.is_not_heard_yet(now, observation) {
            return Action::None;
        }
        let action = self.end_cut(now, queue, observation);
        if self.slow_start_limit().is_some() {
            self.reason = Reason::SlowStartGuard;
            return action;
        }
        if !observation.loaded {
            self.reason = Reason::Unloaded;
            if observation.has_rested && !self.was_cut_within(now, CUT_LATELY) {
                self.rate = self.rate.max(self.most_after_a_rest(now, observation));
            }
            return action;
        }
        let near = if observation.is_high_rtt {
            Some(self.conservative_rate(now))
        } else {
            self.found.map(|found| scale(found, 900, 1000))
        };
        let is_far = near.is_none_or(|near| self.rate < near);
        let is_someones = observation.total_queue_delay.0
            > observation.aim.0 / 2 + self.noise() + observation.serialization_delay.0;
        if !is_far && !observation.may_explore {
            // Of a long path it is already at what the line surely carries, and what it gave up would come back slowly.
            let below = if observation.is_high_rtt { 1000 } else { BELOW };
            let most = scale(self.capacity.unwrap_or(self.rate), below, 1000);
            self.rate = self.rate.min(most);
            if is_someones {
                // It may be this one's, if what was found is a little too much: cut for, it would be the other's fault.
                let less = scale(self.rate, YIELD_RATE * elapsed, 1000 * SECOND);
                self.rate = (self.rate - less).max(scale(most, BELOW, 1000)).min(self.rate);
            }
            self.reason = Reason::Steady;
            return action;
        }
        if is_someones || observation.has_other_collapsed || !is_far && now < self.holdoff_until {
            self.reason = Reason::Steady;
            return action;
        }
        // What is tried must not go far before it is heard of.
        let news = observation.rtt.0 + SEEN_AFTER.0;
        let growth_rate = match (is_far, observation.is_high_rtt) {
            (true, _) => QUICK,
            (false, true) => self.high_rtt_growth_rate(),
            (false, false) => self.growth_rate,
        };
        let growth_rate = growth_rate.min(scale(AHEAD, SECOND, news));
        // What was found holds no more.
        let is_beyond = self
            .found
            .is_none_or(|found| self.rate > scale(found, BEYOND, 1000));
        if is_beyond && !observation.is_high_rtt {
            self.growth_rate = (self.growth_rate
                + scale(self.growth_rate, elapsed, PACE_DOUBLES.0.max(news)).max(1))
            .min(QUICK);
        }
        let grown = self
            .rate
            .saturating_add(scale(self.rate, growth_rate * elapsed, 1000 * SECOND));
        // Not far ahead of the traffic, which is what proves that the line carries it.
        let proven = scale(observation.peak.bits_per_sec(), PROVEN, 1000);
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
    fn is_not_heard_yet(&self, now: Instant, observation: &Observation) -> bool {
        observation.is_high_rtt
            && self.direction == Direction::Download
            && self.cut.is_some_and(|cut| now < cut.effective_at)
    }

    /// The queue that it was cut for is gone.
    fn end_cut(&mut self, now: Instant, queue: u64, observation: &Observation) -> Action {
        let has_collapsed = self.has_collapsed();
        let Some(cut) = self.cut.take() else {
            return Action::None;
        };
        if self.drained_before_reaction(now, &cut, observation) {
            self.capacity = cut.capacity_before;
            self.rate = cut.before;
            self.holdoff_until = now + HOLD_MIN;
            return Action::None;
        }
        let capacity = self
            .capacity
            .unwrap_or(self.rate)
            .max(self.carried_since(&cut, queue, observation));
        let is_same = self
            .found
            .is_some_and(|found| found.abs_diff(capacity) <= scale(capacity, SAME, 1000));
        self.holdoff = if is_same && !cut.is_of_beginning {
            let most = if observation.takes_turns {
                HOLD_MAX
            } else {
                HOLD_MAX_APART
            };
            Nanos(self.holdoff.0 / 4 * 5).min(most)
        } else {
            HOLD_MIN
        };
        // A line that has just fallen far may rise as soon.
        let fell = self
            .found
            .is_some_and(|found| capacity < scale(found, CAPACITY_DROP_RATIO, 1000));
        if let Some(found) = self.found {
            let change = scale(found.abs_diff(capacity), 1000, capacity).min(1000);
            self.capacity_variance = self.capacity_variance - self.capacity_variance / 4 + change / 4;
            let dip = if change > JUMP { 0 } else { change.min(DIP_MOST) };
            self.dip_ewma = self.dip_ewma - self.dip_ewma / 4 + dip * 1000 / 4;
        }
        let growth_rate = if observation.takes_turns {
            SLOW + scale(self.capacity_variance, VARIANCE_GROWTH_GAIN, 1000)
        } else if observation.is_reflected && !observation.competes_with_download {
            SLOW_REFLECTED
        } else {
            SLOW
        };
        self.growth_rate = if fell {
            growth_rate.max(FAST_REGROWTH)
        } else {
            growth_rate
        };
        self.found = Some(capacity);
        self.note_most(now, capacity);
        self.note_least(now, capacity.min(cut.before));
        self.holdoff_until = now + self.holdoff;
        self.capacity = Some(capacity);
        let place = if observation.competes_with_download {
            scale(capacity, BESIDE, 1000)
        } else {
            capacity
        };
        self.rate = place.min(cut.before);
        if observation.is_high_rtt {
            self.rate = self.rate.min(self.conservative_rate(now));
        }
        if cut.is_shared && self.direction == Direction::Download && !has_collapsed {
            // The upload is estimated better, so it keeps its cut while the download tries whether it was innocent.
            self.rate = self.rate.max(scale(cut.before, 900, 1000));
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

    fn most_after_a_rest(&self, now: Instant, observation: &Observation) -> u64 {
        if observation.is_high_rtt {
            return self.conservative_rate(now);
        }
        let [most, last] = [self.most.map(|(most, _)| most), self.found].map(|found| found.unwrap_or(0));
        most.min(scale(last, MOST_MORE, 1000))
    }

    /// Follows how far votes of the same time are apart. While there is no queue, what they agree on is seldom more above the
    /// baselines than [`SPREADS_PERCENT`] of that.
    fn note_noise(&mut self, elapsed: u64, observation: &Observation) {
        if self.cut.is_some() {
            return;
        }
        let queue = observation.queue.unwrap_or(Nanos(0)).0;
        let spread = observation.upper_median.0.saturating_sub(queue).min(NOISE_MAX);
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
