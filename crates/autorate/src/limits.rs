//! The bounds of a rate, with defaults for those that the user does not give.

use sqm_core::units::Rate;

use crate::Bounds;

/// Bounds in bits per second: `min <= base <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) min: u64,
    pub(crate) base: u64,
    pub(crate) max: u64,
}

/// Less is not a link, and the arithmetic needs a rate above zero.
const LEAST: u64 = 1000;
const DEFAULT_MIN: u64 = Bounds::DEFAULT_MIN.bits_per_sec();
/// Default of `base`.
const DEFAULT_BASE: u64 = 10_000_000;
const DEFAULT_MAX: u64 = Bounds::DEFAULT_MAX.bits_per_sec();
/// No bound is higher: it leaves room for every product that the controller computes in 64 bits.
const LARGEST: u64 = 1 << 50;

impl Limits {
    /// Bounds in order, whatever the user gives. Where the given bounds contradict each other, `max` wins.
    pub(crate) fn new(bounds: Bounds) -> Self {
        let [min, base, max] = [bounds.min, bounds.base, bounds.max].map(|rate| rate.map(Rate::bits_per_sec));
        let default_max = base.max(min).unwrap_or(0).max(DEFAULT_MAX);
        let highest = max.unwrap_or(default_max).min(LARGEST);
        let default_min = (base.or(max).unwrap_or(0) / 64).max(DEFAULT_MIN);
        let lowest = min.unwrap_or(default_min).max(LEAST).min(highest);
        Self {
            min: lowest,
            base: base.unwrap_or(DEFAULT_BASE).clamp(lowest, highest),
            max: highest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_order_whatever_the_user_gives() {
        let kbit = Rate::from_kbits_per_sec;
        let limits = |min, base, max| {
            let Limits { min, base, max } = Limits::new(Bounds { min, base, max });
            [min, base, max].map(|rate| rate / 1000)
        };
        assert_eq!(limits(None, None, None), [128, 10_000, 10_000_000]);
        assert_eq!(limits(None, Some(kbit(64_000)), None), [1000, 64_000, 10_000_000]);
        assert_eq!(limits(None, None, Some(kbit(2000))), [128, 2000, 2000]);
        assert_eq!(limits(Some(kbit(9)), Some(kbit(5)), Some(kbit(7))), [7, 7, 7]);
    }
}
