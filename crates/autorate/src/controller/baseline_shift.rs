//! A delay that stays while ever more of a download arrives: none of it is a queue.
//!
//! A busy line delivers what it carries, and what waits in front of it goes when it carries more. Where clearly more arrives than
//! before and as much delay is left, the line was not busy before, and the delay of then was the path's.

use super::{COLLAPSED_QUEUE, MIN_DELAY_CHANGE, RateController};
use crate::observation::Observation;
use crate::scale;
use sqm_core::direction::Direction;
use sqm_core::units::{Instant, Nanos};

/// So much more must arrive, thousandths.
const RISES: u64 = 1100;
/// And so long after the least: what arrives is a mean of 200 ms.
const AFTER: Nanos = Nanos::from_millis(300);
/// Less delay than this is too little to cut for anyway.
const LEAST: u64 = 2_000_000;

/// A delay that hardly changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaselineShift {
    /// When least arrived: how long the delay was, and how much that was.
    queue: u64,
    since: Instant,
    arrives: u64,
}

impl RateController {
    /// Whether the delay is not that of a queue, because ever more arrives and it does not change; of a download that is known
    /// apart from the upload.
    pub(crate) fn delay_is_baseline(&mut self, now: Instant, queue: u64, observation: &Observation) -> bool {
        let is_known = self.direction == Direction::Download && !observation.takes_turns;
        if !is_known || queue >= COLLAPSED_QUEUE {
            return false;
        }
        let arrives = observation.achieved.bits_per_sec();
        let baseline_shift = self
            .baseline_shift
            .filter(|baseline_shift| queue.abs_diff(baseline_shift.queue) <= MIN_DELAY_CHANGE);
        let Some(baseline_shift) = baseline_shift.filter(|baseline_shift| baseline_shift.arrives <= arrives)
        else {
            self.baseline_shift = Some(BaselineShift {
                queue,
                since: now,
                arrives,
            });
            return false;
        };
        baseline_shift.queue >= LEAST
            && now.since(baseline_shift.since) >= AFTER
            && arrives.min(observation.latest.bits_per_sec()) > scale(baseline_shift.arrives, RISES, 1000)
    }
}
