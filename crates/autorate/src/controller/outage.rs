//! The behaviour while nothing is known about the delay, and when the other direction's capacity drops.

use sqm_core::units::{Instant, Nanos, Rate};

use super::{BELOW_CAPACITY, RateController};
use crate::observation::Observation;
use crate::{Reason, SECOND, scale};

/// Delay signals are missing after this long. A choice: beyond the longest wait for an answer at slow probing.
const BLIND_AFTER: Nanos = Nanos::from_millis(1500);
/// Without signals the rate stays for this long…
const KEEP_RATE: Nanos = Nanos::from_millis(5000);
/// …and then moves towards base by this much, thousandths of the rate per second. Choices.
const DECAY: u64 = 20;
/// Traffic above this share of the rate, thousandths, flows: not the line has failed, but the signals. A choice.
const FLOWING_RATIO: u64 = 600;
/// Where directions are measured apart, a direction silenced by the other one may send this share of what passes, thousandths,
/// because some of it is in the queue. A choice.
const SILENCED_RATIO: u64 = 900;

impl RateController {
    /// A step without delay signals. `elapsed` is the time since the last step, nanoseconds.
    pub(super) fn step_blind(&mut self, now: Instant, elapsed: u64, observation: &Observation) {
        let blind_for = now.since(self.known_at);
        if blind_for < BLIND_AFTER {
            return;
        }
        self.reason = Reason::SignalsLost;
        // If traffic flows on, the signals have failed and not the line: the cut was wrong.
        if let Some(cut) = self.cut {
            let passes = observation.mean_rate.bits_per_sec();
            if passes > cut.rate_before / 2 {
                self.rate = cut.rate_before;
                self.capacity = cut.capacity_before;
            } else if passes > scale(self.rate, FLOWING_RATIO, 1000) {
                self.rate = self.rate.max(self.limits.base.min(cut.rate_before));
                self.reason = Reason::Decay;
            }
        }
        self.cut = None;
        if !observation.is_loaded {
            self.known_at = now;
            self.reason = Reason::Unloaded;
            return;
        }
        if blind_for >= KEEP_RATE {
            let base = self.limits.base;
            let step = scale(self.rate, DECAY * elapsed, 1000 * SECOND).max(1);
            self.rate = if self.rate > base {
                (self.rate - step).max(base)
            } else {
                (self.rate + step).min(base)
            };
            self.reason = Reason::Decay;
        }
    }

    /// Limits the rate to what passed last. The senders of this direction are silent because the other direction's capacity has
    /// dropped, and will return in a burst, which must not exceed what this direction may have dropped to. Returns whether the rate
    /// was reduced.
    pub(super) fn limit_to_latest(&mut self, now: Instant, observation: &Observation) -> bool {
        let [mean, latest] = [observation.mean_rate, observation.latest_rate].map(Rate::bits_per_sec);
        // If only round trips are known, this may be the direction that dropped, and then its queue must drain.
        let limit = if observation.only_round_trips {
            scale(latest, BELOW_CAPACITY, 1000)
        } else {
            scale(mean.min(latest), SILENCED_RATIO, 1000)
        };
        let limit = limit.max(self.limits.min);
        let is_reduced = limit < self.rate;
        if is_reduced {
            self.silenced = Some((now, self.rate));
            self.rate = limit;
            self.reason = Reason::OtherDirectionDropped;
        }
        is_reduced
    }
}
