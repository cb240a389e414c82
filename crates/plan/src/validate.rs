//! What is wrong with a configuration, or has no effect in it, found before anything is touched.
//!
//! A set-up acts on some options and not on others. What is asked for and not done is never passed over: it becomes
//! a warning that begins with `ignored`.

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::spec::cake::{Cake, Cells, MPU, OVERHEAD};
use sqm_core::spec::fq_codel::FqCodel;
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::shortened;

use crate::diagnostic::{Finding, Report};
use crate::plan::{Plan, Tree};
use crate::recipes::{self, Device, Refusal, Side, is_cake};
use crate::settings::{Leaf, LinkLayer, Mechanism, Script, Settings, Target};
use crate::uci;

/// The sections of the file that describe interfaces.
pub(crate) fn queues<'a>(document: &'a uci::Document, report: &mut Report) -> Vec<uci::Section<'a>> {
    let sections = document.sections();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for section in &sections {
        let Some(name) = section.name else { continue };
        match named.get(name) {
            Some(line) => {
                let name = shortened(name);
                let message =
                    format!("section '{name}' is on line {line} already; give each its own name, or none");
                report.error(Finding::at(section.line, message));
            }
            None => {
                named.insert(name, section.line);
            }
        }
    }

    let (queues, others): (Vec<_>, Vec<_>) =
        sections.into_iter().partition(|section| section.kind == "queue");
    for section in others {
        let kind = shortened(section.kind);
        let meant = nearest(section.kind, ["queue"]);
        let finding = Finding::at(section.line, format!("unknown section type '{kind}'")).suggest(meant);
        if meant.is_some() {
            report.error(finding)
        } else {
            report.warning(finding)
        }
    }
    queues
}

/// Checks the settings of one interface and answers its plan, if there is nothing against making one.
pub(crate) fn settings(settings: &Settings, device: &Device, report: &mut Report) -> Option<Plan> {
    let leaf_known = leaf(settings, report);
    let framing_fits = framing(settings, report);
    ignored(settings, report);
    if settings.egress.rate.is_none() && settings.ingress.rate.is_none() && settings.gives("upload") {
        let message = "neither direction has a rate: nothing is shaped";
        report.warning(Finding::at(settings.line, message));
    }
    if !leaf_known || !framing_fits {
        return None;
    }

    let mut plans = [settings, &settings.without_options()]
        .map(|settings| recipes::plan(settings, device))
        .into_iter();
    match (plans.next()?, plans.next()?) {
        (Ok(plan), Ok(base)) => {
            overridden(
                settings,
                Side::Egress,
                base.egress.as_ref(),
                plan.egress.as_ref(),
                report,
            );
            overridden(
                settings,
                Side::Ingress,
                base.ingress.as_ref(),
                plan.ingress.as_ref(),
                report,
            );
            Some(plan)
        }
        (Err(Refusal { side, error }), _) => {
            refused(settings, side, error, report);
            // The first direction's words hide the other's: look at those alone, so that both are reported.
            let mut other = settings.clone();
            match side {
                Side::Egress => other.egress.options.clear(),
                Side::Ingress => other.ingress.options.clear(),
            }
            if let Err(Refusal { side, error }) = recipes::plan(&other, device) {
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
            let message = format!(
                "'{interface}' is shaped by the section on line {line} already; disable one of the two"
            );
            report.error(at(message));
            continue;
        }
        lines.insert(interface, settings.line);
        if plan.ingress.is_some()
            && let Some(other) = blocks.insert(plan.ifb(), interface)
        {
            let message = format!(
                "'{interface}' and '{other}' would share the device '{}', because a name holds 15 bytes; rename one, \
                 or give one of them download 0",
                plan.ifb()
            );
            report.error(at(message));
        }
    }
}

/// The leaf must be one that this version builds, if the set-up leaves a choice.
fn leaf(settings: &Settings, report: &mut Report) -> bool {
    let script = settings.script.file_name();
    let at = |message: String| Finding::at(settings.line_of("qdisc"), message).option("qdisc");
    let name = shortened(settings.qdisc.name());
    match (&settings.qdisc, settings.script) {
        (Leaf::Cake, _) | (Leaf::FqCodel, Script::Simplest) => {}
        (_, Script::PieceOfCake | Script::LayerCake) => {
            if settings.gives("qdisc") {
                report.warning(at(format!("ignored: {script} always uses cake, not '{name}'")));
            }
        }
        (Leaf::Other(_), Script::Simplest) => {
            const LATER: [&str; 3] = ["codel", "pie", "sfq"];
            if LATER.contains(&name.as_str()) {
                report.error(at(format!(
                    "'{name}' is not supported yet by {script}; choose fq_codel or cake"
                )));
            } else {
                let meant = nearest(&name, ["fq_codel", "cake"]);
                let message = format!("unknown queueing discipline '{name}'; choose fq_codel or cake");
                report.error(at(message).suggest(meant));
            }
            return false;
        }
    }
    true
}

/// The framing must be within what its mechanism can express, and the mechanism must exist in the set-up.
fn framing(settings: &Settings, report: &mut Report) -> bool {
    let link = &settings.link;
    let at = |option: &str, message: String| Finding::at(settings.line_of(option), message).option(option);
    let set_up = format!("{} with {}", settings.script.file_name(), settings.qdisc.name());
    let name = "linklayer_adaptation_mechanism";
    match recipes::mechanism(settings) {
        None => {
            for (option, asked) in [("overhead", link.overhead != 0), ("tcMPU", link.mpu != 0)] {
                if asked {
                    let message = "ignored: linklayer is 'none'; choose 'ethernet' or 'atm' to count it";
                    report.warning(at(option, message.into()));
                }
            }
        }
        Some(Mechanism::Cake) if is_cake(settings) => {
            let mut fits = true;
            for (option, value, range) in [
                ("overhead", i64::from(link.overhead), OVERHEAD),
                ("tcMPU", i64::from(link.mpu), MPU),
            ] {
                if !range.contains(&value) {
                    let message = format!(
                        "cake takes {} to {} bytes, not {value}",
                        range.start(),
                        range.end()
                    );
                    report.error(at(option, message));
                    fits = false;
                }
            }
            return fits;
        }
        Some(Mechanism::Cake) => {
            let message = format!("ignored: {set_up} has no cake, so overhead and linklayer are not counted");
            report.warning(at(name, message).suggest(Some("tc_stab")));
        }
        Some(Mechanism::HtbPrivate) if is_cake(settings) => {
            let message = "ignored: there is no htb under cake, so overhead and linklayer are not counted";
            report.warning(at(name, message.into()).suggest(Some("cake")));
        }
        Some(Mechanism::HtbPrivate) => {
            let message = "ignored: not supported yet, so overhead and linklayer are not counted";
            report.warning(at(name, message.into()).suggest(Some("tc_stab")));
        }
        Some(Mechanism::TcStab | Mechanism::Default) => {}
    }
    true
}

/// Warns of every option that asks for something which the set-up, or this version, does not do.
fn ignored(settings: &Settings, report: &mut Report) {
    let script = settings.script.file_name();
    let mut ignored = |option: &str, asked: bool, why: &str| {
        if asked && settings.gives(option) {
            report.warning(Finding::at(settings.line_of(option), format!("ignored: {why}")).option(option));
        }
    };

    ignored(
        "target",
        true,
        "nothing has ever used it; set itarget and etarget",
    );
    ignored("use_mq", settings.use_mq, "cake_mq is not supported yet");
    ignored("debug_logging", settings.debug_logging, "not supported yet");
    ignored("verbosity", settings.verbosity != 5, "not supported yet");

    if is_cake(settings) {
        let (egress, ingress) = (&settings.egress, &settings.ingress);
        let why = "cake limits its queue in bytes; write 'memlimit 4mb' in iqdisc_opts or eqdisc_opts";
        ignored("ilimit", ingress.limit.is_some(), why);
        ignored("elimit", egress.limit.is_some(), why);
        let why = "cake derives its target from rtt; write 'rtt 100ms' in iqdisc_opts or eqdisc_opts";
        ignored("itarget", matches!(ingress.target, Target::Is(_)), why);
        ignored("etarget", matches!(egress.target, Target::Is(_)), why);
        let why = "cake always marks packets that allow it";
        ignored("ingress_ecn", !ingress.ecn, why);
        ignored("egress_ecn", !egress.ecn, why);
    }

    let one_class = format!("{script} has one class for all packets");
    match settings.script {
        Script::PieceOfCake => ignored("squash_ingress", !settings.squash_ingress, &one_class),
        Script::LayerCake => {}
        Script::Simplest => {
            ignored("squash_ingress", !settings.squash_ingress, &one_class);
            ignored(
                "squash_dscp",
                settings.squash_dscp,
                &format!("{script} does not touch the DSCP of packets"),
            );
        }
    }

    if settings.link.layer != LinkLayer::None && recipes::mechanism(settings) != Some(Mechanism::TcStab) {
        let why = "only the mechanism tc_stab has a size table";
        ignored("tcMTU", settings.link.table_mtu != 2047, why);
        ignored("tcTSIZE", settings.link.table_size != 512, why);
    }
}

/// The option that holds a direction's words.
const fn words_option(side: Side) -> &'static str {
    match side {
        Side::Egress => "eqdisc_opts",
        Side::Ingress => "iqdisc_opts",
    }
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
        (Some(Qdisc::Cake(base)), Some(Qdisc::Cake(cake))) => {
            cake_overridden(settings, side, &base, &cake, &mut warn)
        }
        (Some(Qdisc::FqCodel(base)), Some(Qdisc::FqCodel(leaf))) => {
            fq_codel_overridden(settings, side, &base, &leaf, &mut warn);
        }
        // A direction without rate has no queues for the words.
        (None, None) if settings.gives(option) => {
            let rate = if side == Side::Egress {
                "upload"
            } else {
                "download"
            };
            warn(format!("ignored: {rate} is 0, so this direction is not shaped"));
        }
        _ => {}
    }
}

fn cake_overridden(settings: &Settings, side: Side, base: &Cake, cake: &Cake, warn: &mut dyn FnMut(String)) {
    let words = || side.of(settings).options.split_whitespace();
    if let Some(rate) = base.bandwidth
        && cake.bandwidth != base.bandwidth
    {
        let option = if side == Side::Egress {
            "upload"
        } else {
            "download"
        };
        let to = cake
            .bandwidth
            .map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
        warn(format!("overrides option {option}: {to} instead of {rate}"));
    }
    match recipes::mechanism(settings) {
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
        warn("'autorate-ingress' follows arriving traffic and makes no sense on what leaves".to_owned());
    }
    if words().any(|word| word == "via-ethernet") {
        warn("ignored: 'via-ethernet' has no effect".to_owned());
    }
}

fn fq_codel_overridden(
    settings: &Settings,
    side: Side,
    base: &FqCodel,
    leaf: &FqCodel,
    warn: &mut dyn FnMut(String),
) {
    let [limit, target, ecn] = match side {
        Side::Egress => ["elimit", "etarget", "egress_ecn"],
        Side::Ingress => ["ilimit", "itarget", "ingress_ecn"],
    };
    for (option, differs) in [
        (limit, leaf.limit != base.limit),
        (target, leaf.target != base.target),
        (ecn, leaf.ecn != base.ecn),
    ] {
        if differs && settings.gives(option) {
            warn(format!("overrides option {option}"));
        }
    }
}
