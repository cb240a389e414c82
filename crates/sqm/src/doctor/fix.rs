//! Changes that are safe to make: options of the configuration, which keeps its comments, and bringing it into force.

use anyhow::anyhow;
use sqm_plan::uci::Document;

use super::findings::{Finding, Fix};

/// The text with the findings' options changed. Only what was found is touched.
pub(crate) fn changed(text: &[u8], findings: &[Finding]) -> anyhow::Result<String> {
    let mut document = Document::parse_bytes(text).map_err(|errors| anyhow!("{}", errors[0]))?;
    for finding in findings {
        if let Some(Fix::Options(section, options)) = &finding.fix {
            for (option, value) in options {
                if !document.set(*section, option, value) {
                    return Err(anyhow!("option {option} cannot be set"));
                }
            }
        }
    }
    Ok(document.to_string())
}
