//! The findings of the validator in a configuration, as the API answers them.

use serde::Serialize;
use sqm_plan::diagnostic::Diagnostic;

/// An error or warning of the validator, as docs/openapi.yaml has it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    line: usize,
    section: Option<usize>,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
}

/// The findings of a text.
pub(super) fn findings(found: Vec<Diagnostic>) -> Vec<Finding> {
    let finding = |found: Diagnostic| Finding {
        line: found.line,
        section: found.section,
        option: found.option,
        message: found.message,
        suggestion: found.suggestion,
    };
    found.into_iter().map(finding).collect()
}
