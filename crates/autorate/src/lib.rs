//! Keeps a shaper's rate just under that of a line whose rate varies: many samples in, one rate per direction out.
//!
//! [`Controller::step`] is a pure function of its state and its arguments. The caller keeps the clock, sends the
//! probes, counts the bytes and writes the rates. [`Autorate`] is our controller; [`cake_autorate`] reproduces the
//! arithmetic of cake-autorate for comparison.
//!
//! # How `Autorate` decides
//!
//! * **Delay.** Each reflector and each TCP flow is a [`path`](evidence) with its own baseline, the least delay of its
//!   last 30 active seconds. What it shows above that is its vote on the queue. The second smallest of the four newest
//!   votes counts, so that one reflector can neither cut the rate nor hide a queue. A probe that is overdue votes with
//!   its age, so that a collapse is seen before its replies arrive; unless a later one has overtaken it without a queue. Votes that
//!   contradict each other count as none. While there may be a queue, probes follow each other twice as fast. A flow has no more
//!   than reflectors confirm, if there are any: its far end may wait behind another line. Of a round trip a direction has what the other is not known to have.
//! * **Capacity.** While there is a queue, the line is busy: what arrives from it is what it carries, and of what is sent
//!   to it it carries `sent * time / (time + growth of the delay)`. The rate is that, less what empties the queue down to
//!   5 ms in a tenth of a second or two, to 6.5 ms together where both directions are loaded and nothing tells them apart.
//!   Where several paths do, an upload beside a download keeps 1.5 ms, as that one's acknowledgements wait in its queue, and
//!   begins again a little lower; and a restless line as much more as its dips take away. A download keeps seven tenths of
//!   the rate: its queue goes as senders reduce, once in a round trip, of which our own queue would be a part.
//! * **A fall.** When senders fall silent and probes are overdue, the line is taken to carry what still passes, and all that
//!   was under way to wait in its buffer. If the other direction's senders are as silent, it is held to what passed last.
//! * **Growth.** Quick far below what was found last, slow near it, faster and faster beyond it; never far before it is heard of.
//! * **A moment's outage.** A download's queue that is gone before its senders can have heard of the cut leaves the rate as it was.
//! * **Old news.** On a path of 300 ms and more what the line varies by is not searched for: the rate is [the least](law) that was found
//!   lately and goes slowly beyond it. A download that begins has half until its senders have left slow start, a cut of it lasts
//!   until they can know of it, a queue that is gone sooner was a burst, and what probes met is measured by what was sent then.
//! * **Whose queue.** Where only round trips are known and both directions are loaded, one at a time is tried out while the
//!   other stays below what was found, and a little lower while a small queue stands. The first is accused of a queue, unless the
//!   arrivals say otherwise, or only the other explores or has just had a queue. What does not help is taken back, and the other
//!   is accused: also if a download's senders send no more than our shaper lets pass, and the queue stays.
//! * **Not our queue.** A delay that stays when the rate is cut, and loses no probes, is a new path: the baseline
//!   moves and the rate comes back. So is one that stays while [ever more](law) of a download arrives, and what is left of a round
//!   trip when a download's senders obey and both directions are cut for it. While a direction rests, what it has is the path's.
//! * **No load**: the rate stays, probes stop; after a rest it is the most that was found lately, for a load that begins.
//! * **No signals**: the rate stays for a while, then goes to base.
//!
//! # Sources
//!
//! The capacity estimate is that of packet trains (Dovrolis et al., INFOCOM 2001); aiming at a small queue follows PIE (RFC
//! 8033 section 4.2) in spirit, its size CoDel (RFC 8289 section 4.3), growth around what was found CUBIC (RFC 9438 section
//! 4.1), windowed minimum baselines BBR and LEDBAT (RFC 6817 section 3.4.2).
//!
//! # How it is tested
//!
//! Unit tests with explicit times and property tests here; against modelled lines in `sqm-sim`, whose figures
//! `docs/results/autorate-bench.md` holds.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blame;
pub mod cake_autorate;
mod evidence;
mod law;
mod learned;
mod load;
pub mod memory;
mod past;
pub mod record;
pub mod replay;
mod view;

#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::{Index, IndexMut};

use blame::{Accused, Blame, Owner};
use evidence::Evidence;
use law::{AIM, AIM_BESIDE, AIM_TOGETHER, Action, Law};
use load::Load;
use view::View;

pub use learned::Learned;

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// A direction of traffic as seen from the shaped interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards us: the download.
    Ingress,
    /// Away from us: the upload.
    Egress,
}

impl Direction {
    /// Both, in the order in which they are stored and printed.
    pub const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];
}

/// One thing for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// Of the download.
    pub ingress: T,
    /// Of the upload.
    pub egress: T,
}

impl<T> Index<Direction> for Both<T> {
    type Output = T;

    fn index(&self, direction: Direction) -> &T {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

impl<T> IndexMut<Direction> for Both<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Ingress => &mut self.ingress,
            Direction::Egress => &mut self.egress,
        }
    }
}

/// What was observed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was observed, on the clock of `now`.
    pub at: Instant,
    /// What it was.
    pub signal: Signal,
}

/// The kinds of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A reflector answered; nothing is known but the round trip.
    Echo {
        /// Which reflector.
        reflector: u16,
        /// When the probe was sent.
        sent: Instant,
        /// The round trip.
        rtt: Nanos,
    },
    /// A reflector answered with its own clock's time, so that each direction is seen alone.
    OneWay {
        /// Which reflector.
        reflector: u16,
        /// When the probe was sent.
        sent: Instant,
        /// Reflector to us, nanoseconds plus the difference of the clocks: only changes have a meaning.
        ingress: i64,
        /// Us to the reflector, nanoseconds minus the difference of the clocks.
        egress: i64,
    },
    /// The oldest probe that this reflector has not answered, of those after its last answer.
    Waiting {
        /// Which reflector.
        reflector: u16,
        /// When that probe was sent.
        sent: Instant,
    },
    /// A probe was given up.
    Lost {
        /// Which reflector.
        reflector: u16,
    },
    /// A segment of one of the user's own TCP flows arrived, which answers one that left: seen on the device itself, where nothing
    /// of our own queues is in it (`TCP_INFO` has them), and told apart by the far host's time stamps (RFC 7323).
    Flow {
        /// Which flow.
        flow: u64,
        /// When what is answered passed the device.
        sent: Instant,
        /// Far host to us, nanoseconds plus the difference of the clocks: only changes have a meaning.
        ingress: i64,
        /// Us to the far host, nanoseconds minus the difference of the clocks; none where the far host answers when it likes:
        /// what it sends as it may is no acknowledgement.
        egress: Option<i64>,
    },
    /// What the device counted in the time that ends now: of a download what arrived from the line, of an upload what left our
    /// shaper.
    Traffic {
        /// Which way.
        direction: Direction,
        /// How much.
        bytes: Bytes,
        /// In which time.
        span: Nanos,
    },
    /// The hour of the day has begun, 0 to 23, in whatever zone the user's evening is in.
    Hour(u8),
}

/// The rates a user allows. All of them are optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Never less. Default: 1/64 of `base` or `max`, at least 128 kbit/s.
    pub min: Option<Rate>,
    /// Where to start, and where to go when nothing is known. Default: the least of `max` and 10 Mbit/s.
    pub base: Option<Rate>,
    /// Never more. Default: 10 Gbit/s.
    pub max: Option<Rate>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// For each direction.
    pub rates: Both<Choice>,
    /// How to probe from now on.
    pub probes: Probes,
}

/// A rate and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What the shaper should be set to.
    pub rate: Rate,
    /// Why.
    pub reason: Reason,
}

/// Whether probes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// None: the line is idle.
    Off,
    /// One, to the next reflector in turn, each time this has passed.
    Every(Nanos),
}

/// Why a rate is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first rate: base, or what was learned.
    Start,
    /// Too little traffic to learn from: the rate stays, or is what the line carried lately.
    Unloaded,
    /// A download begins on a long path: half, until its senders have left slow start.
    Begins,
    /// Loaded and without a queue: at its place for now.
    Steady,
    /// Loaded and without a queue: more is tried.
    Grow,
    /// A small queue: just under what makes it.
    Settle {
        /// The delay it adds.
        delay: Nanos,
    },
    /// A queue: cut.
    Bloat {
        /// The delay it adds.
        delay: Nanos,
    },
    /// Waiting for the queue to drain.
    Drain {
        /// The delay it still adds.
        delay: Nanos,
    },
    /// The delay did not depend on the rate: the path has changed, the cut is taken back.
    PathChanged {
        /// How much longer it is.
        by: Nanos,
    },
    /// Nothing is known of the delay: the rate stays.
    SignalsLost,
    /// Nothing has been known for long, or nothing is going on: towards base.
    Decay,
    /// What this hour usually has.
    Learned,
    /// The line has fallen far the other way, and senders are silent: what passed last.
    OtherFell,
}

impl Reason {
    /// Whether the rate was lowered because of a queue.
    pub const fn is_cut(self) -> bool {
        matches!(self, Self::Bloat { .. } | Self::Settle { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = |f: &mut fmt::Formatter<'_>, text, Nanos(n): &Nanos| {
            write!(f, "{text} {}.{} ms", n / 1_000_000, n / 100_000 % 10)
        };
        match self {
            Self::Start => f.write_str("start"),
            Self::Unloaded => f.write_str("not loaded"),
            Self::Begins => f.write_str("a download begins: half, until its senders know"),
            Self::Steady => f.write_str("loaded, no queue: rate stays"),
            Self::Grow => f.write_str("loaded, no queue: more"),
            Self::Settle { delay: by } => delay(f, "a small queue: just under; delay", by),
            Self::Bloat { delay: by } => delay(f, "a queue: cut; delay", by),
            Self::Drain { delay: by } => delay(f, "the queue drains; delay", by),
            Self::PathChanged { by } => delay(f, "delay did not follow the rate: new path, longer by", by),
            Self::SignalsLost => f.write_str("no signals: rate stays"),
            Self::Decay => f.write_str("towards base"),
            Self::Learned => f.write_str("as learned for this hour"),
            Self::OtherFell => {
                f.write_str("the line fell the other way, senders are silent: what passed last")
            }
        }
    }
}

/// What turns samples into rates.
pub trait Controller {
    /// Takes in what was observed since the last step and decides. `now` must not run backward; if it does, it counts
    /// as not having moved.
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision;
}

/// Our controller.
#[derive(Clone, Debug)]
pub struct Autorate {
    now: Instant,
    evidence: Evidence,
    /// What samples say of the queue, whosever it is; worked out once a step, because it is asked for often.
    queue: Nanos,
    laws: Both<Law>,
    loads: Both<Load>,
    learned: Both<Learned>,
    hour: Option<u8>,
    /// While only round trips are known and both directions are loaded, one explores at a time.
    turn: Direction,
    turn_began: Instant,
    /// Whose the queue was when that was last sure.
    owner: Option<Owner>,
    accused: Accused,
}

const SECOND: u64 = 1_000_000_000;
/// A direction loaded less than this share of its rate for a while needs few probes.
const ACTIVE_PERMILLE: u64 = 20;
/// Shaped traffic at this share of the rate can have a queue at the line; 75 % as in cake-autorate.
const LOADED_PERMILLE: u64 = 750;
/// A download that the line holds back does not reach the share above; a queue with this much traffic is its own.
const BUSY_PERMILLE: u64 = 400;
/// Between any two probes under load: three of four votes within 0.2 s.
const PROBE_LOADED: Nanos = Nanos::from_millis(50);
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
/// A queue is gone so long after the last traffic to speak of.
const QUEUE_LASTS: Nanos = Nanos::from_millis(1000);
/// As much of what senders may send fills a direction, or nearly so, thousandths.
const NEARLY_FILLED: u64 = 900;
/// Senders that fell silent within this time did so because of what they hear now.
const FELL_SILENT: Nanos = Nanos::from_millis(500);
/// One of which as little arrives while it was loaded is held back by the line: no sender's own decrease is as deep.
const STARVED: u64 = 500;
/// How long a direction may explore before the other's turn, where only round trips are known.
const TURN: Nanos = Nanos::from_millis(4000);
/// A queue is heard of this long after a round trip: three of four votes.
const SEEN_AFTER: Nanos = Nanos::from_millis(200);

impl Autorate {
    /// A controller that starts at `now`, with what an earlier one learned.
    pub fn new(now: Instant, bounds: Both<Bounds>, learned: Both<Learned>) -> Self {
        let law = |direction: Direction| Law::new(now, direction, bounds[direction]);
        Self {
            now,
            evidence: Evidence::default(),
            queue: Nanos(0),
            laws: Both {
                ingress: law(Direction::Ingress),
                egress: law(Direction::Egress),
            },
            loads: Both {
                ingress: Load::new(now),
                egress: Load::new(now),
            },
            learned,
            hour: None,
            turn: Direction::Ingress,
            turn_began: now,
            owner: None,
            accused: Accused::Nobody,
        }
    }

    /// What was learned of the capacity by hour, to be kept across restarts.
    pub const fn learned(&self) -> &Both<Learned> {
        &self.learned
    }

    /// The round trip of the nearest path, if it is so long that news of the line is old.
    pub fn long_path(&self) -> Option<Nanos> {
        self.evidence.is_long().then(|| self.evidence.rtt())
    }

    fn take_in(&mut self, sample: &Sample) {
        let fresh = self.now.since(sample.at) <= STALE;
        match sample.signal {
            Signal::Traffic {
                direction,
                bytes,
                span,
            } => {
                let rate = self.laws[direction].rate();
                self.loads[direction].add(self.now, bytes, span, rate);
            }
            Signal::Hour(hour) => self.on_hour(hour),
            _ if !fresh => {}
            signal => self.evidence.add(self.now, sample.at, signal),
        }
    }

    fn on_hour(&mut self, hour: u8) {
        let first = self.hour.is_none();
        self.hour = Some(hour);
        for direction in Direction::BOTH {
            let forgotten = self.now.since(self.loads[direction].loaded_at) >= FORGET_AFTER;
            if let Some(rate) = self.learned[direction].at(hour)
                && (first || forgotten)
            {
                self.laws[direction].start_at(rate);
            }
        }
    }

    fn decide(&mut self, direction: Direction, view: &View) -> Choice {
        let (choice, action) = self.laws[direction].step(self.now, view);
        match action {
            Action::None => {}
            Action::Rebase => self.evidence.rebase(direction),
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

    fn view(&self, direction: Direction, exploring: bool) -> View {
        let load = &self.loads[direction];
        let loaded = load.is_loaded(self.now);
        let blame = self.blame(direction);
        let vote = self.evidence.vote(direction, self.now, blame != Blame::None);
        let ambiguous = !self.evidence.knows(direction, self.now);
        let other = other(direction);
        let is_in_it = ambiguous && self.has_traffic(other);
        // A probe waits for half of a packet that is on the wire.
        let others_wire = if is_in_it {
            self.laws[other].wire().0 / 2
        } else {
            0
        };
        View {
            queue: vote.map(|vote| vote.queue),
            anyones: if ambiguous { self.queue } else { Nanos(0) },
            typical: vote.map_or(Nanos(0), |vote| vote.typical),
            sent: vote.map_or(self.now, |vote| vote.sent),
            is_overdue: vote.is_some_and(|vote| vote.is_overdue),
            expected: self.expected(direction),
            aim: self.aim(direction),
            is_beside: self.is_beside(direction),
            is_reflected: self.evidence.is_reflected(direction, self.now),
            rtt: self.evidence.rtt(),
            is_long: self.evidence.is_long(),
            losing_probes: self.evidence.is_losing_probes(),
            achieved: load.achieved(),
            past: load.past,
            peak: load.peak(),
            latest: load.latest(),
            loaded,
            has_just_begun: load.has_just_begun(self.now),
            had_gap: load.had_gap(),
            has_rested: load.has_rested(self.now),
            busy: load.share() >= BUSY_PERMILLE,
            active: self.now.since(load.active_at) <= QUEUE_LASTS,
            carries: load.carries_something(),
            wire: Nanos(self.laws[direction].wire().0 + others_wire),
            may_explore: exploring,
            takes_turns: self.evidence.is_round_trip_only(self.now),
            is_shared: ambiguous && blame == Blame::Shared,
            may_rebase: !ambiguous || !self.has_traffic(other) || self.laws[other].is_stuck(),
            is_others_too_small: matches!(self.accused, Accused::Both) && !self.laws[other].is_draining(),
            has_other_collapsed: self.laws[other].has_collapsed(),
            has_other_fallen: self.laws[other].has_collapsed()
                && self.loads[other].carries_something()
                && load.was_loaded_within(self.now, QUEUE_LASTS)
                && load.share() < STARVED,
        }
    }

    /// The queue that a direction may keep. A round trip has, besides, what the other one may keep of its own.
    fn aim(&self, direction: Direction) -> Nanos {
        if self.is_beside(direction) {
            AIM_BESIDE
        } else if self.evidence.is_reflected(direction, self.now) && !self.evidence.is_long() {
            self.laws[direction].aim()
        } else if self.evidence.knows(direction, self.now) || !self.has_traffic(other(direction)) {
            AIM
        } else {
            AIM_TOGETHER
        }
    }

    /// Whether it is an upload in whose queue the acknowledgements of a download would wait, and known for sure.
    fn is_beside(&self, direction: Direction) -> bool {
        direction == Direction::Egress
            && self.has_traffic(Direction::Ingress)
            && self.evidence.is_agreed_on(direction, self.now)
    }

    /// The queue that senders make of what is under way when the line falls to what passes now.
    fn expected(&self, direction: Direction) -> Nanos {
        let load = &self.loads[direction];
        let [passes, allowed] = [load.latest().bits_per_sec(), load.allowed];
        // Nothing at all passes when nobody sends, and hardly anything between the bursts of senders that are far.
        let is_little = passes < scale(allowed, STARVED, 1000) && load.carries_something();
        if !is_little || self.evidence.is_long() || !load.was_loaded_within(self.now, FELL_SILENT) {
            return Nanos(0);
        }
        Nanos(scale(self.evidence.rtt().0, allowed - passes, passes)).min(QUEUE_LASTS)
    }

    fn has_traffic(&self, direction: Direction) -> bool {
        self.loads[direction].share() >= BUSY_PERMILLE / 4
    }

    fn pass_turn(&mut self) {
        self.turn = other(self.turn);
        self.turn_began = self.now;
    }

    fn probes(&self) -> Probes {
        let quiet = |direction: Direction| self.now.since(self.loads[direction].active_at) >= IDLE_AFTER;
        let drains = |direction: Direction| self.laws[direction].is_draining();
        let loaded =
            |direction: Direction| self.loads[direction].share() >= LOADED_PERMILLE / 2 || drains(direction);
        if Direction::BOTH.into_iter().all(quiet) {
            Probes::Off
        } else if Direction::BOTH.into_iter().any(loaded) {
            let is_urgent =
                Direction::BOTH.into_iter().any(drains) || self.evidence.newest(self.now) > SUSPECTED;
            Probes::Every(if is_urgent { PROBE_HURRIED } else { PROBE_LOADED })
        } else {
            Probes::Every(PROBE_ACTIVE)
        }
    }
}

impl Controller for Autorate {
    fn step(&mut self, now: Instant, samples: &[Sample]) -> Decision {
        self.now = self.now.max(now);
        let rests = Direction::BOTH.map(|direction| self.loads[direction].has_no_queue(self.now));
        self.evidence.note_rest(rests);
        for sample in samples {
            self.take_in(sample);
        }
        self.queue = self.queue_if_blamed(Direction::Ingress);
        for direction in Direction::BOTH {
            self.loads[direction].on_time(self.now);
        }
        // A queue is seen to its end by the one whose turn it was.
        let is_quiet = Direction::BOTH
            .into_iter()
            .all(|direction| self.laws[direction].is_quiet(self.queue));
        if self.now.since(self.turn_began) >= TURN && is_quiet {
            self.pass_turn();
        }
        let loaded = Direction::BOTH.map(|direction| self.loads[direction].is_loaded(self.now));
        self.note_owner(loaded);
        self.accuse();
        let contended = self.evidence.is_round_trip_only(self.now) && loaded == [true, true];
        // Both look before either acts, or the first one's cut would acquit the second.
        let views =
            Direction::BOTH.map(|direction| self.view(direction, !contended || self.turn == direction));
        let rates = Both {
            ingress: self.decide(Direction::Ingress, &views[0]),
            egress: self.decide(Direction::Egress, &views[1]),
        };
        Decision {
            rates,
            probes: self.probes(),
        }
    }
}

const fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Ingress => Direction::Egress,
        Direction::Egress => Direction::Ingress,
    }
}

/// `value * numerator / denominator`, rounded down, saturating; a zero denominator counts as one.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
