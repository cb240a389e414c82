//! How the rate of one direction follows from the queue at the line and the traffic.

use super::{Bounds, Choice, Direction, Reason, scale};
use crate::units::{Instant, Nanos, Rate};

/// What a step sees of its direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The delay that the queue at the line adds; none while nothing is known.
    pub(super) queue: Option<Nanos>,
    /// The same with bursts that come and go.
    pub(super) typical: Nanos,
    /// When the probe was sent that says so.
    pub(super) sent: Instant,
    /// Of the nearest path, without a queue.
    pub(super) rtt: Nanos,
    pub(super) losing_probes: bool,
    /// What passes the shaper.
    pub(super) achieved: Rate,
    /// The most that passed it lately.
    pub(super) peak: Rate,
    /// What passed it in the last tenth of a second.
    pub(super) latest: Rate,
    pub(super) loaded: bool,
    /// Whether it has enough traffic to make a queue.
    pub(super) busy: bool,
    /// Whether there was any traffic to speak of lately: without it there is no queue, whatever a late answer says.
    pub(super) active: bool,
    /// What a packet of full size takes, each way that the delay is of.
    pub(super) wire: Nanos,
    /// Whether more than the ceiling may be tried now.
    pub(super) may_explore: bool,
    /// Whether the queue may as well be the other direction's.
    pub(super) is_shared: bool,
    /// Whether a delay that does not follow the rate can only be the path's.
    pub(super) may_rebase: bool,
}

/// What the rest of the controller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// The present delays are those of the path.
    Rebase,
    /// The line carries this and no more.
    Learn(Rate),
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
    phase: Phase,
    /// The rate at which a queue last appeared.
    ceiling: Option<u64>,
    /// How long the rate stays under the ceiling before more is tried.
    hold: Nanos,
    hold_until: Instant,
    /// Growth beyond the ceiling, thousandths per second.
    pace: u64,
    /// When the newest probe was sent that met no queue to speak of, and the queue it met.
    clear: (Instant, u64),
    /// What the queue seems to be without load: noise, nanoseconds.
    noise: u64,
    known_at: Instant,
    /// The queue, averaged over [`PASSING`].
    mean: u64,
    stepped_at: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Climb,
    Drain(Drain),
}

/// A queue is being emptied.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// The rate before the cut.
    before: u64,
    /// What the line seems to carry.
    capacity: u64,
    /// The delay at the cut.
    began_with: u64,
    /// What passed before the cut.
    sent_before: u64,
    /// One look may be wrong; after this, the second is believed.
    confirmed_at: Instant,
    /// Probes sent before this met the traffic of before the cut.
    effective_at: Instant,
    /// When a later one was sent, and the delay that it met.
    reference: Option<(Instant, u64)>,
    /// Checks at which the delay had not moved.
    unmoved: u8,
    is_mild: bool,
    is_shared: bool,
    /// When the probe was sent that met the longest delay, and that delay.
    peak: (Instant, u64),
}

/// A queue of this much, above noise, is cut; half of what counts as "delayed" in cake-autorate.
const BLOAT: u64 = 15_000_000;
/// A queue of this much, above noise, ends growth.
const QUEUE: u64 = 5_000_000;
/// So is a mean of this much with bursts that come and go.
const TYPICAL: u64 = 8_000_000;
/// Noise beyond this is not believed.
const NOISE_MAX: u64 = 25_000_000;
/// Nor are packets of full size that our own shaper sends just before a probe: one that is on its way already, and now and then
/// one more.
const AHEAD: u64 = 2;
const MTU_BITS: u64 = 1514 * 8;
/// A queue is emptied in about this time…
const DRAIN: u64 = 300_000_000;
/// …with between this little and this much less than the capacity, thousandths.
const DRAIN_LEAST: u64 = 50;
const DRAIN_MOST: u64 = 900;
/// A rise of the delay is not timed more closely than this: two gaps of probes.
const SHORTEST_RISE: u64 = 100_000_000;
/// A small queue means that little less is carried than sent, thousandths.
const MILDEST_CUT: u64 = 930;
/// One look at a queue does not prove that less than this part of what was sent is carried.
const DEEPEST_CUT: u64 = 4;
/// Rate after a queue, in thousandths of the capacity.
const AFTER_DRAIN: u64 = 960;
/// Below this share of the ceiling growth is quick.
const NEAR: u64 = 900;
/// Above this share of a confirmed one exploring quickens.
const BEYOND: u64 = 1030;
/// The rate is at most this much of what passed, thousandths.
const PROVEN: u64 = 1300;
/// Growth where nothing speaks against it, thousandths per second: it doubles in 0.7 s.
const QUICK: u64 = 1000;
/// Growth with which exploring begins.
const SLOW: u64 = 30;
/// Exploring doubles its pace in this time.
const PACE_DOUBLES: Nanos = Nanos::from_millis(400);
/// Pauses under the ceiling.
const HOLD_MIN: Nanos = Nanos::from_millis(1000);
const HOLD_MAX: Nanos = Nanos::from_millis(15_000);
/// Ceilings within this of each other confirm each other, thousandths.
const SAME: u64 = 80;
/// How a queue drains is looked at this often.
const CHECK: Nanos = Nanos::from_millis(200);
/// A cut deeper than one look allows needs the queue to last this long.
const CONFIRMS: Nanos = Nanos::from_millis(150);
/// A small queue may pass by itself within this.
const PASSING: Nanos = Nanos::from_millis(400);
/// A delay that changes by less has not moved.
const MOVED: u64 = 3_000_000;
/// Checks without any effect after which the path must have changed; more of them for a delay that a full buffer has.
const UNMOVED: u8 = 3;
const UNMOVED_LONG: u8 = 6;
const LONG_DELAY: u64 = 150_000_000;
/// Without signals the rate stays for this long, then goes to base by so many thousandths per second.
const HOLD_BLIND: Nanos = Nanos::from_millis(5000);
const DECAY: u64 = 20;
const BLIND_AFTER: Nanos = Nanos::from_millis(1500);
const SECOND: u64 = 1_000_000_000;

impl Law {
    pub(super) fn new(now: Instant, direction: Direction, bounds: Bounds) -> Self {
        let [min, base, max] = resolve(bounds);
        Self {
            direction,
            min,
            base,
            max,
            rate: base,
            reason: Reason::Start,
            phase: Phase::Climb,
            ceiling: None,
            hold: HOLD_MIN,
            hold_until: now,
            pace: QUICK,
            clear: (now, 0),
            noise: 0,
            known_at: now,
            mean: 0,
            stepped_at: now,
        }
    }

    pub(super) const fn rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.rate)
    }

    /// What a packet of full size takes.
    pub(super) fn wire(&self) -> Nanos {
        Nanos(scale(MTU_BITS, SECOND, self.rate))
    }

    /// How far it is above the rate that is known to be good, in thousandths of that.
    pub(super) fn excess(&self) -> u64 {
        self.ceiling
            .map_or(u64::MAX, |ceiling| scale(self.rate, 1000, ceiling))
    }

    pub(super) const fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Drain(_))
    }

    /// Whether it is above what is known to be good.
    pub(super) fn is_exploring(&self) -> bool {
        match self.phase {
            Phase::Climb => self
                .ceiling
                .is_none_or(|ceiling| self.rate > scale(ceiling, AFTER_DRAIN + 5, 1000)),
            Phase::Drain(_) => true,
        }
    }

    /// Whether cutting has not helped so far.
    pub(super) const fn is_stuck(&self) -> bool {
        matches!(self.phase, Phase::Drain(Drain { unmoved: 1.., .. }))
    }

    /// Continues with what was learned.
    pub(super) fn start_at(&mut self, usual: Rate) {
        self.rate = scale(usual.bits_per_sec(), AFTER_DRAIN, 1000).clamp(self.min, self.max);
        self.ceiling = Some(usual.bits_per_sec());
        self.phase = Phase::Climb;
        self.hold = HOLD_MIN;
        self.reason = Reason::Learned;
    }

    pub(super) fn step(&mut self, now: Instant, view: &View) -> (Choice, Action) {
        let elapsed = now.since(self.stepped_at).0.min(SECOND);
        self.stepped_at = now;
        let action = match view.queue {
            None => {
                self.blind(now, elapsed, view);
                Action::None
            }
            Some(queue) => {
                self.known_at = now;
                let typical = view.typical.0;
                self.note_noise(typical, view);
                self.mean = self.mean - scale(self.mean, elapsed.min(PASSING.0), PASSING.0)
                    + scale(typical, elapsed.min(PASSING.0), PASSING.0);
                match self.phase {
                    Phase::Climb => self.climb(now, elapsed, queue.0, view),
                    Phase::Drain(drain) => self.drain(now, queue.0, view, drain),
                }
            }
        };
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
        // Traffic flows on: it was the signals that failed, not the line.
        if let Phase::Drain(drain) = self.phase
            && view.achieved.bits_per_sec() > self.rate / 2
        {
            self.rate = drain.before;
            self.phase = Phase::Climb;
        }
        if !view.loaded {
            self.known_at = now;
            self.reason = Reason::Unloaded;
            return;
        }
        self.reason = Reason::SignalsLost;
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

    fn climb(&mut self, now: Instant, elapsed: u64, queue: u64, view: &View) -> Action {
        let wire = view.wire.0;
        if queue > BLOAT + self.noise + wire && view.active {
            return self.cut(now, queue, view, false);
        }
        if self.mean > TYPICAL + self.noise + wire * AHEAD && view.busy {
            return self.cut(now, queue.max(self.mean), view, true);
        }
        if queue > QUEUE + self.noise + wire {
            // A small queue may pass, and may be of bursts that need no more than this.
            self.reason = if view.loaded {
                Reason::Steady
            } else {
                Reason::Unloaded
            };
            return Action::None;
        }
        if queue <= QUEUE / 2 + self.noise + wire {
            self.note_clear(queue, view);
        }
        if !view.loaded {
            self.reason = Reason::Unloaded;
            return Action::None;
        }
        self.grow(now, elapsed, view);
        Action::None
    }

    fn grow(&mut self, now: Instant, elapsed: u64, view: &View) {
        let near = self.ceiling.map(|ceiling| scale(ceiling, NEAR, 1000));
        let permille = if near.is_none_or(|near| self.rate < near) {
            QUICK
        } else if now < self.hold_until || !view.may_explore {
            self.reason = Reason::Steady;
            return;
        } else {
            self.explore(elapsed)
        };
        let grown = self
            .rate
            .saturating_add(scale(self.rate, permille * elapsed, 1000 * SECOND));
        // Not far ahead of the traffic, which is what proves that the line carries it.
        let proven = scale(view.peak.bits_per_sec(), PROVEN, 1000);
        // Quick growth ends where the careful one begins.
        let near = near.filter(|near| self.rate < *near).unwrap_or(u64::MAX);
        self.rate = grown.min(proven).min(near).max(self.rate);
        self.reason = Reason::Grow;
    }

    /// Growth near the ceiling and beyond: slow at first, faster where nothing is heard of it any more.
    fn explore(&mut self, elapsed: u64) -> u64 {
        let pace = self.pace;
        // A ceiling that was found twice is approached with more care.
        let is_confirmed = self.hold > HOLD_MIN;
        let is_beyond = self
            .ceiling
            .is_none_or(|ceiling| self.rate >= scale(ceiling, BEYOND, 1000));
        if is_beyond || !is_confirmed {
            let more = scale(pace, elapsed, PACE_DOUBLES.0).max(1);
            self.pace = (pace + more).min(QUICK);
        }
        pace
    }

    /// Cuts to less than the line seems to carry.
    fn cut(&mut self, now: Instant, queue: u64, view: &View, is_mild: bool) -> Action {
        let capacity = self.capacity(queue, view, is_mild);
        let before = self.rate;
        let confirmed = self
            .ceiling
            .is_some_and(|ceiling| ceiling.abs_diff(capacity) <= scale(capacity, SAME, 1000));
        self.hold = if confirmed {
            Nanos((self.hold.0 / 4 * 5).min(HOLD_MAX.0))
        } else {
            HOLD_MIN
        };
        let drain = Drain {
            before,
            capacity,
            began_with: queue,
            sent_before: view.peak.bits_per_sec().min(before),
            confirmed_at: now + CONFIRMS,
            effective_at: now + self.reaction(view),
            reference: None,
            unmoved: 0,
            is_mild,
            is_shared: view.is_shared,
            peak: (view.sent, queue),
        };
        self.phase = Phase::Drain(drain);
        self.ceiling = Some(capacity);
        self.rate = drain_rate(capacity, queue).min(before);
        let delay = Nanos(queue);
        self.reason = if is_mild {
            Reason::Settle { delay }
        } else {
            Reason::Bloat { delay }
        };
        Action::None
    }

    fn drain(&mut self, now: Instant, queue: u64, view: &View, mut drain: Drain) -> Action {
        if queue <= QUEUE + self.noise + view.wire.0 {
            return self.resume(now, queue, view, drain);
        }
        if drain.is_mild {
            if queue > drain.began_with + BLOAT {
                // It was the beginning of something else.
                return self.cut(now, queue, view, false);
            }
            self.note_clear(queue, view);
        }
        self.reason = Reason::Drain { delay: Nanos(queue) };
        if queue >= drain.peak.1 {
            drain.peak = (view.sent, queue);
        }
        match drain.reference {
            _ if view.sent < drain.effective_at => self.look_again(now, queue, view, &mut drain),
            None => drain.reference = Some((view.sent, queue)),
            Some((sent, reference)) if view.sent.since(sent) >= CHECK => {
                if self.check(&mut drain, queue, reference, view.sent.since(sent), view) {
                    return self.take_back(now, queue, &drain);
                }
                drain.reference = Some((view.sent, queue));
            }
            Some(_) => {}
        }
        // What is left by now: the news is as old as its probe.
        let ran = now.since(view.sent).0;
        let drained = scale(ran, drain.capacity.saturating_sub(self.rate), drain.capacity);
        self.rate = drain_rate(drain.capacity, queue.saturating_sub(drained)).min(drain.before);
        self.phase = Phase::Drain(drain);
        Action::None
    }

    /// The news is still of before the cut; the later it comes, the less the line carries.
    fn look_again(&self, now: Instant, queue: u64, view: &View, drain: &mut Drain) {
        if now < drain.confirmed_at || queue < drain.peak.1 {
            return;
        }
        let carries = match self.direction {
            // What arrives is what the line carries, unless our own shaper holds it back.
            Direction::Ingress if view.latest.bits_per_sec() < scale(self.rate, 9, 10) => {
                view.latest.bits_per_sec()
            }
            Direction::Ingress => return,
            Direction::Egress => self.carried(drain.sent_before, queue, view),
        };
        drain.capacity = drain.capacity.min(carries).max(self.min);
    }

    /// Learns from how the queue drains; says whether it does not depend on the rate.
    fn check(&mut self, drain: &mut Drain, queue: u64, reference: u64, time: Nanos, view: &View) -> bool {
        let sent = view.achieved.bits_per_sec().min(self.rate);
        let moved = queue.abs_diff(reference) > MOVED.max(reference / 16);
        if moved && queue < reference {
            // It drains; by how much says what the line carries.
            drain.unmoved = 0;
            let carries = scale(
                sent,
                time.0,
                time.0.saturating_sub(reference - queue).max(time.0 / 8),
            );
            drain.capacity = carries.clamp(drain.capacity / 2, drain.capacity * 5 / 4);
            return false;
        }
        if moved {
            let carries = scale(sent, time.0, time.0.saturating_add(queue - reference));
            drain.capacity = carries.clamp(drain.capacity / 4, drain.capacity);
            drain.unmoved = 0;
            self.reason = Reason::Bloat { delay: Nanos(queue) };
            return false;
        }
        // Once may be chance or a sender that has not heard of the cut yet.
        drain.capacity = if drain.unmoved == 0 {
            drain.capacity / 20 * 19
        } else {
            drain.capacity * 3 / 4
        };
        drain.unmoved = drain.unmoved.saturating_add(1);
        let enough = if queue > LONG_DELAY { UNMOVED_LONG } else { UNMOVED };
        drain.unmoved >= enough && !view.losing_probes && view.may_rebase
    }

    /// The queue is gone.
    fn resume(&mut self, now: Instant, queue: u64, view: &View, mut drain: Drain) -> Action {
        // A queue that went faster than the line was thought to carry was a moment's outage.
        let (peak_at, peak) = drain.peak;
        let time = view.sent.since(peak_at).0;
        let sent = view.achieved.bits_per_sec().min(self.rate);
        let carries = scale(
            sent,
            time,
            time.saturating_sub(peak.saturating_sub(queue)).max(time / 8),
        );
        drain.capacity = drain.capacity.max(carries.min(drain.before));

        self.clear = (self.clear.0.max(view.sent), queue);
        self.phase = Phase::Climb;
        self.mean = 0;
        self.ceiling = Some(drain.capacity);
        self.rate = scale(drain.capacity, AFTER_DRAIN, 1000).min(drain.before);
        if drain.is_shared && self.direction == Direction::Ingress {
            // The upload is estimated better, so it keeps its cut while the download tries whether it was innocent: above
            // its ceiling it is the first to be suspected.
            self.rate = self.rate.max(scale(drain.before, NEAR, 1000));
        }
        self.hold_until = now + self.hold;
        self.pace = SLOW;
        self.reason = Reason::Steady;
        if drain.is_mild {
            Action::Learn(Rate::from_bits_per_sec(drain.capacity))
        } else {
            Action::None
        }
    }

    /// It was not this direction's queue.
    fn take_back(&mut self, now: Instant, queue: u64, drain: &Drain) -> Action {
        self.rate = scale(drain.before, AFTER_DRAIN, 1000);
        self.phase = Phase::Climb;
        self.ceiling = Some(drain.before);
        self.hold_until = now + HOLD_MIN;
        self.hold = HOLD_MIN;
        self.pace = SLOW;
        self.reason = Reason::PathChanged { by: Nanos(queue) };
        Action::Rebase
    }

    /// What the line carries. In the download that is what arrives while there is a queue. In the upload it follows from
    /// what was sent and how the delay grew since there was no queue.
    fn capacity(&self, queue: u64, view: &View, is_mild: bool) -> u64 {
        if self.direction == Direction::Ingress {
            let least = scale(view.achieved.bits_per_sec(), 1, DEEPEST_CUT);
            return view.latest.bits_per_sec().max(least).min(self.rate).max(self.min);
        }
        let sent = view.peak.bits_per_sec().min(self.rate);
        let carried = self.carried(sent, queue, view);
        let least = if is_mild {
            scale(sent, MILDEST_CUT, 1000)
        } else {
            scale(sent, 1, DEEPEST_CUT)
        };
        carried.max(least).max(self.min)
    }

    /// What was sent since there was no queue took as much longer to arrive as the delay grew.
    fn carried(&self, sent: u64, queue: u64, view: &View) -> u64 {
        let (clear_at, clear_queue) = self.clear;
        let time = view.sent.since(clear_at).0.max(SHORTEST_RISE);
        scale(sent, time, time.saturating_add(queue.saturating_sub(clear_queue)))
    }

    fn note_clear(&mut self, queue: u64, view: &View) {
        if view.sent >= self.clear.0 {
            self.clear = (view.sent, queue);
        }
    }

    /// Until less is sent into the queue: a download's sender must hear of it first.
    fn reaction(&self, view: &View) -> Nanos {
        match self.direction {
            Direction::Ingress => view.rtt,
            Direction::Egress => Nanos(0),
        }
    }

    /// Follows the envelope of what the queue seems to be while there is none.
    fn note_noise(&mut self, queue: u64, view: &View) {
        if view.loaded || self.is_draining() || view.achieved.bits_per_sec() > self.rate / 5 {
            return;
        }
        self.noise = if queue > self.noise {
            (self.noise + (queue - self.noise) / 16).min(NOISE_MAX)
        } else {
            self.noise - (self.noise - queue) / 128
        };
    }
}

fn drain_rate(capacity: u64, queue: u64) -> u64 {
    let less = scale(queue, 1000, DRAIN).clamp(DRAIN_LEAST, DRAIN_MOST);
    scale(capacity, 1000 - less, 1000)
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
