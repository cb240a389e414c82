//! Less is sent for a queue: whether there is one, whose it is, and what it becomes.

use super::capacity::MOMENT;
use super::{AIM, Law, MOVED, Point, QUICK, Reference, SECOND, SEEN_AFTER, Trial};
use crate::view::View;
use crate::{Direction, Reason, scale};
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
const SURELY: u64 = 3;
/// A path becomes longer by less than this.
const SMALL: u64 = 15_000_000;

impl Trial {
    /// The rate at which a queue must go, once it is time to see whether it does.
    ///
    /// One that has not moved for long is tested below all that the line may carry, or less would never be sent than would show.
    pub(super) fn test(&self, now: Instant, capacity: u64, view: &View) -> Option<u64> {
        let stands = |reference: &Reference| view.sent.since(reference.point.sent) >= STANDS;
        let level = self.reference.filter(stands).map(|reference| reference.level);
        let carries = level.map_or(capacity, |level| level.min(capacity));
        (now >= self.test_at).then(|| scale(carries, TEST, 1000))
    }

    /// Whether what is left of a round trip can only be the path's, if it is not this direction's.
    fn is_nobodys(&self, queue: u64, view: &View) -> bool {
        let is_since_peak = |obeyed: Reference| obeyed.point.sent > self.peak.sent;
        queue < SMALL
            && self.obeyed.is_some_and(is_since_peak)
            && !view.losing_probes
            && (view.may_rebase || view.is_others_too_small)
    }
}

impl Law {
    /// A queue appears.
    pub(super) fn begin(&mut self, now: Instant, view: &View) {
        self.trial = Some(Trial {
            before: self.rate,
            capacity_before: self.capacity,
            effective_at: now + self.reaction(view),
            reference: None,
            obeyed: None,
            test_at: now + STANDS,
            is_helpless: false,
            has_followed: false,
            is_failing: false,
            is_shared: view.is_shared,
            began_at: now,
            shown_at: now,
            is_of_beginning: view.has_just_begun,
            began_with: view.queue.unwrap_or(Nanos(0)).0,
            least: None,
            seen_at: now,
            peak: Point {
                sent: view.sent,
                queue: 0,
            },
            expected: 0,
        });
        // No more than what was sent can be known of the line.
        let sent = view.peak.bits_per_sec().min(self.rate).max(self.min);
        let measured = self.measured(view).unwrap_or(sent);
        // While nothing else is known, it is what it was.
        let usual = self.found.filter(|found| {
            *found < sent && *found > scale(sent, USUAL, 1000) || self.has_stopped(*found, measured, view)
        });
        // The queue began when less was sent than now.
        let then = sent
            - scale(
                sent,
                self.pace.min(QUICK) * (view.rtt.0 + SEEN_AFTER.0),
                1000 * SECOND,
            )
            .min(sent / 2);
        let most = match self.direction {
            Direction::Egress if self.reason == Reason::Grow => then,
            _ => sent,
        };
        self.capacity = Some(usual.unwrap_or_else(|| measured.clamp(sent / FIRST_LOOK, most)));
    }

    /// Whether so little of a download arrives because senders have stopped: they go on for a round trip when the line falls, and more
    /// would wait.
    pub(super) fn has_stopped(&self, found: u64, arrives: u64, view: &View) -> bool {
        let waits = scale(view.rtt.0, found.saturating_sub(arrives), arrives);
        self.direction == Direction::Ingress
            && arrives < scale(found, STOPPED, 1000)
            && view.queue.is_some_and(|queue| queue.0 < waits.min(REMNANT))
    }

    /// The queue that nobody has met yet, because the line fell only just; with it goes what the line is thought to carry.
    pub(super) fn expected(&mut self, view: &View) -> u64 {
        let Some(trial) = &mut self.trial else { return 0 };
        if !view.is_overdue && view.sent >= trial.began_at {
            return 0;
        }
        trial.expected = trial.expected.max(view.expected.0);
        if view.is_overdue && view.expected.0 > 0 {
            let passes = view.latest.bits_per_sec().max(self.min);
            self.capacity = self.capacity.map(|capacity| capacity.min(passes));
        }
        trial.expected
    }

    /// What is left by now: the news is as old as its probe.
    pub(super) fn present(&self, now: Instant, queue: u64, view: &View) -> u64 {
        if self.direction == Direction::Ingress {
            return queue;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let ran = now.since(view.sent).0;
        queue.saturating_sub(scale(ran, capacity.saturating_sub(self.rate), capacity))
    }

    /// Whether all that is known is from before the fall that it is cut for.
    pub(super) fn is_unheard(&self, now: Instant, view: &View) -> bool {
        self.trial.is_some_and(|trial| {
            trial.expected > 0
                && view.sent < trial.began_at
                && now.since(trial.began_at).0 < 2 * view.rtt.0 + STRAYS.0
        })
    }

    /// Whether the delay is not that of a queue, because it does not follow the rate; the cut is then taken back.
    pub(super) fn is_of_the_path(&mut self, now: Instant, queue: u64, view: &View) -> bool {
        let Some(mut trial) = self.trial else { return false };
        trial.is_shared |= view.is_shared;
        trial.is_failing |= now > trial.effective_at + CHECK && queue > trial.began_with + FAILING;
        let point = Point {
            sent: view.sent,
            queue,
        };
        if self.is_cut_in_vain(now, &mut trial, queue, view) {
            trial.is_helpless = true;
            if !view.losing_probes && view.may_rebase {
                self.begin_again(queue);
                return true;
            }
        }
        if view.sent < trial.effective_at {
            self.trial = Some(trial);
            return false;
        }
        let capacity = self.capacity.unwrap_or(self.rate);
        let reference = trial.reference.unwrap_or(Reference {
            point,
            seen: view.sent,
            level: capacity,
            owed: 0,
        });
        if trial.reference.is_none() {
            trial.shown_at = now;
        }
        let obeyed = self.times_obeyed(&mut trial.obeyed, point, view);
        trial.is_helpless |= view.takes_turns && obeyed >= 1;
        if view.takes_turns && obeyed >= SURELY && trial.is_nobodys(queue, view) {
            self.change_path(now, queue);
            return true;
        }
        let level = self.level(now, &trial, reference.level, view);
        let reference = trial.reference.insert(Reference { level, ..reference });
        let passes = view.achieved.bits_per_sec();
        let most = self.most(capacity, level, view);
        // A few percent less may be an error of the estimate.
        if passes >= scale(most, CLEARLY_LESS, 1000) {
            reference.owed = 0;
        } else {
            reference.owed += scale(view.sent.since(reference.seen).0, most - passes, most);
        }
        reference.seen = view.sent;
        let next = Reference {
            point,
            seen: view.sent,
            level: most,
            owed: 0,
        };
        let margin = MOVED.max(reference.point.queue / 8);
        if queue + margin < reference.point.queue {
            *reference = next;
            trial.is_helpless = false;
            trial.has_followed |= queue + 2 * margin < trial.peak.queue;
        } else if queue > reference.point.queue + margin {
            // It grows: less is carried than was thought, or it is not this direction's.
            trial.is_helpless |= reference.owed > 2 * MOVED;
            *reference = next;
            trial.shown_at = now;
        } else if reference.owed
            > (reference.point.queue + 2 * MOVED) * if trial.has_followed { 3 } else { 1 }
        {
            trial.is_helpless = true;
            if !view.losing_probes && view.may_rebase {
                let carries = self.capacity;
                self.change_path(now, queue);
                if trial.has_followed {
                    self.capacity = carries;
                    self.rate = carries.unwrap_or(self.rate).min(self.rate);
                }
                return true;
            }
        }
        self.trial = Some(trial);
        false
    }

    /// The most that the line may carry, given what was thought before.
    ///
    /// What is measured just after a fall holds some of before. A line held at that, and cut by what empties a queue, could be sent
    /// just what it carries, and the queue that stands for that would be taken for the path. What arrives later may be what our own
    /// shaper lets pass: it says nothing of the line.
    fn level(&self, now: Instant, trial: &Trial, before: u64, view: &View) -> u64 {
        let is_new = now <= trial.shown_at + Nanos(self.reaction(view).0 + SHOWS.0);
        if !is_new || trial.peak.queue <= 2 * AIM.0 || view.takes_turns {
            return before;
        }
        let carries = match self.direction {
            Direction::Ingress => view.latest.bits_per_sec(),
            Direction::Egress => self.measured(view).unwrap_or(before),
        };
        carries.min(before)
    }

    /// The most that the line may carry, given what is thought now.
    ///
    /// Of a round trip that hardly changes an upload's line is always found to carry just what is sent, however much less that
    /// becomes, as if the line had fallen with it each time: rather than that, the queue is the other direction's.
    fn most(&self, capacity: u64, level: u64, view: &View) -> u64 {
        if view.takes_turns && self.direction == Direction::Egress && self.is_almost_even() {
            level
        } else {
            capacity.min(level)
        }
    }

    /// How many times as much as waits should have gone since it was shortest, by how much less a download's senders send, who do
    /// what our shaper tells them: what stays then is not theirs.
    ///
    /// While a queue of theirs is left at the line, as much arrives as that carries, whatever our shaper lets pass.
    fn times_obeyed(&self, obeyed: &mut Option<Reference>, point: Point, view: &View) -> u64 {
        if self.direction == Direction::Egress {
            return 0;
        }
        let new = Reference {
            point,
            seen: view.sent,
            level: self.capacity.unwrap_or(self.rate),
            owed: 0,
        };
        let obeyed = obeyed.get_or_insert(new);
        let arrives = view.achieved.bits_per_sec();
        if arrives <= scale(self.rate, OBEYS, 1000) {
            let less = obeyed.level.saturating_sub(arrives.max(self.rate));
            obeyed.owed += scale(view.sent.since(obeyed.seen).0, less, obeyed.level);
        }
        obeyed.seen = view.sent;
        if point.queue + MOVED < obeyed.point.queue {
            *obeyed = new;
        }
        obeyed.owed / (obeyed.point.queue + 3 * MOVED)
    }

    /// Whether the least rate has not made the queue less for a while: that rate the line is said to carry, so that what stays is
    /// the path's, or waits in our own shaper, which has hardly room for another direction's acknowledgements.
    fn is_cut_in_vain(&self, now: Instant, trial: &mut Trial, queue: u64, view: &View) -> bool {
        if self.rate > self.min {
            trial.least = None;
            return false;
        }
        let here = Point { sent: now, queue };
        let least = trial.least.get_or_insert(here);
        if queue + MOVED.max(least.queue / 8) < least.queue {
            *least = here;
        }
        view.sent.since(least.sent) >= STANDS
    }

    /// From a little more than nothing, as if nothing were known of the line.
    fn begin_again(&mut self, queue: u64) {
        self.trial = None;
        self.capacity = None;
        self.found = None;
        self.rate = 2 * self.min;
        self.reason = Reason::PathChanged { by: Nanos(queue) };
    }

    /// Whether a download's queue was gone before its senders can have heard of the cut: a moment's outage, or a burst, of which the
    /// line's rate knows nothing.
    pub(super) fn went_by_itself(&self, now: Instant, trial: &Trial, view: &View) -> bool {
        let went_soon = if view.is_long {
            // The cut lasted until they can.
            trial.seen_at.since(trial.began_at) < view.rtt
        } else {
            view.sent < trial.effective_at && now.since(trial.began_at) <= MOMENT
        };
        self.direction == Direction::Ingress && view.may_rebase && went_soon
    }

    /// Until less is sent into the queue: a download's sender must hear of it first.
    fn reaction(&self, view: &View) -> Nanos {
        match self.direction {
            Direction::Ingress => view.rtt,
            Direction::Egress => Nanos(0),
        }
    }
}
