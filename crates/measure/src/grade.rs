//! The verdict on a line: from the figures of a test to a grade. Pure.
//!
//! The letters are those of the DSLReports test, which later speed tests have kept. They grade the latency that load adds, as the mean
//! of download and upload. In a mean, a good direction can hide a bad one. A second letter therefore grades the worse direction by
//! stricter bounds. RPM is round trips per minute, as in draft-ietf-ippm-responsiveness, but measured with our probes and TCP
//! connections instead of HTTP requests.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::result::{Finding, Severity, TestResult};
use crate::{checks, stats};

/// Added latency in milliseconds below which each letter is given. F from the last bound on
/// (DSLReports, "How is bufferbloat graded", FAQ 17930).
pub const LETTERS: [(f64, &str); 5] = [(5.0, "A+"), (30.0, "A"), (60.0, "B"), (200.0, "C"), (400.0, "D")];
/// The stricter bounds (LibreQoS bufferbloat test, default configuration).
pub const STRICT: [(f64, &str); 5] = [(5.0, "A+"), (25.0, "A"), (50.0, "B"), (75.0, "C"), (100.0, "D")];
/// Bounds of responsiveness in round trips per minute (draft-ietf-ippm-responsiveness-09).
pub const RPM: [(f64, &str); 3] = [(300.0, "poor"), (1000.0, "fair"), (6000.0, "good")];
/// The share of the slowest probes that the draft leaves out.
const TRIMMED: f64 = 0.05;

/// Largest number of findings that are printed: a file from another program may hold thousands. A choice.
const MAX_SHOWN: usize = 20;

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
    /// The letter for `added_ms` by [`LETTERS`].
    pub letter: String,
    /// Latency that load adds, of medians: the mean of the directions, or both at once.
    pub added_ms: f64,
    /// The letter for `worst_ms` by [`STRICT`].
    pub strict: String,
    /// Latency that load adds in the worse direction.
    pub worst_ms: f64,
    /// The measurements that the two figures come from.
    pub basis: Basis,
    /// Round trips per minute of the probes.
    pub rpm_foreign: Option<f64>,
    /// Round trips per minute within the connections that load the line: the smoothed round trips of their senders.
    pub rpm_self: Option<f64>,
    /// The word for the mean of the two figures, or for the one that is known, by [`RPM`].
    pub rpm_word: Option<String>,
}

/// Where added latency comes from.
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
        let valid = findings
            .iter()
            .all(|finding| finding.severity < Severity::Invalid);
        Self {
            findings,
            grade: valid.then(|| Grade::of(result)).flatten(),
        }
    }

    /// Text for people: the grade with its bounds, or that there is none, and then the findings.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        match &self.grade {
            Some(grade) => text.push_str(&grade.to_text()),
            None => text.push_str("no grade: the figures say nothing about the line\n"),
        }
        for line in self.notes() {
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
        let (basis, added) = added(result)?;
        let added_ms = stats::mean(&added)?;
        let worst_ms = added.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (rpm_foreign, rpm_self) = (rpm(&probes(result)), rpm(&connections(result)));
        let rpms: Vec<f64> = [rpm_foreign, rpm_self].into_iter().flatten().collect();
        Some(Self {
            letter: letter(added_ms, &LETTERS, "F"),
            added_ms,
            strict: letter(worst_ms, &STRICT, "F"),
            worst_ms,
            basis,
            rpm_foreign,
            rpm_self,
            rpm_word: stats::mean(&rpms).map(|rpm| letter(rpm, &RPM, "excellent")),
        })
    }

    fn to_text(&self) -> String {
        let basis = match self.basis {
            Basis::EachDirection => "medians, mean of download and upload",
            Basis::OneWay => "one-way medians, mean of download and upload",
            Basis::BothAtOnce => "median, download and upload at once",
            Basis::OneDirection => "median, the one direction that was loaded",
        };
        let mut text = format!(
            "grade             {:>10} {:<8}load adds {:.1} ms ({basis}); {}\n",
            self.letter,
            "",
            self.added_ms,
            bounds(&LETTERS, "ms", "F")
        );
        let strict = format!(
            "  strict          {:>10} {:<8}worst direction {:.1} ms; {}\n",
            self.strict,
            "",
            self.worst_ms,
            bounds(&STRICT, "ms", "F")
        );
        text.push_str(&strict);
        for (name, rpm) in [("probes", self.rpm_foreign), ("load's own TCP", self.rpm_self)] {
            if let Some(rpm) = rpm {
                let row = format!(
                    "  RPM             {rpm:>10.0} {:<8}round trips per minute, {name}\n",
                    ""
                );
                text.push_str(&row);
            }
        }
        if let Some(word) = &self.rpm_word {
            let row = format!(
                "  responsiveness  {word:>10} {:<8}{}\n",
                "",
                bounds(&RPM, "RPM", "excellent")
            );
            text.push_str(&row);
        }
        text
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

fn letter(value: f64, bounds: &[(f64, &str)], beyond: &str) -> String {
    let found = bounds.iter().find(|(bound, _)| value < *bound);
    found.map_or(beyond, |(_, letter)| letter).to_owned()
}

/// "A+ below 5 ms, A 30, B 60, C 200, D 400, else F".
fn bounds(bounds: &[(f64, &str)], unit: &str, beyond: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{example, with_probes_every};
    use crate::result::{DirectionFigures, TcpSample};
    use sqm_core::direction::Direction;

    fn direction(added: f64) -> Option<DirectionFigures> {
        Some(DirectionFigures {
            mbit: 1.0,
            added_median_ms: Some(added),
            added_p95_ms: None,
            one_way: false,
        })
    }

    #[test]
    fn the_letter_grades_the_mean_and_the_strict_letter_the_worse_direction() {
        let mut result = with_probes_every(20.0, 0.0);
        for (down, up, letter, strict) in [
            (0.0, 4.0, "A+", "A+"),
            (0.0, 58.0, "A", "C"),
            (29.0, 31.0, "B", "B"),
            (70.0, 70.0, "C", "C"),
            (100.0, 500.0, "D", "F"),
            (400.0, 400.0, "F", "F"),
            (-3.0, -1.0, "A+", "A+"),
        ] {
            result.summary.down = direction(down);
            result.summary.up = direction(up);
            let grade = Verdict::of(&result).grade.unwrap();
            assert_eq!(
                (grade.letter.as_str(), grade.strict.as_str()),
                (letter, strict),
                "{down} {up}"
            );
            assert_eq!(grade.basis, Basis::EachDirection);
        }
    }

    #[test]
    fn both_at_once_without_one_way_delays_are_graded_by_the_round_trip() {
        let grade = Verdict::of(&with_probes_every(20.0, 300.0)).grade.unwrap();
        assert_eq!(grade.basis, Basis::BothAtOnce);
        assert_eq!(grade.letter, "D");
        assert!(grade.added_ms > 300.0);
    }

    #[test]
    fn an_invalid_test_has_findings_and_no_grade() {
        let verdict = Verdict::of(&example("x", 300.0, 20.0, 4.0));
        assert_eq!(verdict.grade, None);
        assert!(verdict.to_text().starts_with("no grade"));
        assert!(verdict.to_text().contains("probes came back under load"));
    }

    #[test]
    fn the_most_severe_of_many_findings_are_shown() {
        let mut result = with_probes_every(20.0, 0.0);
        let many = (0..9000).map(|n| Finding {
            severity: if n == 8999 {
                Severity::Invalid
            } else {
                Severity::Note
            },
            code: format!("code {n}"),
            text: format!("text {n}"),
        });
        result.findings = many.collect();
        let verdict = Verdict::of(&result);
        let notes: Vec<String> = verdict.notes().collect();
        assert_eq!((notes.len(), verdict.findings.len()), (21, 9000));
        assert_eq!(notes[0], "invalid: text 8999");
        assert_eq!(notes[20], "and 8980 more findings");
        assert_eq!(verdict.to_text().lines().count(), 22);
    }

    #[test]
    fn round_trips_per_minute_leave_out_the_slowest_twentieth() {
        let mut result = with_probes_every(20.0, 0.0);
        for probe in &mut result.probes[0].samples {
            probe.rtt_ms = Some(if probe.t_ms as i64 % 1000 == 0 {
                900.0
            } else {
                20.0
            });
        }
        result.flows[0].sender = (20..70)
            .map(|i| TcpSample {
                t_ms: f64::from(i) * 100.0,
                rtt_ms: Some(60.0),
                ..TcpSample::default()
            })
            .collect();
        result.summary.down = direction(1.0);
        result.summary.up = direction(1.0);
        let grade = Verdict::of(&result).grade.unwrap();
        assert_eq!(grade.rpm_foreign, Some(3000.0));
        assert_eq!(grade.rpm_self, Some(1000.0));
        assert_eq!(grade.rpm_word.as_deref(), Some("good"));
        assert_eq!(result.flows(Direction::Download).count(), 2);
        insta::assert_snapshot!(Verdict::of(&result).to_text());
    }
}
