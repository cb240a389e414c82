//! Which probes of a test have arrived.

use std::sync::Mutex;
use std::time::Instant;

use super::rate_limiter::TokenBucket;
use crate::protocol::MAX_PROBES;

/// The probes of one test that have arrived, and the limit of their rate.
pub(super) struct ProbeHistory {
    pub(super) bucket: TokenBucket,
    /// For each series the highest sequence number, and a bit for each of the 64 numbers up to it: set if that probe has arrived.
    series: [(u32, u64); MAX_PROBES as usize],
}

impl ProbeHistory {
    pub(super) fn new() -> Mutex<Self> {
        Mutex::new(Self {
            bucket: TokenBucket::new(Instant::now()),
            series: [(0, 0); MAX_PROBES as usize],
        })
    }

    /// Records that a probe has arrived. Returns the window for its answer: bit n is set if the probe n before it has arrived, too, and
    /// bit 0 for the probe itself. `None` if a test has no such series.
    pub(super) fn window(&mut self, series: u16, sequence: u32) -> Option<u64> {
        let (highest, window) = self.series.get_mut(series as usize)?;
        if *window == 0 || sequence > *highest {
            let ahead = sequence - if *window == 0 { sequence } else { *highest };
            *window = window.checked_shl(ahead).unwrap_or(0) | 1;
            *highest = sequence;
            return Some(*window);
        }
        // A later probe has overtaken it.
        let behind = *highest - sequence;
        *window |= 1u64.checked_shl(behind).unwrap_or(0);
        Some(window.checked_shr(behind).unwrap_or(0) | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_has_a_bit_for_each_earlier_probe_that_arrived() {
        let history = ProbeHistory::new();
        let mut history = history.lock().unwrap();
        assert_eq!(history.window(0, 5), Some(0b1));
        assert_eq!(history.window(0, 7), Some(0b101));
        assert_eq!(history.window(0, 6), Some(0b11));
        assert_eq!(history.window(0, 8), Some(0b1111));
        assert_eq!(history.window(0, 200), Some(1));
        assert_eq!(history.window(0, 3), Some(1));
        assert_eq!(history.window(0, u32::MAX), Some(1));
        assert_eq!(history.window(1, 0), Some(1));
        assert_eq!(history.window(MAX_PROBES, 0), None);
    }
}
