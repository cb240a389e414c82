//! Checks of a configuration before anything is changed: errors, and options without effect.
//!
//! A setup script acts on some options and not on others. An option that is given and has no effect is always reported, by a
//! warning that begins with `ignored`.

mod words;

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::spec::cake::{MPU, OVERHEAD};
use sqm_core::units::{Rate, shortened};

use crate::device::Device;
use crate::diagnostic::{Finding, Report};
use crate::link::LinkLayer;
use crate::options::{self, Case};
use crate::plan::Plan;
use crate::recipes::{self, Fault, RecipeError, own};
use crate::services;
use crate::settings::{Mechanism, Script, Settings};
use crate::side::{DirectionContext, Side};
use crate::uci;

/// The fastest Ethernet that is standardised (IEEE 802.3df, 2024).
const FASTEST_ETHERNET: Rate = Rate::from_bits_per_sec(800_000_000_000);

/// The sections of the file that describe interfaces.
pub(crate) fn queues<'a>(document: &'a uci::Document, report: &mut Report) -> Vec<uci::Section<'a>> {
    let mut sections = document.sections();
    for section in &sections {
        let lines = std::iter::once(section.line).chain(section.more_lines.iter().copied());
        report
            .section_lines
            .extend(lines.map(|line| (line, section.index)));
    }
    report.section_lines.sort_unstable();
    for uci::Error { line, message, .. } in document.remarks() {
        report.warning(Finding::at(*line, message.as_str()));
    }
    sections.retain(|section| section.kind == "queue" || foreign(section, report));
    sections
}

/// Reports a section of another kind, which is left out.
fn foreign(section: &uci::Section<'_>, report: &mut Report) -> bool {
    if services::is_checked(section, report) {
        return false;
    }
    let kind = shortened(section.kind);
    let queue = nearest(section.kind, ["queue"]);
    let meant = queue.or_else(|| nearest(section.kind, services::kinds()));
    let finding = Finding::at(section.line, format!("unknown section type '{kind}'")).suggest(meant);
    if queue.is_some() {
        report.error(finding);
    } else {
        report.warning(finding);
    }
    false
}

/// Checks the settings of one interface and answers its plan, if there is nothing against making one.
pub(crate) fn settings(settings: &Settings, device: &Device, report: &mut Report) -> Option<Plan> {
    let framing_fits = framing(settings, device, report);
    ignored(settings, device, report);
    implausible_rates(settings, report);
    if settings.egress.rate.is_none() && settings.ingress.rate.is_none() && settings.gives("upload") {
        let message = "neither direction has a rate: nothing is shaped";
        report.warning(Finding::at(settings.line, message));
    }
    if !framing_fits || !own::check(settings, device, report) {
        return None;
    }
    own::report_without_effect(settings, report);

    let mut plans = [settings, &settings.without_options()]
        .map(|settings| recipes::plan(settings, device))
        .into_iter();
    match (plans.next()?, plans.next()?) {
        (Ok(plan), Ok(base)) => {
            for (side, base, tree) in [
                (Side::Egress, &base.egress, &plan.egress),
                (Side::Ingress, &base.ingress, &plan.ingress),
            ] {
                words::check(
                    context(settings, side, device),
                    base.as_ref(),
                    tree.as_ref(),
                    report,
                );
            }
            Some(plan)
        }
        (Err(RecipeError { side, fault }), _) | (Ok(_), Err(RecipeError { side, fault })) => {
            refused(settings, side, fault, report);
            // The first direction's words hide the other's: look at those alone, so that both are reported.
            let mut other = settings.clone();
            match side {
                Side::Egress => other.egress.options.clear(),
                Side::Ingress => other.ingress.options.clear(),
            }
            if let Err(RecipeError { side, fault }) = recipes::plan(&other, device) {
                refused(settings, side, fault, report);
            }
            None
        }
    }
}

/// Checks what several interfaces must not share.
pub(crate) fn together(planned: &[(Settings, Plan)], report: &mut Report) {
    report.disabled = false;
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    let mut blocks: BTreeMap<String, &str> = BTreeMap::new();
    for (settings, plan) in planned {
        let interface = plan.interface.as_str();
        let at = |message: String| Finding::at(settings.line_of("interface"), message).option("interface");
        if let Some(line) = lines.get(interface) {
            let message = format!(
                "the section on line {line} shapes '{interface}' already: keep one of the two. To give each direction \
                 its own setup script, write both into one section, as egress_script and ingress_script"
            );
            report.error(at(message));
            continue;
        }
        lines.insert(interface, settings.line);
        if plan.ingress.is_some()
            && let Some(other) = blocks.insert(plan.ifb(), interface)
        {
            let message = format!(
                "'{interface}' and '{other}' would share the device '{}', because a device's name has at most 15 \
                 bytes; rename one, or set option download '0' for one",
                plan.ifb()
            );
            report.error(at(message));
        }
    }
}

const fn context<'a>(settings: &'a Settings, side: Side, device: &'a Device) -> DirectionContext<'a> {
    DirectionContext {
        settings,
        side,
        device,
    }
}

/// The framing must be within what its mechanism can express.
fn framing(settings: &Settings, device: &Device, report: &mut Report) -> bool {
    let link = &settings.link;
    let mut fits = true;
    let mut say = |option: &str, message: String, is_error: bool, suggestion: Option<&str>| {
        let finding = Finding::at(settings.line_of(option), message)
            .option(option)
            .suggest(suggestion);
        if is_error {
            report.error(finding);
        } else {
            report.warning(finding);
        }
    };
    if link.layer == LinkLayer::None {
        return true;
    }
    if let Some(preset) = link.preset {
        let (name, is_same) = (preset.name, preset.layer == link.layer);
        for option in ["linklayer", "overhead", "tcMPU"] {
            if settings.gives(option) && !(option == "linklayer" && is_same) {
                say(
                    option,
                    format!("overrides the value of option link '{name}'"),
                    false,
                    None,
                );
            }
        }
    }
    let overhead = settings.overhead_above_ip(device);
    for side in Side::ALL {
        let direction = side.of(settings);
        if direction.rate.is_none() || side.is_same_as_egress(settings) && settings.egress.rate.is_some() {
            continue;
        }
        let (cake, script) = (direction.is_cake(), direction.script.file_name());
        let counted_by = context(settings, side, device).mechanism();
        if counted_by == Some(Mechanism::Cake) {
            for (option, value, range) in [
                ("overhead", i64::from(overhead), OVERHEAD),
                ("tcMPU", i64::from(link.mpu), MPU),
            ] {
                if !range.contains(&value) {
                    let (least, most) = (range.start(), range.end());
                    say(
                        option,
                        format!("cake takes {least} to {most} bytes, not {value}"),
                        true,
                        None,
                    );
                    fits = false;
                }
            }
        }
        let name = "linklayer_adaptation_mechanism";
        match link.mechanism {
            Mechanism::Cake if !cake => {
                let message = format!("{script} has no cake; a size table counts overhead and linklayer");
                say(name, message, false, Some("tc_stab"));
            }
            Mechanism::HtbPrivate if cake => {
                let message = format!("{script} has no htb; cake counts overhead and linklayer itself");
                say(name, message, false, Some("cake"));
            }
            Mechanism::HtbPrivate if counted_by == Some(Mechanism::TcStab) => {
                let message = if matches!(direction.script, Script::HfscLite | Script::HfscLitest) {
                    format!("{script} has no htb; a size table counts overhead and linklayer")
                } else {
                    format!(
                        "htb cannot subtract the {} bytes by which overhead {overhead} is below the header that \
                         the kernel counts; a size table does",
                        i64::from(device.header) - i64::from(overhead)
                    )
                };
                say(name, message, false, Some("tc_stab"));
            }
            _ => {}
        }
    }
    fits
}

/// Warns of a rate that no line has: its unit may be wrong.
fn implausible_rates(settings: &Settings, report: &mut Report) {
    for side in Side::ALL {
        let Some(rate) = side.of(settings).rate.filter(|rate| *rate > FASTEST_ETHERNET) else {
            continue;
        };
        let option = side.rate_option(settings);
        let message = format!(
            "{rate} is faster than any Ethernet ({FASTEST_ETHERNET}), so nothing would wait in the shaper; check the unit \
             (a number without unit is kbit/s)"
        );
        report.warning(Finding::at(settings.line_of(option), message).option(option));
    }
}

/// Warns of every option that has no effect, by the rules of the registry.
fn ignored(settings: &Settings, device: &Device, report: &mut Report) {
    for option in options::all() {
        let sides = Side::ALL.into_iter();
        for side in sides.filter(|side| option.side.is_none_or(|own| own == *side)) {
            let case = Case {
                option,
                side,
                settings,
                device,
            };
            if own::is_judged(&case) {
                continue;
            }
            for rule in option.ignored.iter().filter(|rule| (rule.applies)(&case)) {
                let message = format!("ignored: {}", case.reason(rule));
                let line = settings.line_of(option.name);
                report.warning(Finding::at(line, message).option(option.name));
            }
        }
    }
}

/// Reports an error in what the user wrote for the queues of a direction.
fn refused(settings: &Settings, side: Side, fault: Fault, report: &mut Report) {
    let error = match fault {
        Fault::Words(error) => error,
        Fault::Text(errors) => return own::report_errors(settings, side, errors, report),
    };
    let option = options::WORDS.on(side).name;
    let message = format!("{} (word {})", error.reason(), error.index + 1);
    report.error(
        Finding::at(settings.line_of(option), message)
            .option(option)
            .suggest(error.suggestion),
    );
}

#[cfg(test)]
mod tests;
