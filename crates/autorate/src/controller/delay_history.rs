//! The last queue delays that probes met, and how fast the delay grows.

use sqm_core::units::Instant;

use crate::scale;

/// A queue delay as a probe met it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// When the probe was sent.
    pub(super) sent: Instant,
    /// The queue delay, nanoseconds.
    pub(super) queue: u64,
}

/// Growth of the delay between two points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slope {
    /// When the first probe was sent.
    pub(super) from: Instant,
    /// Time between the two probes, nanoseconds.
    pub(super) time: u64,
    /// Growth of the delay in that time, nanoseconds.
    pub(super) growth: i64,
}

/// The newest points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DelayHistory {
    /// Newest last.
    points: [Option<Point>; Self::POINTS],
}

/// Two points of a slope are this far apart, nanoseconds. A choice: three probes at 50 ms, so that jitter matters little.
const SLOPE_TIME: u64 = 150_000_000;
/// Half of that is enough, nanoseconds…
const STEEP_TIME: u64 = SLOPE_TIME / 2;
/// …where the delay grew by this much, nanoseconds, which jitter does not do: the capacity has just dropped. A choice.
const STEEP_GROWTH: i64 = 15_000_000;
/// A delay that changes by less than this share of the time, thousandths, is almost constant. A choice.
const ALMOST_CONSTANT: u64 = 100;

impl DelayHistory {
    /// At one probe each 25 ms this is 0.3 s.
    const POINTS: usize = 12;

    /// Adds a point. Returns whether it is new information: from a newer probe, or from an overdue one that has become older.
    pub(super) fn add(&mut self, sent: Instant, queue: u64) -> bool {
        if let Some(last) = &mut self.points[Self::POINTS - 1]
            && sent <= last.sent
        {
            let is_longer = sent == last.sent && queue > last.queue;
            last.queue = if sent == last.sent { queue } else { last.queue };
            return is_longer;
        }
        self.points.rotate_left(1);
        self.points[Self::POINTS - 1] = Some(Point { sent, queue });
        true
    }

    /// Growth of the delay over the last points; `None` if there are not enough of them.
    pub(super) fn slope(&self) -> Option<Slope> {
        self.growth_in(STEEP_TIME)
            .filter(|slope| slope.growth >= STEEP_GROWTH)
            .or_else(|| self.growth_in(SLOPE_TIME))
    }

    /// True if the delay hardly changes.
    pub(super) fn is_almost_constant(&self) -> bool {
        self.growth_in(SLOPE_TIME)
            .is_some_and(|slope| slope.growth.unsigned_abs() < scale(slope.time, ALMOST_CONSTANT, 1000))
    }

    /// Growth since the newest point that is at least `span` nanoseconds older than the last one.
    fn growth_in(&self, span: u64) -> Option<Slope> {
        let last = self.points[Self::POINTS - 1]?;
        let first = self
            .points
            .iter()
            .rev()
            .flatten()
            .find(|point| last.sent.since(point.sent).0 >= span)?;
        let growth = i64::try_from(last.queue).ok()? - i64::try_from(first.queue).ok()?;
        Some(Slope {
            from: first.sent,
            time: last.sent.since(first.sent).0,
            growth,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn a_steep_rise_is_seen_in_half_the_time() {
        let mut history = DelayHistory::default();
        for (millis, queue) in [(0, 0), (50, 0), (100, 20_000_000), (150, 40_000_000)] {
            assert!(history.add(at(millis), queue));
        }
        let slope = history.slope().expect("there are enough points");
        assert_eq!(
            (slope.from, slope.time, slope.growth),
            (at(50), 100_000_000, 40_000_000)
        );
        assert!(!history.is_almost_constant());
    }

    #[test]
    fn an_overdue_probe_is_new_information_only_while_it_gets_older() {
        let mut history = DelayHistory::default();
        assert!(history.add(at(50), 10));
        assert!(history.add(at(50), 20));
        assert!(!history.add(at(50), 20));
        assert!(!history.add(at(40), 90));
        assert!(history.slope().is_none());
    }
}
