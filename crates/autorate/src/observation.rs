//! The input of the controller of one direction at each step.

use sqm_core::units::{Instant, Nanos, Rate};

use crate::throughput::RateHistory;

/// The state of one direction as seen from outside its controller: delay, traffic, and what the other direction does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Queue delay at the line that is attributed to this direction; `None` while no delay signals arrive.
    pub(crate) queue_delay: Option<Nanos>,
    /// Queue delay of both directions together, where the two cannot be separated; otherwise zero.
    pub(crate) total_queue_delay: Nanos,
    /// [`Self::queue_delay`] by the upper median of the delay samples, which includes bursts that come and go.
    pub(crate) upper_median_delay: Nanos,
    /// When the newest probe that shows this delay was sent.
    pub(crate) probe_sent_at: Instant,
    /// The delay is the age of an unanswered probe: the queue is at least that long.
    pub(crate) is_from_overdue_probe: bool,
    /// Queue delay that the data already under way will cause if the capacity has dropped to the latest rate. Zero while much
    /// traffic passes.
    pub(crate) expected_queue_delay: Nanos,
    /// The queue delay to aim at.
    pub(crate) target_delay: Nanos,
    /// This is the upload, and the acknowledgements of a download wait in its queue.
    pub(crate) competes_with_download: bool,
    /// Several reflectors report one-way delays of this direction.
    pub(crate) has_one_way_reflectors: bool,
    /// Round trip of the nearest source without a queue.
    pub(crate) base_rtt: Nanos,
    /// The base round trip is so long that the capacity may have changed before the controller learns of it.
    pub(crate) is_high_rtt: bool,
    /// Reflectors lose more probes than by chance.
    pub(crate) is_losing_probes: bool,
    /// Mean rate of the last 200 ms.
    pub(crate) mean_rate: Rate,
    /// Traffic of the last three seconds.
    pub(crate) rate_history: RateHistory,
    /// The highest of the last four reported rates.
    pub(crate) peak_rate: Rate,
    /// Mean rate of the last 100 ms.
    pub(crate) latest_rate: Rate,
    /// There is enough traffic to fill the shaper, or there was a moment ago.
    pub(crate) is_loaded: bool,
    /// For some seconds there has been too little traffic to cause a queue.
    pub(crate) has_rested: bool,
    /// The traffic has just begun after a pause, so that means still include the pause.
    pub(crate) has_just_begun: bool,
    /// The line was interrupted for a moment and has resumed.
    pub(crate) had_gap: bool,
    /// There is enough traffic to cause a queue.
    pub(crate) is_busy: bool,
    /// There was noticeable traffic within the last second. Without it there can be no queue, however late an answer is.
    pub(crate) is_active: bool,
    /// There is noticeable traffic now. Without it nothing can be learned about the line, and silence says nothing about a queue.
    pub(crate) has_any_traffic: bool,
    /// Time that full-size packets take on the line, in each direction that the delay includes.
    pub(crate) serialization_delay: Nanos,
    /// The rate may grow beyond the known capacity now.
    pub(crate) may_explore: bool,
    /// Only round trips are known, so that the directions explore in turns while both are loaded.
    pub(crate) only_round_trips: bool,
    /// The queue may just as well be the other direction's.
    pub(crate) is_ambiguous: bool,
    /// A delay that does not follow the rate can only be that of the path.
    pub(crate) may_rebase: bool,
    /// Both directions were cut for this queue, and the other one has finished: the rest is too small to cut it again.
    pub(crate) other_has_drained: bool,
    /// The capacity of the other direction has dropped far.
    pub(crate) other_has_collapsed: bool,
    /// The capacity of the other direction has dropped far, and this direction's senders fell silent with it because no
    /// acknowledgements reach them.
    pub(crate) is_silenced_by_other: bool,
}
