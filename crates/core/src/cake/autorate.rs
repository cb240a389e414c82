//! `autorate-ingress`: the rate follows what arrives.
//!
//! Packets that arrive close together belong to one window; a gap longer than the average ends it. What a window
//! brought per second is averaged, quickly upwards and slowly downwards. That is the arriving rate, so that it works
//! only behind the bottleneck.

use super::ewma;
use crate::narrow::fits_u64;

/// Gaps are counted up to this, nanoseconds.
const LONGEST_GAP: u64 = 1_000_000_000;

/// Least time between two changes of the rate, nanoseconds.
const GUARD: u64 = 250_000_000;

/// The state of the estimator of the arrival rate. Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Autorate {
    last_packet: u64,
    average_gap: u64,
    window_bytes: u64,
    window_start: u64,
    /// The estimate.
    pub(super) peak: u64,
    last_change: u64,
}

impl Autorate {
    pub(super) fn new(rate: u64) -> Self {
        Self {
            peak: rate,
            ..Self::default()
        }
    }

    /// A packet came while the rate is fixed.
    #[inline]
    pub(super) const fn idle(&mut self, now: u64) {
        self.window_bytes = 0;
        self.last_packet = now;
    }

    /// A packet of `bytes` came. The rate to shape to from now on, if it is to change: a sixteenth below the estimate, so
    /// that the queue stays here. `guarded`: not more often than every 250 ms.
    pub(super) fn arrived(&mut self, bytes: u32, now: u64, guarded: bool) -> Option<u64> {
        let gap = now.saturating_sub(self.last_packet).min(LONGEST_GAP);
        self.average_gap = ewma(self.average_gap, gap, if gap > self.average_gap { 2 } else { 8 });
        self.last_packet = now;
        self.window_bytes += u64::from(bytes);
        if gap <= self.average_gap {
            return None;
        }
        let window = now.saturating_sub(self.window_start).max(1);
        let rate = self.window_bytes.saturating_mul(1_000_000_000) / window;
        self.peak = ewma(self.peak, rate, if rate > self.peak { 2 } else { 8 });
        self.window_bytes = 0;
        self.window_start = now;
        if now <= self.last_change.saturating_add(GUARD) {
            return None;
        }
        if guarded {
            self.last_change = now;
        }
        Some(fits_u64(u128::from(self.peak) * 15 / 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// Bursts of 10 × 1250 bytes every 10 ms, which is 10 Mbit/s, for `seconds`; the changes that were asked for.
    fn changes(guarded: bool, seconds: u64) -> (u64, usize) {
        let mut autorate = Autorate::new(0);
        let mut changes = 0;
        for burst in 0..seconds * 100 {
            for packet in 0..10 {
                let now = 1000 * MILLISECOND + burst * 10 * MILLISECOND + packet * 100_000;
                changes += usize::from(autorate.arrived(1250, now, guarded).is_some());
            }
        }
        (autorate.peak, changes)
    }

    #[test]
    fn the_estimate_is_the_arriving_rate() {
        let (peak, _) = changes(true, 20);
        assert!((1_200_000..1_300_000).contains(&peak), "{peak}");
    }

    #[test]
    fn the_rate_changes_every_quarter_second_unless_the_kernels_defect_is_wanted() {
        let (_, guarded) = changes(true, 10);
        let (_, unguarded) = changes(false, 10);
        assert!((30..=41).contains(&guarded), "{guarded}");
        assert!(unguarded > 900, "{unguarded}");
    }
}
