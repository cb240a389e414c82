//! A histogram of delays, in memory that does not grow with the number of packets.

use std::collections::BTreeMap;

/// Delays, counted in bins of less than 1 % of their value. The least and the greatest are exact.
///
/// Our own code, because histogram crates allocate all bins at once: tens of kilobytes for each of up to 100,000 flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays {
    steps: BTreeMap<u16, u64>,
    count: u64,
    range: Option<(u64, u64)>,
}

/// The number of bins per power of two, as an exponent: 2^7. A bin is then at most 1/128 of its value wide.
const BITS: u32 = 7;

impl Delays {
    pub(super) fn add(&mut self, nanos: u64) {
        *self.steps.entry(step(nanos)).or_default() += 1;
        self.count += 1;
        self.range = Some(match self.range {
            None => (nanos, nanos),
            Some((least, most)) => (least.min(nanos), most.max(nanos)),
        });
    }

    /// The least and the greatest delay, nanoseconds; `None` without any delay.
    pub(super) const fn range(&self) -> Option<(u64, u64)> {
        self.range
    }

    /// The quantile of a share from 0 to 1, nanoseconds.
    pub(super) fn quantile(&self, part: f64) -> Option<u64> {
        let (least, most) = self.range?;
        let rank = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count);
        let mut below = 0;
        let step = self.steps.iter().find_map(|(step, count)| {
            below += count;
            (below >= rank).then_some(*step)
        });
        step.map(|step| middle(step).clamp(least, most))
    }
}

/// The bin of a value. Small values have a bin each.
const fn step(nanos: u64) -> u16 {
    if nanos < 1 << BITS {
        return nanos as u16;
    }
    let exponent = nanos.ilog2();
    let mantissa = (nanos >> (exponent - BITS)) & ((1 << BITS) - 1);
    ((exponent - BITS + 1) << BITS) as u16 | mantissa as u16
}

/// The middle of a bin.
const fn middle(step: u16) -> u64 {
    let step = step as u64;
    if step < 1 << BITS {
        return step;
    }
    let shift = (step >> BITS) - 1;
    let first = ((1 << BITS) | (step & ((1 << BITS) - 1))) << shift;
    first + ((1 << shift) - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_known_to_one_percent() {
        for power in 0..64 {
            for nanos in [
                1_u64 << power,
                (1 << power) | (1 << power >> 2),
                u64::MAX >> (63 - power),
            ] {
                let middle = middle(step(nanos));
                assert!(middle.abs_diff(nanos) <= nanos / 128, "{nanos}: {middle}");
            }
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut delays = Delays::default();
        assert_eq!((delays.quantile(0.5), delays.range()), (None, None));
        for nanos in (1..=100).rev() {
            delays.add(nanos);
        }
        assert_eq!(
            (delays.quantile(0.5), delays.quantile(0.95)),
            (Some(50), Some(95))
        );
        assert_eq!(
            (delays.quantile(1.0), delays.range()),
            (Some(100), Some((1, 100)))
        );
        delays.add(1_000_000_007);
        assert_eq!(
            delays.quantile(1.0),
            Some(1_000_000_007),
            "never beyond the greatest"
        );
    }
}
