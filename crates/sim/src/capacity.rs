//! The capacity of a line, which changes in steps.

use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// The rate of a line over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The rate from each time on, in order. The first one also holds before its time, the last one forever.
    steps: Vec<(Instant, Rate)>,
}

impl Capacity {
    /// A capacity with these steps, which must be in order of time and not empty.
    pub fn new(steps: Vec<(Instant, Rate)>) -> Self {
        assert!(!steps.is_empty(), "a line has a rate");
        assert!(steps.is_sorted_by_key(|(at, _)| *at), "steps are in order");
        Self { steps }
    }

    /// The rate at `now`.
    pub fn at(&self, now: Instant) -> Rate {
        self.steps[self.index(now)].1
    }

    /// When data of `size`, started at `start`, has been sent; the end of time if never.
    pub fn finish(&self, start: Instant, size: Bytes) -> Instant {
        let mut left = u128::from(size.0) * 8 * 1_000_000_000;
        let mut now = start;
        for index in self.index(start).. {
            let rate = u128::from(self.steps[index].1.bits_per_sec());
            let needed = if rate == 0 { u128::MAX } else { left.div_ceil(rate) };
            let Some((next, _)) = self.steps.get(index + 1) else {
                return u64::try_from(needed).map_or(Instant(u64::MAX), |needed| now + Nanos(needed));
            };
            let span = u128::from(next.since(now).0);
            if needed <= span {
                return now + Nanos(u64::try_from(needed).expect("shorter than a span"));
            }
            left -= span * rate;
            now = *next;
        }
        unreachable!("the last step returns")
    }

    /// The most data that can be sent between two times.
    pub fn carries(&self, from: Instant, to: Instant) -> Bytes {
        let mut bits = 0u128;
        for (index, (begins, rate)) in self.steps.iter().enumerate() {
            let begins = if index == 0 { from } else { (*begins).max(from) };
            let ends = self.steps.get(index + 1).map_or(to, |(next, _)| (*next).min(to));
            bits += u128::from(ends.since(begins).0) * u128::from(rate.bits_per_sec());
        }
        Bytes(u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX))
    }

    /// The steps: the rate from each time on.
    pub fn steps(&self) -> &[(Instant, Rate)] {
        &self.steps
    }

    fn index(&self, now: Instant) -> usize {
        self.steps.partition_point(|(at, _)| *at <= now).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_waits_through_an_outage() {
        let second = |n: u64| Instant(n * 1_000_000_000);
        let line = Capacity::new(vec![
            (second(0), Rate::from_bits_per_sec(8000)),
            (second(1), Rate::from_bits_per_sec(0)),
            (second(5), Rate::from_bits_per_sec(16_000)),
        ]);
        // Half a second before the outage, 500 bytes pass; 1000 more need half a second after it.
        assert_eq!(
            line.finish(Instant(500_000_000), Bytes(1500)),
            Instant(5_500_000_000)
        );
        assert_eq!(line.finish(second(6), Bytes(2000)), second(7));
        assert_eq!(
            line.carries(Instant(500_000_000), Instant(5_500_000_000)),
            Bytes(1500)
        );
        assert_eq!(line.at(second(3)), Rate::from_bits_per_sec(0));
    }

    #[test]
    fn a_line_that_ends_at_zero_never_finishes() {
        let dead = Capacity::new(vec![(Instant(0), Rate::from_bits_per_sec(0))]);
        assert_eq!(dead.finish(Instant(1), Bytes(1)), Instant(u64::MAX));
    }
}
