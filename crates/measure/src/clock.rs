//! How far two clocks are apart, from probes that went there and back. Pure.
//!
//! A probe that took the shortest way in both directions tells the far clock's offset to within half its round trip.
//! The offset is taken where the line is idle, before the load and after it, and runs in a straight line between: two
//! quartz clocks part by some microseconds per second. What remains unknown is how the idle round trip divides into its
//! two directions, which no exchange of packets can tell: so delays of one direction show where a queue is, and
//! their differences are exact, but their sum is all that is known of the fixed part.

/// No two clocks are further apart than a century, or part faster than this: the figures are made up.
const FURTHEST_MS: f64 = 100.0 * 365.25 * 86_400_000.0;
const FASTEST: f64 = 0.01;
/// A delay of one direction may be this much less than nothing, besides what is not known of it: clocks are slewed.
const SLACK_MS: f64 = 20.0;

/// A probe with both clocks, in milliseconds on each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// When it left, on this clock.
    pub sent_ms: f64,
    /// When it was there, on the other clock.
    pub there_ms: f64,
    /// When it was back, on this clock, less the time that it was held there.
    pub back_ms: f64,
}

/// The other clock as seen from this one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offset {
    /// Other minus this at time zero of this clock, milliseconds.
    at_zero_ms: f64,
    /// What the other gains, milliseconds per millisecond.
    drift: f64,
    /// How wrong a delay of one direction may be, milliseconds: half the shortest round trip, if it were all on one side.
    pub error_ms: f64,
}

/// A mean offset at a mean time.
struct Anchor {
    at_ms: f64,
    offset_ms: f64,
    shortest_ms: f64,
}

impl Offset {
    /// From exchanges on an idle line, before (`before`) and after the load; none without any before, or if they give what no two
    /// clocks can be.
    ///
    /// The shortest third counts: a longer round trip waited somewhere, and nobody knows in which direction.
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

    /// Whether the delays that follow from it can be: neither is less than nothing.
    pub fn is_possible(&self, exchange: &Exchange) -> bool {
        let (there, back) = self.one_way_ms(exchange);
        there.min(back) >= -(self.error_ms + SLACK_MS)
    }

    /// The delays there and back, milliseconds.
    pub fn one_way_ms(&self, exchange: &Exchange) -> (f64, f64) {
        let there = exchange.there_ms - self.other_ms(exchange.sent_ms);
        (there, exchange.round_trip_ms() - there)
    }

    /// Other minus this at time zero of this clock, milliseconds.
    pub fn at_zero_ms(&self) -> f64 {
        self.at_zero_ms
    }

    /// What the other clock gains, parts per million.
    pub fn drift_ppm(&self) -> f64 {
        self.drift * 1e6
    }

    /// What the other clock shows when this one shows `this_ms`.
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

    /// A far clock 5 s ahead that gains 20 µs per second; 10 ms each way, and `queue_ms` more on the way there.
    fn exchange(sent_ms: f64, queue_ms: f64) -> Exchange {
        let arrives_ms = sent_ms + 10.0 + queue_ms;
        Exchange {
            sent_ms,
            there_ms: arrives_ms + 5000.0 + arrives_ms * 20e-6,
            back_ms: arrives_ms + 10.0,
        }
    }

    #[test]
    fn the_queue_is_found_in_the_direction_where_it_is() {
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
    fn without_an_idle_line_afterwards_the_clocks_are_taken_to_run_alike() {
        let offset = Offset::estimate(&[exchange(0.0, 0.0)], &[]).unwrap();
        let (up, down) = offset.one_way_ms(&exchange(1000.0, 0.0));
        assert!(
            (up - 10.02).abs() < 0.001 && (down - 9.98).abs() < 0.001,
            "{up} {down}"
        );
        assert_eq!(Offset::estimate(&[], &[exchange(0.0, 0.0)]), None);
    }

    #[test]
    fn clocks_that_cannot_be_are_none() {
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
