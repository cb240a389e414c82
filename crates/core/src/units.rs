//! Quantities that must never be confused, each with its own type.
//!
//! A rate is kept in bits per second and never called `bps`, because `tc` uses that word for bytes per second.

use core::fmt;

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Exactly `n` bits per second.
    pub const fn from_bits_per_sec(n: u64) -> Self {
        Self(n)
    }

    /// `n` thousand bits per second; saturates at the largest rate.
    pub const fn from_kbits_per_sec(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Whole bytes per second, rounded down: the unit in which the kernel keeps rates.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Whole kilobits per second, rounded down.
    pub const fn kbits_per_sec(self) -> u64 {
        self.0 / 1000
    }
}

/// Prints as `tc` would read it back exactly: the largest decimal unit that loses nothing (`85mbit`, `4400kbit`).
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0 => (1, "bit"),
            n if n % 1_000_000_000 == 0 => (1_000_000_000, "gbit"),
            n if n % 1_000_000 == 0 => (1_000_000, "mbit"),
            n if n % 1000 == 0 => (1000, "kbit"),
            _ => (1, "bit"),
        };
        write!(f, "{}{unit}", self.0 / divisor)
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// `n` microseconds; saturates.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    /// `n` milliseconds; saturates.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Whole microseconds, rounded down: the unit of time on the `tc` command line.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }
}
