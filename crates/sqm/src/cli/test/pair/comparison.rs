//! The figures of a test without SQM beside those of one with SQM, as a table and as JSON.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap, Serializer};
use sqm_measure::grade::{LoadGrade, Verdict};
use sqm_measure::result::Finding;
use sqm_measure::result::TestResult;
use sqm_measure::rpm::client::Report;

/// All figures, and what people notice.
pub(super) struct Comparison {
    rows: Vec<Row>,
    sentences: Vec<String>,
}

/// A figure of both tests.
struct Row {
    /// Its name in JSON.
    key: &'static str,
    label: &'static str,
    /// Printed after the figures.
    unit: &'static str,
    cells: [Cell; 2],
}

enum Cell {
    Letter(Option<String>),
    /// A number and its decimals.
    Number(Option<f64>, usize),
    /// A number with its sign, and one decimal.
    Added(Option<f64>),
    /// Some of all.
    Share(u64, u64),
}

impl Comparison {
    /// The comparison of two tests with probes.
    pub(super) fn of_loads(both: [&TestResult; 2]) -> Self {
        let verdicts = both.map(Verdict::of);
        let of_grade = |figure: fn(&sqm_measure::grade::Grade) -> Cell, none: fn() -> Cell| {
            verdicts
                .each_ref()
                .map(|verdict| verdict.grade.as_ref().map_or_else(none, figure))
        };
        let number = |figure: fn(&TestResult) -> Option<f64>, decimals| {
            both.map(|result| Cell::Number(figure(result), decimals))
        };
        let rows = vec![
            row(
                "grade",
                "grade",
                "",
                of_grade(
                    |grade| Cell::Letter(Some(grade.letter.clone())),
                    || Cell::Letter(None),
                ),
            ),
            row(
                "added_ms",
                "added by load",
                "ms, median",
                of_grade(|grade| Cell::Added(Some(grade.added_ms)), || Cell::Added(None)),
            ),
            row(
                "idle_ms",
                "idle latency",
                "ms, median",
                number(|one| one.summary.idle_ms, 1),
            ),
            row(
                "latency_median_ms",
                "loaded latency",
                "ms, median",
                number(|one| one.summary.latency_median_ms, 1),
            ),
            row(
                "latency_p95_ms",
                "",
                "ms, 95 % are below",
                number(|one| one.summary.latency_p95_ms, 1),
            ),
            row(
                "latency_p99_ms",
                "",
                "ms, 99 % are below",
                number(|one| one.summary.latency_p99_ms, 1),
            ),
            row(
                "download_mbit",
                "download",
                "Mbit/s",
                number(|one| one.summary.download_mbit, 2),
            ),
            row(
                "upload_mbit",
                "upload",
                "Mbit/s",
                number(|one| one.summary.upload_mbit, 2),
            ),
            row(
                "probes_lost",
                "lost",
                "probes",
                both.map(|one| Cell::Share(one.summary.probes_lost, one.summary.probes_sent)),
            ),
        ];
        let sentences = verdicts.iter().map(|verdict| {
            let sentence = verdict.grade.as_ref().map(|grade| grade.sentence.clone());
            (sentence, verdict.findings.as_slice())
        });
        Self {
            rows,
            sentences: said(sentences),
        }
    }

    /// The comparison of two responsiveness tests.
    pub(super) fn of_responsiveness(both: [&Report; 2]) -> Self {
        let grade = |figure: fn(Option<&LoadGrade>) -> Cell| both.map(|report| figure(report.grade.as_ref()));
        let number = |figure: fn(&Report) -> Option<f64>, decimals| {
            both.map(|report| Cell::Number(figure(report), decimals))
        };
        let rows = vec![
            row(
                "grade",
                "grade",
                "",
                grade(|grade| Cell::Letter(grade.map(|grade| grade.letter.clone()))),
            ),
            row(
                "added_ms",
                "added by load",
                "ms, median",
                grade(|grade| Cell::Added(grade.map(|grade| grade.added_ms))),
            ),
            row(
                "idle_ms",
                "idle latency",
                "ms, median",
                number(|one| one.idle_ms, 1),
            ),
            row(
                "idle_rpm",
                "responsiveness",
                "RPM, idle",
                number(|one| one.idle_rpm, 0),
            ),
            row(
                "download_rpm",
                "",
                "RPM, download",
                number(|one| Some(one.download.as_ref()?.rpm), 0),
            ),
            row(
                "upload_rpm",
                "",
                "RPM, upload",
                number(|one| Some(one.upload.as_ref()?.rpm), 0),
            ),
            row(
                "download_mbit",
                "download",
                "Mbit/s",
                number(|one| Some(one.download.as_ref()?.mbit), 2),
            ),
            row(
                "upload_mbit",
                "upload",
                "Mbit/s",
                number(|one| Some(one.upload.as_ref()?.mbit), 2),
            ),
        ];
        let sentences = both.iter().map(|report| {
            let sentence = report.grade.as_ref().map(|grade| grade.sentence.clone());
            (sentence, report.findings.as_slice())
        });
        Self {
            rows,
            sentences: said(sentences),
        }
    }

    /// A column for each test, and then the sentences.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{:<16}{:>14}{:>14}\n", "", "without SQM", "with SQM");
        for row in &self.rows {
            let [without, with] = row.cells.each_ref().map(Cell::text);
            let line = format!("{:<16}{without:>14}{with:>14} {}", row.label, row.unit);
            writeln!(text, "{}", line.trim_end()).expect("a string grows");
        }
        for sentence in &self.sentences {
            writeln!(text, "{sentence}").expect("a string grows");
        }
        text
    }
}

const fn row(key: &'static str, label: &'static str, unit: &'static str, cells: [Cell; 2]) -> Row {
    Row {
        key,
        label,
        unit,
        cells,
    }
}

/// For each test the effect that people notice, and its findings.
fn said<'a>(tests: impl Iterator<Item = (Option<String>, &'a [Finding])>) -> Vec<String> {
    let named = ["without SQM", "with SQM"].into_iter().zip(tests);
    let lines = named.flat_map(|(name, (sentence, findings))| {
        let findings = findings.iter().map(|finding| finding.text.clone());
        sentence
            .into_iter()
            .chain(findings)
            .map(move |line| format!("{name}: {line}"))
    });
    lines.collect()
}

impl Cell {
    fn text(&self) -> String {
        let none = || "-".to_owned();
        match self {
            Self::Letter(letter) => letter.clone().unwrap_or_else(none),
            Self::Number(number, decimals) => {
                number.map_or_else(none, |number| format!("{number:.decimals$}"))
            }
            Self::Added(number) => number.map_or_else(none, |number| format!("{number:+.1}")),
            Self::Share(some, all) => format!("{some} of {all}"),
        }
    }
}

/// An object with the figures by name.
impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.rows.len()))?;
        for row in &self.rows {
            map.serialize_entry(row.key, &Both(&row.cells))?;
        }
        map.end()
    }
}

/// An object with the figure of each test.
struct Both<'a>(&'a [Cell; 2]);

impl Serialize for Both<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        for (name, cell) in ["without", "with"].into_iter().zip(self.0) {
            match cell {
                Cell::Letter(letter) => map.serialize_entry(name, letter)?,
                Cell::Number(number, _) | Cell::Added(number) => map.serialize_entry(name, number)?,
                Cell::Share(some, _) => map.serialize_entry(name, some)?,
            }
        }
        map.end()
    }
}
