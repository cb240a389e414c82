//! Less is sent for a queue: whether there is one, whose it is, and what it becomes.

use super::capacity::MOMENT;
use super::{Cut, DrainCheck, MIN_DELAY_CHANGE, Point, QUICK, RateController, TARGET_DELAY};
use crate::delay::SEEN_AFTER;
use crate::observation::Observation;
use crate::{Reason, SECOND, scale};
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

/// A line that falls to less than this, thousandths, makes a queue of what is under way.
const STOPPED: u64 = 500;
/// A queue below this may be the rest of one, heard of late; a fall soon makes more.
const REMNANT: u64 = 10_000_000;
/// Probes sent before a fall are back this long after a round trip.
const STRAYS: Nanos = Nanos::from_millis(200);
/// A queue at less than this above what was found last, of 1000, is for now taken for the same line.
const USUAL: u64 = 800;
/// The first look at a queue does not prove that less than this part of what was sent is carried.
const FIRST_LOOK: u64 = 4;
/// What arrives is what the line carries for so long after a queue is seen, and until senders can have heard of our own shaper.
const SHOWS: Nanos = Nanos::from_millis(100);
/// Before this has passed a queue is not expected to follow.
const CHECK: Nanos = Nanos::from_millis(200);
/// A queue that grows by as much although less is sent is the other direction's too.
const FAILING: u64 = 40_000_000;
/// Sending less than this of the capacity, thousandths, must show.
const CLEARLY_LESS: u64 = 950;
/// Senders that our shaper holds back send no more than this of what it lets pass, thousandths.
const OBEYS: u64 = 1150;
/// A queue that stands for so long is made to go, by sending this share of the capacity, thousandths: what then stays is none.
const STANDS: Nanos = Nanos::from_millis(1000);
const TEST: u64 = 880;
/// Senders obeyed in vain, if so many times as much as waits should have gone.
const CONSERVATIVE_RATIO: u64 = 3;
/// A path becomes longer by less than this.
const SMALL: u64 = 15_000_000;

impl Cut {
    /// The rate at which a queue must go, once it is time to see whether it does.
    ///
    /// One that has not moved for long is tested below all that the line may carry, or less would never be sent than would show.
    pub(crate) fn test(&self, now: Instant, capacity: u64, observation: &Observation) -> Option<u64> {
        let stands = |drain_check: &DrainCheck| observation.sent.since(drain_check.point.sent) >= STANDS;
        let level = self
            .drain_check
            .filter(stands)
            .map(|drain_check| drain_check.level);
        let carries = level.map_or(capacity, |level| level.min(capacity));
        (now >= self.test_at).then(|| scale(carries, TEST, 1000))
    }

    /// Whether what is left of a round trip can only be the path's, if it is not this direction's.
    fn is_nobodys(&self, queue: u64, observation: &Observation) -> bool {
        let is_since_peak = |responsive_drain: DrainCheck| responsive_drain.point.sent > self.peak.sent;
        queue < SMALL
            && self.responsive_drain.is_some_and(is_since_peak)
            && !observation.losing_probes
            && (observation.may_rebase || observation.is_others_too_small)
    }
}

impl RateController {
    /// A queue appears.
    pub(crate) fn begin(&mut self, now: Instant, observation: &Observation) {
        self.cut = Some(Cut {
            before: self.rate,
            capacity_before: self.capacity,
            effective_at: now + self.reaction(observation),
            drain_check: None,
            responsive_drain: None,
            test_at: now + STANDS,
            had_no_effect: false,
            has_followed: false,
            keeps_growing: false,
            is_shared: observation.is_shared,
            began_at: now,
            shown_at: now,
            is_of_beginning: observation.has_just_begun,
            began_with: observation.queue.unwrap_or(Nanos(0)).0,
            least: None,
            seen_at: now,
            peak: Point {
                sent: observation.sent,
                queue: 0,
            },
            expected: 0,
        });
        // No more than what was sent can be known of the line.
        let sent = observation.peak.bits_per_sec().min(self.rate).max(self.min);
        let measured = self.measured(observation).unwrap_or(sent);
        // While nothing else is known, it is what it was.
        let usual = self.found.filter(|found| {
            *found < sent && *found > scale(sent, USUAL, 1000)
                || self.has_stopped(*found, measured, observation)
        });
        // The queue began when less was sent than now.
        let then = sent
            - scale(
                sent,
                self.growth_rate.min(QUICK) * (observation.rtt.0 + SEEN_AFTER.0),
                1000 * SECOND,
            )
            .min(sent / 2);
        let most = match self.direction {
            Direction::Upload if self.reason == Reason::Grow => then,
            _ => sent,
        };
        self.capacity = Some(usual.unwrap_or_else(|| measured.clamp(sent / FIRST_LOOK, most)));
    }

    /// Whether so little of a download arrives because senders have stopped: they go on for a round trip when the line falls, and more
    /// would wait.
    pub(crate) fn has_stopped(&self, found: u64, arrives: u64, observation: &Observation) -> bool {
        let waits = scale(observation.rtt.0, found.saturating_sub(arrives), arrives);
        self.direction == Direction::Download
            && arrives < scale(found, STOPPED, 1000)
            && observation
                .queue
                .is_some_and(|queue| queue.0 < waits.min(REMNANT))
    }

    /// The queue that nobody has met yet, because the line fell only just; with it goes what the line is thought to carry.
    pub(crate) fn expected(&mut self, observation: &Observation) -> u64 {
        let Some(cut) = &mut self.cut else { return 0 };
        if !observation.is_overdue && observation.sent >= cut.began_at {
            return 0;
        }
        cut.expected = cut.expected.max(observation.expected.0);
        if observation.is_overdue && observation.expected.0 > 0 {
            let passes = observation.latest.bits_per_sec().max(self.min);
            self.capacity = self.capacity.map(|capacity| capacity.min(passes));
        }
        cut.expected
    }

    /// What is left by now: the news is as old as its probe.
    pub(crate) fn present(&self, now: Instant, queue: u64, observation: &Observation) -> u64 {
        if self.direction == Direction::Download {
            return queue;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let ran = now.since(observation.sent).0;
        queue.saturating_sub(scale(ran, capacity.saturating_sub(self.rate), capacity))
    }

    /// Whether all that is known is from before the fall that it is cut for.
    pub(crate) fn is_unheard(&self, now: Instant, observation: &Observation) -> bool {
        self.cut.is_some_and(|cut| {
            cut.expected > 0
                && observation.sent < cut.began_at
                && now.since(cut.began_at).0 < 2 * observation.rtt.0 + STRAYS.0
        })
    }

    /// Whether the delay is not that of a queue, because it does not follow the rate; the cut is then taken back.
    pub(crate) fn is_of_the_path(&mut self, now: Instant, queue: u64, observation: &Observation) -> bool {
        let Some(mut cut) = self.cut else { return false };
        cut.is_shared |= observation.is_shared;
        cut.keeps_growing |= now > cut.effective_at + CHECK && queue > cut.began_with + FAILING;
        let point = Point {
            sent: observation.sent,
            queue,
        };
        if self.is_cut_in_vain(now, &mut cut, queue, observation) {
            cut.had_no_effect = true;
            if !observation.losing_probes && observation.may_rebase {
                self.restart_from_min(queue);
                return true;
            }
        }
        if observation.sent < cut.effective_at {
            self.cut = Some(cut);
            return false;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let drain_check = cut.drain_check.unwrap_or(DrainCheck {
            point,
            seen: observation.sent,
            level: capacity,
            expected_drain: 0,
        });
        if cut.drain_check.is_none() {
            cut.shown_at = now;
        }
        let responsive_drain = self.responsive_drain_ratio(&mut cut.responsive_drain, point, observation);
        cut.had_no_effect |= observation.takes_turns && responsive_drain >= 1;
        if observation.takes_turns
            && responsive_drain >= CONSERVATIVE_RATIO
            && cut.is_nobodys(queue, observation)
        {
            self.change_path(now, queue);
            return true;
        }
        let level = self.level(now, &cut, drain_check.level, observation);
        let drain_check = cut.drain_check.insert(DrainCheck { level, ..drain_check });
        let passes = observation.achieved.bits_per_sec();
        let most = self.most(capacity, level, observation);
        // A few percent less may be an error of the estimate.
        if passes >= scale(most, CLEARLY_LESS, 1000) {
            drain_check.expected_drain = 0;
        } else {
            drain_check.expected_drain +=
                scale(observation.sent.since(drain_check.seen).0, most - passes, most);
        }
        drain_check.seen = observation.sent;
        let next = DrainCheck {
            point,
            seen: observation.sent,
            level: most,
            expected_drain: 0,
        };
        let margin = MIN_DELAY_CHANGE.max(drain_check.point.queue / 8);
        if queue + margin < drain_check.point.queue {
            *drain_check = next;
            cut.had_no_effect = false;
            cut.has_followed |= queue + 2 * margin < cut.peak.queue;
        } else if queue > drain_check.point.queue + margin {
            // It grows: less is carried than was thought, or it is not this direction's.
            cut.had_no_effect |= drain_check.expected_drain > 2 * MIN_DELAY_CHANGE;
            *drain_check = next;
            cut.shown_at = now;
        } else if drain_check.expected_drain
            > (drain_check.point.queue + 2 * MIN_DELAY_CHANGE) * if cut.has_followed { 3 } else { 1 }
        {
            cut.had_no_effect = true;
            if !observation.losing_probes && observation.may_rebase {
                let carries = self.capacity;
                self.change_path(now, queue);
                if cut.has_followed {
                    self.capacity = carries;
                    self.rate = carries.unwrap_or(self.rate).min(self.rate);
                }
                return true;
            }
        }
        self.cut = Some(cut);
        false
    }

    /// The most that the line may carry, given what was thought before.
    ///
    /// What is measured just after a fall holds some of before. A line held at that, and cut by what empties a queue, could be sent
    /// just what it carries, and the queue that stands for that would be taken for the path. What arrives later may be what our own
    /// shaper lets pass: it says nothing of the line.
    fn level(&self, now: Instant, cut: &Cut, before: u64, observation: &Observation) -> u64 {
        let is_new = now <= cut.shown_at + Nanos(self.reaction(observation).0 + SHOWS.0);
        if !is_new || cut.peak.queue <= 2 * TARGET_DELAY.0 || observation.takes_turns {
            return before;
        }
        let carries = match self.direction {
            Direction::Download => observation.latest.bits_per_sec(),
            Direction::Upload => self.measured(observation).unwrap_or(before),
        };
        carries.min(before)
    }

    /// The most that the line may carry, given what is thought now.
    ///
    /// Of a round trip that hardly changes an upload's line is always found to carry just what is sent, however much less that
    /// becomes, as if the line had fallen with it each time: rather than that, the queue is the other direction's.
    fn most(&self, capacity: u64, level: u64, observation: &Observation) -> u64 {
        if observation.takes_turns && self.direction == Direction::Upload && self.is_almost_even() {
            level
        } else {
            capacity.min(level)
        }
    }

    /// How many times as much as waits should have gone since it was shortest, by how much less a download's senders send, who do
    /// what our shaper tells them: what stays then is not theirs.
    ///
    /// While a queue of theirs is left at the line, as much arrives as that carries, whatever our shaper lets pass.
    fn responsive_drain_ratio(
        &self,
        responsive_drain: &mut Option<DrainCheck>,
        point: Point,
        observation: &Observation,
    ) -> u64 {
        if self.direction == Direction::Upload {
            return 0;
        }
        let new = DrainCheck {
            point,
            seen: observation.sent,
            level: self.capacity.unwrap_or(self.rate),
            expected_drain: 0,
        };
        let responsive_drain = responsive_drain.get_or_insert(new);
        let arrives = observation.achieved.bits_per_sec();
        if arrives <= scale(self.rate, OBEYS, 1000) {
            let less = responsive_drain.level.saturating_sub(arrives.max(self.rate));
            responsive_drain.expected_drain += scale(
                observation.sent.since(responsive_drain.seen).0,
                less,
                responsive_drain.level,
            );
        }
        responsive_drain.seen = observation.sent;
        if point.queue + MIN_DELAY_CHANGE < responsive_drain.point.queue {
            *responsive_drain = new;
        }
        responsive_drain.expected_drain / (responsive_drain.point.queue + 3 * MIN_DELAY_CHANGE)
    }

    /// Whether the least rate has not made the queue less for a while: that rate the line is said to carry, so that what stays is
    /// the path's, or waits in our own shaper, which has hardly room for another direction's acknowledgements.
    fn is_cut_in_vain(&self, now: Instant, cut: &mut Cut, queue: u64, observation: &Observation) -> bool {
        if self.rate > self.min {
            cut.least = None;
            return false;
        }
        let here = Point { sent: now, queue };
        let least = cut.least.get_or_insert(here);
        if queue + MIN_DELAY_CHANGE.max(least.queue / 8) < least.queue {
            *least = here;
        }
        observation.sent.since(least.sent) >= STANDS
    }

    /// From a little more than nothing, as if nothing were known of the line.
    fn restart_from_min(&mut self, queue: u64) {
        self.cut = None;
        self.capacity = None;
        self.found = None;
        self.rate = 2 * self.min;
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// Whether a download's queue was gone before its senders can have heard of the cut: a moment's outage, or a burst, of which the
    /// line's rate knows nothing.
    pub(super) fn drained_before_reaction(&self, now: Instant, cut: &Cut, observation: &Observation) -> bool {
        let went_soon = if observation.is_high_rtt {
            // The cut lasted until they can.
            cut.seen_at.since(cut.began_at) < observation.rtt
        } else {
            observation.sent < cut.effective_at && now.since(cut.began_at) <= MOMENT
        };
        self.direction == Direction::Download && observation.may_rebase && went_soon
    }

    /// Until less is sent into the queue: a download's sender must hear of it first.
    fn reaction(&self, observation: &Observation) -> Nanos {
        match self.direction {
            Direction::Download => observation.rtt,
            Direction::Upload => Nanos(0),
        }
    }
}
