//! Checks a text before it is used: in every case that its headings tell apart, in both directions, and at every rate that
//! `option autorate` may choose.

use std::collections::BTreeSet;

use super::tree::device_variable;
use super::{finding, holds, tree, with_uses};
use crate::device::Device;
use crate::diagnostic::{Finding, Report};
use crate::options;
use crate::own::text::{Asked, Condition};
use crate::own::{OwnScript, TextError};
use crate::settings::{Leaf, Script, Settings};
use crate::side::{DirectionContext, Side};

/// Most different headings of a text, a choice: each is a case to check.
const MOST_HEADINGS: usize = 16;

/// Reports the errors of the texts of a section. True if there are none.
pub(crate) fn check(settings: &Settings, device: &Device, report: &mut Report) -> bool {
    let mut is_good = true;
    for side in Side::ALL {
        let Script::Own(own) = &side.of(settings).script else {
            continue;
        };
        for found in errors(own, settings, side, device) {
            is_good = false;
            add(found, settings, side, report);
        }
    }
    is_good
}

/// Reports errors of the text of a direction.
pub(crate) fn report_errors(settings: &Settings, side: Side, errors: Vec<TextError>, report: &mut Report) {
    if let Script::Own(own) = &side.of(settings).script {
        for error in errors {
            add(finding(&own.text.file.path, error), settings, side, report);
        }
    }
}

/// Adds an error at the option that names the text.
fn add(found: Finding, settings: &Settings, side: Side, report: &mut Report) {
    let own = options::SCRIPT.on(side).name;
    let option = match settings.gives(own) {
        true => own,
        false => options::SCRIPT_OF_BOTH.name,
    };
    report.error(found.on_line(settings.line_of(option)).option(option));
}

fn errors(own: &OwnScript, settings: &Settings, side: Side, device: &Device) -> Vec<Finding> {
    let path = &own.text.file.path;
    let findings = |errors: Vec<TextError>| errors.into_iter().map(|error| finding(path, error)).collect();
    let headings: BTreeSet<&[Condition]> = own.text.lines.iter().map(|line| line.when.as_slice()).collect();
    if headings.len() > MOST_HEADINGS {
        let message = format!("{path}: more than {MOST_HEADINGS} different headings, the limit");
        return vec![Finding::of_value(message)];
    }
    let planned = |settings: &Settings| {
        let context = DirectionContext {
            settings,
            side,
            device,
        };
        tree(&own.text, context)
    };
    // As it is configured. A direction that is not shaped is checked at the other one's rate.
    let mut real = settings.clone();
    let is_shaped = side.of(settings).rate.is_some();
    if !is_shaped {
        let rate = settings.egress.rate.or(settings.ingress.rate);
        direction_of(&mut real, side).rate = rate.or(Some(sqm_core::units::Rate::from_kbits_per_sec(1000)));
    }
    match planned(&real) {
        Err(errors) => return findings(errors),
        Ok(None) if is_shaped => {
            let (option, device) = (side.rate_option(settings), device_variable(side));
            let last = own.text.lines.last().map_or(1, |line| line.number);
            let message = format!(
                "{path}:{last}: no line makes a queue with 'dev {device}', so that option {option} would shape nothing: add a line, or \
                 set option {option} '0'"
            );
            return vec![Finding::of_value(message)];
        }
        Ok(_) => {}
    }
    for conditions in headings {
        let Some(case) = case_of(conditions, &real, side) else {
            let mut lines = own.text.lines.iter();
            let line = lines
                .find(|line| line.when == conditions)
                .map_or(1, |line| line.number);
            let error = TextError::at(
                line,
                "word 'when': the conditions of the heading above never hold together",
            );
            return findings(vec![error]);
        };
        if let Err(errors) = planned(&with_uses(case)) {
            return findings(errors);
        }
    }
    at_moved_rates(settings, side)
        .into_iter()
        .find_map(|(case, rate)| {
            let errors = planned(&case).err()?;
            let errors = errors.into_iter().map(|error| TextError {
                message: format!(
                    "{} (at {rate}, a rate that option autorate may choose)",
                    error.message
                ),
                ..error
            });
            Some(findings(errors.collect()))
        })
        .unwrap_or_default()
}

fn direction_of(settings: &mut Settings, side: Side) -> &mut crate::settings::DirectionSettings {
    match side {
        Side::Egress => &mut settings.egress,
        Side::Ingress => &mut settings.ingress,
    }
}

/// Settings with which all conditions hold; `None` if there are none.
fn case_of(conditions: &[Condition], settings: &Settings, side: Side) -> Option<Settings> {
    // The user's words for the leaf are for the queue that is configured, and may not suit another one.
    let mut case = settings.without_options();
    for condition in conditions {
        match condition.asks {
            Asked::SquashDscp => case.squash_dscp = Some(condition.is),
            Asked::SquashIngress => case.squash_ingress = Some(condition.is),
            Asked::Qdisc(_) => {}
        }
    }
    let own = direction_of(&mut case, side).qdisc;
    std::iter::once(own).chain(Leaf::ALL).find_map(|leaf| {
        direction_of(&mut case, side).qdisc = leaf;
        let fits = conditions.iter().all(|condition| holds(*condition, &case, side));
        fits.then(|| case.clone())
    })
}

/// The settings at the bounds between which `option autorate` moves the rate of this direction.
fn at_moved_rates(settings: &Settings, side: Side) -> Vec<(Settings, sqm_core::units::Rate)> {
    let (Some(autorate), Some(rate)) = (&settings.autorate, side.of(settings).rate) else {
        return Vec::new();
    };
    let limits = match side.rate_option(settings) {
        "upload" => autorate.upload,
        _ => autorate.download,
    };
    let bounds = limits.around(rate);
    let at = |rate| {
        let mut case = settings.clone();
        direction_of(&mut case, side).rate = Some(rate);
        (case, rate)
    };
    vec![at(bounds.min), at(bounds.max)]
}
