//! The variables of a text, and their values in one direction.

use sqm_core::spec::cake::AckFilter;
use sqm_core::units::{Bytes, Rate, shortened};

use super::expression::{self, Wrong};
use crate::framing;
use crate::options;
use crate::own::near;
use crate::own::text::Word;
use crate::plan::Plan;
use crate::recipes::{self, computed};
use crate::settings::{CakeValue, Facing, Leaf, Mechanism, Target};
use crate::side::{DirectionContext, Side};

/// All variables, with their meaning for the reference page.
pub(super) const VARIABLES: [(&str, &str); 26] = [
    ("IFACE", "The interface of the section."),
    (
        "IFB",
        "The IFB that carries what arrives. sqm makes it, and redirects arriving packets to it.",
    ),
    (
        "UPLINK",
        "The rate of what leaves `$IFACE`: `upload`, or `download` with `facing lan`. It has its unit; a `kbit` after it is allowed, as in sqm-scripts. In an expression it is a number of whole kbit/s.",
    ),
    (
        "DOWNLINK",
        "The rate of what arrives through `$IFACE`, in the same way.",
    ),
    ("MTU", "The MTU of `$IFACE`, bytes."),
    (
        "OVERHEAD",
        "Bytes that the line adds to an IP packet: `overhead`, or what `link` gives.",
    ),
    ("MPU", "`tcMPU`, bytes."),
    (
        "STAB",
        "`stab …` for a root qdisc, if a size table counts the framing; else nothing.",
    ),
    (
        "CAKE_FRAMING",
        "`overhead …` for `cake`, if CAKE counts the framing; else nothing.",
    ),
    (
        "HTB_FRAMING",
        "`overhead …` for a class of HTB or for TBF, if that counts the framing; else nothing.",
    ),
    (
        "HTB_BURST",
        "`burst … cburst …` for a class of HTB, by `shaper_burst_dur_us`; nothing if that is 0.",
    ),
    (
        "HTB_QUANTUM",
        "`quantum …` for a class of HTB, by `shaper_quantum_dur_us`.",
    ),
    ("BURST", "Bytes for `burst` of TBF, by `shaper_burst_dur_us`."),
    (
        "QDISC",
        "The leaf, by `qdisc`. `fq_codel` in place of `cake`, which would shape a second time.",
    ),
    ("LIMIT", "`limit …` for a leaf, by `elimit` and `ilimit`."),
    (
        "TARGET",
        "`target … interval …` for a leaf, by `etarget` and `itarget`.",
    ),
    (
        "ECN",
        "`ecn` or `noecn` for a leaf, by `egress_ecn` and `ingress_ecn`.",
    ),
    (
        "QUANTUM(300)",
        "`quantum 300` for a leaf that is fq_codel; nothing for another.",
    ),
    (
        "FLOWS(UPLINK / 3)",
        "`flows …` for a leaf with queues. With `autoflow` the number follows the rate in kbit/s; without a number it is the direction's.",
    ),
    ("OPTIONS", "The words of `eqdisc_opts` and `iqdisc_opts`."),
    (
        "CAKE",
        "`cake`, or `cake_mq` with `use_mq` on a device with several queues.",
    ),
    (
        "CAKE_OPTIONS",
        "The words of the options `cake_…` that the section gives.",
    ),
    ("NAT", "`nat` with `facing internet`, else `nonat`."),
    (
        "WASH",
        "`wash` for what arrives, unless `squash_dscp` is off; else `nowash`.",
    ),
    ("MARK_MASK", "`mark_mask`, such as `0xff`."),
    (
        "((UPLINK / 3))",
        "A whole number: `+ - * /`, parentheses, `min(a, b)`, `max(a, b)`, and the names UPLINK, DOWNLINK, MTU, OVERHEAD, MPU.",
    ),
];

/// Most bytes that one word of a text stands for, a choice: a word may have thousands of variables, and an option be as long as a
/// configuration.
const LONGEST: usize = 8192;

/// The names of an expression.
const NUMBERS: [&str; 5] = ["UPLINK", "DOWNLINK", "MTU", "OVERHEAD", "MPU"];

/// Variables of sqm-scripts' shell, and the one here that means the same.
const OF_SQM_SCRIPTS: [(&str, &str); 9] = [
    ("DEV", "IFB"),
    ("TC", "tc"),
    ("IP", "ip"),
    ("CEIL", "UPLINK"),
    ("EQDISC_OPTS", "OPTIONS"),
    ("IQDISC_OPTS", "OPTIONS"),
    ("IPT_MASK", "MARK_MASK"),
    ("ELIMIT", "LIMIT"),
    ("ILIMIT", "LIMIT"),
];

/// The names without what may stand in parentheses.
pub(super) fn names() -> Vec<&'static str> {
    let plain = VARIABLES
        .iter()
        .map(|(name, _)| name.split('(').next().unwrap_or(name));
    plain.filter(|name| !name.is_empty()).collect()
}

/// One `$…` of a word: the text before it, and what it is.
pub(super) enum Reference<'a> {
    /// `$NAME`, `${NAME}`, or `$NAME(…)` with an argument.
    Name(&'a str, Option<&'a str>),
    /// `$((…))`.
    Expression(&'a str),
}

/// Splits a word at its first `$`: what stands before, the reference, and the rest. `None` for a word without one.
pub(super) fn first_reference(word: &str) -> Option<Result<(&str, Reference<'_>, &str), Wrong>> {
    let (before, after) = word.split_once('$')?;
    Some(reference(after).map(|(reference, rest)| (before, reference, rest)))
}

fn reference(after: &str) -> Result<(Reference<'_>, &str), Wrong> {
    if after.starts_with("((") {
        let (inside, rest) = parenthesized(after)?;
        let inner = inside.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
        let inner = inner.ok_or_else(|| ("an expression is written $((…))".to_owned(), None))?;
        return Ok((Reference::Expression(inner), rest));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = match after.strip_prefix('{') {
        Some(braced) => {
            let (name, rest) = braced
                .split_once('}')
                .ok_or_else(|| ("a variable is not closed by '}'".to_owned(), None))?;
            (name, rest)
        }
        None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
    };
    if name.is_empty() || !name.chars().all(is_name) {
        let message = match name.is_empty() {
            true => "after '$' stands the name of a variable, such as $UPLINK, or an expression, such as $((UPLINK / 3))".to_owned(),
            false => format!("'{}' is not the name of a variable", shortened(name)),
        };
        return Err((message, None));
    }
    if rest.starts_with('(') {
        let (argument, rest) = parenthesized(rest)?;
        return Ok((Reference::Name(name, Some(argument)), rest));
    }
    Ok((Reference::Name(name, None), rest))
}

/// The text within the parentheses with which `text` begins, and the text after them.
fn parenthesized(text: &str) -> Result<(&str, &str), Wrong> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Ok((&text[1..at], &text[at + 1..])),
            ')' => depth -= 1,
            _ => {}
        }
    }
    Err(("a parenthesis is not closed".to_owned(), None))
}

/// Replaces the variables of a line, word by word.
pub(super) struct Scope<'a> {
    pub(super) context: DirectionContext<'a>,
    /// The leaf that the line is about, once its kind was read.
    leaf: Option<Leaf>,
    /// The kind of qdisc or class that the line is about.
    kind: Option<String>,
}

impl<'a> Scope<'a> {
    pub(super) const fn new(context: DirectionContext<'a>) -> Self {
        Self {
            context,
            leaf: None,
            kind: None,
        }
    }

    /// The words that a word of the text stands for: none, one or several.
    pub(super) fn expand(&mut self, word: &Word) -> Result<String, Wrong> {
        let mut expanded = String::new();
        let mut rest = word.text.as_str();
        while let Some(found) = first_reference(rest) {
            let (before, reference, after) = found?;
            expanded.push_str(before);
            rest = after;
            match reference {
                Reference::Expression(text) => expanded.push_str(&self.compute(text)?.to_string()),
                Reference::Name(name, argument) => {
                    expanded.push_str(&self.value(name, argument)?);
                    if ["UPLINK", "DOWNLINK"].contains(&name) && rest == "kbit" {
                        rest = "";
                    }
                }
            }
            if expanded.len() > LONGEST {
                return Err((format!("it stands for more than {LONGEST} bytes"), None));
            }
        }
        expanded.push_str(rest);
        self.note_kind(&expanded);
        Ok(expanded)
    }

    /// Remembers the kind of qdisc, on which the values of the variables of leaves depend.
    fn note_kind(&mut self, expanded: &str) {
        const OTHERS: [&str; 6] = ["cake", "cake_mq", "htb", "hfsc", "tbf", "pfifo_head_drop"];
        let leaf = Leaf::ALL.into_iter().find(|leaf| leaf.name() == expanded);
        if self.kind.is_none() && (leaf.is_some() || OTHERS.contains(&expanded)) {
            self.kind = Some(expanded.to_owned());
            self.leaf = leaf.filter(|leaf| *leaf != Leaf::Cake);
        }
    }

    fn compute(&self, text: &str) -> Result<i64, Wrong> {
        let number = |name: &str| -> Option<Result<i64, Wrong>> {
            let settings = self.context.settings;
            let number = match name {
                "UPLINK" | "DOWNLINK" => {
                    let rate = match self.rate(name) {
                        Ok(rate) => rate,
                        Err(wrong) => return Some(Err(wrong)),
                    };
                    i64::try_from(rate.kbits_per_sec()).unwrap_or(i64::MAX)
                }
                "MTU" => self.context.device.mtu.into(),
                "OVERHEAD" => settings.overhead_above_ip(self.context.device).into(),
                "MPU" => settings.link.mpu.into(),
                _ => return None,
            };
            Some(Ok(number))
        };
        expression::compute(text, &NUMBERS, &number)
    }

    /// The rate that is meant by a name.
    fn rate(&self, name: &str) -> Result<Rate, Wrong> {
        let side = match name {
            "UPLINK" => Side::Egress,
            _ => Side::Ingress,
        };
        let context = DirectionContext { side, ..self.context };
        if context.direction().rate.is_none() {
            let option = side.rate_option(self.context.settings);
            return Err((
                format!("option {option} is 0, so that there is no such rate"),
                None,
            ));
        }
        Ok(context.rate())
    }

    fn value(&self, name: &str, argument: Option<&str>) -> Result<String, Wrong> {
        let takes_argument = ["QUANTUM", "FLOWS"].contains(&name);
        if let Some(argument) = argument.filter(|_| !takes_argument && names().contains(&name)) {
            return Err((
                format!(
                    "${name} takes nothing in parentheses, not '{}'",
                    shortened(argument)
                ),
                None,
            ));
        }
        let context = self.context;
        let DirectionContext { settings, device, .. } = context;
        let direction = context.direction();
        Ok(match name {
            "IFACE" => device.name.clone(),
            "IFB" => Plan::ifb_of(&device.name),
            "UPLINK" | "DOWNLINK" => self.rate(name)?.to_string(),
            "MTU" => device.mtu.to_string(),
            "OVERHEAD" => settings.overhead_above_ip(device).to_string(),
            "MPU" => settings.link.mpu.to_string(),
            "STAB" => framing::stab(context).map_or_else(String::new, |stab| format!("stab {stab}")),
            "CAKE_FRAMING" => match context.mechanism() {
                Some(Mechanism::Cake) => framing::in_cake(context).to_string(),
                _ => String::new(),
            },
            "HTB_FRAMING" => self.private_framing(),
            "HTB_BURST" => match direction.burst_micros {
                0 => String::new(),
                _ => {
                    let burst = computed::htb_burst(context);
                    format!("burst {burst} cburst {burst}")
                }
            },
            "HTB_QUANTUM" => format!("quantum {}", computed::quantum(context)),
            "BURST" => computed::burst(context.rate(), direction.burst_micros, device.mtu).to_string(),
            "QDISC" => match direction.qdisc {
                Leaf::Cake => Leaf::FqCodel.name().to_owned(),
                leaf => leaf.name().to_owned(),
            },
            "LIMIT" | "TARGET" | "ECN" | "QUANTUM" | "FLOWS" => self.of_leaf(name, argument)?,
            "OPTIONS" => direction.options.clone(),
            "CAKE" => match recipes::is_multi_queue(settings, context.side, device) {
                true => "cake_mq".to_owned(),
                false => "cake".to_owned(),
            },
            "CAKE_OPTIONS" => self.cake_options(),
            "NAT" => word(settings.facing == Facing::Internet, "nat", "nonat"),
            "WASH" => {
                let erases = context.side == Side::Ingress && settings.squash_dscp.unwrap_or(true);
                word(erases, "wash", "nowash")
            }
            "MARK_MASK" => format!("{:#x}", settings.mark_mask),
            _ => return Err(unknown(name)),
        })
    }

    /// The words of HTB and TBF for the framing. `mtu` is what `tc` computes a missing burst from.
    fn private_framing(&self) -> String {
        if self.context.mechanism() != Some(Mechanism::HtbPrivate) {
            return String::new();
        }
        let framing = framing::private(self.context);
        let mtu = match self.kind.as_deref() {
            Some("htb") => format!("mtu {} ", self.context.settings.link.table_mtu),
            _ => String::new(),
        };
        format!(
            "{mtu}overhead {} mpu {} linklayer {}",
            framing.overhead, framing.mpu, framing.linklayer
        )
    }

    /// The words of an option for a leaf, as far as its kind has such a parameter.
    fn of_leaf(&self, name: &str, argument: Option<&str>) -> Result<String, Wrong> {
        let Some(leaf) = self.leaf else {
            let kind = self.kind.as_deref().unwrap_or("anything before the leaf's name");
            return Err((
                format!("${name} is for a leaf, such as fq_codel, and not for {kind}"),
                None,
            ));
        };
        let direction = self.context.direction();
        let has_aqm = matches!(leaf, Leaf::FqCodel | Leaf::Codel | Leaf::Pie);
        let has_flows = matches!(leaf, Leaf::FqCodel | Leaf::Sfq);
        Ok(match name {
            "LIMIT" => format!("limit {}", recipes::leaf::limit(self.context, leaf)),
            "ECN" if has_aqm => word(direction.ecn, "ecn", "noecn"),
            "TARGET" if has_aqm => {
                let (target, interval) = match direction.target {
                    Target::Auto => {
                        let (target, interval) = recipes::auto_target(self.context.rate());
                        (Some(target), Some(interval))
                    }
                    Target::QdiscDefault => (None, None),
                    Target::Is(target) => (Some(target), None),
                };
                let target = target.map(|target| format!("target {target}"));
                let interval = interval.filter(|_| leaf != Leaf::Pie);
                let interval = interval.map(|interval| format!("interval {interval}"));
                let words: Vec<String> = target.into_iter().chain(interval).collect();
                words.join(" ")
            }
            "QUANTUM" => {
                let argument =
                    argument.ok_or_else(|| ("$QUANTUM takes bytes: $QUANTUM(300)".to_owned(), None))?;
                let bytes = self.compute(argument)?;
                word(leaf == Leaf::FqCodel, &format!("quantum {bytes}"), "")
            }
            "FLOWS" => {
                let share = match argument {
                    None => self.context.rate(),
                    Some(argument) => {
                        let kbit = u64::try_from(self.compute(argument)?);
                        Rate::from_kbits_per_sec(
                            kbit.map_err(|_| ("a rate is not negative".to_owned(), None))?,
                        )
                    }
                };
                let flows = recipes::leaf::flows(self.context, share);
                word(has_flows, &format!("flows {flows}"), "")
            }
            _ => String::new(),
        })
    }

    /// The typed options of CAKE in `tc`'s words.
    fn cake_options(&self) -> String {
        let options = self.context.direction().cake.iter();
        let words: Vec<String> = options.filter_map(|option| cake_words(option.value)).collect();
        words.join(" ")
    }
}

fn word(is: bool, yes: &str, no: &str) -> String {
    if is { yes } else { no }.to_owned()
}

/// The error for a variable that does not exist.
pub(super) fn unknown(name: &str) -> Wrong {
    let known = names();
    let other = OF_SQM_SCRIPTS.iter().find(|(theirs, _)| *theirs == name);
    let meant = other.map(|(_, ours)| *ours).or_else(|| near(name, &known));
    let meant = meant.map(
        |meant| match meant.starts_with(|c: char| c.is_ascii_lowercase()) {
            true => meant.to_owned(),
            false => format!("${meant}"),
        },
    );
    (format!("there is no variable '${}'", shortened(name)), meant)
}

/// The words of `tc` for a typed option of CAKE; `None` where `tc` has none.
fn cake_words(value: CakeValue) -> Option<String> {
    let one = |is_on: bool, yes: &str, no: &str| if is_on { yes } else { no }.to_owned();
    Some(match value {
        CakeValue::Rtt(rtt) => format!("rtt {rtt}"),
        CakeValue::Tins(tins) => options::word_of(&options::TINS, tins).to_owned(),
        CakeValue::Isolation(isolation) => options::word_of(&options::ISOLATIONS, isolation).to_owned(),
        CakeValue::Nat(is_on) => one(is_on, "nat", "nonat"),
        CakeValue::Wash(is_on) => one(is_on, "wash", "nowash"),
        CakeValue::AckFilter(AckFilter::Off) => "no-ack-filter".to_owned(),
        CakeValue::AckFilter(AckFilter::Filter) => "ack-filter".to_owned(),
        CakeValue::AckFilter(AckFilter::Aggressive) => "ack-filter-aggressive".to_owned(),
        CakeValue::Ingress(is_on) => one(is_on, "ingress", "egress"),
        CakeValue::SplitGso(is_on) => one(is_on, "split-gso", "no-split-gso"),
        CakeValue::MemLimit(limit) => format!("memlimit {}", limit.unwrap_or(Bytes(0))),
        CakeValue::FwMark(mask) => format!("fwmark {mask:#x}"),
        CakeValue::AutorateIngress(true) => "autorate-ingress".to_owned(),
        CakeValue::AutorateIngress(false) => return None,
    })
}
