//! Safe changes: sets options in the configuration, whose comments stay, or brings it into force.

use anyhow::anyhow;
use sqm_api::doctor::{Finding, Fix};
use sqm_plan::uci::Document;

/// The configuration's text with the options that the findings want changed. The rest of the text stays as it is.
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
