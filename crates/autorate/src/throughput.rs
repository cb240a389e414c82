//! The traffic of one direction: its rates, and when it last was high enough to matter.
//!
//! Rates are in bits per second, and loads are rates by the shaper rate at the time of the report.

use alloc::vec::Vec;

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use crate::{SECOND, bits};

/// Traffic below this load does not count as traffic: background chatter. A choice.
const ACTIVE: f64 = 0.02;
/// At this load a direction is loaded: it can have a queue at the line. 75 % as in cake-autorate (`high_load_thr`).
pub(crate) const LOADED: f64 = 0.75;
/// Below this load a direction cannot cause a queue, unless the capacity is far below the known one. A choice.
const QUEUE_POSSIBLE: f64 = 0.1;
/// A queue has drained this long after the last traffic that could cause one. A choice: longer than any buffer that this
/// controller lets fill.
const QUEUE_LASTS: Nanos = Nanos::from_millis(1000);

/// Rates of one direction, and when each threshold was last reached.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    /// The latest reports, oldest first.
    reports: Vec<Report>,
    /// At the last report; infinite before the first one.
    shaper_rate: f64,
    /// When the direction was last loaded; the beginning of time before the first load.
    pub(crate) loaded_at: Instant,
    /// When the traffic was last high enough to cause a queue.
    queue_possible_at: Instant,
    pub(crate) active_at: Instant,
}

/// The bytes that were counted in a period.
#[derive(Clone, Copy, Debug)]
struct Report {
    end: Instant,
    bytes: Bytes,
    span: Nanos,
}

impl Throughput {
    /// Reports that count as "now": 200 ms at one report each 50 ms.
    const REPORTS: usize = 4;
    /// Reports that are kept: 3 s, more than any round trip that the controller is made for.
    const KEPT: usize = 64;
    /// Without a report for this long the rates are zero. A choice: twenty missing reports.
    const SILENT: Nanos = Nanos::from_millis(1000);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            reports: Vec::new(),
            shaper_rate: f64::INFINITY,
            loaded_at: Instant(0),
            queue_possible_at: now,
            active_at: now,
        }
    }

    /// Adds a report for the period of length `span` that ends now, in which the shaper had `shaper_rate`.
    pub(crate) fn add(&mut self, now: Instant, bytes: Bytes, span: Nanos, shaper_rate: Rate) {
        if span.0 == 0 {
            return;
        }
        if self.reports.len() == Self::KEPT {
            self.reports.remove(0);
        }
        let end = now;
        self.reports.push(Report { end, bytes, span });
        self.shaper_rate = bits(shaper_rate);
        let load = self.load();
        if load >= ACTIVE {
            self.active_at = now;
        }
        if load.max(self.latest_load()) >= QUEUE_POSSIBLE {
            self.queue_possible_at = now;
        }
        if load >= LOADED {
            self.loaded_at = now;
        }
    }

    /// Sets the rates to zero if reports have been missing for [`Self::SILENT`].
    pub(crate) fn on_time(&mut self, now: Instant) {
        let last = self.reports.last();
        if last.is_some_and(|last| now.since(last.end) >= Self::SILENT) {
            self.reports.clear();
        }
    }

    /// True if the direction is loaded, or was so within this time.
    pub(crate) fn was_loaded_within(&self, now: Instant, span: Nanos) -> bool {
        now.since(self.loaded_at) <= span
    }

    /// True if the traffic has been too low for so long that there can be no queue.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.since(self.queue_possible_at) > QUEUE_LASTS
    }

    /// True if there is more than background chatter at the moment.
    pub(crate) fn has_any_traffic(&self) -> bool {
        self.latest_load() >= ACTIVE
    }

    /// Mean rate of the last four reports.
    pub(crate) fn mean_rate(&self) -> f64 {
        self.mean_of_last(Self::REPORTS)
    }

    /// Mean rate of the last two reports.
    pub(crate) fn latest_rate(&self) -> f64 {
        self.mean_of_last(Self::REPORTS / 2)
    }

    /// Mean rate of the four reports that had ended at this time; `None` if it is too long ago.
    pub(crate) fn mean_rate_at(&self, at: Instant) -> Option<f64> {
        let ended = self.reports.partition_point(|report| report.end <= at);
        let first = ended.checked_sub(Self::REPORTS)?;
        Some(mean(&self.reports[first..ended]))
    }

    /// [`Self::mean_rate`] by the shaper rate.
    pub(crate) fn load(&self) -> f64 {
        self.mean_rate() / self.shaper_rate
    }

    fn latest_load(&self) -> f64 {
        self.latest_rate() / self.shaper_rate
    }

    fn mean_of_last(&self, count: usize) -> f64 {
        mean(&self.reports[self.reports.len().saturating_sub(count)..])
    }
}

/// The mean rate of some reports; zero if there are none.
fn mean(reports: &[Report]) -> f64 {
    let bytes: u128 = reports.iter().map(|report| u128::from(report.bytes.0)).sum();
    let nanos: u128 = reports.iter().map(|report| u128::from(report.span.0)).sum();
    (bytes * 8 * u128::from(SECOND) / nanos.max(1)) as f64
}
