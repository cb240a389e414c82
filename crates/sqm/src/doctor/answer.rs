//! The output of `sqm doctor`.

use std::fmt::{self, Display, Formatter};

use sqm_api::doctor::{Diagnosis, Finding, Fix};

/// A diagnosis for people.
pub(crate) struct Answer {
    pub(crate) diagnosis: Diagnosis,
    /// The interfaces of the enabled sections, which were checked.
    pub(crate) interfaces: Vec<String>,
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Diagnosis {
            findings,
            fixed,
            notes,
            unknown,
            checks,
        } = &self.diagnosis;
        for finding in fixed {
            writeln!(f, "fixed: {}", finding.what)?;
        }
        for note in notes {
            writeln!(f, "note: {note}")?;
        }
        for unknown in unknown {
            writeln!(f, "not known: {unknown}")?;
        }
        if findings.is_empty() {
            let interfaces = self.interfaces.join(", ");
            return match self.interfaces.len() {
                0 => writeln!(
                    f,
                    "no interface is configured and enabled: there is nothing to check"
                ),
                _ => writeln!(f, "No problems found on {interfaces} ({checks} checks)"),
            };
        }
        findings.iter().try_for_each(|finding| write_finding(f, finding))
    }
}

fn write_finding(f: &mut Formatter<'_>, finding: &Finding) -> fmt::Result {
    if let Some(interface) = &finding.interface {
        write!(f, "{interface}: ")?;
    }
    writeln!(f, "{} [{}]", finding.what, finding.id)?;
    for evidence in &finding.evidence {
        writeln!(f, "    seen: {evidence}")?;
    }
    writeln!(f, "    do:   {}", finding.remedy)?;
    match &finding.fix {
        Some(Fix::SetOptions { options, .. }) => {
            let words: Vec<String> = options.iter().map(ToString::to_string).collect();
            writeln!(f, "    --fix sets {}", words.join(", "))
        }
        Some(Fix::Start) => writeln!(f, "    --fix applies the configuration"),
        None => Ok(()),
    }
}
