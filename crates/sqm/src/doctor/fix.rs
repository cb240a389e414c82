//! Changes that are safe to make: options of the configuration, which keeps its comments, and bringing it into force.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
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

/// Replaces a file in one step, with its permissions: whoever reads it finds the old one or the new one.
pub(crate) fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = file.with_extension("sqm-new");
    let write = || -> std::io::Result<()> {
        let mut to = File::create(&fresh)?;
        if let Ok(old) = fs::metadata(file) {
            to.set_permissions(old.permissions())?;
        }
        to.write_all(text.as_bytes())?;
        to.sync_all()?;
        fs::rename(&fresh, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
