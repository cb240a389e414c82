//! Recognises a delay that belongs to the path although a direction is loaded.
//!
//! A busy line delivers all that it carries, and its queue shrinks when its capacity grows. If clearly more of a download arrives
//! than before and the delay is the same, the line was not busy before. The delay of that time was then the path's, and so is the
//! present one.

use sqm_core::units::{Instant, Nanos};

use super::MIN_DELAY_CHANGE;
use crate::observation::Observation;
use crate::scale;

/// Arrivals must have grown to this share of the earlier ones, thousandths. A choice: beyond the noise of a mean over 200 ms.
const GROWTH_RATIO: u64 = 1100;
/// At least this long after the earlier arrivals, so that the means over 200 ms do not overlap.
const MIN_AGE: Nanos = Nanos::from_millis(300);
/// A shorter delay, nanoseconds, is too short to be cut for anyway.
const MIN_DELAY: u64 = 2_000_000;

/// The lowest arrivals since the delay last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaselineShift {
    /// Queue delay then, nanoseconds.
    queue: u64,
    since: Instant,
    /// Rate of arrivals then, bits per second.
    arrivals: u64,
}

impl BaselineShift {
    /// Takes in the present delay and arrivals of a download. Returns whether the delay belongs to the path.
    pub(super) fn update(
        shift: &mut Option<Self>,
        now: Instant,
        queue: u64,
        observation: &Observation,
    ) -> bool {
        let arrivals = observation.mean_rate.bits_per_sec();
        let lowest = shift
            .filter(|shift| queue.abs_diff(shift.queue) <= MIN_DELAY_CHANGE && shift.arrivals <= arrivals);
        let Some(lowest) = lowest else {
            *shift = Some(Self {
                queue,
                since: now,
                arrivals,
            });
            return false;
        };
        lowest.queue >= MIN_DELAY
            && now.since(lowest.since) >= MIN_AGE
            && arrivals.min(observation.latest_rate.bits_per_sec())
                > scale(lowest.arrivals, GROWTH_RATIO, 1000)
    }
}
