//! The input of the controller of one direction.

use sqm_core::units::Instant;

/// Input of the controller of one direction at each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// The time of the step.
    pub(crate) now: Instant,
    /// Time since the last step, seconds.
    pub(crate) elapsed: f64,
    /// Queue delay with noise, milliseconds; `None` without delay signals.
    pub(crate) delay: Option<Delay>,
    /// Traffic of the last 200 ms, bits per second.
    pub(crate) passes: f64,
    /// Traffic of the 200 ms before the probe was sent that shows the delay, bits per second.
    pub(crate) passed_before: f64,
    /// Traffic of the last 200 ms by the rate.
    pub(crate) load: f64,
    /// There is enough traffic for the shaper to hold some back.
    pub(crate) is_loaded: bool,
    /// There is, or was a moment ago, enough traffic for a queue.
    pub(crate) is_busy: bool,
    /// Some traffic passes now.
    pub(crate) has_traffic: bool,
    /// The delay of this direction is known by itself.
    pub(crate) is_known: bool,
    /// The queue may be the other direction's.
    pub(crate) is_ambiguous: bool,
    /// The rate may grow beyond the known capacity.
    pub(crate) may_explore: bool,
    /// The traffic that passes while there is a queue is this direction's capacity.
    pub(crate) teaches: bool,
    /// The smallest round trip without a queue, milliseconds.
    pub(crate) base_rtt: f64,
    /// The queue delay of the other direction, milliseconds, through which the samples of this direction return; zero where only round
    /// trips are known, because they include it.
    pub(crate) other_queue: f64,
}

/// The delay that is attributed to this direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    /// Lower median of the newest samples, milliseconds.
    pub(crate) lower: f64,
    /// Upper median of the newest samples, milliseconds.
    pub(crate) upper: f64,
    /// It is the age of an unanswered probe.
    pub(crate) is_overdue: bool,
}
