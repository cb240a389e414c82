//! The verdict on a line: from the figures of a test to a grade. Pure.
//!
//! There is one grade. It is of the load that adds most to the round trip, and judges the median, the tail and lost probes
//! (`rule.rs`). Beside it stand the quality of outcome for each use of a line (`uses.rs`) and one sentence (`text.rs`). The letters of
//! other speed tests are details (`conventional.rs`). RPM is round trips per minute, as in draft-ietf-ippm-responsiveness, but
//! measured with our probes and TCP connections instead of HTTP requests.

mod conventional;
mod rule;
mod text;
mod uses;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sqm_core::direction::Direction;

use crate::result::{DirectionFigures, Finding, Severity, Summary, TestResult, direction_word};
use crate::{checks, stats};

use conventional::Conventional;
use rule::Rank;

pub use rule::{DecidedBy, letter};
pub use uses::{Outcome, Quality, Use, UseName};

/// Bounds of responsiveness in round trips per minute (draft-ietf-ippm-responsiveness-09).
pub const RPM: [(f64, &str); 3] = [(300.0, "poor"), (1000.0, "fair"), (6000.0, "good")];
/// The share of the slowest probes that the draft leaves out.
const TRIMMED: f64 = 0.05;

/// Largest number of findings that are printed: a file from another program may hold thousands. A choice.
const MAX_SHOWN: usize = 20;
/// A direction is named if it adds at least this many times what the other one adds. A choice.
const MOST_OF_IT: f64 = 2.0;

/// The verdict on a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// The grade. `None` if a finding makes the test invalid.
    pub grade: Option<Grade>,
}

/// The grade of a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// The grade, A+ to F.
    pub letter: String,
    /// The directions of the load that the grade is of: the worst load of the test.
    #[serde(with = "direction_word::list")]
    pub loaded: Vec<Direction>,
    /// The direction that adds most of the round trip, if one does and it is known.
    #[serde(with = "direction_word::optional")]
    pub mostly: Option<Direction>,
    /// Round trip that this load adds to the idle one, median.
    pub added_ms: f64,
    /// Round trip that this load adds at the 95th percentile.
    pub added_p95_ms: Option<f64>,
    /// Round trip that this load adds at the 99th percentile.
    pub added_p99_ms: Option<f64>,
    /// Share of the probes that were lost under this load, 0 to 1.
    pub lost: f64,
    /// The figure that decided the grade.
    pub decided_by: DecidedBy,
    /// One sentence on the effect that people notice.
    pub sentence: String,
    /// The verdict for each use of the line.
    pub uses: Vec<Use>,
    /// The letter that DSLReports would give.
    pub conventional: String,
    /// The figure of that letter: the latency that load adds, of medians: the mean of the directions, or both at once.
    pub conventional_ms: f64,
    /// The letter for `worst_ms` by LibreQoS's bounds.
    pub strict: String,
    /// Latency that load adds in the worse direction, of medians.
    pub worst_ms: f64,
    /// The measurements that the letters of others come from.
    pub basis: Basis,
    /// Round trips per minute of the probes.
    pub rpm_foreign: Option<f64>,
    /// Round trips per minute within the connections that load the line: the smoothed round trips of their senders.
    pub rpm_self: Option<f64>,
    /// The word for the mean of the two figures, or for the one that is known, by [`RPM`].
    pub rpm_word: Option<String>,
}

/// The grade of the loads of a test, with the figures that it is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadGrade {
    /// The grade, A+ to F.
    pub letter: String,
    /// The directions of the load that the grade is of: the worst load of the test.
    #[serde(with = "direction_word::list")]
    pub loaded: Vec<Direction>,
    /// The direction that adds most of the round trip, if one does and it is known.
    #[serde(with = "direction_word::optional")]
    pub mostly: Option<Direction>,
    /// Round trip that this load adds to the idle one, median.
    pub added_ms: f64,
    /// Round trip that this load adds at the 95th percentile.
    pub added_p95_ms: Option<f64>,
    /// Round trip that this load adds at the 99th percentile.
    pub added_p99_ms: Option<f64>,
    /// Share of the probes that were lost under this load, 0 to 1.
    pub lost: f64,
    /// The figure that decided the grade.
    pub decided_by: DecidedBy,
    /// One sentence on the effect that people notice.
    pub sentence: String,
    /// The verdict for each use of the line.
    pub uses: Vec<Use>,
}

impl LoadGrade {
    /// Text for people: the grade with its figures, and the sentence.
    pub fn to_text(&self) -> String {
        let figures = [Some(self.added_ms), self.added_p95_ms, self.added_p99_ms];
        text::headline(&self.letter, &self.loaded, figures) + "\n" + &format!("{:<37}{}\n", "", self.sentence)
    }

    /// Judges the loads of a test. `None` without round trips under load and on the idle line.
    pub fn of(summary: &Summary) -> Option<Self> {
        let loads = summary.added.iter();
        let ranked = loads.filter_map(|load| Some((Rank::of(load)?, load)));
        let (rank, load) = ranked.max_by(|(a, one), (b, other)| {
            let by_median = || one.median_ms.partial_cmp(&other.median_ms);
            a.place
                .cmp(&b.place)
                .then_with(|| by_median().unwrap_or(std::cmp::Ordering::Equal))
        })?;
        let uses = uses::uses(summary);
        let mostly = mostly(summary, &load.loaded);
        Some(Self {
            letter: rank.letter().to_owned(),
            loaded: load.loaded.clone(),
            mostly,
            added_ms: load.median_ms?.max(0.0),
            added_p95_ms: load.p95_ms.map(|ms| ms.max(0.0)),
            added_p99_ms: load.p99_ms.map(|ms| ms.max(0.0)),
            lost: stats::share(load.lost, load.sent),
            decided_by: rank.decided_by,
            sentence: text::sentence(&uses, &load.loaded, mostly),
            uses,
        })
    }
}

/// Where the added latency of the letters of others comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Each direction was loaded alone.
    EachDirection,
    /// Both directions were loaded at once, and one-way delays tell them apart.
    OneWay,
    /// Both directions were loaded at once, and cannot be told apart.
    BothAtOnce,
    /// Only one direction was loaded.
    OneDirection,
}

impl Verdict {
    /// Judges a test.
    pub fn of(result: &TestResult) -> Self {
        let findings = checks::findings(result);
        let is_valid = findings
            .iter()
            .all(|finding| finding.severity < Severity::Invalid);
        let grade = is_valid.then(|| Grade::of(result)).flatten();
        Self { findings, grade }
    }

    /// Text for people: the grade, or the reason that there is none, and then the other findings.
    pub fn to_text(&self) -> String {
        self.text(false)
    }

    /// [`Verdict::to_text`] with the rule of the grade and the letters of others.
    pub fn to_detailed_text(&self) -> String {
        self.text(true)
    }

    fn text(&self, is_detailed: bool) -> String {
        let mut text = String::new();
        // The most severe finding is the first.
        let reason = self.findings.first().filter(|_| self.grade.is_none());
        match (&self.grade, reason) {
            (Some(grade), _) => text.push_str(&grade.to_text()),
            (None, Some(reason)) => writeln!(text, "no grade: {}", reason.text).expect("a string grows"),
            (None, None) => text.push_str("no grade: the figures say nothing about the line\n"),
        }
        if let Some(grade) = self.grade.as_ref().filter(|_| is_detailed) {
            text.push_str(&grade.details());
        }
        for line in self.notes().skip(usize::from(reason.is_some())) {
            writeln!(text, "{line}").expect("a string grows");
        }
        text
    }

    /// A line for each of the most severe findings, and one with the number of the others.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let left_out = self.findings.len().saturating_sub(MAX_SHOWN);
        let more = (left_out > 0).then(|| format!("and {left_out} more findings"));
        self.findings
            .iter()
            .take(MAX_SHOWN)
            .map(Finding::to_text)
            .chain(more)
    }
}

impl Grade {
    fn of(result: &TestResult) -> Option<Self> {
        let load = LoadGrade::of(&result.summary)?;
        let others = Conventional::of(result)?;
        let (rpm_foreign, rpm_self) = (rpm(&probes(result)), rpm(&connections(result)));
        let rpms: Vec<f64> = [rpm_foreign, rpm_self].into_iter().flatten().collect();
        Some(Self {
            letter: load.letter,
            loaded: load.loaded,
            mostly: load.mostly,
            added_ms: load.added_ms,
            added_p95_ms: load.added_p95_ms,
            added_p99_ms: load.added_p99_ms,
            lost: load.lost,
            decided_by: load.decided_by,
            sentence: load.sentence,
            uses: load.uses,
            conventional: others.letter,
            conventional_ms: others.mean_ms,
            strict: others.strict,
            worst_ms: others.worst_ms,
            basis: others.basis,
            rpm_foreign,
            rpm_self,
            rpm_word: stats::mean(&rpms).map(|rpm| conventional::letter(rpm, &RPM, "excellent")),
        })
    }
}

/// The direction that adds most of the round trip under this load.
fn mostly(summary: &Summary, loaded: &[Direction]) -> Option<Direction> {
    if let [one] = loaded {
        return Some(*one);
    }
    let added = |figures: &Option<DirectionFigures>| figures.as_ref()?.added_median_ms;
    let (down, up) = (added(&summary.down)?.max(0.0), added(&summary.up)?.max(0.0));
    if down == up {
        return None;
    }
    if up >= MOST_OF_IT * down {
        Some(Direction::Upload)
    } else if down >= MOST_OF_IT * up {
        Some(Direction::Download)
    } else {
        None
    }
}

/// Round trips under load of all probes to the test's server.
fn probes(result: &TestResult) -> Vec<f64> {
    let series = result.probes.iter().filter(|series| series.peer.is_none());
    let samples = series.flat_map(|series| &series.samples);
    let windows: Vec<_> = result.steady().collect();
    samples
        .filter(|p| inside(&windows, p.t_ms))
        .filter_map(|p| p.rtt_ms)
        .collect()
}

/// Round trips under load of the connections that load the line.
fn connections(result: &TestResult) -> Vec<f64> {
    let windows: Vec<_> = result.steady().collect();
    let samples = result.flows.iter().flat_map(|flow| &flow.sender);
    samples
        .filter(|s| inside(&windows, s.t_ms))
        .filter_map(|s| s.rtt_ms)
        .collect()
}

fn inside(windows: &[(f64, f64)], t: f64) -> bool {
    windows.iter().any(|(from, to)| t >= *from && t < *to)
}

/// Round trips per minute: 60,000 ms divided by the trimmed mean.
fn rpm(rtts: &[f64]) -> Option<f64> {
    let mean = stats::mean_without_slowest(rtts, TRIMMED)?;
    (mean > 0.0).then(|| 60_000.0 / mean)
}
