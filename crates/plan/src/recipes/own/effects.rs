//! Which options a text uses, and the warning for those that it does not.

use std::collections::BTreeSet;

use sqm_core::units::shortened;

use super::variables::{Reference, first_reference};
use super::{active, tree};
use crate::diagnostic::{Finding, Report};
use crate::options::{self, Case, OptionInfo, Tab};
use crate::own::text::{Line, Program};
use crate::own::{OwnText, TextError};
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
    if side == Side::Egress && printed_rules(text, settings, side).is_ok_and(|rules| rules.is_some()) {
        used.insert(FIREWALL_MARK.to_owned());
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
        Program::Ip | Program::Nft => None,
        Program::Firewall => match tree::firewall(line).ok()? {
            tree::FirewallRules::Mark => Some(Side::Egress),
            tree::FirewallRules::EraseDscp => Some(Side::Ingress),
        },
    }
}

/// The rules that the commands of nft in a text make, which must be those of sqm as `sqm plan` prints them. `None` if it has no such
/// command.
pub(super) fn printed_rules(
    text: &OwnText,
    settings: &Settings,
    side: Side,
) -> Result<Option<Firewall>, TextError> {
    let lines = active(text, settings, side).filter(|line| line.program == Program::Nft);
    let written: Vec<(usize, &str)> = lines
        .map(|line| (line.number, line.words[0].text.as_str()))
        .collect();
    let Some((first, _)) = written.first() else {
        return Ok(None);
    };
    let rules = |marks_leaving, erases_dscp| Firewall {
        table: Firewall::table_of(&settings.interface),
        interface: settings.interface.clone(),
        mask: settings.mark_mask,
        marks_leaving,
        erases_dscp,
    };
    let mut known = [(true, true), (true, false), (false, true)]
        .map(|(marks, erases)| rules(marks, erases))
        .into_iter();
    if let Some(rules) = known.find(|rules| rules.nft().iter().eq(written.iter().map(|(_, line)| *line))) {
        return Ok(Some(rules));
    }
    let all = rules(true, true).nft();
    let foreign = written
        .iter()
        .find(|(_, line)| all.iter().all(|known| known != line));
    let (line, word) = foreign.copied().unwrap_or((*first, "nft"));
    let message = format!(
        "word '{}': a text has no firewall rules but those that sqm makes: write 'firewall mark' or 'firewall erase-dscp', or all of \
         their commands as 'sqm plan' prints them",
        shortened(word)
    );
    Err(TextError::at(line, message))
}

/// Adds the rules of the firewall that the texts ask for: marks of what leaves, and the erased DSCP of what arrives.
pub(crate) fn add_firewall(settings: &Settings, firewall: &mut Firewall) {
    for side in Side::ALL {
        let direction = side.of(settings);
        let (Script::Own(own), Some(_)) = (&direction.script, direction.rate) else {
            continue;
        };
        let printed = printed_rules(&own.text, settings, side).ok().flatten();
        let is_printed = printed.is_some_and(|rules| match side {
            Side::Egress => rules.marks_leaving,
            Side::Ingress => rules.erases_dscp,
        });
        let mut lines = active(&own.text, settings, side);
        let asks = is_printed
            || lines.any(|line| line.program == Program::Firewall && side_of(line, settings) == Some(side));
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
        let device = option
            .side
            .map(|side| format!(" for {}", tree::device_variable(side)));
        let message = format!(
            "ignored: {script} does not use it: it has no {}{device}",
            names.join(", "),
            device = device.unwrap_or_default(),
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
