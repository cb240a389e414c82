//! The findings of the validator in a configuration, as the API answers them.

use serde::Serialize;
use sqm_plan::diagnostic::Diagnostic;
use sqm_plan::uci::Document;

/// An error or warning of the validator, as docs/openapi.yaml has it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    line: usize,
    section: Option<usize>,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
}

/// The findings in a text, each with the index of its section.
pub(super) fn findings(text: &str, found: &[Diagnostic]) -> Vec<Finding> {
    let document = Document::parse(text).ok();
    let sections = document.iter().flat_map(Document::sections);
    let lines: Vec<usize> = sections.map(|section| section.line).collect();
    let finding = |found: &Diagnostic| Finding {
        line: found.line,
        section: lines.partition_point(|line| *line <= found.line).checked_sub(1),
        option: found.option.clone(),
        message: found.message.clone(),
        suggestion: found.suggestion.clone(),
    };
    found.iter().map(finding).collect()
}
