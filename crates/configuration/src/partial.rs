//! A configuration of which some sections have errors: the others are planned without them.

use std::collections::BTreeSet;
use std::path::Path;

use sqm_kernel::netlink::link::Link;
use sqm_plan::diagnostic::Diagnostic;
use sqm_plan::uci::without_errors;
use sqm_plan::{Loaded, OptionValue};

use crate::{Draft, Invalid, Parsed, parse_and_plan};

/// A configuration without its sections in error.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The text, with the sections in error disabled.
    pub parsed: Parsed,
    /// The plans of the other sections.
    pub loaded: Loaded,
    /// The sections in error, in the order of the text.
    pub left_out: Vec<LeftOut>,
    /// The errors of lines that are not UCI, and that were left out.
    pub left_out_lines: Vec<Diagnostic>,
}

/// A section in error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The interface that it names.
    pub interface: Option<String>,
    /// Its errors.
    pub errors: Vec<Diagnostic>,
}

impl LeftOut {
    /// The errors, in one line.
    pub fn message(&self) -> String {
        let errors: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    }
}

/// Like [`parse_and_plan`], but sections in error are left out if any other section is enabled.
///
/// # Errors
/// All errors of the text, if they are not of sections, or if no section is left.
pub fn plan_the_rest(text: Vec<u8>, file: &Path, links: &[Link]) -> Result<Partial, Invalid> {
    let mut rest = text.clone();
    let mut left_out: Vec<(usize, LeftOut)> = Vec::new();
    loop {
        let all = || parse_and_plan(text.clone(), file, links);
        let invalid = match parse_and_plan(rest.clone(), file, links) {
            Ok((parsed, mut loaded)) if left_out.is_empty() || !loaded.plans.is_empty() => {
                let is_left_out = |section| left_out.iter().any(|(known, _)| Some(*known) == section);
                loaded.warnings.retain(|warning| !is_left_out(warning.section));
                left_out.sort_by_key(|(section, _)| *section);
                return Ok(Partial {
                    parsed,
                    loaded,
                    left_out: left_out.into_iter().map(|(_, left_out)| left_out).collect(),
                    left_out_lines: Vec::new(),
                });
            }
            Ok(_) => return Err(all().err().unwrap_or(Invalid(Vec::new()))),
            Err(invalid) => invalid,
        };
        let sections: Option<BTreeSet<usize>> = invalid.0.iter().map(|error| error.section).collect();
        // A section that was disabled has no more errors. If it has, the loop would not end.
        let is_new = |section: &usize| left_out.iter().all(|(known, _)| known != section);
        let Some(sections) = sections.filter(|sections| sections.iter().all(is_new)) else {
            return Err(all().err().unwrap_or(invalid));
        };
        let Ok(mut draft) = Draft::of(&rest) else {
            return Err(invalid);
        };
        for section in sections {
            let interface = match draft.value(section, "interface") {
                Some(OptionValue::Interface(name)) => Some(name),
                _ => None,
            };
            if draft.set(section, &OptionValue::Enabled(false)).is_err() {
                return Err(invalid);
            }
            let errors = invalid.0.iter().filter(|error| error.section == Some(section));
            let errors = errors.cloned().collect();
            left_out.push((section, LeftOut { interface, errors }));
        }
        rest = draft.finish();
    }
}

/// Like [`plan_the_rest`], but lines that are not UCI are left out as well if any section is left to shape, as OpenWrt's scripts
/// do at boot (`uci -S`). `change` makes changes to the text without these lines.
///
/// # Errors
/// All errors of the text, if no section is left.
pub fn plan_what_can_be_read(
    text: Vec<u8>,
    file: &Path,
    links: &[Link],
    change: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> Result<Partial, Invalid> {
    let Err(invalid) = Parsed::of(text.clone(), file) else {
        return plan_the_rest(change(text), file, links);
    };
    let Ok((rest, _)) = without_errors(&text) else {
        return Err(invalid);
    };
    match plan_the_rest(change(rest), file, links) {
        Ok(partial) if !partial.loaded.plans.is_empty() => Ok(Partial {
            left_out_lines: invalid.0,
            ..partial
        }),
        _ => Err(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(interface: &str, more: &str) -> String {
        format!(
            "config queue\n\toption enabled '1'\n\toption interface '{interface}'\n\toption download '20000'\n\
             \toption upload '4000'\n\toption script 'piece_of_cake.qos'\n{more}"
        )
    }

    fn plan(text: &str) -> Result<Partial, Invalid> {
        plan_the_rest(text.as_bytes().to_vec(), Path::new("sqm"), &[])
    }

    fn interfaces(partial: &Partial) -> Vec<&str> {
        let plans = partial.loaded.plans.iter();
        plans.map(|plan| plan.interface.as_str()).collect()
    }

    #[test]
    fn a_section_in_error_does_not_take_the_others_with_it() {
        let bad = section("eth1", "\toption tcMPU 'big'\n");
        let text = format!("{}# a comment\n{bad}{}", section("eth0", ""), section("eth2", ""));
        let partial = plan(&text).unwrap();
        assert_eq!(interfaces(&partial), ["eth0", "eth2"]);
        let [left_out] = partial.left_out.as_slice() else {
            panic!("{:?}", partial.left_out);
        };
        assert_eq!(left_out.interface.as_deref(), Some("eth1"));
        assert!(
            left_out.message().starts_with("sqm:14: option 'tcMPU'"),
            "{left_out:?}"
        );
        // Errors that only the sections together have.
        let twice = format!("{}{}", section("eth0", ""), section("eth0", ""));
        let partial = plan(&twice).unwrap();
        assert_eq!((interfaces(&partial), partial.left_out.len()), (vec!["eth0"], 1));
    }

    #[test]
    fn at_boot_a_line_that_is_not_uci_costs_its_line() {
        let read =
            |text: &str| plan_what_can_be_read(text.as_bytes().to_vec(), Path::new("sqm"), &[], |text| text);
        let text = format!(
            "{}\toptoin tcMPU '64'\n{}",
            section("eth0", ""),
            section("eth2", "")
        );
        let partial = read(&text).unwrap();
        assert_eq!(interfaces(&partial), ["eth0", "eth2"]);
        let lines: Vec<String> = partial.left_out_lines.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["sqm:7: unknown keyword 'optoin'; did you mean 'option'?"]);
        // By hand the file is refused as a whole.
        assert!(plan(&text).is_err());
        // A line that a section cannot do without costs the section.
        let partial =
            read(&text.replacen("option download '20000'", "option download 20000 kbit", 1)).unwrap();
        assert_eq!((interfaces(&partial), partial.left_out.len()), (vec!["eth2"], 1));
        // With no section left, nothing is planned.
        assert!(
            read(&format!(
                "{}\"",
                section("eth0", "").replace("option enabled", "optoin enabled")
            ))
            .is_err()
        );
        assert_eq!(read(&section("eth0", "")).unwrap().left_out_lines, []);
    }

    #[test]
    fn a_text_without_a_section_that_can_be_planned_has_all_its_errors() {
        let bad = section("eth1", "\toption tcMPU 'big'\n");
        assert_eq!(plan(&bad).unwrap_err().0.len(), 1);
        let both = format!("{bad}{}", section("eth2", "\toption tcMPU 'big'\n"));
        assert_eq!(plan(&both).unwrap_err().0.len(), 2);
        let no_configuration = format!("{}option outside '1'\n\"", section("eth0", ""));
        assert!(plan(&no_configuration).is_err());
        assert_eq!(interfaces(&plan("").unwrap()), [""; 0]);
    }
}
