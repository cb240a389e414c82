//! The time of a packet at a rate, in nanoseconds, as Linux computes it (`psched_ratecfg`): a multiplication and a shift.

use crate::narrow::fits_u32;
use crate::spec::LinkLayer;
use crate::spec::size_table::RateFraming;
use crate::units::{Bytes, Nanos, Rate};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Ticks of 64 ns in a second: the kernel takes burst sizes in ticks.
const TICKS_PER_SEC: u64 = 15_625_000;
const NANOS_PER_TICK: u64 = 64;

/// The cost of bytes at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCost {
    multiplier: u32,
    shift: u8,
    framing: RateFraming,
}

impl RateCost {
    /// At `rate`, which is at least a byte in a second.
    pub const fn new(rate: Rate, framing: RateFraming) -> Self {
        let (multiplier, shift) = factors(rate.bytes_per_sec());
        Self {
            multiplier,
            shift,
            framing,
        }
    }

    /// Time that a packet of `length` bytes takes, framing included; rounded down, and short by less than 2^-30 of it.
    #[inline]
    pub const fn of(&self, length: u32) -> Nanos {
        let RateFraming {
            overhead,
            mpu,
            linklayer,
        } = self.framing;
        let mut bytes = length as u64 + overhead as u64;
        if bytes < mpu as u64 {
            bytes = mpu as u64;
        }
        if matches!(linklayer, LinkLayer::Atm) {
            bytes = bytes.div_ceil(48) * 53;
        }
        Nanos(bytes.saturating_mul(self.multiplier as u64) >> self.shift)
    }
}

/// `bytes · multiplier >> shift` is `bytes / rate` in nanoseconds, with as many bits of precision as 32 and 64 allow.
const fn factors(bytes_per_sec: u64) -> (u32, u8) {
    let rate = if bytes_per_sec == 0 { 1 } else { bytes_per_sec };
    let (mut factor, mut shift) = (NANOS_PER_SEC, 0);
    loop {
        let multiplier = fits_u32(factor / rate);
        if multiplier >> 31 != 0 || factor >> 63 != 0 {
            return (multiplier, shift);
        }
        factor <<= 1;
        shift += 1;
    }
}

/// The time that `tc` tells the kernel for a burst of `size`: whole ticks of 64 ns, rounded up.
pub(crate) fn burst_time(size: Bytes, rate: Rate) -> Nanos {
    let ticks = (u128::from(size.0) * u128::from(TICKS_PER_SEC)).div_ceil(rate.bytes_per_sec().max(1).into());
    // The message has 32 bits for it.
    let ticks = u64::try_from(ticks).unwrap_or(u64::MAX).min(u32::MAX.into());
    Nanos(ticks * NANOS_PER_TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RateFraming = RateFraming {
        overhead: 0,
        mpu: 0,
        linklayer: LinkLayer::Ethernet,
    };

    #[test]
    fn costs_are_the_kernels() {
        let kbit = Rate::from_kbits_per_sec;
        for (rate, multiplier, shift, length, nanos) in [
            (kbit(950), 2_207_528_421, 18, 1000, 8_421_052),
            (kbit(10_000_000), 3_435_973_836, 32, 1514, 1211),
            (kbit(1000), 4_194_304_000, 19, 1000, 8_000_000),
        ] {
            let cost = RateCost::new(rate, PLAIN);
            assert_eq!((cost.multiplier, cost.shift), (multiplier, shift), "{rate}");
            assert_eq!(cost.of(length), Nanos(nanos), "{rate}");
        }
        assert_eq!(RateCost::new(kbit(9500), PLAIN).of(1514), Nanos(1_274_947));
    }

    #[test]
    fn framing_is_part_of_the_cost() {
        let atm = RateFraming {
            overhead: 40,
            mpu: 0,
            linklayer: LinkLayer::Atm,
        };
        let cost = RateCost::new(Rate::from_kbits_per_sec(1000), atm);
        assert_eq!(cost.of(64), Nanos(1_272_000));
        assert_eq!(cost.of(1500), Nanos(13_992_000));
        let least = RateFraming {
            overhead: 4,
            mpu: 64,
            ..PLAIN
        };
        let cost = RateCost::new(Rate::from_kbits_per_sec(8), least);
        assert_eq!(cost.of(10).0.div_ceil(1_000_000), 64);
        assert_eq!(cost.of(61).0.div_ceil(1_000_000), 65);
    }

    /// The division that the multiplication stands for, from 8 bit/s to 400 Gbit/s.
    #[test]
    fn the_cost_is_the_quotient() {
        for bits in [8, 1000, 64_000, 9_999_999, 1_000_000_000, 400_000_000_000] {
            let rate = Rate::from_bits_per_sec(bits);
            for length in [1, 64, 1514, 65_535] {
                let exact = u64::from(length) * NANOS_PER_SEC / rate.bytes_per_sec();
                let cost = RateCost::new(rate, PLAIN).of(length).0;
                assert!(
                    exact - cost <= 1 + (exact >> 30),
                    "{bits} {length}: {cost} {exact}"
                );
            }
        }
    }
}
