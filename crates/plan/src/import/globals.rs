//! `/etc/sqm/sqm.conf` beside `/etc/config/sqm`: on OpenWrt sqm-scripts takes settings for all sections from there. Here every
//! setting is an option of a section, so that the file is not read; its settings are reported with the options that replace them.

use sqm_core::units::shortened;

use super::shell::{self, Assignment};
use super::{MOST_REMARKS, Remark, SHIPPED, Source, WITHOUT_MEANING};
use crate::options;
use crate::uci::quote;

/// One remark for each setting that differs from the file that sqm-scripts ships and that no option replaces. `is_replaced` answers
/// whether all sections give an option.
pub fn globals(source: &Source<'_>, is_replaced: &dyn Fn(&str) -> bool) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for (line, text) in shell::lines(source.text) {
        let message = match shell::assignment(text, |_| None) {
            Ok(assignment) => message(&assignment, is_replaced),
            Err(_) => Some(
                "sqm does not read this file; write what this line sets as options of each section"
                    .to_owned(),
            ),
        };
        remarks.extend(message.map(|message| Remark {
            file: source.name.to_owned(),
            line,
            message,
        }));
        if remarks.len() == MOST_REMARKS {
            break;
        }
    }
    remarks
}

fn message(Assignment { name, value }: &Assignment, is_replaced: &dyn Fn(&str) -> bool) -> Option<String> {
    if value.is_empty() || SHIPPED.contains(&(name.as_str(), value.as_str())) {
        return None;
    }
    let replacing: Vec<&str> = match name.as_str() {
        "LIMIT" => vec!["ilimit", "elimit"],
        "INGRESS_CAKE_OPTS" => vec!["iqdisc_opts"],
        "EGRESS_CAKE_OPTS" => vec!["eqdisc_opts"],
        name => options::all()
            .filter(|option| option.variables.contains(&name))
            .map(|option| option.name)
            .collect(),
    };
    if !replacing.is_empty() {
        let missing = replacing.into_iter().filter(|option| !is_replaced(option));
        let options: Vec<String> = missing
            .map(|option| format!("option {option} {}", quote(value)))
            .collect();
        let options = options.join(" and ");
        return (!options.is_empty()).then(|| {
            format!(
                "{name} has no effect, because sqm does not read this file: write {options} into each section"
            )
        });
    }
    let why = WITHOUT_MEANING.iter().find(|(known, _)| known == name);
    Some(match why {
        Some((_, why)) => format!("{name} has no effect: {why}"),
        None => format!("{} has no effect: sqm does not read this file", shortened(name)),
    })
}
