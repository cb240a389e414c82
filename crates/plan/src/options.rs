//! Every option of a section as data, for forms: what it is called, what it takes, what it does.
//!
//! What a value may be is decided by [`settings`](crate::settings) alone; a test holds this table against it, option by
//! option, value by value at its limits.

use crate::link;
use crate::settings::{Leaf, Script};

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// As it is written in the file.
    pub name: String,
    /// Where people look for it.
    pub tab: Tab,
    /// Who needs it.
    pub level: Level,
    /// What its value looks like.
    pub kind: Kind,
    /// A few words.
    pub title: &'static str,
    /// What it does and when to touch it.
    pub about: &'static str,
    /// Of a bare number.
    pub unit: Option<&'static str>,
    /// What holds if it is not given; none if it must be given, or the set-up decides.
    pub default: Option<&'static str>,
    /// Least and largest number.
    pub range: Option<(i64, i64)>,
    /// Words that it takes, with their meaning.
    pub choices: Vec<(&'static str, &'static str)>,
    /// One of two options that stand in for the one of the same name without this prefix.
    pub direction: Option<&'static str>,
}

/// The three tabs that users of OpenWrt know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Basic Settings.
    Basic,
    /// Queue Discipline.
    Queue,
    /// Link Layer Adaptation.
    Link,
}

/// Who needs an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Everybody.
    Basic,
    /// Who wants more than the usual.
    Advanced,
    /// Who knows the queueing discipline.
    Expert,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `1` or `0`.
    Switch,
    /// A network device.
    Device,
    /// `85mbit`; a whole number is kbit/s; `0` does not shape.
    Rate,
    /// One of its choices.
    Choice,
    /// A whole number in its range.
    Integer,
    /// `5ms`, or one of its choices.
    Time,
    /// `4mb`.
    Size,
    /// `0xff`.
    Mask,
    /// Anything; checked by what it is for.
    Text,
}

use Kind::{Choice, Device, Integer, Mask, Rate, Size, Switch, Text, Time};
use Level::{Advanced, Basic, Expert};

/// All options, in the order of a form.
pub fn all() -> Vec<Described> {
    let mut all = basic();
    all.extend(autorate());
    all.extend(queue());
    for option in cake() {
        let own = |direction: &'static str| Described {
            name: format!("{direction}_{}", option.name),
            level: Expert,
            default: None,
            direction: Some(direction),
            ..option.clone()
        };
        let (egress, ingress) = (own("egress"), own("ingress"));
        all.extend([option, egress, ingress]);
    }
    all.extend(leaf());
    all.extend(link_layer());
    all
}

fn basic() -> Vec<Described> {
    let new = |name, level, kind, title, about| option(name, Tab::Basic, level, kind, title, about);
    vec![
        new("enabled", Basic, Switch, "Enable", "Shape this interface. Off, the section is kept and does nothing.").default("0"),
        new(
            "interface",
            Basic,
            Device,
            "Interface",
            "The network device that leads to the internet, such as eth0.2 or pppoe-wan; not the whole switch, and not the \
             logical network.",
        ),
        new(
            "download",
            Basic,
            Rate,
            "Download speed",
            "A little below what the line really does: 85 % of the advertised speed, or 95 % of what a test measures with \
             shaping off. Headers and framing count, so tests show some percent less. 0 does not shape this direction.",
        )
        .unit("kbit/s"),
        new(
            "upload",
            Basic,
            Rate,
            "Upload speed",
            "As for the download. The upload is usually the slower one, and the one where a full queue hurts most.",
        )
        .unit("kbit/s"),
        new(
            "facing",
            Expert,
            Choice,
            "The interface faces",
            "Change it only if the device leads to the home instead of the internet; download and upload then swap sides.",
        )
        .default("internet")
        .choices(&[
            ("internet", "the upload leaves through the device"),
            ("lan", "the download leaves through the device"),
        ]),
        new(
            "debug_logging",
            Expert,
            Switch,
            "Debug logging",
            "Of sqm-scripts; without effect here, because every command says what it did.",
        )
        .default("0"),
        new(
            "verbosity",
            Expert,
            Integer,
            "Log verbosity",
            "Of sqm-scripts; without effect here, because every command says what it did.",
        )
        .default("5")
        .range(0, 10),
    ]
}

/// For lines whose rate varies.
fn autorate() -> Vec<Described> {
    let new = |name, level, kind, title, about| option(name, Tab::Basic, level, kind, title, about);
    let limit = |name, title, about| new(name, Advanced, Rate, title, about).unit("kbit/s");
    vec![
        new(
            "autorate",
            Advanced,
            Switch,
            "Follow a line that varies",
            "The daemon changes the rates as latency under load tells it, for mobile, satellite and some cable lines; the speeds \
             above are where it begins.",
        )
        .default("0"),
        limit(
            "min_download",
            "Least download speed",
            "The download is never shaped to less, whatever latency says.",
        ),
        limit(
            "max_download",
            "Most download speed",
            "The download is never shaped to more.",
        ),
        limit(
            "min_upload",
            "Least upload speed",
            "The upload is never shaped to less, whatever latency says.",
        ),
        limit(
            "max_upload",
            "Most upload speed",
            "The upload is never shaped to more.",
        ),
        new(
            "autorate_reflectors",
            Expert,
            Text,
            "Who is asked for the time",
            "Addresses that answer pings, sqm://ADDRESS of 'sqm serve', irtt://ADDRESS of 'irtt server', with blanks between; none means well-known ones.",
        ),
        new(
            "autorate_log",
            Expert,
            Text,
            "Log of decisions",
            "The name of a file in /var/log/sqm that each decision is written to, such as rates.csv.",
        ),
    ]
}

fn queue() -> Vec<Described> {
    let new = |name, level, kind, title, about| option(name, Tab::Queue, level, kind, title, about);
    let scripts = || {
        Script::ALL
            .map(|script| (script.file_name(), about_script(script)))
            .to_vec()
    };
    let leaves = || Leaf::ALL.map(|leaf| (leaf.name(), about_leaf(leaf))).to_vec();
    let mut options = vec![
        Described {
            choices: scripts(),
            ..new(
                "script",
                Basic,
                Choice,
                "Set-up",
                "Which queues are built. best_of_cake is what this program recommends; the others are those of sqm-scripts.",
            )
        },
        Described {
            choices: leaves(),
            ..new(
                "qdisc",
                Advanced,
                Choice,
                "Queueing discipline",
                "The queue in each class of the set-ups that leave a choice; those with cake in their name always use cake.",
            )
            .default("fq_codel")
        },
        new(
            "squash_dscp",
            Advanced,
            Switch,
            "Erase DSCP of arriving packets",
            "What the provider marked does not reach your home. Unless said, the set-up decides.",
        ),
        new(
            "squash_ingress",
            Advanced,
            Switch,
            "Ignore DSCP of arriving packets",
            "Arriving packets are all alike, whatever they are marked with. Unless said, the set-up decides.",
        ),
        new(
            "use_mq",
            Expert,
            Switch,
            "Use several processors",
            "One CAKE for each transmit queue of the device (Linux 7.0 and later); for lines above about 500 Mbit/s.",
        )
        .default("0"),
        new(
            "mark_mask",
            Expert,
            Mask,
            "Bits of the firewall mark",
            "Which bits simple.qos may use, when other software sets marks, too.",
        )
        .default("0xff"),
    ];
    for (direction, script, qdisc) in [
        ("egress", "egress_script", "egress_qdisc"),
        ("ingress", "ingress_script", "ingress_qdisc"),
    ] {
        options.push(Described {
            choices: scripts(),
            direction: Some(direction),
            ..new(
                script,
                Expert,
                Choice,
                "Set-up of one direction",
                "Instead of the common one, such as fq_codel where the processor is too slow for cake.",
            )
        });
        options.push(Described {
            choices: leaves(),
            direction: Some(direction),
            ..new(
                qdisc,
                Expert,
                Choice,
                "Queueing discipline of one direction",
                "Instead of the common one.",
            )
        });
    }
    options
}

/// The typed options of CAKE, for both directions.
fn cake() -> Vec<Described> {
    let new = |name, level, kind, title, about| option(name, Tab::Queue, level, kind, title, about);
    vec![
        new(
            "cake_rtt",
            Advanced,
            Time,
            "Round trip",
            "The usual round-trip time of your traffic. Too short costs throughput on far servers, too long costs latency.",
        )
        .choices(&[
            ("datacentre", "0.1 ms"),
            ("lan", "1 ms"),
            ("metro", "10 ms"),
            ("regional", "30 ms"),
            ("internet", "100 ms: cake's own"),
            ("oceanic", "300 ms"),
            ("satellite", "1 s"),
            ("interplanetary", "an hour: no active queue management"),
        ]),
        new(
            "cake_tins",
            Advanced,
            Choice,
            "Classes by DSCP",
            "How many classes packets are sorted into by their marks. One is enough unless your programs mark their packets.",
        )
        .choices(&[
            ("besteffort", "one: all packets alike"),
            ("precedence", "eight, by the old IP precedence"),
            ("diffserv3", "three: bulk, best effort, voice"),
            ("diffserv4", "four: bulk, best effort, video, voice"),
            ("diffserv8", "eight"),
        ]),
        new(
            "cake_isolation",
            Advanced,
            Choice,
            "Fair between",
            "Between whom the line is shared evenly. With dual-srchost on the upload and dual-dsthost on the download each \
             computer of the home gets its share, however many connections it has.",
        )
        .choices(&[
            ("flowblind", "nobody: one queue"),
            ("srchost", "senders"),
            ("dsthost", "receivers"),
            ("hosts", "pairs of sender and receiver"),
            ("flows", "connections"),
            ("dual-srchost", "senders, then their connections"),
            ("dual-dsthost", "receivers, then their connections"),
            ("triple-isolate", "senders and receivers, then connections: cake's own"),
        ]),
        new(
            "cake_nat",
            Advanced,
            Switch,
            "Look behind NAT",
            "Tell the computers of the home apart though they share one address: on, on a router that does NAT itself.",
        ),
        new("cake_wash", Advanced, Switch, "Erase DSCP", "Packets leave the queue without their marks."),
        new(
            "cake_ack_filter",
            Advanced,
            Choice,
            "Thin out acknowledgements",
            "Drop TCP acknowledgements that a later one makes needless: for the upload of lines whose download is more than \
             about 15 times faster.",
        )
        .choices(&[("on", "yes"), ("off", "no"), ("aggressive", "more of them than TCP likes")]),
        new(
            "cake_ingress",
            Expert,
            Switch,
            "Count dropped packets",
            "Dropped packets have used the line already: on for what arrives, off for what leaves.",
        ),
        new(
            "cake_split_gso",
            Expert,
            Switch,
            "Split super-packets",
            "Take apart what network cards put together, for short waits; off saves processor time above about 1 Gbit/s.",
        ),
        new(
            "cake_memlimit",
            Expert,
            Size,
            "Memory",
            "Most memory of the queue; cake chooses it from the rate.",
        ),
        new(
            "cake_fwmark",
            Expert,
            Mask,
            "Class by firewall mark",
            "The bits of the firewall mark that choose the class instead of the DSCP.",
        ),
        new(
            "cake_autorate_ingress",
            Expert,
            Switch,
            "Guess the rate of arrival",
            "cake estimates how fast packets arrive and shapes to that; meant for lines of unknown rate, and often wrong.",
        ),
    ]
}

/// The options of the other leaves.
fn leaf() -> Vec<Described> {
    let new = |name, kind, title, about| option(name, Tab::Queue, Expert, kind, title, about);
    let ecn = |name, direction| {
        Described {
            direction: Some(direction),
            level: Advanced,
            ..new(
                name,
                Choice,
                "ECN",
                "Mark packets instead of dropping them, where both ends agree. Off for uploads below about 4 Mbit/s: there a mark \
                 comes too late. cake always marks.",
            )
        }
        .default("ECN")
        .choices(&[("ECN", "mark"), ("NOECN", "drop")])
    };
    let limit = |name, direction| {
        Described {
            direction: Some(direction),
            ..new(
                name,
                Integer,
                "Longest queue",
                "Most packets in each leaf, or bytes for bfifo; empty leaves it to the set-up. Not for cake.",
            )
        }
        .range(1, u32::MAX.into())
        .unit("packets")
    };
    let target = |name, direction| {
        Described {
            direction: Some(direction),
            ..new(
                name,
                Time,
                "Target delay",
                "The delay that the leaf lets stand. Not for cake, which has a round-trip time instead.",
            )
        }
        .default("auto")
        .choices(&[("auto", "computed from the rate"), ("default", "the leaf's own")])
    };
    let words = |name, direction| Described {
        direction: Some(direction),
        ..new(
            name,
            Text,
            "More words for tc",
            "Words for the leaf or for cake, as one types them after tc qdisc; they are checked, and win over the other \
             options.",
        )
    };
    let micros = |name, title, about, direction| {
        Described {
            direction,
            ..new(name, Integer, title, about)
        }
        .range(0, 1_000_000)
        .unit("us")
    };
    let burst =
        "How far ahead the token bucket may send, as time; more saves processor time and costs latency.";
    let quantum = "How much HTB sends from one class before the next, as time.";
    vec![
        ecn("ingress_ecn", "ingress"),
        ecn("egress_ecn", "egress"),
        limit("ilimit", "ingress"),
        limit("elimit", "egress"),
        target("itarget", "ingress"),
        target("etarget", "egress"),
        words("iqdisc_opts", "ingress"),
        words("eqdisc_opts", "egress"),
        new(
            "autoflow",
            Switch,
            "Fewer queues on slow lines",
            "A leaf with fewer queues where the line is slow. Not for cake.",
        )
        .default("0"),
        micros("shaper_burst_dur_us", "Burst", burst, None).default("1000"),
        micros("eshaper_burst_dur_us", "Burst", burst, Some("egress")),
        micros("ishaper_burst_dur_us", "Burst", burst, Some("ingress")),
        micros("shaper_quantum_dur_us", "Quantum", quantum, None),
        micros("eshaper_quantum_dur_us", "Quantum", quantum, Some("egress")),
        micros("ishaper_quantum_dur_us", "Quantum", quantum, Some("ingress")),
    ]
}

fn link_layer() -> Vec<Described> {
    let new = |name, level, kind, title, about| option(name, Tab::Link, level, kind, title, about);
    vec![
        Described {
            choices: link::PRESETS
                .iter()
                .map(|preset| (preset.name, preset.about))
                .collect(),
            ..new(
                "link",
                Basic,
                Choice,
                "Kind of line",
                "What the line adds to each packet follows from it. Too much costs a little speed, too little costs latency: \
                 when in doubt, 'unknown'.",
            )
        },
        new(
            "linklayer",
            Advanced,
            Choice,
            "Link layer",
            "How packets are cut up on the line. The kind of line above sets it.",
        )
        .choices(&[
            ("none", "count what the kernel counts"),
            ("ethernet", "whole packets"),
            ("atm", "cells of 53 bytes: ADSL"),
            ("adsl", "another word for atm"),
            ("ptm", "one byte in 65 is lost: VDSL2"),
        ]),
        new(
            "overhead",
            Advanced,
            Integer,
            "Bytes added to each packet",
            "Above the IP packet. The kind of line above sets it; 'sqm test --sweep' measures it.",
        )
        .range(-1500, 1500)
        .unit("bytes"),
        new(
            "tcMPU",
            Advanced,
            Integer,
            "Smallest packet",
            "Smaller packets take as much of the line as this one, added bytes included. The kind of line above sets it.",
        )
        .range(0, 65535)
        .unit("bytes"),
        new(
            "linklayer_adaptation_mechanism",
            Expert,
            Choice,
            "Who counts",
            "Who does this arithmetic: cake where there is one, a table otherwise.",
        )
        .default("default")
        .choices(&[
            ("default", "cake where there is one, a size table otherwise"),
            ("cake", "cake"),
            ("tc_stab", "a size table"),
            ("htb_private", "HTB or TBF"),
        ]),
        new(
            "tcMTU",
            Expert,
            Integer,
            "Largest packet of the size table",
            "Only for packets above 1500 bytes.",
        )
        .default("2047")
        .range(0, 65535)
        .unit("bytes"),
        new("tcTSIZE", Expert, Integer, "Entries of the size table", "More are more exact.")
            .default("512")
            .range(0, 32000),
    ]
}

const fn about_script(script: Script) -> &'static str {
    match script {
        Script::BestOfCake => "cake, each direction in its own way: what this program recommends",
        Script::PieceOfCake => "cake with one class: the usual choice of sqm-scripts",
        Script::LayerCake => "cake with three classes by DSCP",
        Script::Simple => "HTB with three classes by DSCP",
        Script::Simplest => "HTB with one class: for slow processors",
        Script::SimplestTbf => "a token bucket: for the slowest processors",
        Script::HfscLite => "HFSC with three classes",
        Script::HfscLitest => "HFSC with one class",
    }
}

const fn about_leaf(leaf: Leaf) -> &'static str {
    match leaf {
        Leaf::FqCodel => "fair queues with CoDel",
        Leaf::Cake => "CAKE",
        Leaf::Codel => "CoDel on one queue",
        Leaf::Pie => "PIE on one queue",
        Leaf::Sfq => "fair queues without active queue management",
        Leaf::Pfifo => "a plain queue, in packets",
        Leaf::Bfifo => "a plain queue, in bytes",
    }
}

fn option(
    name: &str,
    tab: Tab,
    level: Level,
    kind: Kind,
    title: &'static str,
    about: &'static str,
) -> Described {
    Described {
        name: name.to_owned(),
        tab,
        level,
        kind,
        title,
        about,
        unit: None,
        default: None,
        range: None,
        choices: Vec::new(),
        direction: None,
    }
}

impl Described {
    fn default(self, default: &'static str) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }

    fn unit(self, unit: &'static str) -> Self {
        Self {
            unit: Some(unit),
            ..self
        }
    }

    fn range(self, least: i64, most: i64) -> Self {
        Self {
            range: Some((least, most)),
            ..self
        }
    }

    fn choices(self, choices: &[(&'static str, &'static str)]) -> Self {
        Self {
            choices: choices.to_vec(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device as NetworkDevice;

    /// The errors about this option in a section that is good but for it.
    fn errors(name: &str, value: &str) -> Vec<String> {
        // A limit is held against the rate that it limits.
        let rate = match name.split('_').next() {
            Some("min") => "1gbit",
            Some("max") => "1kbit",
            _ => "50mbit",
        };
        let mut options = vec![
            ("enabled", "1"),
            ("interface", "eth0"),
            ("autorate", "1"),
            ("download", rate),
            ("upload", rate),
            ("script", "best_of_cake.qos"),
        ];
        options.retain(|(other, _)| *other != name);
        options.push((name, value));
        let lines: String = options
            .iter()
            .map(|(name, value)| format!("\toption {name} '{value}'\n"))
            .collect();
        let text = format!("config queue\n{lines}");
        match crate::load(text.as_bytes(), "f", &NetworkDevice::absent) {
            Ok(loaded) => {
                let unknown = |warning: &&crate::diagnostic::Diagnostic| {
                    warning.message.contains("options that sqm does not know")
                };
                loaded
                    .warnings
                    .iter()
                    .filter(unknown)
                    .map(ToString::to_string)
                    .collect()
            }
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn each_option_that_is_read_is_described_once() {
        let described: Vec<String> = all().into_iter().map(|option| option.name).collect();
        for (n, name) in described.iter().enumerate() {
            assert!(!described[..n].contains(name), "{name} stands twice");
        }
        // A form's own check boxes, and one that nothing has ever used.
        const HIDDEN: [&str; 4] = [
            "target",
            "qdisc_advanced",
            "qdisc_really_really_advanced",
            "linklayer_advanced",
        ];
        for name in crate::settings::names() {
            assert!(
                described.contains(&name) != HIDDEN.contains(&name.as_str()),
                "{name}"
            );
        }
        for name in described {
            assert!(
                crate::settings::names().contains(&name),
                "{name} is read by nobody"
            );
        }
    }

    #[test]
    fn what_is_offered_is_taken_and_what_is_beyond_is_not() {
        for option in all() {
            let name = option.name.as_str();
            let good = |value: &str| assert_eq!(errors(name, value), Vec::<String>::new(), "{name} {value}");
            let bad = |value: &str| assert!(!errors(name, value).is_empty(), "{name} takes {value}");
            for (choice, about) in &option.choices {
                good(choice);
                assert!(!about.is_empty(), "{name} {choice}");
            }
            if let Some((least, most)) = option.range {
                // The kernel's largest sizes are beyond what cake can count: another option's matter.
                if !["overhead", "tcMPU"].contains(&name) {
                    good(&least.to_string());
                    good(&most.to_string());
                }
                bad(&(least - 1).to_string());
                bad(&(most + 1).to_string());
            }
            match option.kind {
                Switch => {
                    good("0");
                    good("1");
                    bad("perhaps");
                }
                Device => {
                    good("eth0.2");
                    bad("a name that is too long");
                }
                Rate => {
                    good("0");
                    good("85000");
                    good("85mbit");
                    bad("85mbits");
                }
                Time => {
                    good("20ms");
                    bad("20mss");
                }
                Size => {
                    good("4mb");
                    bad("4mbb");
                }
                Mask => {
                    good("0xff");
                    bad("0xfg");
                }
                Choice => bad("no such word"),
                Integer => bad("1.5"),
                Text => good(""),
            }
            if let Some(default) = option.default {
                good(default);
            }
        }
    }

    /// The reference names each option, the words that it takes, and its default. Options of CAKE for one direction have one sentence for
    /// all of them.
    #[test]
    fn the_reference_names_every_option_with_its_words_and_default() {
        let reference = include_str!("../../../docs/reference/options.md");
        for option in all().iter().filter(|option| {
            !option.name.starts_with("egress_cake_") && !option.name.starts_with("ingress_cake_")
        }) {
            let name = format!("`{}`", option.name);
            let row = reference
                .lines()
                .find(|line| {
                    line.starts_with('|') && line.split('|').nth(1).is_some_and(|cell| cell.contains(&name))
                })
                .unwrap_or_else(|| panic!("no row for {name}"));
            for (choice, _) in &option.choices {
                assert!(
                    reference.contains(&format!("`{choice}`")),
                    "{name}: no word about {choice}"
                );
            }
            if let Some(default) = option.default.filter(|_| option.direction.is_none()) {
                assert!(
                    row.contains(&format!("`{default}`")),
                    "{name}: its default is {default}"
                );
            }
        }
    }
}
