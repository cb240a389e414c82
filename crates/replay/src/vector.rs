//! Recorded scenarios: the arrivals, and what Linux's queue did with them. Our queue must do the same, to the nanosecond.
//!
//! The file format is described beside the recorded files, in `crates/core/testdata/vectors/README.md`.

mod compare;
mod file;
mod packet;
mod run;
mod subject;

use std::path::Path;

pub use compare::Difference;
pub use file::Vector;
pub use run::{Deed, What};

use crate::error::Error;
use subject::Subject;

/// The outcome of a scenario with our queue.
pub struct Outcome {
    /// The packets that left, in order of time; the drops of a call come before the packet that it returned.
    pub deeds: Vec<Deed>,
    /// The queue's counters at the end, with the names of the file.
    counters: serde_json::Map<String, serde_json::Value>,
    /// Rules that the queue broke: those of the qdisc interface, and those of the scenario, such as random numbers that it did
    /// not draw.
    complaints: Vec<String>,
}

impl Vector {
    /// Reads the scenario in `file`, and checks it as far as possible without running it.
    pub fn load(file: &Path) -> Result<Self, Error> {
        file::load(file).map_err(Error::Input)
    }

    /// Plays the scenario with our queue.
    pub fn run(&self) -> Result<Outcome, Error> {
        let mut subject = Subject::new(self)?;
        let (deeds, mut complaints) = run::run(self, &mut subject)?;
        complaints.extend(subject.complaint());
        Ok(Outcome {
            deeds,
            counters: subject.counters(),
            complaints,
        })
    }

    /// The differences between `outcome` and the recorded one; `None` if the file has no recorded outcome.
    pub fn differences(&self, outcome: &Outcome) -> Option<Vec<Difference>> {
        self.expect
            .as_ref()
            .map(|expect| compare::differences(expect, outcome))
    }
}
