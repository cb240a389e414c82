//! A download begins on a long path: its senders double what they send once in a round trip, and hear of our shaper a round trip after
//! they went beyond it. What they send until then stands in front of the line, unless that carries twice what our shaper lets pass.
//!
//! So the shaper lets half pass until they have left slow start. That costs: they leave it sooner, and grow slowly from there
//! (docs/results/autorate-bench.md has figures of both).

use super::RateController;
use crate::scale;
use sqm_core::direction::Direction;

use crate::observation::Observation;
use sqm_core::units::{Instant, Nanos, Rate};

/// Of the rate, thousandths.
const LETS_IN: u64 = 500;
/// As much of the rate in a round trip, thousandths, is a load; less than half of it is none any more.
const SOME: u64 = 50;
/// Senders that send no more than this of what they did a round trip before, thousandths, do not double it any more,
const DOUBLES: u64 = 1250;
/// and when it is no more than this of what passes our shaper, thousandths, they know of that.
const KNOWS: u64 = 1150;
/// Slow start takes no more round trips than this: the window is then a thousand times that of the beginning.
const ROUNDS: u64 = 12;

/// A download that began on a long path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowStartGuard {
    began_at: Instant,
    /// When its senders last sent ever more, or more than they may.
    grew_at: Instant,
    slow_start_limit: u64,
    is_over: bool,
}

impl RateController {
    /// Takes note of a download that begins, and of whether its senders have left slow start.
    pub(crate) fn update_slow_start_guard(&mut self, now: Instant, observation: &Observation) {
        if self.direction == Direction::Upload || !observation.is_high_rtt {
            self.slow_start_guard = None;
            return;
        }
        let Some(last) = round(0, now, observation) else {
            return;
        };
        let some = scale(self.rate, SOME, 1000);
        match &mut self.slow_start_guard {
            None if last >= some => {
                self.slow_start_guard = Some(SlowStartGuard {
                    began_at: now,
                    grew_at: now,
                    slow_start_limit: scale(self.rate, LETS_IN, 1000).max(self.min),
                    is_over: false,
                });
            }
            None => {}
            Some(_) if last < some / 2 => self.slow_start_guard = None,
            Some(slow_start_guard) => {
                slow_start_guard.is_over |= slow_start_guard.ends(now, last, observation)
            }
        }
    }

    /// How much is let in while a download begins.
    pub(crate) fn slow_start_limit(&self) -> Option<u64> {
        let begins = self
            .slow_start_guard
            .filter(|slow_start_guard| !slow_start_guard.is_over);
        begins.map(|slow_start_guard| slow_start_guard.slow_start_limit)
    }
}

impl SlowStartGuard {
    fn ends(&mut self, now: Instant, last: u64, observation: &Observation) -> bool {
        let before = round(1, now, observation).unwrap_or(0);
        if last > scale(before, DOUBLES, 1000) || last > scale(self.slow_start_limit, KNOWS, 1000) {
            self.grew_at = now;
        }
        now.since(self.grew_at) >= observation.rtt
            || now.since(self.began_at) >= Nanos(ROUNDS * observation.rtt.0)
    }
}

/// What passed in a round trip that ended so many before now, bits per second.
fn round(ago: u64, now: Instant, observation: &Observation) -> Option<u64> {
    let before = |rounds: u64| Instant(now.0.saturating_sub(rounds * observation.rtt.0));
    let rate = observation.history.rate(before(ago + 1), before(ago));
    rate.map(Rate::bits_per_sec)
}
