//! Protects the line from slow start on a path with a high round trip.
//!
//! The senders of a new download double their rate once in a round trip, and learn of our shaper's drops a round trip after they
//! exceeded its rate. What they send until then waits in front of the line, unless the line carries twice what our shaper lets
//! pass. So the shaper lets only half pass until the senders have left slow start.
//!
//! That has a price: senders leave slow start at a lower rate and grow slowly from there. docs/results/autorate-bench.md has
//! figures for such paths.

use sqm_core::units::{Instant, Nanos, Rate};

use crate::observation::Observation;
use crate::scale;

/// The shaper lets this share of the rate pass, thousandths: senders that double overshoot to the full rate at most.
const LIMIT_RATIO: u64 = 500;
/// A download begins with this share of the rate in one round trip, thousandths, and has ended below half of it. A choice.
const BEGIN_RATIO: u64 = 50;
/// Senders that send at most this share of what they sent a round trip before, thousandths, do not double any more…
const DOUBLING_RATIO: u64 = 1250;
/// …and know of our shaper if they send at most this share of what it lets pass, thousandths. Both leave a margin for bursts.
const COMPLIANT_RATIO: u64 = 1150;
/// Slow start takes at most this many round trips. A window that begins with ten segments (RFC 6928) then has 40 000, or 60 MB.
const MAX_ROUNDS: u64 = 12;

/// A download that has begun on a path with a high round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowStartGuard {
    began_at: Instant,
    /// When the senders last doubled their rate, or exceeded the limit.
    grew_at: Instant,
    /// Rate that the shaper lets pass, bits per second.
    limit: u64,
    is_over: bool,
}

impl SlowStartGuard {
    /// The guard after this step. `guard` is the one before it, `rate` and `min` are those of the controller, bits per second.
    pub(super) fn update(
        guard: Option<Self>,
        now: Instant,
        (rate, min): (u64, u64),
        observation: &Observation,
    ) -> Option<Self> {
        let Some(last) = rate_in_round(0, now, observation) else {
            return guard;
        };
        let begins = scale(rate, BEGIN_RATIO, 1000);
        match guard {
            None if last >= begins => Some(Self {
                began_at: now,
                grew_at: now,
                limit: scale(rate, LIMIT_RATIO, 1000).max(min),
                is_over: false,
            }),
            None => None,
            Some(_) if last < begins / 2 => None,
            Some(mut guard) => {
                guard.is_over |= guard.ends(now, last, observation);
                Some(guard)
            }
        }
    }

    /// Rate that the shaper may let pass, bits per second; `None` once the senders have left slow start.
    pub(super) fn limit(&self) -> Option<u64> {
        (!self.is_over).then_some(self.limit)
    }

    fn ends(&mut self, now: Instant, last: u64, observation: &Observation) -> bool {
        let before = rate_in_round(1, now, observation).unwrap_or(0);
        if last > scale(before, DOUBLING_RATIO, 1000) || last > scale(self.limit, COMPLIANT_RATIO, 1000) {
            self.grew_at = now;
        }
        now.since(self.grew_at) >= observation.base_rtt
            || now.since(self.began_at) >= Nanos(MAX_ROUNDS * observation.base_rtt.0)
    }
}

/// The mean rate in the round trip that ended `rounds_ago` round trips before now, bits per second.
fn rate_in_round(rounds_ago: u64, now: Instant, observation: &Observation) -> Option<u64> {
    let before = |rounds: u64| Instant(now.0.saturating_sub(rounds * observation.base_rtt.0));
    let rate = observation
        .rate_history
        .rate(before(rounds_ago + 1), before(rounds_ago));
    rate.map(Rate::bits_per_sec)
}
