//! Texts of `tc` commands of the user's own as setup scripts.
//!
//! A text is data, and no program runs it: [`variables`] replaces the variables of one direction, the grammar of
//! `sqm_core::spec` reads each command ([`tree`]), and [`build`] puts the commands together. Each error names the line and the word.
//! A text that has an error in any line is refused as a whole, even if the line is for a direction that is not shaped ([`check`]).

mod build;
mod check;
mod effects;
mod expression;
mod filter;
mod tree;
mod variables;

use crate::diagnostic::Finding;
use crate::own::text::{Asked, Condition, Line};
use crate::own::{OwnText, TextError};
use crate::settings::{Script, Settings};
use crate::side::Side;

pub(crate) use check::{check, report_errors};
pub(crate) use effects::{add_firewall, is_judged, report as report_without_effect};
pub(super) use tree::tree;

/// An error of a text as a finding about the option that names it.
pub(crate) fn finding(path: &str, error: TextError) -> Finding {
    let TextError {
        line,
        message,
        suggestion,
    } = error;
    Finding::of_value(format!("{path}:{line}: {message}")).suggest(suggestion)
}

/// True if a condition of a heading holds with these settings.
fn holds(condition: Condition, settings: &Settings, side: Side) -> bool {
    let holds = match condition.asks {
        Asked::Qdisc(leaf) => side.of(settings).qdisc.name() == leaf,
        // Both are on unless the section switches them off, as in sqm-scripts.
        Asked::SquashDscp => settings.squash_dscp.unwrap_or(true),
        Asked::SquashIngress => settings.squash_ingress.unwrap_or(true),
    };
    holds == condition.is
}

/// The lines that hold with these settings.
fn active<'a>(text: &'a OwnText, settings: &'a Settings, side: Side) -> impl Iterator<Item = &'a Line> {
    let holds = move |line: &&Line| {
        let mut conditions = line.when.iter();
        conditions.all(|condition| holds(*condition, settings, side))
    };
    text.lines.iter().filter(holds)
}

/// These settings with the variables that each direction's text uses. They depend on the options that headings ask for.
pub(crate) fn with_uses(mut settings: Settings) -> Settings {
    for side in Side::ALL {
        let Script::Own(own) = &side.of(&settings).script else {
            continue;
        };
        let uses = effects::uses(&own.text, &settings, side);
        let direction = match side {
            Side::Egress => &mut settings.egress,
            Side::Ingress => &mut settings.ingress,
        };
        if let Script::Own(own) = &mut direction.script {
            own.uses = uses;
        }
    }
    settings
}

#[cfg(test)]
mod tests;
