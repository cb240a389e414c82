//! The findings of `sqm doctor`, as `--json` prints them and the daemon passes them on.

use serde::{Deserialize, Serialize};
use sqm_plan::OptionValue;

/// The body of `POST /v1/doctor`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doctor {
    /// Make the safe changes, and look again.
    pub fix: bool,
}

/// The output of `sqm doctor --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The faults that are there now.
    pub findings: Vec<Finding>,
    /// Findings before `--fix` that are gone after it.
    pub fixed: Vec<Finding>,
    /// Facts that the kernel does not tell: reasons why a finding may be missing.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Number of checks that were made.
    #[serde(default)]
    pub checks: usize,
}

/// A fault, or a setting that is probably not intended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Identifier for programs.
    pub id: String,
    /// Interface of the section concerned; none if the finding concerns the machine.
    pub interface: Option<String>,
    /// The fault and its effect.
    pub what: String,
    /// The observations that show it.
    pub evidence: Vec<String>,
    /// The suggested remedy.
    pub remedy: String,
    /// The change that `--fix` makes, if there is a safe one.
    pub fix: Option<Fix>,
}

/// A safe change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fix {
    /// Set these options in the section with this index, and bring the configuration into force.
    Options(usize, Vec<OptionValue>),
    /// Bring the configuration into force.
    Start,
}
