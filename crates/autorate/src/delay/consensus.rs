//! The newest delay samples of all sources, and robust statistics over them.
//!
//! Medians of four samples resist one outlier on either side: one bad source can neither cut the rate nor hide a queue.

use sqm_core::units::Instant;

/// Samples that an estimate is made of.
pub(super) const SAMPLES: usize = 4;

/// The queue delay that one answer, or one missing answer, shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelaySample {
    /// Delay above the baseline, nanoseconds.
    pub(super) delay: i64,
    /// When the probe was sent.
    pub(super) sent: Instant,
    /// Older samples remain while probing is slow. They count only if there are not enough recent ones.
    pub(super) is_recent: bool,
    /// The probe has not returned: the delay is at least this.
    pub(super) is_overdue: bool,
}

impl DelaySample {
    /// This sample with its delay limited to `max`, if there is one.
    pub(super) fn at_most(self, max: Option<i64>) -> Self {
        let delay = max.map_or(self.delay, |max| self.delay.min(max));
        Self { delay, ..self }
    }
}

/// The newest samples by time of sending, newest first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewestSamples([Option<DelaySample>; SAMPLES]);

impl NewestSamples {
    /// Inserts a sample if it is newer than one of those held.
    pub(super) fn offer(&mut self, sample: DelaySample) {
        let mut offered = Some(sample);
        for place in &mut self.0 {
            if place.is_none_or(|held| offered.is_some_and(|new| new.sent > held.sent)) {
                core::mem::swap(place, &mut offered);
            }
        }
    }

    /// The samples that count: the recent ones if there are at least two, otherwise all.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DelaySample> {
        let recent = self.0.iter().flatten().filter(|sample| sample.is_recent).count();
        self.0
            .iter()
            .flatten()
            .filter(move |sample| sample.is_recent || recent < 2)
    }

    /// The delay of the newest sample, nanoseconds.
    pub(super) fn newest(&self) -> Option<i64> {
        self.0.first().copied().flatten().map(|sample| sample.delay)
    }

    /// The lower median by delay: the second smallest of four, the middle one of three, the smaller one of two.
    pub(super) fn lower_median(&self) -> Option<DelaySample> {
        let mut sorted = [None; SAMPLES];
        let mut count = 0;
        for (place, sample) in sorted.iter_mut().zip(self.iter()) {
            *place = Some(*sample);
            count += 1;
        }
        sorted[..count].sort_by_key(|sample| sample.map(|sample| sample.delay));
        sorted[usize::from(count >= 3)]
    }

    /// The upper median, nanoseconds: the third smallest of four, the middle one of three. Of two or one it is the smaller one, too,
    /// as a single sample proves nothing.
    pub(super) fn upper_median(&self) -> Option<i64> {
        let delays = || self.iter().map(|sample| sample.delay);
        if delays().count() < 3 {
            return delays().min();
        }
        let largest = delays().enumerate().max_by_key(|(_, delay)| *delay)?.0;
        let others = delays().enumerate().filter(|(index, _)| *index != largest);
        others.map(|(_, delay)| delay).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(delays: &[i64]) -> NewestSamples {
        let mut samples = NewestSamples::default();
        for (sent, delay) in (0..).zip(delays) {
            samples.offer(DelaySample {
                delay: *delay,
                sent: Instant(sent),
                is_recent: true,
                is_overdue: false,
            });
        }
        samples
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
            assert_eq!(samples.lower_median().map(|sample| sample.delay), Some(lower));
            assert_eq!(samples.upper_median(), Some(upper), "{delays:?}");
        }
        assert!(samples(&[]).lower_median().is_none());
    }
}
