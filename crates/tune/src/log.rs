//! The steps of a search, and the errors that end it.

use std::time::Instant;

use serde::Serialize;
use sqm_core::direction::Direction;
use sqm_measure::Error;
use sqm_measure::result::direction_word;

/// An error that ends the search.
#[derive(Debug)]
pub(crate) enum SearchError {
    /// A load or its measurement failed.
    Measuring(Error),
    /// The shaper could not be changed.
    Shaping(anyhow::Error),
    /// A signal, or the end of the time.
    Interrupted,
}

/// One step of the search, as the report has it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    /// Seconds since the search began.
    pub(crate) at_s: f64,
    /// `None` if the step concerns both directions.
    #[serde(serialize_with = "direction_word::optional::serialize")]
    pub(crate) direction: Option<Direction>,
    /// A sentence for people.
    pub(crate) what: String,
}

/// The steps so far.
pub(crate) struct Log {
    begun: Instant,
    steps: Vec<Step>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// Records a step and prints it on standard error.
    pub(crate) fn step(&mut self, direction: Option<Direction>, what: String) {
        errln!("{}: {what}", direction.map_or("both", Direction::name));
        self.steps.push(Step {
            at_s: self.elapsed_s(),
            direction,
            what,
        });
    }

    /// Seconds since the search began.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
