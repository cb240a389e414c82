//! What one direction's law is told at each step.

use super::past::Past;
use sqm_core::units::{Instant, Nanos, Rate};

/// What a step sees of its direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The delay that the queue at the line adds; none while nothing is known.
    pub(super) queue: Option<Nanos>,
    /// The same, whoever's it is.
    pub(super) anyones: Nanos,
    /// [`Self::queue`] with bursts that come and go.
    pub(super) typical: Nanos,
    /// When the probe was sent that says so.
    pub(super) sent: Instant,
    /// Whether what says so is a probe that is not back yet: the queue is at least that.
    pub(super) is_overdue: bool,
    /// What becomes of all that is under way if the line has fallen to what passes now; nothing while much passes.
    pub(super) expected: Nanos,
    /// The queue to aim at.
    pub(super) aim: Nanos,
    /// Whether it is an upload whose queue a download would feel.
    pub(super) is_beside: bool,
    /// Whether reflectors tell of this direction by itself.
    pub(super) is_reflected: bool,
    /// Of the nearest path, without a queue.
    pub(super) rtt: Nanos,
    /// Whether that is so long that the line may be another by the time it is heard of.
    pub(super) is_long: bool,
    pub(super) losing_probes: bool,
    /// What passes the shaper.
    pub(super) achieved: Rate,
    /// And when.
    pub(super) past: Past,
    /// The most that passed it lately.
    pub(super) peak: Rate,
    /// What passed it in the last tenth of a second.
    pub(super) latest: Rate,
    pub(super) loaded: bool,
    /// Whether there has been none that could make a queue for a while.
    pub(super) has_rested: bool,
    /// Whether the traffic has just begun after a pause, so that means are still of the pause, too.
    pub(super) has_just_begun: bool,
    /// Whether the line was away for a moment and is back.
    pub(super) had_gap: bool,
    /// Whether it has enough traffic to make a queue.
    pub(super) busy: bool,
    /// Whether there was any traffic to speak of lately: without it there is no queue, whatever a late answer says.
    pub(super) active: bool,
    /// Whether there is any now: when nobody sends, nothing is learned of the line, and silence says nothing of a queue.
    pub(super) carries: bool,
    /// What a packet of full size takes, each way that the delay is of.
    pub(super) wire: Nanos,
    /// Whether more than the ceiling may be tried now.
    pub(super) may_explore: bool,
    /// Whether directions are not told apart, so that they explore one at a time when both are loaded.
    pub(super) takes_turns: bool,
    /// Whether the queue may as well be the other direction's.
    pub(super) is_shared: bool,
    /// Whether a delay that does not follow the rate can only be the path's.
    pub(super) may_rebase: bool,
    /// Whether both were cut for it, and what is left is too small to cut the other one for.
    pub(super) is_others_too_small: bool,
    /// Whether the line has fallen far in the other direction.
    pub(super) has_other_collapsed: bool,
    /// And this one's senders hear nothing.
    pub(super) has_other_fallen: bool,
}
