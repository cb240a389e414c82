//! Estimates the offset between two clocks from probes and their answers. Pure.
//!
//! A probe without queue delay in either direction gives the offset of the other clock to within half of its round trip.
//! The offset is measured on the idle line before and after the load, and interpolated between: quartz clocks drift
//! apart by some microseconds per second. How the idle round trip divides into its two directions stays unknown: no exchange of packets
//! can measure that. One-way delays therefore show in which direction a queue is, and their changes are exact, but of their
//! constant parts only the sum is known.

/// An estimate beyond these bounds is refused. Choices: clocks a century apart (milliseconds), and a drift of 1 %.
const FURTHEST_MS: f64 = 100.0 * 365.25 * 86_400_000.0;
const FASTEST: f64 = 0.01;
/// A one-way delay may be this far below zero, besides the error of the estimate, milliseconds: clocks are slewed. A choice.
const SLACK_MS: f64 = 20.0;

/// The times of a probe by both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// When it left, by this clock.
    pub sent_ms: f64,
    /// When it arrived, by the other clock.
    pub there_ms: f64,
    /// When the answer arrived, by this clock, less the time that the server held the probe.
    pub back_ms: f64,
}

/// The offset of the other clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offset {
    /// The other clock minus this one at time zero of this clock, milliseconds.
    at_zero_ms: f64,
    /// How much the other clock gains, milliseconds per millisecond.
    drift: f64,
    /// The largest error of a one-way delay, milliseconds: half of the shortest round trip, which could all be in one direction.
    pub error_ms: f64,
}

/// A mean offset at a mean time.
struct Anchor {
    at_ms: f64,
    offset_ms: f64,
    shortest_ms: f64,
}

impl Offset {
    /// Estimates the offset from exchanges on the idle line before and after the load. `None` without any before the load, or if the
    /// estimate is beyond its bounds.
    ///
    /// Only the shortest third of the round trips counts: a longer one has waited, in an unknown direction.
    pub fn estimate(before: &[Exchange], after: &[Exchange]) -> Option<Self> {
        let first = Anchor::of(before)?;
        let (drift, shortest) = match Anchor::of(after) {
            Some(second) if second.at_ms > first.at_ms => (
                (second.offset_ms - first.offset_ms) / (second.at_ms - first.at_ms),
                first.shortest_ms.min(second.shortest_ms),
            ),
            _ => (0.0, first.shortest_ms),
        };
        let offset = Self {
            at_zero_ms: first.offset_ms - drift * first.at_ms,
            drift,
            error_ms: shortest / 2.0,
        };
        (offset.at_zero_ms.abs() <= FURTHEST_MS && drift.abs() <= FASTEST).then_some(offset)
    }

    /// True if neither one-way delay of the exchange is below zero by more than the tolerance.
    pub fn is_possible(&self, exchange: &Exchange) -> bool {
        let (there, back) = self.one_way_ms(exchange);
        there.min(back) >= -(self.error_ms + SLACK_MS)
    }

    /// The one-way delays to the other clock and back, milliseconds.
    pub fn one_way_ms(&self, exchange: &Exchange) -> (f64, f64) {
        let there = exchange.there_ms - self.other_ms(exchange.sent_ms);
        (there, exchange.round_trip_ms() - there)
    }

    /// The other clock minus this one at time zero of this clock, milliseconds.
    pub fn at_zero_ms(&self) -> f64 {
        self.at_zero_ms
    }

    /// How much the other clock gains, parts per million.
    pub fn drift_ppm(&self) -> f64 {
        self.drift * 1e6
    }

    /// The time of the other clock when this one shows `this_ms`.
    fn other_ms(&self, this_ms: f64) -> f64 {
        this_ms + self.at_zero_ms + self.drift * this_ms
    }
}

impl Exchange {
    fn round_trip_ms(&self) -> f64 {
        self.back_ms - self.sent_ms
    }

    fn offset_ms(&self) -> f64 {
        self.there_ms - f64::midpoint(self.sent_ms, self.back_ms)
    }
}

impl Anchor {
    fn of(exchanges: &[Exchange]) -> Option<Self> {
        let mut sorted: Vec<_> = exchanges.to_vec();
        sorted.sort_by(|a, b| a.round_trip_ms().total_cmp(&b.round_trip_ms()));
        let shortest = sorted.first()?.round_trip_ms();
        let third = &sorted[..sorted.len().div_ceil(3)];
        let mean = |value: fn(&Exchange) -> f64| third.iter().map(value).sum::<f64>() / third.len() as f64;
        Some(Self {
            at_ms: mean(|e| f64::midpoint(e.sent_ms, e.back_ms)),
            offset_ms: mean(Exchange::offset_ms),
            shortest_ms: shortest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other clock is 5 s ahead and gains 20 µs per second. A way takes 10 ms, and the way to the other clock `queue_ms` more.
    fn exchange(sent_ms: f64, queue_ms: f64) -> Exchange {
        let arrives_ms = sent_ms + 10.0 + queue_ms;
        Exchange {
            sent_ms,
            there_ms: arrives_ms + 5000.0 + arrives_ms * 20e-6,
            back_ms: arrives_ms + 10.0,
        }
    }

    #[test]
    fn a_queue_shows_in_the_delay_of_its_direction() {
        let idle = |from: f64| -> Vec<_> {
            (0..50)
                .map(|i| exchange(from + f64::from(i) * 100.0, f64::from(i % 3) * 2.0))
                .collect()
        };
        let offset = Offset::estimate(&idle(0.0), &idle(65_000.0)).unwrap();
        let (up, down) = offset.one_way_ms(&exchange(30_000.0, 80.0));
        assert!(
            (up - 90.0).abs() < 0.01 && (down - 10.0).abs() < 0.01,
            "{up} {down}"
        );
        assert_eq!(offset.error_ms, 10.0);
    }

    #[test]
    fn without_an_idle_line_after_the_load_no_drift_is_assumed() {
        let offset = Offset::estimate(&[exchange(0.0, 0.0)], &[]).unwrap();
        let (up, down) = offset.one_way_ms(&exchange(1000.0, 0.0));
        assert!(
            (up - 10.02).abs() < 0.001 && (down - 9.98).abs() < 0.001,
            "{up} {down}"
        );
        assert_eq!(Offset::estimate(&[], &[exchange(0.0, 0.0)]), None);
    }

    #[test]
    fn impossible_clocks_give_no_estimate() {
        let at = |sent_ms: f64, there_ms| Exchange {
            sent_ms,
            there_ms,
            back_ms: sent_ms + 20.0,
        };
        assert!(Offset::estimate(&[at(0.0, 3.1e12)], &[]).is_some());
        assert_eq!(Offset::estimate(&[at(0.0, 3.2e12)], &[]), None, "a century");
        assert_eq!(
            Offset::estimate(&[at(0.0, 0.0)], &[at(1000.0, 1100.0)]),
            None,
            "a tenth faster"
        );
        let offset = Offset::estimate(&[at(0.0, 510.0)], &[]).unwrap();
        assert!(offset.is_possible(&at(1000.0, 1510.0)));
        assert!(!offset.is_possible(&at(1000.0, 1410.0)), "there before it left");
        assert!(
            !offset.is_possible(&at(1000.0, 1610.0)),
            "back before it was there"
        );
    }
}
