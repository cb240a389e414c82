//! By how much rates that were found for each direction alone are lowered until both together hold the target. Pure.
//!
//! The download's first: it is shaped after it has passed the line, where every burst stands until what the shaper leaves over has
//! drained it; an upload is shaped before. Where that does not help, the upload is lowered by as much, as round trips do not tell
//! whose queue it is. A step that was large is halved again if there is time.

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
/// A step has helped if load adds no more than this share of what it added before.
const HELPS: f64 = 0.97;
/// Good and bad farther apart than this are halved, if what is good has some of the target to spare.
const WIDE: f64 = 1.04;
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
    share: f64,
    good: Option<f64>,
    bad: Option<Bad>,
}

/// A share at which load adds too much: so many times what it may.
#[derive(Clone, Copy, Debug)]
struct Bad {
    share: f64,
    excess: f64,
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
            share: 1.0,
            good: None,
            bad: None,
        }
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

    fn higher(&mut self, excess: f64, tries: u32) -> Option<f64> {
        self.good = Some(self.share);
        let bad = self.bad?.share;
        let is_worth = bad / self.share > WIDE && excess < SPARE && tries >= 2;
        is_worth.then(|| (self.share * bad).sqrt())
    }

    fn lower(&mut self, excess: f64, tries: u32) -> Option<f64> {
        let share = self.share;
        let before = self.bad.replace(Bad { share, excess });
        let good = self.good.filter(|good| *good < share);
        let lower = good.unwrap_or_else(|| share * (1.0 - step(excess, before, tries)));
        if tries == 0 || lower < LOWEST {
            return None;
        }
        let has_helped = before.is_none_or(|before| excess <= before.excess * HELPS);
        if good.is_none() && !has_helped && self.has_upload {
            self.lowered = Lowered::Both;
        }
        Some(lower)
    }
}

fn step(excess: f64, before: Option<Bad>, tries: u32) -> f64 {
    let (_, step) = STEPS[STEPS.partition_point(|(most, _)| *most < excess)];
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
