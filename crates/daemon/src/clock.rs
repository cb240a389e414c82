//! The daemon's clock.

use std::time::Duration;

use rustix::time::Timespec;
use sqm_core::units::{Instant, Nanos};

/// The time since boot in whole microseconds. The log of autorate stores microseconds, and a replay of it must see the same
/// times.
pub(crate) fn monotonic() -> Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 / 1000 * 1000)
}

/// Converts a time-out for the kernel. The type of the nanoseconds depends on the processor.
pub(crate) fn timespec(timeout: Nanos) -> Timespec {
    Timespec::try_from(Duration::from_nanos(timeout.0)).expect("585 years of seconds fit into 64 bits")
}

/// Converts a duration; more than 585 years saturate.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
