//! What one direction's law is told at each step.

use crate::throughput::RateHistory;
use sqm_core::units::{Instant, Nanos, Rate};

/// What a step sees of its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// The delay that the queue at the line adds; none while nothing is known.
    pub(crate) queue: Option<Nanos>,
    /// The same, whoever's it is.
    pub(crate) total_queue_delay: Nanos,
    /// [`Self::queue`] with bursts that come and go.
    pub(crate) upper_median: Nanos,
    /// When the probe was sent that says so.
    pub(crate) sent: Instant,
    /// Whether what says so is a probe that is not back yet: the queue is at least that.
    pub(crate) is_overdue: bool,
    /// What becomes of all that is under way if the line has fallen to what passes now; nothing while much passes.
    pub(crate) expected: Nanos,
    /// The queue to aim at.
    pub(crate) aim: Nanos,
    /// Whether it is an upload whose queue a download would feel.
    pub(crate) competes_with_download: bool,
    /// Whether reflectors tell of this direction by itself.
    pub(crate) is_reflected: bool,
    /// Of the nearest path, without a queue.
    pub(crate) rtt: Nanos,
    /// Whether that is so long that the line may be another by the time it is heard of.
    pub(crate) is_high_rtt: bool,
    pub(crate) losing_probes: bool,
    /// What passes the shaper.
    pub(crate) achieved: Rate,
    /// And when.
    pub(crate) history: RateHistory,
    /// The most that passed it lately.
    pub(crate) peak: Rate,
    /// What passed it in the last tenth of a second.
    pub(crate) latest: Rate,
    pub(crate) loaded: bool,
    /// Whether there has been none that could make a queue for a while.
    pub(crate) has_rested: bool,
    /// Whether the traffic has just begun after a pause, so that means are still of the pause, too.
    pub(crate) has_just_begun: bool,
    /// Whether the line was away for a moment and is back.
    pub(crate) had_gap: bool,
    /// Whether it has enough traffic to make a queue.
    pub(crate) busy: bool,
    /// Whether there was any traffic to speak of lately: without it there is no queue, whatever a late answer says.
    pub(crate) active: bool,
    /// Whether there is any now: when nobody sends, nothing is learned of the line, and silence says nothing of a queue.
    pub(crate) carries: bool,
    /// What a packet of full size takes, each way that the delay is of.
    pub(crate) serialization_delay: Nanos,
    /// Whether more than the ceiling may be tried now.
    pub(crate) may_explore: bool,
    /// Whether directions are not told apart, so that they explore one at a time when both are loaded.
    pub(crate) takes_turns: bool,
    /// Whether the queue may as well be the other direction's.
    pub(crate) is_shared: bool,
    /// Whether a delay that does not follow the rate can only be the path's.
    pub(crate) may_rebase: bool,
    /// Whether both were cut for it, and what is left is too small to cut the other one for.
    pub(crate) is_others_too_small: bool,
    /// Whether the line has fallen far in the other direction.
    pub(crate) has_other_collapsed: bool,
    /// And this one's senders hear nothing.
    pub(crate) has_other_fallen: bool,
}
