//! The daemon's clock.

use std::time::Duration;

use sqm_core::units::{Instant, Nanos};

/// The time since boot in whole microseconds: the log of autorate has microseconds, and a replay of it must see the same times.
pub(crate) fn monotonic() -> Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 / 1000 * 1000)
}

/// As nanoseconds; 585 years if it is longer.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
