//! The traffic of one direction: its rates, and when it last was high enough to matter.
//!
//! Ratios are of the shaper rate at the time of the report, in thousandths.

mod rate_history;

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use crate::{SECOND, scale};

pub(crate) use rate_history::RateHistory;
use rate_history::Span;

/// Traffic below this ratio does not count as traffic: background chatter. A choice.
pub(crate) const ACTIVE_RATIO: u64 = 20;
/// At this ratio a direction is loaded: it can have a queue at the line. 75 % as in cake-autorate (`high_load_thr`).
pub(crate) const LOADED_RATIO: u64 = 750;
/// At this ratio a queue can be this direction's own. It is below [`LOADED_RATIO`] because a download that the line holds back
/// does not reach that. A choice.
pub(crate) const BUSY_RATIO: u64 = 400;
/// At this ratio a direction is full. A choice: senders seldom fill a shaper to the last percent.
pub(crate) const FULL_RATIO: u64 = 900;
/// A loaded direction whose throughput falls below this ratio is limited by the line: no congestion control backs off that far
/// by itself (CUBIC reduces to 0.7, Reno to 0.5).
pub(crate) const STARVED_LOAD_RATIO: u64 = 500;
/// Below this ratio a direction cannot cause a queue, unless the capacity is far below the known one. A choice.
const QUEUE_RATIO: u64 = BUSY_RATIO / 4;
/// A queue has drained this long after the last traffic that could cause one. A choice: longer than any buffer that this
/// controller lets fill.
pub(crate) const QUEUE_LASTS: Nanos = Nanos::from_millis(1000);

/// Traffic begins when its ratio rises to this…
const BEGIN_RATIO: u64 = 200;
/// …from less than this, after [`QUEUE_LASTS`] without load. A choice.
const QUIET_RATIO: u64 = 50;
/// Senders that have just begun overshoot for this long before they have learned what the line carries. A choice: slow start on
/// a path of 50 ms.
const BEGIN_LASTS: Nanos = Nanos::from_millis(600);
/// After this long without load the last capacity is no longer current. A choice.
const REST_AFTER: Nanos = Nanos::from_millis(3000);
/// Senders follow a rising shaper rate by this much in a second, thousandths. A choice.
const SENDERS_FOLLOW: u64 = 400;
/// A report below this share of the peak is a gap, thousandths…
const GAP_RATIO: u64 = 500;
/// …and the gap is over when the newest report is at least at this share of the peak, thousandths. Choices.
const RESUMED_RATIO: u64 = 750;

/// Rates of one direction, and when each threshold was last reached.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    pub(crate) history: RateHistory,
    /// Shaper rate at the last report, bits per second.
    shaper_rate: u64,
    /// The part of the shaper rate that senders can have learned of by now, bits per second: it follows a rising shaper rate with
    /// a delay.
    pub(crate) allowed: u64,
    updated_at: Instant,
    pub(crate) loaded_at: Instant,
    busy_at: Instant,
    /// When the traffic was last high enough to cause a queue.
    queue_possible_at: Instant,
    /// When the traffic last filled what is allowed.
    pub(crate) full_at: Instant,
    /// When traffic last began after a pause.
    began_at: Instant,
    pub(crate) active_at: Instant,
    was_loaded: bool,
}

impl Throughput {
    /// Reports that count as "now": 200 ms at one report each 50 ms.
    const SPANS: usize = 4;
    /// A direction stays loaded for this long between bursts of packets. A choice.
    const LOAD_LASTS: Nanos = Nanos::from_millis(400);
    /// Without a report for this long the rates are zero. A choice: twenty missing reports.
    const SILENT: Nanos = Nanos::from_millis(1000);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            history: RateHistory::new(),
            shaper_rate: 0,
            allowed: 0,
            updated_at: now,
            loaded_at: now,
            busy_at: Instant(0),
            queue_possible_at: now,
            full_at: Instant(0),
            began_at: Instant(0),
            active_at: now,
            was_loaded: false,
        }
    }

    /// Adds a report for the period of length `span` that ends now, in which the shaper had `shaper_rate`.
    pub(crate) fn add(&mut self, now: Instant, bytes: Bytes, span: Nanos, shaper_rate: Rate) {
        if span.0 == 0 {
            return;
        }
        self.history.add(now, bytes, span);
        self.updated_at = now;
        self.shaper_rate = shaper_rate.bits_per_sec();
        // A lower rate counts at once although senders learn of it later, too: what they send until then is no overshoot.
        let follows = scale(self.allowed, 1000 + scale(SENDERS_FOLLOW, span.0, SECOND), 1000);
        self.allowed = self.shaper_rate.min(follows.max(self.shaper_rate / 2));
        if self.latest_rate().bits_per_sec() >= scale(self.allowed, FULL_RATIO, 1000) {
            self.full_at = now;
        }
        if self.load_ratio() >= ACTIVE_RATIO {
            self.active_at = now;
        }
        if self.load_ratio().max(self.latest_load_ratio()) >= QUEUE_RATIO {
            self.queue_possible_at = now;
        }
        if self.begins(now) {
            self.began_at = now;
        }
        if self.load_ratio().max(self.latest_load_ratio()) >= BUSY_RATIO {
            self.busy_at = now;
        }
        if self.load_ratio() >= LOADED_RATIO {
            self.loaded_at = now;
            self.was_loaded = true;
        }
    }

    /// Sets the rates to zero if reports have been missing for [`Self::SILENT`].
    pub(crate) fn on_time(&mut self, now: Instant) {
        if now.since(self.updated_at) >= Self::SILENT && self.spans().iter().any(|span| span.length().0 > 0) {
            for _ in 0..Self::SPANS {
                self.history.add(now, Bytes(0), Nanos(0));
            }
        }
    }

    pub(crate) fn is_loaded(&self, now: Instant) -> bool {
        self.was_loaded_within(now, Self::LOAD_LASTS)
    }

    pub(crate) fn was_loaded_within(&self, now: Instant, span: Nanos) -> bool {
        self.was_loaded && now.since(self.loaded_at) <= span
    }

    /// True if traffic began so recently that its senders may still overshoot.
    pub(crate) fn has_just_begun(&self, now: Instant) -> bool {
        now.since(self.began_at) < BEGIN_LASTS
    }

    /// True if there has been no load for so long that the last capacity is no longer current.
    pub(crate) fn has_rested(&self, now: Instant) -> bool {
        now.since(self.busy_at) > REST_AFTER
    }

    /// True if the traffic has been too low for so long that there can be no queue.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.since(self.queue_possible_at) > QUEUE_LASTS
    }

    /// True if there is more than background chatter at the moment.
    pub(crate) fn has_any_traffic(&self) -> bool {
        self.latest_rate().bits_per_sec() >= scale(self.allowed, ACTIVE_RATIO, 1000)
    }

    /// True if there is enough traffic to contribute to a queue.
    pub(crate) fn can_cause_queue(&self) -> bool {
        self.load_ratio() >= QUEUE_RATIO
    }

    /// Mean rate of the last four reports.
    pub(crate) fn mean_rate(&self) -> Rate {
        mean(&self.spans())
    }

    /// Mean rate of the last two reports.
    pub(crate) fn latest_rate(&self) -> Rate {
        mean(&self.spans()[Self::SPANS / 2..])
    }

    /// The highest rate of the last four reports.
    pub(crate) fn peak_rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.rates().into_iter().max().unwrap_or(0))
    }

    /// True if one of the last reports is much lower than the others and the newest is not: the line was interrupted for a moment.
    pub(crate) fn had_gap(&self) -> bool {
        let rates = self.rates();
        let share_of_peak = |share| scale(self.peak_rate().bits_per_sec(), share, 1000);
        rates[Self::SPANS - 1] >= share_of_peak(RESUMED_RATIO)
            && rates.iter().any(|rate| *rate < share_of_peak(GAP_RATIO))
    }

    fn rates(&self) -> [u64; Self::SPANS] {
        self.spans().map(|span| mean(&[span]).bits_per_sec())
    }

    /// The reports that count as "now", oldest first.
    fn spans(&self) -> [Span; Self::SPANS] {
        self.history.newest()
    }

    /// [`Self::mean_rate`] by the shaper rate, thousandths.
    pub(crate) fn load_ratio(&self) -> u64 {
        scale(self.mean_rate().bits_per_sec(), 1000, self.shaper_rate)
    }

    /// [`Self::latest_rate`] by the shaper rate, thousandths.
    pub(crate) fn latest_load_ratio(&self) -> u64 {
        scale(self.latest_rate().bits_per_sec(), 1000, self.shaper_rate)
    }

    fn begins(&self, now: Instant) -> bool {
        let before = mean(&self.spans()[..Self::SPANS / 2]).bits_per_sec();
        now.since(self.busy_at) > QUEUE_LASTS
            && self.latest_load_ratio() >= BEGIN_RATIO
            && scale(before, 1000, self.shaper_rate) < QUIET_RATIO
    }
}

/// The mean rate of some reports; zero if they have no length.
fn mean(spans: &[Span]) -> Rate {
    let (bytes, nanos) = spans.iter().fold((0u128, 0u128), |(bytes, nanos), span| {
        (
            bytes + u128::from(span.bytes.0),
            nanos + u128::from(span.length().0),
        )
    });
    let bits_per_sec = bytes * 8 * u128::from(SECOND) / nanos.max(1);
    Rate::from_bits_per_sec(u64::try_from(bits_per_sec).unwrap_or(u64::MAX))
}
