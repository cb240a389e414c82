//! The output of `sqm doctor`.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::findings::{Finding, Fix};

#[derive(Serialize)]
pub(crate) struct Answer {
    pub(crate) findings: Vec<Finding>,
    /// Findings before `--fix` that are gone after it.
    pub(crate) fixed: Vec<Finding>,
    /// Number of enabled sections that were judged.
    #[serde(skip)]
    pub(crate) sections: usize,
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for finding in &self.fixed {
            writeln!(f, "fixed: {}", finding.what)?;
        }
        if self.findings.is_empty() {
            return match self.sections {
                0 => writeln!(
                    f,
                    "no interface is configured and enabled: there is nothing to judge"
                ),
                1 => writeln!(f, "nothing found"),
                n => writeln!(f, "nothing found on {n} interfaces"),
            };
        }
        self.findings
            .iter()
            .try_for_each(|finding| write!(f, "{finding}"))
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(interface) = &self.interface {
            write!(f, "{interface}: ")?;
        }
        writeln!(f, "{} [{}]", self.what, self.id)?;
        for evidence in &self.evidence {
            writeln!(f, "    seen: {evidence}")?;
        }
        writeln!(f, "    do:   {}", self.remedy)?;
        match &self.fix {
            Some(Fix::Options(_, options)) => {
                let words: Vec<String> = options
                    .iter()
                    .map(|(option, value)| format!("option {option} '{value}'"))
                    .collect();
                writeln!(f, "    --fix sets {}", words.join(", "))
            }
            Some(Fix::Start) => writeln!(f, "    --fix brings the configuration into force"),
            None => Ok(()),
        }
    }
}
