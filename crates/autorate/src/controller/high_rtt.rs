//! Rates on a path whose base round trip is 300 ms or more: what is known of the line is old.
//!
//! A rate that is 2 % too high causes a queue of 30 ms before the controller learns of it and, for a download, before its senders
//! have learned of it in turn. So the controller does not follow the variations of such a line: the rate is the lowest capacity that
//! was found lately, and grows slowly from there.

use sqm_core::units::{Instant, Nanos};

use super::{CAPACITY_DROP_RATIO, FAST_REGROWTH, RateController};
use crate::scale;

/// The lowest capacity counts for this long. A choice: several periods of a line that varies within a minute.
const RECENT: Nanos = Nanos::from_millis(300_000);
/// The rate is this share of the lowest capacity, thousandths. A choice.
const CONSERVATIVE_RATIO: u64 = 970;
/// Growth beyond that, thousandths of the rate per second. A choice: a variation of 10 % takes most of a minute of load.
const GROWTH: u64 = 2;
/// A rate beyond this share of the last capacity, thousandths, shows that the line is another one. A choice…
const OTHER_LINE_RATIO: u64 = 1450;
/// …and growth then is faster by this much, thousandths of the rate per second, for each multiple of the last capacity beyond it. A
/// choice.
const OTHER_LINE_GROWTH: u64 = 300;
/// Growth after a far drop of the capacity or a change of the path, thousandths of the rate per second, because the capacity may
/// rise again as soon. A choice: what grows until the controller learns of it causes no long queue.
const REGROWTH: u64 = 30;

impl RateController {
    /// Records a capacity. One that is far above the recent minimum belongs to another line and replaces it.
    pub(super) fn record_min_capacity(&mut self, now: Instant, capacity: u64) {
        let is_new = self.recent_min.is_none_or(|(min, at)| {
            capacity <= min || now.since(at) > RECENT || min < scale(capacity, CAPACITY_DROP_RATIO, 1000)
        });
        if is_new {
            self.recent_min = Some((capacity, now));
        }
    }

    /// The rate that the line will almost certainly carry for some time, bits per second: `base` until a capacity is known.
    pub(super) fn conservative_rate(&self, now: Instant) -> u64 {
        let min = self.recent_min.filter(|(_, at)| now.since(*at) <= RECENT);
        let min = min.map_or(u64::MAX, |(min, _)| min);
        self.last_capacity.map_or(self.limits.base, |capacity| {
            scale(capacity.min(min), CONSERVATIVE_RATIO, 1000)
        })
    }

    /// Growth beyond [`Self::conservative_rate`], thousandths of the rate per second.
    pub(super) fn high_rtt_growth_rate(&self) -> u64 {
        let known = self.last_capacity.unwrap_or(self.limits.base);
        let beyond = self.rate.saturating_sub(scale(known, OTHER_LINE_RATIO, 1000));
        let may_rise_again = self.last_capacity.is_some() && self.growth_rate >= FAST_REGROWTH;
        let least = if may_rise_again { REGROWTH } else { GROWTH };
        least + scale(OTHER_LINE_GROWTH, beyond, known)
    }
}
