//! The newest delay samples of all sources, and robust statistics over them.
//!
//! Medians of four samples resist one outlier on either side: one bad source can neither cut the rate nor hide a queue.

use alloc::vec::Vec;

use sqm_core::units::{Instant, Nanos};

use super::source::DelayKind;

/// Samples that an estimate is made of.
pub(super) const SAMPLES: usize = 4;

/// The queue delay that one answer, or one missing answer, shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelaySample {
    /// Delay above the baseline.
    pub(super) delay: Nanos,
    /// When the probe was sent.
    pub(super) sent: Instant,
    /// Older samples remain while probing is slow. They count only if there are not enough recent ones.
    pub(super) is_recent: bool,
    /// The probe has not returned: the delay is at least this.
    pub(super) is_overdue: bool,
}

/// The newest samples by time of sending.
#[derive(Clone, Debug)]
pub(super) struct NewestSamples {
    /// The kind of all of them.
    pub(super) kind: DelayKind,
    /// The delay of the newest one.
    pub(super) newest: Option<Nanos>,
    /// Those that count, by delay, the smallest first.
    pub(super) by_delay: Vec<DelaySample>,
}

impl NewestSamples {
    /// The newest of some samples. The recent ones count if there are at least two, otherwise all.
    pub(super) fn new(kind: DelayKind, samples: Vec<DelaySample>) -> Self {
        let mut newest_first: Vec<DelaySample> = Vec::new();
        for mut sample in samples {
            for newer in &mut newest_first {
                if newer.sent < sample.sent {
                    core::mem::swap(newer, &mut sample);
                }
            }
            newest_first.push(sample);
            newest_first.truncate(SAMPLES);
        }
        let newest = newest_first.first().map(|sample| sample.delay);
        let recent = newest_first.iter().filter(|sample| sample.is_recent).count();
        let mut by_delay = newest_first;
        by_delay.retain(|sample| sample.is_recent || recent < 2);
        by_delay.sort_by_key(|sample| sample.delay);
        Self {
            kind,
            newest,
            by_delay,
        }
    }

    /// The lower median: the second smallest of four, the middle one of three, the smaller one of two.
    pub(super) fn lower_median(&self) -> Option<DelaySample> {
        self.by_delay
            .get(self.by_delay.len().saturating_sub(1) / 2)
            .copied()
    }

    /// The upper median: the third smallest of four, the middle one of three. Of two it is the smaller one, too, as a single sample
    /// proves nothing.
    pub(super) fn upper_median(&self) -> Option<DelaySample> {
        self.by_delay.get(self.by_delay.len().saturating_sub(2)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(delays: &[u64]) -> NewestSamples {
        let sample = |(sent, delay): (u64, &u64)| DelaySample {
            delay: Nanos(*delay),
            sent: Instant(sent),
            is_recent: true,
            is_overdue: false,
        };
        NewestSamples::new(DelayKind::RoundTrip, (0..).zip(delays).map(sample).collect())
    }

    #[test]
    fn medians_ignore_one_outlier_on_either_side() {
        for (delays, lower, upper) in [
            (&[5][..], 5, 5),
            (&[5, 9], 5, 5),
            (&[5, 900, 9], 9, 9),
            (&[5, 900, 9, 7], 7, 9),
            (&[900, 5, 900, 9, 7], 7, 9),
        ] {
            let samples = samples(delays);
            let delay = |median: Option<DelaySample>| median.map(|sample| sample.delay.0);
            assert_eq!(delay(samples.lower_median()), Some(lower));
            assert_eq!(delay(samples.upper_median()), Some(upper), "{delays:?}");
        }
        assert!(samples(&[]).lower_median().is_none());
    }
}
