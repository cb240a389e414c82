//! By how much rates that were found for each direction alone are lowered until both together hold the target. Pure.
//!
//! Both are lowered by the same share: round trips do not tell whose queue it is. A step that was large is halved again if there
//! is time.

/// A step down, as a share, where what load adds is no more than so many times the target.
const STEPS: [(f64, f64); 4] = [(1.15, 0.015), (1.3, 0.02), (2.0, 0.03), (f64::INFINITY, 0.05)];
/// The last step there is time for is twice as large, but not larger than this: better a little low than above the target.
const LAST_STEP: f64 = 0.04;
/// Good and bad farther apart than this are halved, if what is good has some of the target to spare.
const WIDE: f64 = 1.04;
const SPARE: f64 = 0.8;
/// No lower than this share of what was found.
const LOWEST: f64 = 0.75;

/// How far the rates have been lowered.
#[derive(Clone, Debug)]
pub(crate) struct Lowering {
    share: f64,
    good: Option<f64>,
    bad: Option<f64>,
}

impl Lowering {
    pub(crate) fn new() -> Self {
        Self {
            share: 1.0,
            good: None,
            bad: None,
        }
    }

    /// The share of the rates that is to be tried after this one gave `excess`, which is what the load adds as a multiple of
    /// what it may. There is time for `tries` more. None: this share it is, whatever it gave.
    pub(crate) fn judge(&mut self, excess: f64, tries: u32) -> Option<f64> {
        let share = self.share;
        let next = if excess <= 1.0 {
            self.good = Some(share);
            let is_worth = |bad: &f64| bad / share > WIDE && excess < SPARE && tries >= 2;
            let bad = self.bad.filter(is_worth);
            (share * bad?).sqrt()
        } else {
            self.bad = Some(share);
            let (_, step) = STEPS[STEPS.partition_point(|(most, _)| *most < excess)];
            let step = if tries == 1 {
                (step * 2.0).min(LAST_STEP).max(step)
            } else {
                step
            };
            let lower = self
                .good
                .filter(|good| *good < share)
                .unwrap_or(share * (1.0 - step));
            if tries == 0 || lower < LOWEST {
                return None;
            }
            lower
        };
        self.share = next;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share that is settled for, and after how many tries, if the load adds `excess` of it.
    fn settle(excess: impl Fn(f64) -> f64, tries: u32) -> (f64, u32) {
        let (mut lowering, mut share) = (Lowering::new(), 1.0);
        for left in (0..=tries).rev() {
            match lowering.judge(excess(share), left) {
                Some(next) => share = next,
                None => return (share, tries - left + 1),
            }
        }
        panic!("it never settles");
    }

    #[test]
    fn rates_fall_until_the_target_holds() {
        let step_at = |limit: f64| move |share: f64| if share <= limit { 0.9 } else { 1.2 };
        assert_eq!(settle(step_at(1.0), 5), (1.0, 1));
        for percent in 85..100 {
            let limit = f64::from(percent) / 100.0;
            let (share, _) = settle(step_at(limit), 10);
            assert!(share <= limit && share >= limit * 0.98, "{percent}: {share}");
        }
    }

    #[test]
    fn a_large_step_is_halved_again_if_there_is_time() {
        let far = |share: f64| if share <= 0.98 { 0.7 } else { 3.0 };
        let (share, tries) = settle(far, 5);
        assert!((0.97..0.98).contains(&share) && tries == 3, "{share}, {tries}");
        assert_eq!(settle(far, 1), (0.95, 2));
        // What is halved was too much: back to what was good.
        assert_eq!(settle(|share| if share <= 0.96 { 0.7 } else { 3.0 }, 5).0, 0.95);
        // It has nothing to spare.
        assert_eq!(
            settle(|share| if share <= 0.98 { 0.9 } else { 3.0 }, 5),
            (0.95, 2)
        );
    }

    #[test]
    fn the_last_step_is_a_large_one() {
        let slowly = |share: f64| 1.0 + (share - 0.94) * 3.0;
        assert!((0.94 * 0.96..=0.94).contains(&settle(slowly, 3).0));
        assert_eq!(settle(|_| 1.1, 1), (0.97, 2));
        assert_eq!(settle(|_| 1.25, 1), (0.96, 2));
    }

    #[test]
    fn where_no_rate_helps_it_ends() {
        let (share, tries) = settle(|_| 1.2, 50);
        assert!((LOWEST..LOWEST + 0.02).contains(&share) && tries <= 16);
        assert_eq!(settle(|_| 1.2, 0), (1.0, 1));
    }
}
