//! The traffic of one direction: its rates, and when it last was high enough to matter.
//!
//! Ratios are of the shaper rate at the time of the report, in thousandths.

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use crate::{SECOND, scale};

/// Traffic below this ratio does not count as traffic: background chatter. A choice.
const ACTIVE_RATIO: u64 = 20;
/// At this ratio a direction is loaded: it can have a queue at the line. 75 % as in cake-autorate (`high_load_thr`).
pub(crate) const LOADED_RATIO: u64 = 750;
/// Below this ratio a direction cannot cause a queue, unless the capacity is far below the known one. A choice.
const QUEUE_RATIO: u64 = 100;
/// A queue has drained this long after the last traffic that could cause one. A choice: longer than any buffer that this
/// controller lets fill.
const QUEUE_LASTS: Nanos = Nanos::from_millis(1000);

/// Rates of one direction, and when each threshold was last reached.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    /// The latest reports, oldest first.
    reports: [Report; Self::KEPT],
    /// Shaper rate at the last report, bits per second.
    shaper_rate: u64,
    updated_at: Instant,
    pub(crate) loaded_at: Instant,
    /// When the traffic was last high enough to cause a queue.
    queue_possible_at: Instant,
    pub(crate) active_at: Instant,
    was_loaded: bool,
}

/// The bytes that were counted in a period. A missing report has a length of zero.
#[derive(Clone, Copy, Debug)]
struct Report {
    end: Instant,
    bytes: Bytes,
    span: Nanos,
}

impl Report {
    const MISSING: Self = Self {
        end: Instant(0),
        bytes: Bytes(0),
        span: Nanos(0),
    };
}

impl Throughput {
    /// Reports that count as "now": 200 ms at one report each 50 ms.
    const REPORTS: usize = 4;
    /// Reports that are kept: 3 s, more than any round trip that the controller is made for.
    const KEPT: usize = 64;
    /// A direction stays loaded for this long between bursts of packets. A choice.
    const LOAD_LASTS: Nanos = Nanos::from_millis(400);
    /// Without a report for this long the rates are zero. A choice: twenty missing reports.
    const SILENT: Nanos = Nanos::from_millis(1000);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            reports: [Report::MISSING; Self::KEPT],
            shaper_rate: 0,
            updated_at: now,
            loaded_at: now,
            queue_possible_at: now,
            active_at: now,
            was_loaded: false,
        }
    }

    /// Adds a report for the period of length `span` that ends now, in which the shaper had `shaper_rate`.
    pub(crate) fn add(&mut self, now: Instant, bytes: Bytes, span: Nanos, shaper_rate: Rate) {
        if span.0 == 0 {
            return;
        }
        self.reports.rotate_left(1);
        self.reports[Self::KEPT - 1] = Report {
            end: now,
            bytes,
            span,
        };
        self.updated_at = now;
        self.shaper_rate = shaper_rate.bits_per_sec();
        let load_ratio = self.load_ratio();
        if load_ratio >= ACTIVE_RATIO {
            self.active_at = now;
        }
        if load_ratio.max(self.ratio(self.latest_rate())) >= QUEUE_RATIO {
            self.queue_possible_at = now;
        }
        if load_ratio >= LOADED_RATIO {
            self.loaded_at = now;
            self.was_loaded = true;
        }
    }

    /// Sets the rates to zero if reports have been missing for [`Self::SILENT`].
    pub(crate) fn on_time(&mut self, now: Instant) {
        if now.since(self.updated_at) >= Self::SILENT {
            self.reports = [Report::MISSING; Self::KEPT];
        }
    }

    pub(crate) fn is_loaded(&self, now: Instant) -> bool {
        self.was_loaded_within(now, Self::LOAD_LASTS)
    }

    pub(crate) fn was_loaded_within(&self, now: Instant, span: Nanos) -> bool {
        self.was_loaded && now.since(self.loaded_at) <= span
    }

    /// True if the traffic has been too low for so long that there can be no queue.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.since(self.queue_possible_at) > QUEUE_LASTS
    }

    /// True if there is more than background chatter at the moment.
    pub(crate) fn has_any_traffic(&self) -> bool {
        self.ratio(self.latest_rate()) >= ACTIVE_RATIO
    }

    /// Mean rate of the last four reports.
    pub(crate) fn mean_rate(&self) -> Rate {
        mean(&self.reports[Self::KEPT - Self::REPORTS..])
    }

    /// Mean rate of the four reports that had ended at this time; `None` if it is too long ago.
    pub(crate) fn mean_rate_at(&self, at: Instant) -> Option<Rate> {
        let ended = self.reports.iter().rposition(|report| report.end <= at)?;
        let before = self
            .reports
            .get((ended + 1).checked_sub(Self::REPORTS)?..=ended)?;
        Some(mean(before)).filter(|_| before[0].span.0 > 0)
    }

    /// Mean rate of the last two reports.
    pub(crate) fn latest_rate(&self) -> Rate {
        mean(&self.reports[Self::KEPT - Self::REPORTS / 2..])
    }

    /// [`Self::mean_rate`] by the shaper rate, thousandths.
    pub(crate) fn load_ratio(&self) -> u64 {
        self.ratio(self.mean_rate())
    }

    fn ratio(&self, rate: Rate) -> u64 {
        scale(rate.bits_per_sec(), 1000, self.shaper_rate)
    }
}

/// The mean rate of some reports; zero if they have no length.
fn mean(reports: &[Report]) -> Rate {
    let (bytes, nanos) = reports.iter().fold((0u128, 0u128), |(bytes, nanos), report| {
        (
            bytes + u128::from(report.bytes.0),
            nanos + u128::from(report.span.0),
        )
    });
    let bits_per_sec = bytes * 8 * u128::from(SECOND) / nanos.max(1);
    Rate::from_bits_per_sec(u64::try_from(bits_per_sec).unwrap_or(u64::MAX))
}
