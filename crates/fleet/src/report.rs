//! The report: the outcome of a document on a router.

use serde::{Deserialize, Serialize};

use crate::judgement::{Measured, Verdict};
use crate::name::Name;

/// The schema of the reports that this version writes and reads.
pub const SCHEMA: &str = "sqm-fleet-report/1";

/// A router's own account of its state. It writes a report after each step of a document, and whenever it connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The router.
    pub router: Name,
    /// When the report was written, by the router's clock, seconds since 1970 (UTC).
    pub at_unix_s: u64,
    /// The version of sqm.
    pub sqm_version: String,
    /// The machine, for roll-outs by hardware: the device tree's model, else the processor's architecture.
    pub hardware: String,
    /// The last document that the router took; 0 if there was none.
    pub revision: u64,
    /// The revision whose configuration is in force; 0 if it is none of a document. It is lower than [`Report::revision`] after a
    /// rollback.
    pub in_force: u64,
    /// The outcome of the last document; `None` if there was none.
    pub outcome: Option<Outcome>,
    /// The document that was refused last, if none was taken since.
    pub refused: Option<Refused>,
    /// The findings of the comparison of queues and plan; empty if all are as planned.
    pub differences: Vec<String>,
}

/// The outcome of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    /// The router waits for the document's time.
    Waiting {
        /// Seconds since 1970 (UTC); `None`: until the router's clock is set.
        until_unix_s: Option<u64>,
    },
    /// Its configuration is in force, and the router observes its round trips.
    Observed {
        /// The users gave too little load for a verdict, and the router tests the line itself from this time on, seconds since 1970
        /// (UTC); `None`: not yet, or the document asks for no test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quiet_test_unix_s: Option<u64>,
    },
    /// Its configuration is in force for good.
    Kept(Judged),
    /// The configuration from before is back.
    RolledBack(Judged),
    /// It could not be applied: its errors, with file and line. The configuration from before is in force.
    Invalid {
        /// Each error on one line.
        errors: Vec<String>,
    },
}

/// A verdict and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict in words.
    pub reason: String,
    /// Under the configuration from before; `None` if there was too little load.
    pub before: Option<Measured>,
    /// Under the document's configuration; `None` if there was too little load.
    pub after: Option<Measured>,
}

/// A document that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The revision, if the document could be read so far.
    pub revision: Option<u64>,
    /// The reason in words.
    pub reason: String,
    /// When, by the router's clock, seconds since 1970 (UTC).
    pub at_unix_s: u64,
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let report: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no report: {error}"))?;
        if report.schema == SCHEMA {
            Ok(report)
        } else {
            Err(format!(
                "its schema is '{}', and this version of sqm reads '{SCHEMA}'",
                report.schema
            ))
        }
    }

    /// True if the router needs no more time for the document with this revision.
    pub fn is_settled(&self, revision: u64) -> bool {
        let is_refused = self
            .refused
            .as_ref()
            .is_some_and(|refused| refused.revision == Some(revision));
        let is_done = !matches!(
            self.outcome,
            None | Some(Outcome::Waiting { .. } | Outcome::Observed { .. })
        );
        is_refused || self.revision >= revision && is_done
    }
}
