//! The delay of a source without a queue.

use sqm_core::units::Nanos;

/// The smallest delay of the last [`Self::BUCKETS`] × [`Self::SPAN`] of use: a windowed minimum, as in BBR and LEDBAT (RFC 6817
/// section 3.4.2).
///
/// Time without answers does not count as use. Otherwise the first burst after a pause would become the baseline. While the
/// direction is idle, only the last [`Self::BUCKETS`] answers count: they met no queue, and a path that has become longer in the
/// meantime must not look like a queue of the load that begins next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    /// Minima, nanoseconds, newest last.
    buckets: [Option<i64>; Self::BUCKETS],
    /// Nanoseconds of use in the newest bucket.
    filled: u64,
}

impl Baseline {
    const BUCKETS: usize = 6;
    /// With six buckets the window is 30 s: a choice, longer than any queue stands.
    const SPAN: Nanos = Nanos::from_millis(5000);
    /// A longer silence counts as this much use, nanoseconds.
    const MAX_STEP: u64 = 1_000_000_000;

    /// Adds a delay in nanoseconds, `since_last` after the previous answer.
    pub(super) fn add(&mut self, since_last: Nanos, delay: i64, is_idle: bool) {
        self.filled += since_last.0.min(Self::MAX_STEP);
        if is_idle || self.filled >= Self::SPAN.0 {
            self.filled = 0;
            self.buckets.rotate_left(1);
            self.buckets[Self::BUCKETS - 1] = None;
        }
        let newest = &mut self.buckets[Self::BUCKETS - 1];
        *newest = Some(newest.map_or(delay, |min| min.min(delay)));
    }

    /// The baseline, nanoseconds; `None` before the first answer.
    pub(super) fn min(&self) -> Option<i64> {
        self.buckets.iter().flatten().copied().min()
    }
}
