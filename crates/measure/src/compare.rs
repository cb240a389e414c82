//! Compares tests, and says whether a difference is significant. Pure.
//!
//! Tests with the same name are repetitions. With at least [`REPETITIONS`] on each side, the tests are resampled many
//! times (bootstrap; Efron 1979), and the middle 95 % of the resulting differences are the confidence interval. The difference is
//! significant if the interval does not contain zero. A single test cannot show that, because the next one may differ.

use serde::Serialize;

use crate::plot::Run;
use crate::result::{Summary, TestResult};
use crate::stats;

/// Number of tests on each side that a confidence interval needs. A choice.
pub const REPETITIONS: usize = 3;
/// A difference is clear without repetitions if one mean is at least this many times the other, and they differ by this much: tests of one
/// line repeat within a smaller range. Choices.
const CLEAR_FACTOR: f64 = 2.0;
const CLEAR_MS: f64 = 20.0;
const CLEAR_MBIT: f64 = 1.0;
/// Number of resamplings. A choice.
const DRAWS: usize = 4000;

/// The difference of a figure between one group of tests and the first group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the first group.
    pub from: String,
    /// Name of the other.
    pub to: String,
    /// The figure that is compared.
    pub figure: &'static str,
    /// Unit of the difference.
    pub unit: &'static str,
    /// Mean of the other minus mean of the first.
    pub mean: f64,
    /// 95 % confidence interval. `None` with fewer than [`REPETITIONS`] tests on a side.
    pub interval: Option<(f64, f64)>,
    /// True if the difference is so large that single tests show it.
    pub clear: bool,
}

impl Difference {
    /// True if the difference is significant at the 5 % level.
    pub fn is_shown(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            from,
            to,
            figure,
            unit,
            mean,
            interval,
            clear,
        } = self;
        write!(f, "{figure}: '{to}' {mean:+.2} {unit} against '{from}'")?;
        match interval {
            None if *clear => Ok(()),
            None => write!(
                f,
                ", from too few tests to rule out chance ({REPETITIONS} of each name are needed)"
            ),
            Some((low, high)) if self.is_shown() => write!(f, " (95 % between {low:+.2} and {high:+.2})"),
            Some((low, high)) => write!(f, ", no difference shown (95 % between {low:+.2} and {high:+.2})"),
        }
    }
}

/// True if two means differ by more than repetitions of one test would.
fn is_clear(a: f64, b: f64, unit: &str) -> bool {
    let least = if unit == "ms" { CLEAR_MS } else { CLEAR_MBIT };
    let (low, high) = (a.min(b), a.max(b));
    high - low >= least && high >= CLEAR_FACTOR * low
}

type Figure = fn(&Summary) -> Option<f64>;

const FIGURES: [(&str, &str, Figure); 4] = [
    ("loaded latency, median", "ms", |s| s.latency_median_ms),
    ("loaded latency, 95 %", "ms", |s| s.latency_p95_ms),
    ("download", "Mbit/s", |s| s.download_mbit),
    ("upload", "Mbit/s", |s| s.upload_mbit),
];

/// Compares each group of tests with the group `base`, or without that with the first one. A group holds the tests of one name.
/// A difference is the other group's figure less that of the base.
pub fn differences(runs: &[Run<'_>], base: Option<&str>) -> Vec<Difference> {
    let mut groups = groups(runs);
    let at = groups.iter().position(|(name, _)| Some(*name) == base);
    if groups.is_empty() {
        return Vec::new();
    }
    let (first, base) = groups.remove(at.unwrap_or(0));
    let mut found = Vec::new();
    for (name, tests) in groups {
        for (figure, unit, value) in FIGURES {
            let values = |tests: &[&TestResult]| -> Vec<f64> {
                tests.iter().filter_map(|t| value(&t.summary)).collect()
            };
            let (a, b) = (values(&base), values(&tests));
            let (Some(mean_a), Some(mean_b)) = (stats::mean(&a), stats::mean(&b)) else {
                continue;
            };
            found.push(Difference {
                from: first.to_owned(),
                to: name.to_owned(),
                figure,
                unit,
                mean: mean_b - mean_a,
                interval: interval(&a, &b),
                clear: is_clear(mean_a, mean_b, unit),
            });
        }
    }
    found
}

/// Tests by name, in order of first appearance.
fn groups<'a>(runs: &[Run<'a>]) -> Vec<(&'a str, Vec<&'a TestResult>)> {
    let mut groups: Vec<(&str, Vec<&TestResult>)> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|(name, _)| *name == run.name) {
            Some((_, tests)) => tests.push(run.result),
            None => groups.push((run.name, vec![run.result])),
        }
    }
    groups
}

fn interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len().min(b.len()) < REPETITIONS {
        return None;
    }
    // A fixed seed: equal files give equal intervals.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut drawn_mean = |values: &[f64]| {
        let draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            values[(state % values.len() as u64) as usize]
        };
        std::iter::repeat_with(draw).take(values.len()).sum::<f64>() / values.len() as f64
    };
    let differences: Vec<f64> = (0..DRAWS).map(|_| drawn_mean(b) - drawn_mean(a)).collect();
    Some((
        stats::percentile(&differences, 2.5)?,
        stats::percentile(&differences, 97.5)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn repetitions_make_a_difference_significant_and_single_tests_do_not() {
        let tests: Vec<TestResult> = [300.0, 320.0, 310.0, 5.0, 7.0, 6.0]
            .map(|bloat| example("x", bloat, 20.0, 4.0))
            .into();
        let named = |names: &[&'static str]| -> Vec<Difference> {
            let runs: Vec<_> = names
                .iter()
                .zip(&tests)
                .map(|(name, result)| Run { name, result })
                .collect();
            differences(&runs, None)
        };
        let repeated = named(&["before", "before", "before", "after", "after", "after"]);
        assert!(
            repeated[0].is_shown() && repeated[0].mean < -250.0,
            "{:?}",
            repeated[0]
        );
        let (low, high) = repeated[0].interval.unwrap();
        assert!(low < repeated[0].mean && repeated[0].mean < high);
        // The rates do not differ.
        assert!(repeated[2..].iter().all(|d| !d.is_shown()), "{repeated:?}");
        let single = named(&["before", "after"]);
        assert!(single.iter().all(|d| !d.is_shown() && d.interval.is_none()));
        assert_eq!(named(&["before"]), []);
    }

    #[test]
    fn the_base_decides_the_sign_and_a_large_difference_needs_no_repetitions() {
        let (slow, fast) = (example("x", 400.0, 20.0, 4.0), example("x", 5.0, 19.0, 4.0));
        let runs = [("before", &slow), ("after", &fast)].map(|(name, result)| Run { name, result });
        let from_first = differences(&runs, None);
        let from_last = differences(&runs, Some("after"));
        assert!(from_first[0].mean < -300.0 && from_last[0].mean > 300.0);
        assert_eq!(
            (from_last[0].from.as_str(), from_last[0].to.as_str()),
            ("after", "before")
        );
        assert!(
            !from_first[0].to_string().contains("too few"),
            "{}",
            from_first[0]
        );
        // 19 and 20 Mbit/s may be chance.
        let rate = from_first
            .iter()
            .find(|difference| difference.figure == "download")
            .unwrap();
        assert!(
            rate.to_string().contains("too few tests to rule out chance"),
            "{rate}"
        );
    }
}
