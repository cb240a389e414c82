//! Reduces the rates that were found for each direction alone until both together meet the target. Pure.
//!
//! The download falls first: a burst has crossed the line before the shaper sees it, and waits in front of the line until the part of
//! the line's rate that the shaper leaves free (the headroom) has drained it. An upload is shaped before it reaches the line. If a lower
//! download does not help, the upload falls as well, because round trips do not tell whose queue it is. After a large step the backoff
//! tries the rate halfway back, if there is time.
//!
//! Where full-size packets take long in both directions, the two rates together are far too high. There the download starts lower.

/// `(excess, step)`: a rate falls by `step`, a share of the rate, when the added latency is at most `excess` times the target. Our choice:
/// the farther the target is missed, the larger the step.
const STEPS: [(f64, f64); 4] = [
    (CLOSE_CALL, 0.015),
    (1.3, 0.02),
    (2.0, 0.035),
    (f64::INFINITY, 0.06),
];
/// Up to this multiple of the target, a longer measurement may still find that the target is met. Our choice.
pub(crate) const CLOSE_CALL: f64 = 1.15;
/// The last step that there is time for is twice as large, up to this share, unless it is the first and a close call: a rate that is a
/// little low is better than one that misses the target.
const LAST_STEP: f64 = 0.04;
/// The queue in front of the line is assumed to shrink as the headroom grows, to this power, so the steps of a download that started
/// lower are larger. Our choice: a higher power overreacts to one measurement that was bad by chance.
const DRAIN_EXPONENT: f64 = 1.5;
/// No such step is larger than this share of the rate. Our choice.
const LARGEST_STEP: f64 = 0.08;
/// A parameter of [`initial_headroom`], milliseconds: what symmetric lines of 2 to 10 Mbit/s need in the lab at a round trip of 40 ms.
const CALM_MS: f64 = 16.5;
/// The headroom that [`initial_headroom`] mixes in on asymmetric lines. Our choice: how flows of two or three packets meet cannot be
/// computed, and in the lab such lines need up to twice the headroom of symmetric ones.
const ASYMMETRIC_HEADROOM: f64 = 0.125;
/// The largest initial headroom, a share of the line's rate. Our choice.
const LARGEST_HEADROOM: f64 = 0.2;
/// A step has helped if the added latency is at most this multiple of what it was before. Our choice.
const HELPS: f64 = 0.97;
/// Repeated measurements of one rate differ by up to [`CLOSE_CALL`], or by this multiple of the target where full-size packets take long
/// (in the lab).
const UNSTEADY: f64 = 1.3;
/// The backoff tries a rate between a good and a bad one if they are farther apart than this factor.
const WIDE: f64 = 1.04;
/// Like [`WIDE`], where the bad rate was not measured but is the rate that was found for the download alone.
const WIDE_UNTRIED: f64 = 1.02;
/// A good rate is raised again only if its added latency is below this share of the limit. Our choice.
const SPARE: f64 = 0.8;
/// No rate falls below this share of what was found for its direction alone. Our choice.
const LOWEST: f64 = 0.75;

/// The factors by which the rates that were found are multiplied, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RateScale {
    pub(crate) down: f64,
    pub(crate) up: f64,
}

/// The directions whose rates are reduced.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reduced {
    Download,
    Upload,
    Both,
}

/// The state of the backoff: the scale that is being tried, and the good and bad ones so far.
#[derive(Clone, Debug)]
pub(crate) struct JointBackoff {
    reduced: Reduced,
    /// True if the upload is loaded, so that it can be reduced as well.
    has_upload: bool,
    /// The share of the line's rate that the download leaves free at the start; `None` unless it starts lower than it was found.
    headroom: Option<f64>,
    share: f64,
    /// The highest share that met the target, and the good one before it.
    good: Option<f64>,
    good_before: Option<f64>,
    bad: Option<Bad>,
}

/// A share that missed the target.
#[derive(Clone, Copy, Debug)]
struct Bad {
    share: f64,
    /// Added latency / allowed latency.
    excess: f64,
}

/// The share of the line's rate that a download leaves free at the start beside an upload. A full-size packet takes `down_ms` and `up_ms`
/// on the line; load may add `limit_ms`.
///
/// On a symmetric line it is `down / room · down / CALM_MS`, where `room` is what one packet each way leaves of the limit. Where the upload
/// has at most half the download's rate it is the geometric mean of that and [`ASYMMETRIC_HEADROOM`], if that is more; in between, it is
/// interpolated.
pub(crate) fn initial_headroom(down_ms: f64, up_ms: f64, limit_ms: f64) -> f64 {
    let room_ms = limit_ms - down_ms - up_ms;
    let needed = down_ms / room_ms * down_ms / CALM_MS;
    let more = ((needed * ASYMMETRIC_HEADROOM).sqrt() - needed).max(0.0);
    let asymmetry = (2.0 - 2.0 * down_ms / up_ms).clamp(0.0, 1.0);
    (needed + more * asymmetry).min(LARGEST_HEADROOM)
}

impl JointBackoff {
    /// The backoff of the directions that are loaded, at the rates that were found.
    pub(crate) fn new(has_download: bool, has_upload: bool) -> Self {
        Self {
            reduced: if has_download {
                Reduced::Download
            } else {
                Reduced::Upload
            },
            has_upload,
            headroom: None,
            share: 1.0,
            good: None,
            good_before: None,
            bad: None,
        }
    }

    /// Starts the download where it leaves `initial` of the line's rate free, if that is more than `found`, the headroom of the rate that
    /// was found. That rate then counts as bad; the backoff goes halfway back to it if part of the target is unused.
    pub(crate) fn starting_lower(mut self, found: f64, initial: f64) -> Self {
        if initial > found {
            self.share = (1.0 - initial) / (1.0 - found);
            self.headroom = Some(initial);
        }
        self
    }

    /// The scale to measure now.
    pub(crate) fn scale(&self) -> RateScale {
        let factor = |is_reduced| if is_reduced { self.share } else { 1.0 };
        RateScale {
            down: factor(self.reduced != Reduced::Upload),
            up: factor(self.reduced != Reduced::Download),
        }
    }

    /// Records the result of measuring at the current scale: `excess` is added latency / allowed latency, `tries` the number of
    /// measurements that there is still time for. Returns true if another scale should be measured; otherwise the current one is final,
    /// even if it exceeds the limit.
    pub(crate) fn update(&mut self, excess: f64, tries: u32) -> bool {
        let next = if excess <= 1.0 {
            self.higher(excess, tries)
        } else {
            self.lower(excess, tries)
        };
        self.share = next.unwrap_or(self.share);
        next.is_some()
    }

    /// True if the current scale is higher than the last one that met the target.
    pub(crate) fn is_above_last_good(&self) -> bool {
        self.good.is_some_and(|good| good < self.share)
    }

    fn higher(&mut self, excess: f64, tries: u32) -> Option<f64> {
        if self.good != Some(self.share) {
            self.good_before = self.good.replace(self.share);
        }
        let (bad, wide) = match (self.bad, self.headroom) {
            (Some(bad), _) => (bad.share, WIDE),
            (None, Some(_)) => (1.0, WIDE_UNTRIED),
            (None, None) => return None,
        };
        let is_worth = bad / self.share > wide && excess < SPARE && tries > 0;
        is_worth.then(|| (self.share * bad).sqrt())
    }

    fn lower(&mut self, excess: f64, tries: u32) -> Option<f64> {
        let share = self.share;
        let before = self.bad.replace(Bad { share, excess });
        if self.good == Some(share) {
            // This share had met the target before the measurement was made longer.
            self.good = self.good_before.take();
        }
        let good = self.good.filter(|good| *good < share);
        let lower = good.unwrap_or_else(|| share * (1.0 - self.step(excess, before, tries)));
        if tries == 0 || lower < LOWEST {
            return None;
        }
        let has_helped = before.is_none_or(|before| excess <= before.excess * HELPS);
        let doubtful = self.headroom.map_or(CLOSE_CALL, |_| UNSTEADY);
        if good.is_none() && !has_helped && excess > doubtful && self.has_upload {
            self.reduced = Reduced::Both;
        }
        Some(lower)
    }

    fn step(&self, excess: f64, before: Option<Bad>, tries: u32) -> f64 {
        let (_, step) = STEPS[STEPS.partition_point(|(most, _)| *most < excess)];
        if let Some(headroom) = self.headroom {
            let wider = headroom * (excess.powf(DRAIN_EXPONENT) - 1.0);
            return step.max(wider.min(LARGEST_STEP));
        }
        last_step(step, excess, before, tries)
    }
}

/// The step; twice as large if it is the last that there is time for ([`LAST_STEP`]).
fn last_step(step: f64, excess: f64, before: Option<Bad>, tries: u32) -> f64 {
    if tries == 1 && (excess > CLOSE_CALL || before.is_some()) {
        (step * 2.0).min(LAST_STEP).max(step)
    } else {
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The final scale and the number of measurements, if the added latency is `excess(scale)` times the limit.
    fn settle_both(excess: impl Fn(RateScale) -> f64, tries: u32) -> (RateScale, u32) {
        let mut backoff = JointBackoff::new(true, true);
        for left in (0..=tries).rev() {
            if !backoff.update(excess(backoff.scale()), left) {
                return (backoff.scale(), tries - left + 1);
            }
        }
        panic!("it never settles");
    }

    /// Like [`settle_both`], where the excess depends on the download alone.
    fn settle(excess: impl Fn(f64) -> f64, tries: u32) -> (f64, u32) {
        let (shares, tries) = settle_both(|shares| excess(shares.down), tries);
        (shares.down, tries)
    }

    /// An excess that falls with the share and meets the target up to `limit`.
    fn slope(limit: f64) -> impl Fn(f64) -> f64 {
        move |share| {
            if share <= limit {
                0.9
            } else {
                1.05 + (share - limit) * 5.0
            }
        }
    }

    #[test]
    fn rates_fall_until_the_target_is_met() {
        assert_eq!(settle(slope(1.0), 5), (1.0, 1));
        for percent in 85..100 {
            let limit = f64::from(percent) / 100.0;
            let (shares, _) = settle_both(|shares| slope(limit)(shares.down), 15);
            assert!(
                shares.down <= limit && shares.down >= limit * 0.96,
                "{percent}: {shares:?}"
            );
            assert_eq!(shares.up, 1.0, "{percent}: the upload is not reduced");
        }
    }

    #[test]
    fn the_download_starts_lower_where_packets_take_long_both_ways() {
        // A packet of 1522 bytes each way at 10 and 3 Mbit/s; 3 and 1; 15 and 1; and cells at 2.5 and 0.5.
        for (down_ms, up_ms, limit_ms, expected) in [
            (1.22, 1.22, 5.2, 0.033),
            (4.06, 4.06, 16.9, 0.114),
            (4.06, 5.41, 19.9, 0.103),
            (4.06, 8.12, 26.2, 0.094),
            (4.06, 12.2, 35.7, 0.080),
            (0.81, 12.2, 35.7, 0.015),
            (5.6, 28.0, 78.7, 0.073),
            (12.2, 12.2, 50.0, 0.2),
        ] {
            let headroom = initial_headroom(down_ms, up_ms, limit_ms);
            assert!((headroom - expected).abs() < 1e-3, "{down_ms}: {headroom}");
        }
        let slow = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!((slow.scale().down * 0.985 - 0.9).abs() < 1e-9 && slow.scale().up == 1.0);
        let fast = JointBackoff::new(true, true).starting_lower(0.015, 0.002);
        assert_eq!(fast.scale(), RateScale { down: 1.0, up: 1.0 });
    }

    #[test]
    fn a_start_that_was_too_low_is_corrected() {
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        let first = backoff.scale().down;
        assert!(backoff.update(0.6, 4) && backoff.scale().down > first * 1.04);
        assert!(backoff.update(0.65, 3) && backoff.scale().down < 1.0);
        assert!(!backoff.update(0.85, 2), "too little of the target is unused");
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(!backoff.update(0.9, 3), "too little of the target is unused");
    }

    #[test]
    fn the_backoff_knows_when_it_ends_above_the_last_good_rate() {
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(backoff.update(0.6, 1), "one measurement is enough to go up again");
        assert!(!backoff.update(1.1, 0) && backoff.is_above_last_good());
        // Also if the first measurement of these rates met the target and a longer one did not.
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(backoff.update(0.6, 2) && !backoff.update(0.9, 1));
        assert!(!backoff.update(1.1, 0) && backoff.is_above_last_good());
        // Rates that met the target once and then missed it do not count as good.
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(!backoff.update(0.9, 1) && !backoff.update(1.1, 0) && !backoff.is_above_last_good());
        // With time left, the backoff returns to the good rates.
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        let first = backoff.scale();
        assert!(backoff.update(0.6, 3) && !backoff.update(0.9, 2));
        assert!(backoff.update(1.1, 1) && backoff.scale() == first);
        let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(backoff.update(0.6, 2) && !backoff.update(0.7, 0) && !backoff.is_above_last_good());
        assert!(!JointBackoff::new(true, true).is_above_last_good());
    }

    #[test]
    fn steps_grow_with_the_initial_headroom() {
        let step = |at_first: f64, excess: f64| {
            let mut backoff = JointBackoff::new(true, true).starting_lower(0.015, at_first);
            let first = backoff.scale().down;
            assert!(backoff.update(excess, 5));
            1.0 - backoff.scale().down / first
        };
        assert!((step(0.0, 1.1) - 0.015).abs() < 1e-9 && (step(0.1, 1.02) - 0.015).abs() < 1e-9);
        assert!((step(0.1, 1.2) - 0.0315).abs() < 1e-3 && (step(0.1, 1.9) - 0.08).abs() < 1e-9);
    }

    #[test]
    fn repeated_close_calls_do_not_lower_the_upload() {
        let (shares, _) = settle_both(|_| 1.1, 10);
        assert_eq!(shares.up, 1.0);
        // Where full-size packets take long, measurements differ by more.
        let mut slow = JointBackoff::new(true, true).starting_lower(0.015, 0.1);
        assert!(slow.update(1.1, 5) && slow.update(1.25, 4));
        assert_eq!(slow.scale().up, 1.0);
        assert!(slow.update(1.5, 3) && slow.scale().up < 1.0);
    }

    #[test]
    fn an_upload_that_is_too_high_is_lowered_as_well() {
        let (shares, tries) = settle_both(|shares| if shares.up <= 0.95 { 0.9 } else { 1.5 }, 10);
        assert!(
            shares.up <= 0.95 && shares.up >= 0.9 && shares.down == shares.up,
            "{shares:?}"
        );
        assert!(tries <= 4, "{tries}");
        // If the upload is the only direction, it falls at once.
        let mut upload = JointBackoff::new(false, true);
        assert!(upload.update(1.1, 5));
        assert_eq!(upload.scale(), RateScale { down: 1.0, up: 0.985 });
        // An upload that is not loaded keeps its rate.
        let mut download = JointBackoff::new(true, false);
        assert!(download.update(1.1, 5) && download.update(1.1, 5));
        assert_eq!(download.scale().up, 1.0);
    }

    #[test]
    fn a_large_step_is_halved_again_if_there_is_time() {
        let far = |share: f64| if share <= 0.98 { 0.7 } else { 3.0 };
        let (share, tries) = settle(far, 5);
        assert!((0.96..0.98).contains(&share) && tries == 3, "{share}, {tries}");
        assert_eq!(settle(far, 1), (0.94, 2));
        // The rate halfway back was too high: the good one is final.
        assert_eq!(settle(|share| if share <= 0.95 { 0.7 } else { 3.0 }, 5).0, 0.94);
        // Too little of the target is unused to go up again.
        assert_eq!(
            settle(|share| if share <= 0.98 { 0.9 } else { 3.0 }, 5),
            (0.94, 2)
        );
    }

    #[test]
    fn the_last_step_is_a_large_one_unless_it_is_a_close_call() {
        assert_eq!(settle(|_| 1.1, 1), (0.985, 2));
        assert_eq!(settle(|_| 1.25, 1), (0.96, 2));
        assert_eq!(settle(|_| 3.0, 1), (0.94, 2));
    }

    #[test]
    fn the_backoff_ends_if_no_rate_helps() {
        let (share, tries) = settle(|_| 1.2, 50);
        assert!((LOWEST..LOWEST + 0.02).contains(&share) && tries <= 16);
        assert_eq!(settle(|_| 1.2, 0), (1.0, 1));
    }
}
