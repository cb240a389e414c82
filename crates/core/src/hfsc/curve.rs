//! Service curves of two pieces in the kernel's fixed point.
//!
//! Time is counted in ticks of 64 ns, service in bytes. A slope is kept both ways: bytes per tick with 24 bits of fraction,
//! ticks per byte with 14.

use crate::spec;
use crate::units::Rate;

const TICKS_PER_SEC: u64 = 15_625_000;
const MICROS_PER_SEC: u64 = 1_000_000;

const SLOPE_BITS: u32 = 24;
const INVERSE_BITS: u32 = 14;

/// Ticks per byte of a flat curve, and the time at which it reaches anything.
const INFINITE: u64 = u64::MAX;

/// A slope, and its inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slope {
    bytes_per_tick: u64,
    ticks_per_byte: u64,
}

impl Slope {
    fn new(rate: Rate) -> Self {
        let bytes_per_sec = rate.bytes_per_sec();
        Self {
            bytes_per_tick: (bytes_per_sec << SLOPE_BITS).div_ceil(TICKS_PER_SEC),
            ticks_per_byte: match bytes_per_sec {
                0 => INFINITE,
                _ => (TICKS_PER_SEC << INVERSE_BITS).div_ceil(bytes_per_sec),
            },
        }
    }

    /// Bytes served in a span of ticks.
    fn bytes_in(self, ticks: u64) -> u64 {
        scaled(ticks, self.bytes_per_tick, SLOPE_BITS)
    }

    /// Ticks that bytes take.
    fn ticks_for(self, bytes: u64) -> u64 {
        match (bytes, self.ticks_per_byte) {
            (0, _) => 0,
            (_, INFINITE) => INFINITE,
            _ => scaled(bytes, self.ticks_per_byte, INVERSE_BITS),
        }
    }
}

/// `value · factor / 2^bits`, in two parts as the kernel does to stay within 64 bits.
fn scaled(value: u64, factor: u64, bits: u32) -> u64 {
    let fraction = (value & ((1 << bits) - 1)).wrapping_mul(factor) >> bits;
    (value >> bits).wrapping_mul(factor).wrapping_add(fraction)
}

/// A curve as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    first: Slope,
    second: Slope,
    /// The first piece, ticks and bytes.
    dx: u64,
    dy: u64,
}

impl Shape {
    pub(super) fn new(spec: &spec::hfsc::Curve) -> Self {
        let first = Slope::new(spec.m1);
        let dx = (u128::from(spec.d.as_micros()) * u128::from(TICKS_PER_SEC)).div_ceil(MICROS_PER_SEC.into());
        let dx = u64::try_from(dx).unwrap_or(INFINITE);
        Self {
            first,
            second: Slope::new(spec.m2),
            dx,
            dy: first.bytes_in(dx),
        }
    }

    /// Slow first: it has no burst.
    pub(super) const fn is_convex(&self) -> bool {
        self.first.bytes_per_tick <= self.second.bytes_per_tick
    }
}

/// A curve that begins at a moment and an amount of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Curve {
    x: u64,
    y: u64,
    shape: Shape,
}

impl Curve {
    /// From the beginning of time.
    pub(super) const fn new(shape: Shape) -> Self {
        Self { x: 0, y: 0, shape }
    }

    /// When the service reaches `y`.
    pub(super) fn time_of(&self, y: u64) -> u64 {
        let Shape {
            first,
            second,
            dx,
            dy,
        } = self.shape;
        if y < self.y {
            self.x
        } else if y <= self.y.wrapping_add(dy) {
            let ticks = if dy == 0 { dx } else { first.ticks_for(y - self.y) };
            self.x.wrapping_add(ticks)
        } else {
            let ticks = second.ticks_for(y - self.y - dy);
            self.x.wrapping_add(dx).wrapping_add(ticks)
        }
    }

    /// How far the service is at `x`.
    fn service_at(&self, x: u64) -> u64 {
        let Shape {
            first,
            second,
            dx,
            dy,
        } = self.shape;
        if x <= self.x {
            self.y
        } else if x <= self.x.wrapping_add(dx) {
            self.y.wrapping_add(first.bytes_in(x - self.x))
        } else {
            let bytes = second.bytes_in(x - self.x - dx);
            self.y.wrapping_add(dy).wrapping_add(bytes)
        }
    }

    /// The lower of this curve and one of `shape` that begins at (x, y), as far as two pieces can say it.
    pub(super) fn limit(&mut self, shape: &Shape, x: u64, y: u64) {
        let at_start = self.service_at(x);
        if shape.is_convex() {
            if at_start >= y {
                (self.x, self.y) = (x, y);
            }
            return;
        }
        if at_start <= y {
            return;
        }
        let (dx, dy) = if self.service_at(x.wrapping_add(shape.dx)) >= y.wrapping_add(shape.dy) {
            (shape.dx, shape.dy)
        } else {
            // They cross: the first piece lasts until they meet.
            let steeper = shape.first.bytes_per_tick - shape.second.bytes_per_tick;
            let mut dx = (at_start - y).wrapping_shl(SLOPE_BITS) / steeper;
            let old_bend = self.x.wrapping_add(self.shape.dx);
            if old_bend > x {
                dx = dx.wrapping_add(old_bend - x);
            }
            (dx, shape.first.bytes_in(dx))
        };
        (self.x, self.y) = (x, y);
        (self.shape.dx, self.shape.dy) = (dx, dy);
    }

    /// The curve without a slow first piece: a class may be served ahead of a convex curve.
    pub(super) const fn without_convex_start(mut self, shape: &Shape) -> Self {
        if shape.is_convex() {
            (self.shape.dx, self.shape.dy) = (0, 0);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn shape(m1_kbit: u64, d_ms: u64, m2_kbit: u64) -> Shape {
        Shape::new(&spec::hfsc::Curve {
            m1: Rate::from_kbits_per_sec(m1_kbit),
            d: Nanos::from_millis(d_ms),
            m2: Rate::from_kbits_per_sec(m2_kbit),
        })
    }

    #[test]
    fn slopes_are_the_kernels() {
        let slope = Slope::new(Rate::from_kbits_per_sec(1000));
        assert_eq!((slope.bytes_per_tick, slope.ticks_per_byte), (134_218, 2_048_000));
        assert_eq!(Slope::new(Rate::from_kbits_per_sec(0)).ticks_for(1), INFINITE);
        assert_eq!(Slope::new(Rate::from_kbits_per_sec(0)).ticks_for(0), 0);
    }

    #[test]
    fn a_curve_goes_through_its_bend() {
        // 4000 bytes in the first 16 ms, then 125 bytes a millisecond.
        let curve = Curve::new(shape(2000, 16, 1000));
        let ms = TICKS_PER_SEC / 1000;
        assert_eq!(curve.service_at(16 * ms), 4000);
        assert!(curve.service_at(24 * ms).abs_diff(5000) <= 1);
        assert_eq!(curve.time_of(2000), 8 * ms);
        assert_eq!(curve.time_of(5000), 24 * ms);
    }

    #[test]
    fn the_lower_curve_wins() {
        let ms = TICKS_PER_SEC / 1000;
        let concave = shape(2000, 16, 1000);
        let mut curve = Curve::new(concave);
        curve.limit(&concave, 1000 * ms, 1000);
        assert_eq!((curve.x, curve.y, curve.shape), (1000 * ms, 1000, concave));

        // Just served 4000 bytes ahead: nothing new begins.
        let mut curve = Curve::new(concave);
        curve.limit(&concave, ms, 4000);
        assert_eq!(curve, Curve::new(concave));

        // Between: what is left of the burst.
        let mut curve = Curve::new(concave);
        curve.limit(&concave, 20 * ms, 4000);
        assert_eq!((curve.x, curve.y), (20 * ms, 4000));
        assert!(curve.shape.dx < concave.dx && curve.shape.dy < concave.dy);
    }
}
