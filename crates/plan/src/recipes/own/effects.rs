//! Which options a text uses, and the warning for those that it does not.

use std::collections::BTreeSet;

use super::variables::{Reference, first_reference};
use super::{active, tree};
use crate::diagnostic::{Finding, Report};
use crate::options::{self, Case, OptionInfo, Tab};
use crate::own::OwnText;
use crate::own::text::{Line, Program};
use crate::plan::Firewall;
use crate::settings::{Script, Settings};
use crate::side::Side;

/// Stands for `firewall mark` among the names that a text uses.
const FIREWALL_MARK: &str = "firewall mark";

/// The variables that the commands of a direction use, and the options that the headings above its commands ask for.
pub(super) fn uses(text: &OwnText, settings: &Settings, side: Side) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let is_here = |line: &&Line| side_of(line, settings) == Some(side);
    for line in text.lines.iter().filter(is_here) {
        used.extend(
            line.when
                .iter()
                .map(|condition| condition.asks.option().to_owned()),
        );
    }
    for line in active(text, settings, side).filter(is_here) {
        if line.program == Program::Firewall && side == Side::Egress {
            used.insert(FIREWALL_MARK.to_owned());
        }
        for word in &line.words {
            add_names(&word.text, &mut used);
        }
    }
    used
}

/// Adds the names of the variables of a word, those in its expressions included.
fn add_names(word: &str, used: &mut BTreeSet<String>) {
    let mut rest = word;
    while let Some(Ok((_, reference, after))) = first_reference(rest) {
        rest = after;
        let expression = match reference {
            Reference::Expression(text) => Some(text),
            Reference::Name(name, argument) => {
                used.insert(name.to_owned());
                argument
            }
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = expression
            .into_iter()
            .flat_map(|text| text.split(|c| !is_of_name(c)));
        used.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
    }
}

/// The direction that a line is about.
fn side_of(line: &Line, settings: &Settings) -> Option<Side> {
    match line.program {
        Program::Tc => tree::side_of(&tree::device_word(line)?.text, settings),
        Program::Ip => None,
        Program::Firewall => match tree::firewall(line).ok()? {
            tree::FirewallRules::Mark => Some(Side::Egress),
            tree::FirewallRules::EraseDscp => Some(Side::Ingress),
        },
    }
}

/// Adds the rules of the firewall that the texts ask for: marks of what leaves, and the erased DSCP of what arrives.
pub(crate) fn add_firewall(settings: &Settings, firewall: &mut Firewall) {
    for side in Side::ALL {
        let direction = side.of(settings);
        let (Script::Own(own), Some(_)) = (&direction.script, direction.rate) else {
            continue;
        };
        let mut lines = active(&own.text, settings, side);
        let asks =
            lines.any(|line| line.program == Program::Firewall && side_of(line, settings) == Some(side));
        match side {
            Side::Egress => firewall.marks_leaving |= asks,
            Side::Ingress => firewall.erases_dscp |= asks,
        }
    }
}

/// The names by which a text uses an option; `None` for an option that works whatever the setup script is.
fn names_of(option: &OptionInfo, side: Side, settings: &Settings) -> Option<&'static [&'static str]> {
    const FRAMING: [&str; 4] = ["STAB", "CAKE_FRAMING", "HTB_FRAMING", "OVERHEAD"];
    Some(match option.name {
        name if name == side.rate_option(settings) => match side {
            Side::Egress => &["UPLINK"],
            Side::Ingress => &["DOWNLINK"],
        },
        "qdisc" | "egress_qdisc" | "ingress_qdisc" => &["QDISC", "qdisc"],
        "elimit" | "ilimit" => &["LIMIT"],
        "etarget" | "itarget" => &["TARGET"],
        "egress_ecn" | "ingress_ecn" => &["ECN"],
        "eqdisc_opts" | "iqdisc_opts" => &["OPTIONS"],
        "autoflow" => &["FLOWS"],
        "shaper_burst_dur_us" => &["HTB_BURST", "BURST", "HTB_QUANTUM"],
        "eshaper_burst_dur_us" | "ishaper_burst_dur_us" => &["HTB_BURST", "BURST"],
        "shaper_quantum_dur_us" | "eshaper_quantum_dur_us" | "ishaper_quantum_dur_us" => &["HTB_QUANTUM"],
        "use_mq" => &["CAKE"],
        "squash_dscp" => &["WASH", "squash_dscp"],
        "squash_ingress" => &["squash_ingress"],
        "mark_mask" => &["MARK_MASK", FIREWALL_MARK],
        "link" | "linklayer" | "overhead" => &FRAMING,
        "tcMPU" => &["STAB", "CAKE_FRAMING", "HTB_FRAMING", "MPU"],
        "linklayer_adaptation_mechanism" => &["STAB", "CAKE_FRAMING", "HTB_FRAMING"],
        "tcMTU" | "tcTSIZE" => &["STAB", "HTB_FRAMING"],
        _ if option.is_of_cake => &["CAKE_OPTIONS"],
        _ => return None,
    })
}

/// True if [`report`] says whether the option has an effect in this direction, in place of the rules of the registry. Those of the
/// link layer do not depend on the setup script.
pub(crate) fn is_judged(case: &Case<'_>) -> bool {
    let is_own = matches!(case.side.of(case.settings).script, Script::Own(_));
    is_own && case.option.tab != Some(Tab::Link) && names_of(case.option, case.side, case.settings).is_some()
}

/// Warns of each option that no text uses. If a direction has a built-in setup script, the rules of the registry decide about the
/// options for both directions.
pub(crate) fn report(settings: &Settings, report: &mut Report) {
    for option in options::all().filter(|option| settings.gives(option.name)) {
        let mut unused: Option<(&str, &[&str])> = None;
        let mut is_used = false;
        for side in Side::ALL {
            let direction = side.of(settings);
            if direction.rate.is_none() || option.side.is_some_and(|own| own != side) {
                continue;
            }
            let Some(names) = names_of(option, side, settings) else {
                continue;
            };
            match &direction.script {
                Script::Own(own) if !names.iter().any(|name| own.uses(name)) => {
                    unused = Some((&own.text.name, names))
                }
                _ => is_used = true,
            }
        }
        let Some((script, names)) = unused.filter(|_| !is_used) else {
            continue;
        };
        let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
        let message = format!(
            "ignored: {script} does not use it: it has no {}",
            names.join(", ")
        );
        report.warning(Finding::at(settings.line_of(option.name), message).option(option.name));
    }
}

/// A name as a text writes it.
fn shown(name: &str) -> String {
    match name {
        FIREWALL_MARK => format!("'{name}'"),
        name if name.starts_with(|c: char| c.is_ascii_lowercase()) => format!("heading [when {name}]"),
        name => format!("${name}"),
    }
}
