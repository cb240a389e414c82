//! Traffic of the last seconds by time. A probe that returns has met the traffic of a round trip ago, not that of now.

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use crate::{SECOND, scale};

/// The latest traffic reports, each with the period that it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateHistory {
    /// Oldest first.
    spans: [Span; Self::SPANS],
}

/// One report. A missing report has a length of zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    begin: Instant,
    end: Instant,
    pub(crate) bytes: Bytes,
}

impl Span {
    pub(crate) const fn length(&self) -> Nanos {
        self.end.since(self.begin)
    }
}

impl RateHistory {
    /// Three seconds at one report each 50 ms: more than any round trip that the controller is made for.
    const SPANS: usize = 64;

    pub(crate) const fn new() -> Self {
        let none = Span {
            begin: Instant(0),
            end: Instant(0),
            bytes: Bytes(0),
        };
        Self {
            spans: [none; Self::SPANS],
        }
    }

    /// Adds a report for the period of `length` that ended at `end`.
    pub(crate) fn add(&mut self, end: Instant, bytes: Bytes, length: Nanos) {
        self.spans.rotate_left(1);
        self.spans[Self::SPANS - 1] = Span {
            begin: Instant(end.0.saturating_sub(length.0)),
            end,
            bytes,
        };
    }

    /// The newest `N` reports, oldest first.
    pub(crate) fn newest<const N: usize>(&self) -> [Span; N] {
        core::array::from_fn(|place| self.spans[Self::SPANS - N + place])
    }

    /// The mean rate between two moments; `None` if reports cover less than half of that time.
    pub(crate) fn rate(&self, from: Instant, to: Instant) -> Option<Rate> {
        let overlaps = self.spans.iter().filter_map(|span| {
            let time = span.end.min(to).since(span.begin.max(from)).0;
            (time > 0).then(|| (scale(span.bytes.0, time, span.length().0), time))
        });
        let (bytes, time) = overlaps.fold((0u64, 0u64), |(bytes, time), (some, more)| {
            (bytes.saturating_add(some), time.saturating_add(more))
        });
        let is_covered = time > 0 && time >= to.since(from).0 / 2;
        is_covered.then(|| Rate::from_bits_per_sec(scale(bytes, 8 * SECOND, time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn the_rate_of_a_period_is_the_mean_of_the_reports_that_cover_it() {
        let mut history = RateHistory::new();
        for (end, bytes) in [(1050, 50_000), (1100, 100_000), (1150, 0)] {
            history.add(at(end), Bytes(bytes), Nanos::from_millis(50));
        }
        let mbit = |from, to| {
            history
                .rate(at(from), at(to))
                .map(|rate| rate.bits_per_sec() / 1_000_000)
        };
        assert_eq!(mbit(1000, 1050), Some(8));
        assert_eq!(mbit(1025, 1075), Some(12));
        assert_eq!(mbit(1000, 1150), Some(8));
        assert_eq!(mbit(1110, 1140), Some(0));
        // Half of the period is covered.
        assert_eq!(mbit(1125, 1175), Some(0));
        assert_eq!(mbit(1140, 1175), None);
        assert_eq!(mbit(900, 1000), None);
    }
}
