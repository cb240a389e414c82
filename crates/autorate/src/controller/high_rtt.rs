//! A path of 300 ms and more: news of the line is old.
//!
//! A rate that is too high by a fiftieth makes a queue of 30 ms until it is heard of and, of a download, its senders have heard of it in
//! turn. So what such a line varies by is not searched for: the rate is the least that was found lately, and goes slowly beyond it.

use super::{CAPACITY_DROP_RATIO, FAST_REGROWTH, RateController};
use crate::scale;
use sqm_core::units::{Instant, Nanos};

/// For so long the least that was found counts,
const LATELY: Nanos = Nanos::from_millis(300_000);
/// and this much of it, thousandths, is taken for what the line will carry.
const CONSERVATIVE_RATIO: u64 = 970;
/// Growth beyond that, thousandths per second: what a line varies by takes more than a minute of load.
const PACE: u64 = 2;
/// Beyond this share of what was found last, thousandths, it is another line,
const ANOTHER: u64 = 1450;
/// and growth is faster by so many thousandths per second for each time that more.
const FASTER: u64 = 300;
/// After a far fall, and on another path, the line may rise as soon: what grows by this until it is heard of makes no long queue.
const AGAIN: u64 = 30;

impl RateController {
    /// Takes note of what was found. What is far above the least of before is another line's.
    pub(crate) fn note_least(&mut self, now: Instant, found: u64) {
        let is_new = self.least.is_none_or(|(least, at)| {
            found <= least || now.since(at) > LATELY || least < scale(found, CAPACITY_DROP_RATIO, 1000)
        });
        if is_new {
            self.least = Some((found, now));
        }
    }

    /// What the line will carry for a while, by all that is known: before anything was found, what it is said to carry.
    pub(crate) fn conservative_rate(&self, now: Instant) -> u64 {
        let least = self.least.filter(|(_, at)| now.since(*at) <= LATELY);
        let least = least.map_or(u64::MAX, |(least, _)| least);
        self.found.map_or(self.base, |found| {
            scale(found.min(least), CONSERVATIVE_RATIO, 1000)
        })
    }

    /// Growth beyond that, thousandths per second.
    pub(crate) fn high_rtt_growth_rate(&self) -> u64 {
        let known = self.found.unwrap_or(self.base);
        let beyond = self.rate.saturating_sub(scale(known, ANOTHER, 1000));
        let may_rise_again = self.found.is_some() && self.growth_rate >= FAST_REGROWTH;
        let least = if may_rise_again { AGAIN } else { PACE };
        least + scale(FASTER, beyond, known)
    }
}
