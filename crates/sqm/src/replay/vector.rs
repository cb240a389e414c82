//! Recorded scenarios: what arrived when, and what Linux's queue made of it. Ours must do the same to the nanosecond.
//!
//! The file format is described beside the recorded files, in `crates/core/testdata/vectors/README.md`.

mod compare;
mod file;
mod packet;
mod run;
mod subject;

use std::path::Path;

pub(crate) use compare::Difference;
pub(crate) use file::Vector;
pub(crate) use run::{Deed, What};

use crate::failure::Failure;
use subject::Subject;

/// What our queue did in a scenario.
pub(crate) struct Outcome {
    /// All that left it, in order of time; of one call, drops come first.
    pub(crate) deeds: Vec<Deed>,
    /// Its counters at the end, as the file names them.
    counters: serde_json::Map<String, serde_json::Value>,
    /// What it broke of its contract or of the scenario's, such as random numbers that it did not draw.
    complaints: Vec<String>,
}

impl Vector {
    /// The scenario in `file`, checked as far as that is possible without running it.
    pub(crate) fn load(file: &Path) -> Result<Self, Failure> {
        file::load(file).map_err(Failure::Usage)
    }

    /// Lets our queue play it.
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        let mut subject = Subject::new(self)?;
        let (deeds, mut complaints) = run::run(self, &mut subject)?;
        complaints.extend(subject.complaint());
        Ok(Outcome {
            deeds,
            counters: subject.counters(),
            complaints,
        })
    }

    /// Where `outcome` is not what the file expects; nothing if it expects nothing.
    pub(crate) fn differences(&self, outcome: &Outcome) -> Option<Vec<Difference>> {
        self.expect
            .as_ref()
            .map(|expect| compare::differences(expect, outcome))
    }
}
