//! The steps of a search, and why it may end early.

use std::time::Instant;

use serde::Serialize;
use sqm_measure::Error;
use sqm_measure::result::Direction;

/// What can go wrong on the way.
#[derive(Debug)]
pub(crate) enum Trouble {
    Measuring(Error),
    /// The shaper could not be changed.
    Shaping(anyhow::Error),
    Interrupted,
}

/// What was done, with its reason.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    /// Seconds since the beginning.
    pub(crate) at_s: f64,
    /// None where it concerns both.
    pub(crate) direction: Option<Direction>,
    pub(crate) what: String,
}

/// All steps so far. Each is said when it is made.
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

    pub(crate) fn say(&mut self, direction: Option<Direction>, what: String) {
        errln!("{}: {what}", direction.map_or("both", Direction::word));
        self.steps.push(Step {
            at_s: self.elapsed_s(),
            direction,
            what,
        });
    }

    pub(crate) fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
