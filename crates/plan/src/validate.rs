//! Checks of a configuration before anything is changed: errors, and options without effect.
//!
//! A setup script acts on some options and not on others. An option that is given and has no effect is always reported, by a
//! warning that begins with `ignored`.

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::spec::cake::{Cake, Cells, MPU, OVERHEAD};
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::shortened;

use crate::device::Device;
use crate::diagnostic::{Finding, Report};
use crate::link::LinkLayer;
use crate::options::{self, Case};
use crate::plan::{Plan, Tree};
use crate::recipes::{self, RecipeError};
use crate::settings::{Mechanism, Script, Settings};
use crate::side::{DirectionContext, Side};
use crate::uci;

/// The sections of the file that describe interfaces.
pub(crate) fn queues<'a>(document: &'a uci::Document, report: &mut Report) -> Vec<uci::Section<'a>> {
    let mut sections = document.sections();
    report.section_lines = sections.iter().map(|section| section.line).collect();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for section in &sections {
        let Some(name) = section.name else { continue };
        match named.get(name) {
            Some(line) => {
                let name = shortened(name);
                let message = format!(
                    "a section named '{name}' is on line {line} already; give each section its own name, \
                        or none"
                );
                report.error(Finding::at(section.line, message));
            }
            None => {
                named.insert(name, section.line);
            }
        }
    }

    sections.retain(|section| section.kind == "queue" || foreign(section, report));
    sections
}

/// Reports a section of another kind, which is left out.
fn foreign(section: &uci::Section<'_>, report: &mut Report) -> bool {
    let kind = shortened(section.kind);
    let meant = nearest(section.kind, ["queue"]);
    let finding = Finding::at(section.line, format!("unknown section type '{kind}'")).suggest(meant);
    if meant.is_some() {
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
    if settings.egress.rate.is_none() && settings.ingress.rate.is_none() && settings.gives("upload") {
        let message = "neither direction has a rate: nothing is shaped";
        report.warning(Finding::at(settings.line, message));
    }
    if !framing_fits {
        return None;
    }

    let mut plans = [settings, &settings.without_options()]
        .map(|settings| recipes::plan(settings, device))
        .into_iter();
    match (plans.next()?, plans.next()?) {
        (Ok(plan), Ok(base)) => {
            for (side, base, tree) in [
                (Side::Egress, &base.egress, &plan.egress),
                (Side::Ingress, &base.ingress, &plan.ingress),
            ] {
                overridden(settings, side, device, base.as_ref(), tree.as_ref(), report);
            }
            Some(plan)
        }
        (Err(RecipeError { side, error }), _) => {
            refused(settings, side, error, report);
            // The first direction's words hide the other's: look at those alone, so that both are reported.
            let mut other = settings.clone();
            match side {
                Side::Egress => other.egress.options.clear(),
                Side::Ingress => other.ingress.options.clear(),
            }
            if let Err(RecipeError { side, error }) = recipes::plan(&other, device) {
                refused(settings, side, error, report);
            }
            None
        }
        (Ok(_), Err(_)) => None,
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
            let message =
                format!("the section on line {line} shapes '{interface}' already; disable one of the two");
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
    if link.preset.is_some() {
        for option in ["linklayer", "overhead", "tcMPU"] {
            if settings.gives(option) {
                let name = link.preset.map_or("", |preset| preset.name);
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
            for rule in option.ignored.iter().filter(|rule| (rule.applies)(&case)) {
                let message = format!("ignored: {}", case.reason(rule));
                let line = settings.line_of(option.name);
                report.warning(Finding::at(line, message).option(option.name));
            }
        }
    }
}

/// The option that holds the words of a direction.
const fn words_option(side: Side) -> &'static str {
    options::WORDS.on(side).name
}

fn refused(settings: &Settings, side: Side, error: ParseError, report: &mut Report) {
    let option = words_option(side);
    let message = format!("{} (word {})", error.reason(), error.index + 1);
    report.error(
        Finding::at(settings.line_of(option), message)
            .option(option)
            .suggest(error.suggestion),
    );
}

/// Warns where the user's words undo other options or do not do what they seem to. `base` is the tree without them.
fn overridden(
    settings: &Settings,
    side: Side,
    device: &Device,
    base: Option<&Tree>,
    tree: Option<&Tree>,
    report: &mut Report,
) {
    let option = words_option(side);
    let mut warn = |message: String| {
        report.warning(Finding::at(settings.line_of(option), message).option(option));
    };
    let leaf = |tree: Option<&Tree>| {
        tree.and_then(|tree| tree.qdiscs.last())
            .map(|leaf| leaf.qdisc.clone())
    };
    match (leaf(base), leaf(tree)) {
        (Some(Qdisc::Cake(base) | Qdisc::CakeMq(base)), Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake))) => {
            let counted_by = context(settings, side, device).mechanism();
            cake_overridden(settings, side, counted_by, [&base, &cake], &mut warn);
        }
        // A direction without rate has no queues for the words.
        (None, None) if settings.gives(option) => {
            let rate = side.rate_option(settings);
            warn(format!("ignored: {rate} is 0, so this direction is not shaped"));
        }
        (Some(base), Some(leaf)) => leaf_overridden(settings, side, &base, &leaf, &mut warn),
        _ => {}
    }
}

fn cake_overridden(
    settings: &Settings,
    side: Side,
    counted_by: Option<Mechanism>,
    [base, cake]: [&Cake; 2],
    warn: &mut dyn FnMut(String),
) {
    let words = || side.of(settings).options.split_whitespace();
    if let Some(rate) = base.bandwidth
        && cake.bandwidth != base.bandwidth
    {
        let option = side.rate_option(settings);
        let to = cake
            .bandwidth
            .map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
        warn(format!("overrides option {option}: {to} instead of {rate}"));
    }
    match counted_by {
        Some(Mechanism::Cake) if cake.framing != base.framing => {
            warn(format!(
                "overrides linklayer, overhead and tcMPU: '{}' instead of '{}'",
                cake.framing, base.framing
            ));
        }
        Some(Mechanism::TcStab) if cake.framing != base.framing => {
            warn(format!(
                "'{}' is counted on top of the size table, which counts the framing already",
                cake.framing
            ));
        }
        _ => {}
    }
    if !cake.framing.from_ip && (cake.framing.cells != Cells::None || cake.framing.mpu > 0) {
        let message = "atm, ptm and mpu without an overhead count from the link header, 14 bytes more on Ethernet; \
                       add 'overhead' with the bytes above IP";
        warn(message.to_owned());
    }
    if side == Side::Egress && cake.autorate_ingress {
        warn("'autorate-ingress' follows arriving traffic and has no use for departing packets".to_owned());
    }
    if words().any(|word| word == "via-ethernet") {
        warn("ignored: 'via-ethernet' has no effect".to_owned());
    }
    for option in &side.of(settings).cake {
        let mut again = cake.clone();
        option.value.apply_to(&mut again);
        if again != *cake {
            warn(format!("overrides option {}", option.name));
        }
    }
}

fn leaf_overridden(
    settings: &Settings,
    side: Side,
    base: &Qdisc,
    leaf: &Qdisc,
    warn: &mut dyn FnMut(String),
) {
    let [limit, target, ecn] =
        [&options::LIMIT, &options::TARGET, &options::ECN].map(|option| option.on(side).name);
    // Packets or bytes held, delay, marking; what a kind does not have is the same in both.
    let facts = |qdisc: &Qdisc| match qdisc {
        Qdisc::FqCodel(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Codel(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Pie(q) => (Some(q.limit), Some(q.target), q.ecn),
        Qdisc::Sfq(q) => (Some(q.limit), None, false),
        Qdisc::Pfifo(q) | Qdisc::Bfifo(q) | Qdisc::PfifoHeadDrop(q) => (q.limit, None, false),
        _ => (None, None, false),
    };
    let ((limit_before, target_before, ecn_before), (limit_now, target_now, ecn_now)) =
        (facts(base), facts(leaf));
    for (option, differs) in [
        (limit, limit_before != limit_now),
        (target, target_before != target_now),
        (ecn, ecn_before != ecn_now),
    ] {
        if differs && settings.gives(option) {
            warn(format!("overrides option {option}"));
        }
    }
}
