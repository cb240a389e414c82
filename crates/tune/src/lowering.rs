//! By how much rates that were found for each direction alone are lowered until both together hold the target. Pure.
//!
//! The download's first: it is shaped after it has passed the line, where every burst stands until what the shaper leaves over has
//! drained it; an upload is shaped before. Where that does not help, the upload is lowered by as much, as round trips do not tell
//! whose queue it is. A step that was large is halved again if there is time.
//!
//! Where full packets take long both ways, what is found for each direction alone is far too much for both: there the download
//! begins lower.

/// A step down, as a share, where what load adds is no more than so many times the target.
const STEPS: [(f64, f64); 4] = [
    (CLOSE_CALL, 0.015),
    (1.3, 0.02),
    (2.0, 0.035),
    (f64::INFINITY, 0.06),
];
/// So near to the target a longer look may tell otherwise.
pub(crate) const CLOSE_CALL: f64 = 1.15;
/// The last step there is time for is twice as large, but not larger than this, where it is no close call or not the first: better a
/// little low than above the target.
const LAST_STEP: f64 = 0.04;
/// What stands in front of the line drains with what the download leaves over, and is taken to be as many times shorter as that is
/// wider to this power: on slow lines, where much must be left over, steps are larger, but no larger than this. A higher power makes
/// too much of a look that was bad by chance.
const DRAINS: f64 = 1.5;
const LARGEST_STEP: f64 = 0.08;
/// A download beside an upload begins with so much left over as its packets take of the room for them, a packet each way aside,
/// times what one of them takes of this many milliseconds: that is what symmetric lines of 2 to 10 Mbit/s need in the lab, at 40 ms.
/// Beside an upload of half its rate or less it begins with the geometric mean of that and [`CALM`], if that is more, and between
/// these in between: how flows of two or three packets meet is not to be had from figures, such lines need up to twice as much, and a
/// little less than can be had is better than a target that does not hold. But it begins with no more than so large a share.
const CALM_MS: f64 = 16.5;
const CALM: f64 = 0.125;
const MOST_AT_FIRST: f64 = 0.2;
/// A step has helped if load adds no more than this share of what it added before.
const HELPS: f64 = 0.97;
/// Looks at the same rates differ by as much as a close call, and by this where full packets take long.
const UNSTEADY: f64 = 1.3;
/// Good and bad farther apart than this are halved, if what is good adds less than so much of what it may. Where bad was never tried,
/// but is what was found, closer ones are, too.
const WIDE: f64 = 1.04;
const WIDE_UNTRIED: f64 = 1.02;
const SPARE: f64 = 0.8;
/// No lower than this share of what was found.
const LOWEST: f64 = 0.75;

/// Shares of the rates that were found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shares {
    pub(crate) down: f64,
    pub(crate) up: f64,
}

/// Which rates are lowered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lowered {
    Download,
    Upload,
    Both,
}

/// How far the rates have been lowered.
#[derive(Clone, Debug)]
pub(crate) struct Lowering {
    lowered: Lowered,
    /// Whether the upload can be lowered, too.
    has_upload: bool,
    /// What the download leaves over of the line to begin with, where it begins lower than was found.
    left_over: Option<f64>,
    share: f64,
    /// The highest that held, and the one before it.
    good: Option<f64>,
    good_before: Option<f64>,
    bad: Option<Bad>,
}

/// A share at which load adds too much: so many times what it may.
#[derive(Clone, Copy, Debug)]
struct Bad {
    share: f64,
    excess: f64,
}

/// The share of a line that a download leaves over to begin with, where a full packet takes so long each way and load may add
/// `limit_ms`.
pub(crate) fn left_over_at_first(down_ms: f64, up_ms: f64, limit_ms: f64) -> f64 {
    let room_ms = limit_ms - down_ms - up_ms;
    let needed = down_ms / room_ms * down_ms / CALM_MS;
    let more = ((needed * CALM).sqrt() - needed).max(0.0);
    let slower = (2.0 - 2.0 * down_ms / up_ms).clamp(0.0, 1.0);
    (needed + more * slower).min(MOST_AT_FIRST)
}

impl Lowering {
    /// Of the directions that are loaded.
    pub(crate) fn new(has_download: bool, has_upload: bool) -> Self {
        Self {
            lowered: if has_download {
                Lowered::Download
            } else {
                Lowered::Upload
            },
            has_upload,
            left_over: None,
            share: 1.0,
            good: None,
            good_before: None,
            bad: None,
        }
    }

    /// The download that was found leaves `left_over` of the line, and begins where it leaves `at_first`, if that is more. What was
    /// found counts as too much then, and is come back to halfway if there is some of the target to spare.
    pub(crate) fn beginning(mut self, left_over: f64, at_first: f64) -> Self {
        if at_first > left_over {
            self.share = (1.0 - at_first) / (1.0 - left_over);
            self.left_over = Some(at_first);
        }
        self
    }

    /// What is being tried.
    pub(crate) fn shares(&self) -> Shares {
        let of = |is_lowered| if is_lowered { self.share } else { 1.0 };
        Shares {
            down: of(self.lowered != Lowered::Upload),
            up: of(self.lowered != Lowered::Download),
        }
    }

    /// Takes what these shares gave: `excess` is what the load adds as a multiple of what it may. There is time for `tries` more.
    /// Whether other shares are to be tried; if not, it is these, whatever they gave.
    pub(crate) fn judge(&mut self, excess: f64, tries: u32) -> bool {
        let next = if excess <= 1.0 {
            self.higher(excess, tries)
        } else {
            self.lower(excess, tries)
        };
        self.share = next.unwrap_or(self.share);
        next.is_some()
    }

    /// Whether what is being tried is more than what was within the target last.
    pub(crate) fn is_above_what_held(&self) -> bool {
        self.good.is_some_and(|good| good < self.share)
    }

    fn higher(&mut self, excess: f64, tries: u32) -> Option<f64> {
        if self.good != Some(self.share) {
            self.good_before = self.good.replace(self.share);
        }
        let (bad, wide) = match (self.bad, self.left_over) {
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
            // A longer look does not hold.
            self.good = self.good_before.take();
        }
        let good = self.good.filter(|good| *good < share);
        let lower = good.unwrap_or_else(|| share * (1.0 - self.step(excess, before, tries)));
        if tries == 0 || lower < LOWEST {
            return None;
        }
        let has_helped = before.is_none_or(|before| excess <= before.excess * HELPS);
        let doubtful = self.left_over.map_or(CLOSE_CALL, |_| UNSTEADY);
        if good.is_none() && !has_helped && excess > doubtful && self.has_upload {
            self.lowered = Lowered::Both;
        }
        Some(lower)
    }

    fn step(&self, excess: f64, before: Option<Bad>, tries: u32) -> f64 {
        let (_, step) = STEPS[STEPS.partition_point(|(most, _)| *most < excess)];
        if let Some(left_over) = self.left_over {
            let wider = left_over * (excess.powf(DRAINS) - 1.0);
            return step.max(wider.min(LARGEST_STEP));
        }
        last_step(step, excess, before, tries)
    }
}

/// The step, or if it is the last a larger one.
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

    /// The shares that are settled for, and after how many tries, if the load adds `excess` of them.
    fn settle_both(excess: impl Fn(Shares) -> f64, tries: u32) -> (Shares, u32) {
        let mut lowering = Lowering::new(true, true);
        for left in (0..=tries).rev() {
            if !lowering.judge(excess(lowering.shares()), left) {
                return (lowering.shares(), tries - left + 1);
            }
        }
        panic!("it never settles");
    }

    /// The same where the download is what counts.
    fn settle(excess: impl Fn(f64) -> f64, tries: u32) -> (f64, u32) {
        let (shares, tries) = settle_both(|shares| excess(shares.down), tries);
        (shares.down, tries)
    }

    /// Falls with the share until it holds below `limit`.
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
    fn rates_fall_until_the_target_holds() {
        assert_eq!(settle(slope(1.0), 5), (1.0, 1));
        for percent in 85..100 {
            let limit = f64::from(percent) / 100.0;
            let (shares, _) = settle_both(|shares| slope(limit)(shares.down), 15);
            assert!(
                shares.down <= limit && shares.down >= limit * 0.96,
                "{percent}: {shares:?}"
            );
            assert_eq!(shares.up, 1.0, "{percent}: what was of no concern is left alone");
        }
    }

    #[test]
    fn where_packets_take_long_both_ways_the_download_begins_lower() {
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
            let left_over = left_over_at_first(down_ms, up_ms, limit_ms);
            assert!((left_over - expected).abs() < 1e-3, "{down_ms}: {left_over}");
        }
        let slow = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!((slow.shares().down * 0.985 - 0.9).abs() < 1e-9 && slow.shares().up == 1.0);
        let fast = Lowering::new(true, true).beginning(0.015, 0.002);
        assert_eq!(fast.shares(), Shares { down: 1.0, up: 1.0 });
    }

    #[test]
    fn a_beginning_that_was_too_low_is_left_again() {
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        let first = lowering.shares().down;
        assert!(lowering.judge(0.6, 4) && lowering.shares().down > first * 1.04);
        assert!(lowering.judge(0.65, 3) && lowering.shares().down < 1.0);
        assert!(!lowering.judge(0.85, 2), "nothing to spare by now");
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(!lowering.judge(0.9, 3), "nothing to spare");
    }

    #[test]
    fn where_time_is_up_above_what_held_it_is_known() {
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(lowering.judge(0.6, 1), "one try is enough to come back");
        assert!(!lowering.judge(1.1, 0) && lowering.is_above_what_held());
        // Also if a first look at these held, and a longer one does not.
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(lowering.judge(0.6, 2) && !lowering.judge(0.9, 1));
        assert!(!lowering.judge(1.1, 0) && lowering.is_above_what_held());
        // But what held once and then did not has not held.
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(!lowering.judge(0.9, 1) && !lowering.judge(1.1, 0) && !lowering.is_above_what_held());
        // With time it is come back to.
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        let first = lowering.shares();
        assert!(lowering.judge(0.6, 3) && !lowering.judge(0.9, 2));
        assert!(lowering.judge(1.1, 1) && lowering.shares() == first);
        let mut lowering = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(lowering.judge(0.6, 2) && !lowering.judge(0.7, 0) && !lowering.is_above_what_held());
        assert!(!Lowering::new(true, true).is_above_what_held());
    }

    #[test]
    fn the_more_is_left_over_the_larger_are_the_steps() {
        let step = |at_first: f64, excess: f64| {
            let mut lowering = Lowering::new(true, true).beginning(0.015, at_first);
            let first = lowering.shares().down;
            assert!(lowering.judge(excess, 5));
            1.0 - lowering.shares().down / first
        };
        assert!((step(0.0, 1.1) - 0.015).abs() < 1e-9 && (step(0.1, 1.02) - 0.015).abs() < 1e-9);
        assert!((step(0.1, 1.2) - 0.0315).abs() < 1e-3 && (step(0.1, 1.9) - 0.08).abs() < 1e-9);
    }

    #[test]
    fn a_close_call_that_stays_one_is_no_reason_to_lower_the_upload() {
        let (shares, _) = settle_both(|_| 1.1, 10);
        assert_eq!(shares.up, 1.0);
        // Where full packets take long, looks differ by more.
        let mut slow = Lowering::new(true, true).beginning(0.015, 0.1);
        assert!(slow.judge(1.1, 5) && slow.judge(1.25, 4));
        assert_eq!(slow.shares().up, 1.0);
        assert!(slow.judge(1.5, 3) && slow.shares().up < 1.0);
    }

    #[test]
    fn an_upload_that_is_too_high_is_lowered_as_well() {
        let (shares, tries) = settle_both(|shares| if shares.up <= 0.95 { 0.9 } else { 1.5 }, 10);
        assert!(
            shares.up <= 0.95 && shares.up >= 0.9 && shares.down == shares.up,
            "{shares:?}"
        );
        assert!(tries <= 4, "{tries}");
        // Where it is the only one, at once.
        let mut upload = Lowering::new(false, true);
        assert!(upload.judge(1.1, 5));
        assert_eq!(upload.shares(), Shares { down: 1.0, up: 0.985 });
        // Not one that is not loaded.
        let mut download = Lowering::new(true, false);
        assert!(download.judge(1.1, 5) && download.judge(1.1, 5));
        assert_eq!(download.shares().up, 1.0);
    }

    #[test]
    fn a_large_step_is_halved_again_if_there_is_time() {
        let far = |share: f64| if share <= 0.98 { 0.7 } else { 3.0 };
        let (share, tries) = settle(far, 5);
        assert!((0.96..0.98).contains(&share) && tries == 3, "{share}, {tries}");
        assert_eq!(settle(far, 1), (0.94, 2));
        // What is halved was too much: back to what was good.
        assert_eq!(settle(|share| if share <= 0.95 { 0.7 } else { 3.0 }, 5).0, 0.94);
        // It has nothing to spare.
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
    fn where_no_rate_helps_it_ends() {
        let (share, tries) = settle(|_| 1.2, 50);
        assert!((LOWEST..LOWEST + 0.02).contains(&share) && tries <= 16);
        assert_eq!(settle(|_| 1.2, 0), (1.0, 1));
    }
}
