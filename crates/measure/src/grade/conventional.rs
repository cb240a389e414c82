//! The letters that other speed tests give. Pure.
//!
//! DSLReports grades the latency that load adds to the median, as the mean of download and upload, and later tests have kept its letters.
//! In a mean, a good direction can hide a bad one; LibreQoS has stricter bounds. Both are shown beside our grade on request.

use crate::result::TestResult;
use crate::stats;

use super::Basis;

/// Added latency in milliseconds below which each letter is given. F from the last bound on
/// (DSLReports, FAQ 17930).
pub(super) const LETTERS: [(f64, &str); 5] =
    [(5.0, "A+"), (30.0, "A"), (60.0, "B"), (200.0, "C"), (400.0, "D")];
/// The stricter bounds (LibreQoS bufferbloat test, default configuration).
pub(super) const STRICT: [(f64, &str); 5] =
    [(5.0, "A+"), (25.0, "A"), (50.0, "B"), (75.0, "C"), (100.0, "D")];

/// The letters of others, and their figures.
pub(super) struct Conventional {
    pub(super) basis: Basis,
    pub(super) letter: String,
    pub(super) mean_ms: f64,
    pub(super) strict: String,
    pub(super) worst_ms: f64,
}

impl Conventional {
    pub(super) fn of(result: &TestResult) -> Option<Self> {
        let (basis, added) = added(result)?;
        let mean_ms = stats::mean(&added)?;
        let worst_ms = added.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self {
            basis,
            letter: letter(mean_ms, &LETTERS, "F"),
            mean_ms,
            strict: letter(worst_ms, &STRICT, "F"),
            worst_ms,
        })
    }
}

/// Added latency of each direction in milliseconds. Values below zero are noise and count as zero.
fn added(result: &TestResult) -> Option<(Basis, Vec<f64>)> {
    let summary = &result.summary;
    let directions: Vec<_> = [&summary.down, &summary.up].into_iter().flatten().collect();
    let apart: Option<Vec<f64>> = directions.iter().map(|d| d.added_median_ms).collect();
    let basis = match directions.as_slice() {
        [_] => Basis::OneDirection,
        [down, up] if down.one_way || up.one_way => Basis::OneWay,
        _ => Basis::EachDirection,
    };
    let (basis, added) = match apart {
        Some(added) if !added.is_empty() => (basis, added),
        _ => (
            Basis::BothAtOnce,
            vec![summary.latency_median_ms? - summary.idle_ms?],
        ),
    };
    Some((basis, added.into_iter().map(|ms| ms.max(0.0)).collect()))
}

pub(super) fn letter(value: f64, bounds: &[(f64, &str)], beyond: &str) -> String {
    let found = bounds.iter().find(|(bound, _)| value < *bound);
    found.map_or(beyond, |(_, letter)| letter).to_owned()
}

/// "A+ below 5 ms, A 30, B 60, C 200, D 400, else F".
pub(super) fn bounds(bounds: &[(f64, &str)], unit: &str, beyond: &str) -> String {
    let mut text = String::new();
    for (index, (bound, name)) in bounds.iter().enumerate() {
        let words = if index == 0 {
            format!("{name} below {bound} {unit}")
        } else {
            format!(", {name} {bound}")
        };
        text.push_str(&words);
    }
    text + ", else " + beyond
}
