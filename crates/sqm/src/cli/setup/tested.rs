//! A test of the line: by `sqm test`, or by a responsiveness server.

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_measure::grade::Verdict;
use sqm_measure::result::TestResult;
#[cfg(feature = "full")]
use sqm_measure::rpm::client::Report;

use super::counting::Counting;
use super::rates;

/// The figures of a test.
pub(super) enum Tested {
    Result(Box<TestResult>),
    #[cfg(feature = "full")]
    Responsiveness(Box<Report>),
}

/// The grade of a test: the part that setup prints.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Graded {
    pub(super) letter: String,
    pub(super) added_ms: f64,
    pub(super) sentence: String,
}

impl Tested {
    /// The grade. `None` if the test has none; `sqm test` has then printed the reason.
    pub(super) fn grade(&self) -> Option<Graded> {
        let (letter, added_ms, sentence) = match self {
            Self::Result(result) => {
                let grade = Verdict::of(result).grade?;
                (grade.letter, grade.added_ms, grade.sentence)
            }
            #[cfg(feature = "full")]
            Self::Responsiveness(report) => {
                let grade = report.grade.clone()?;
                (grade.letter, grade.added_ms, grade.sentence)
            }
        };
        Some(Graded {
            letter,
            added_ms,
            sentence,
        })
    }

    /// The shaper rate of a direction, if the test loaded it.
    pub(super) fn rate(&self, direction: Direction, counting: &Counting) -> Option<Rate> {
        match self {
            Self::Result(result) => rates::of_result(result, direction, counting),
            // This test loads one direction after the other.
            #[cfg(feature = "full")]
            Self::Responsiveness(report) => {
                let load = match direction {
                    Direction::Download => &report.download,
                    Direction::Upload => &report.upload,
                };
                rates::of_goodput(load.as_ref()?.mbit, true, counting)
            }
        }
    }
}

impl Graded {
    pub(super) fn words(&self) -> String {
        format!("grade {}, load added {:.1} ms", self.letter, self.added_ms)
    }
}
