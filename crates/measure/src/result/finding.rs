//! Remarks on a result.

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// The figures may not mean what they seem to mean.
    Warning,
    /// The figures say nothing about the line. The result gets no grade.
    Invalid,
}

/// A remark that a reader of the figures must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The kind of finding, for programs: `cpu_saturated`, `too_few_probes`, `load_not_reached`, `cross_traffic`, `marks_changed`.
    pub code: String,
    /// For people: what was seen, with figures, and what to do.
    pub text: String,
}

impl Finding {
    /// A finding with this code for programs and this text for people.
    pub(crate) fn new(severity: Severity, code: &str, text: impl Into<String>) -> Self {
        Self {
            severity,
            code: code.to_owned(),
            text: text.into(),
        }
    }

    /// One line for people: the severity and the text.
    pub fn to_text(&self) -> String {
        let kind = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Invalid => "invalid",
        };
        format!("{kind}: {}", self.text)
    }
}
