//! One `config queue` section as typed settings: every option that sqm-scripts reads, with its meaning and default.
//!
//! Where sqm-scripts guesses, this refuses: a missing rate is an error and not an ADSL line of 2012, `10mbits` is an
//! error and not an unshaped line, and `enabled 'on'` means what it says.

use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::units::{Nanos, Rate, shortened};

use crate::diagnostic::{Finding, Report};
use crate::uci;

/// The settings of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Line of the section in its file.
    pub line: usize,
    /// `enabled`: off unless switched on.
    pub enabled: bool,
    /// `interface`: the network device whose line is shaped.
    pub interface: String,
    /// `script`: the set-up.
    pub script: Script,
    /// `qdisc`: the leaf, for the set-ups that leave a choice; fq_codel unless said.
    pub qdisc: Leaf,
    /// `upload`, `eqdisc_opts`, `elimit` and the others of what leaves through the interface.
    pub egress: Direction,
    /// `download`, `iqdisc_opts`, `ilimit` and the others of what arrives through it.
    pub ingress: Direction,
    /// `squash_dscp`: erase the DSCP of arriving packets; on unless switched off.
    pub squash_dscp: bool,
    /// `squash_ingress`: do not use the DSCP of arriving packets to classify them; on unless switched off.
    pub squash_ingress: bool,
    /// `use_mq`: one CAKE for each transmit queue.
    pub use_mq: bool,
    /// What a packet costs on the line.
    pub link: Link,
    /// `debug_logging`: keep logs of start and stop.
    pub debug_logging: bool,
    /// `verbosity`: least important messages shown, 0 (none) to 10 (trace); 5 is all but debugging.
    pub verbosity: u8,
    /// Line of each option that is given a value.
    lines: BTreeMap<String, usize>,
}

/// The settings of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Shaped rate, as it is typed: no margin is taken off. `None` (written 0) does not shape this direction.
    pub rate: Option<Rate>,
    /// Mark packets rather than drop them.
    pub ecn: bool,
    /// Most packets in the leaf; `None` leaves it to the set-up.
    pub limit: Option<u32>,
    /// The leaf's acceptable standing delay.
    pub target: Target,
    /// Words appended to those of the leaf, where the last word wins.
    pub options: String,
}

/// `itarget` and `etarget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Computed from the rate, and the interval with it.
    Auto,
    /// What the queueing discipline does by itself.
    QdiscDefault,
    /// This, with the discipline's own interval.
    Is(Nanos),
}

/// The link-layer options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// `linklayer`.
    pub layer: LinkLayer,
    /// `overhead`: bytes added per packet. What they are added to depends on the mechanism: CAKE counts from the
    /// IP header, a size table from whatever header the kernel's length includes, 14 bytes on Ethernet.
    pub overhead: i32,
    /// `linklayer_adaptation_mechanism`.
    pub mechanism: Mechanism,
    /// `tcMTU`: largest packet the size table covers, bytes.
    pub table_mtu: u32,
    /// `tcTSIZE`: entries in the size table.
    pub table_size: u32,
    /// `tcMPU`: least size a packet is counted with, bytes.
    pub mpu: u32,
}

/// `linklayer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Count what the kernel counts; no overhead either.
    None,
    /// Whole packets.
    Ethernet,
    /// 48 bytes of payload in 53-byte cells; `adsl` is another word for it.
    Atm,
}

/// `linklayer_adaptation_mechanism`: who does the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// CAKE where there is one, a size table otherwise.
    Default,
    /// CAKE itself.
    Cake,
    /// A size table on the root.
    TcStab,
    /// HTB's own tables.
    HtbPrivate,
}

/// The set-ups of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// CAKE with one tin in each direction.
    PieceOfCake,
    /// CAKE with three tins.
    LayerCake,
    /// HTB with one class and one leaf.
    Simplest,
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PieceOfCake, Self::LayerCake, Self::Simplest];

    /// What the option says.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::PieceOfCake => "piece_of_cake.qos",
            Self::LayerCake => "layer_cake.qos",
            Self::Simplest => "simplest.qos",
        }
    }
}

/// `qdisc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Flow Queue CoDel.
    FqCodel,
    /// CAKE.
    Cake,
    /// Something that no set-up of this version builds.
    Other(String),
}

impl Leaf {
    /// What the option says.
    pub fn name(&self) -> &str {
        match self {
            Self::FqCodel => "fq_codel",
            Self::Cake => "cake",
            Self::Other(name) => name,
        }
    }
}

/// Options that only a web form reads, to decide what it shows.
const OF_THE_FORM: [&str; 3] = [
    "qdisc_advanced",
    "qdisc_really_really_advanced",
    "linklayer_advanced",
];

/// Options that sqm-scripts reads.
const OPTIONS: [&str; 26] = [
    "enabled",
    "interface",
    "download",
    "upload",
    "qdisc",
    "script",
    "use_mq",
    "squash_dscp",
    "squash_ingress",
    "ingress_ecn",
    "egress_ecn",
    "ilimit",
    "elimit",
    "itarget",
    "etarget",
    "iqdisc_opts",
    "eqdisc_opts",
    "linklayer",
    "overhead",
    "linklayer_adaptation_mechanism",
    "tcMTU",
    "tcTSIZE",
    "tcMPU",
    "target",
    "debug_logging",
    "verbosity",
];

/// Set-ups of sqm-scripts that this version does not build.
const LATER_SCRIPTS: [&str; 4] = [
    "simple.qos",
    "simplest_tbf.qos",
    "hfsc_lite.qos",
    "hfsc_litest.qos",
];

impl Settings {
    /// Reads a section, reporting what is wrong with it.
    ///
    /// A value that cannot be read is replaced by a plain one in the answer, so that the rest can still be checked; the
    /// error in the report keeps it from being used. `None` if nothing more can be said without the value.
    pub(crate) fn read(section: &uci::Section<'_>, report: &mut Report) -> Option<Self> {
        report.disabled = false;
        let mut reader = Reader::of(section, report);
        // What is neither on nor off is an error; the rest of such a section is then checked as if it were on.
        let enabled = reader.flag("enabled", reader.text("enabled").is_some());
        reader.report.disabled = !enabled;
        reader.report_foreign(section);

        let interface = reader.interface();
        let script = reader.script();
        let egress = reader.direction("upload", 'e', "egress_ecn");
        let ingress = reader.direction("download", 'i', "ingress_ecn");
        let qdisc = match reader.text("qdisc") {
            None | Some("fq_codel") => Leaf::FqCodel,
            Some("cake") => Leaf::Cake,
            Some(name) => Leaf::Other(name.to_owned()),
        };
        let link = reader.link();
        let squash_dscp = reader.flag("squash_dscp", true);
        let squash_ingress = reader.flag("squash_ingress", true);
        let use_mq = reader.flag("use_mq", false);
        let debug_logging = reader.flag("debug_logging", false);
        let verbosity = reader.number("verbosity", 0, 10).unwrap_or(5);
        let lines = reader
            .given
            .iter()
            .map(|(name, given)| ((*name).to_owned(), given.line))
            .collect();
        Some(Self {
            line: section.line,
            enabled,
            interface: interface?,
            script: script?,
            qdisc,
            egress,
            ingress,
            squash_dscp,
            squash_ingress,
            use_mq,
            link,
            debug_logging,
            verbosity,
            lines,
        })
    }

    /// Whether the section gives this option a value.
    pub fn gives(&self, option: &str) -> bool {
        self.lines.contains_key(option)
    }

    /// The line of an option, or the section's if it is not given.
    pub fn line_of(&self, option: &str) -> usize {
        self.lines.get(option).copied().unwrap_or(self.line)
    }

    /// The same settings as if the user had appended no words to the leaves.
    pub(crate) fn without_options(&self) -> Self {
        let mut settings = self.clone();
        settings.egress.options.clear();
        settings.ingress.options.clear();
        settings
    }
}

/// An option's value and its line.
struct Given {
    value: String,
    line: usize,
}

/// Takes values out of one section.
struct Reader<'a, 'r> {
    section_line: usize,
    /// Options with a value that is not empty; an empty one counts as absent, as in sqm-scripts.
    given: BTreeMap<&'a str, Given>,
    report: &'r mut Report,
}

impl<'a, 'r> Reader<'a, 'r> {
    fn of(section: &uci::Section<'a>, report: &'r mut Report) -> Self {
        let mut given: BTreeMap<&str, Given> = BTreeMap::new();
        for &uci::Setting {
            line,
            name,
            value,
            is_list,
        } in &section.settings
        {
            match given.get_mut(name) {
                // A shell reads a list as its values with blanks between.
                Some(earlier) if is_list => {
                    earlier.value.push(' ');
                    earlier.value.push_str(value);
                }
                Some(earlier) => {
                    let message = format!("it is given again here and replaces line {}", earlier.line);
                    report.warning(Finding::at(line, message).option(name));
                    *earlier = Given {
                        value: value.to_owned(),
                        line,
                    };
                }
                None => {
                    given.insert(
                        name,
                        Given {
                            value: value.to_owned(),
                            line,
                        },
                    );
                }
            }
        }
        given.retain(|_, given| !given.value.trim().is_empty());
        Self {
            section_line: section.line,
            given,
            report,
        }
    }

    /// Options that nobody here reads: misspelt, or of other software that shares the file.
    fn report_foreign(&mut self, section: &uci::Section<'_>) {
        let mut foreign: Vec<&str> = Vec::new();
        let mut first_line = section.line;
        for setting in &section.settings {
            let name = setting.name;
            if OPTIONS.contains(&name) || OF_THE_FORM.contains(&name) {
                continue;
            }
            let meant = nearest(name, OPTIONS).filter(|meant| !self.given.contains_key(meant));
            if meant.is_some() {
                let finding = Finding::at(setting.line, "ignored: no such option").option(shortened(name));
                self.report.warning(finding.suggest(meant));
            } else if !foreign.contains(&name) && foreign.len() < 30 {
                if foreign.is_empty() {
                    first_line = setting.line;
                }
                foreign.push(name);
            }
        }
        if !foreign.is_empty() {
            let names: Vec<String> = foreign
                .iter()
                .map(|name| format!("'{}'", shortened(name)))
                .collect();
            let message = format!("ignored: options that sqm does not know: {}", names.join(", "));
            self.report.warning(Finding::at(first_line, message));
        }
    }

    fn text(&self, option: &str) -> Option<&str> {
        self.given.get(option).map(|given| given.value.trim())
    }

    fn error(&mut self, option: &str, message: String, suggestion: Option<impl Into<String>>) {
        let line = self
            .given
            .get(option)
            .map_or(self.section_line, |given| given.line);
        self.report
            .error(Finding::at(line, message).option(option).suggest(suggestion));
    }

    /// A UCI boolean.
    fn flag(&mut self, option: &str, default: bool) -> bool {
        match self.text(option) {
            None => default,
            Some("1" | "on" | "true" | "yes" | "enabled") => true,
            Some("0" | "off" | "false" | "no" | "disabled") => false,
            Some(other) => {
                let message = format!("'{}' is neither on (1) nor off (0)", shortened(other));
                let meant = nearest(
                    other,
                    ["on", "off", "true", "false", "yes", "no", "enabled", "disabled"],
                );
                self.error(option, message, meant);
                default
            }
        }
    }

    /// A whole number from `least` to `most`.
    fn number<N: TryFrom<i64>>(&mut self, option: &str, least: i64, most: i64) -> Option<N> {
        let text = self.text(option)?;
        let number = text
            .parse()
            .ok()
            .filter(|n| (least..=most).contains(n))
            .and_then(|n| N::try_from(n).ok());
        if number.is_none() {
            let message = format!(
                "'{}' is not a whole number from {least} to {most}",
                shortened(text)
            );
            self.error(option, message, None::<String>);
        }
        number
    }

    /// One of a few words.
    fn choice<T: Copy>(&mut self, option: &str, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(option)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            return Some(*choice);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let message = format!("'{}' is not one of {}", shortened(text), words.join(", "));
        let meant = nearest(text, words);
        self.error(option, message, meant);
        None
    }

    fn interface(&mut self) -> Option<String> {
        let Some(name) = self.text("interface").map(str::to_owned) else {
            let message = "missing: name the network device to shape, such as 'eth0' or 'pppoe-wan'";
            self.error("interface", message.to_owned(), None::<String>);
            return None;
        };
        if let Some(fault) = name_fault(&name) {
            let message = format!("'{}' cannot be a network device: {fault}", shortened(&name));
            self.error("interface", message, None::<String>);
            return None;
        }
        Some(name)
    }

    fn script(&mut self) -> Option<Script> {
        let supported = Script::ALL.map(Script::file_name);
        let list = supported.join(", ");
        let Some(name) = self.text("script") else {
            self.error("script", format!("missing: choose one of {list}"), None::<String>);
            return None;
        };
        let script = Script::ALL.into_iter().find(|script| script.file_name() == name);
        if script.is_none() {
            if LATER_SCRIPTS.contains(&name) {
                let message = format!("'{name}' is not supported yet; supported are {list}");
                self.error("script", message, None::<String>);
            } else {
                let message = format!("unknown script '{}'; supported are {list}", shortened(name));
                let meant = nearest(name, supported);
                self.error("script", message, meant);
            }
        }
        script
    }

    fn direction(&mut self, rate: &str, letter: char, ecn: &str) -> Direction {
        Direction {
            rate: self.rate(rate),
            ecn: self
                .choice(ecn, &[("ECN", true), ("NOECN", false)])
                .unwrap_or(true),
            limit: self.number(&format!("{letter}limit"), 1, u32::MAX.into()),
            target: self.target(&format!("{letter}target")),
            options: self
                .text(&format!("{letter}qdisc_opts"))
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Kilobits per second without a unit, as in sqm-scripts; anything `tc` understands with one.
    fn rate(&mut self, option: &str) -> Option<Rate> {
        /// Stands in for a rate in error, so that the direction counts as shaped and its other options are checked.
        const UNREADABLE: Option<Rate> = Some(Rate::from_kbits_per_sec(1000));

        let Some(text) = self.text(option).map(str::to_owned) else {
            let message = "missing, and there is no default: give the line's rate, such as '85mbit', or 0 not to \
                           shape this direction";
            self.error(option, message.to_owned(), None::<String>);
            return UNREADABLE;
        };
        let bare = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if bare && text.contains('.') {
            let message = format!(
                "'{}' needs a unit: only whole numbers are kbit/s",
                shortened(&text)
            );
            self.error(option, message, (text.len() < 20).then(|| format!("{text}mbit")));
            return UNREADABLE;
        }
        let with_unit = if bare { format!("{text}kbit") } else { text.clone() };
        let rate = match Rate::parse_tc(&with_unit) {
            Ok(rate) => rate,
            Err(error) => {
                self.error(option, error.reason(), error.suggestion);
                return UNREADABLE;
            }
        };
        if (1..1000).contains(&rate.bits_per_sec()) {
            let message = format!("'{text}' is less than 1 kbit/s, too little to shape to");
            self.error(option, message, None::<String>);
            return UNREADABLE;
        }
        if let Some(number) = text.to_ascii_lowercase().strip_suffix("bps") {
            let message = format!("'{text}' counts bytes, as in tc: it is {rate}");
            let line = self
                .given
                .get(option)
                .map_or(self.section_line, |given| given.line);
            self.report.warning(
                Finding::at(line, message)
                    .option(option)
                    .suggest(Some(format!("{number}bit"))),
            );
        }
        (rate.bits_per_sec() > 0).then_some(rate)
    }

    fn target(&mut self, option: &str) -> Target {
        let text = match self.text(option) {
            None => return Target::Auto,
            Some(text) if text.eq_ignore_ascii_case("auto") => return Target::Auto,
            Some(text) if text.eq_ignore_ascii_case("default") => return Target::QdiscDefault,
            Some(text) => text.to_owned(),
        };
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            let message = format!("'{}' needs a unit", shortened(&text));
            self.error(option, message, (text.len() < 10).then(|| format!("{text}ms")));
            return Target::Auto;
        }
        match Nanos::parse_tc(&text) {
            Ok(time) if time.as_micros() <= u32::MAX.into() => Target::Is(time),
            Ok(_) => {
                let message = format!("'{text}' is more than {} s", u32::MAX / 1_000_000);
                self.error(option, message, None::<String>);
                Target::Auto
            }
            Err(error) => {
                let message = format!(
                    "{}; it takes 'auto', 'default' or a time such as '5ms'",
                    error.reason()
                );
                self.error(option, message, error.suggestion);
                Target::Auto
            }
        }
    }

    fn link(&mut self) -> Link {
        let layers = [
            ("none", LinkLayer::None),
            ("ethernet", LinkLayer::Ethernet),
            ("atm", LinkLayer::Atm),
            ("adsl", LinkLayer::Atm),
        ];
        let mechanisms = [
            ("default", Mechanism::Default),
            ("cake", Mechanism::Cake),
            ("tc_stab", Mechanism::TcStab),
            ("htb_private", Mechanism::HtbPrivate),
        ];
        // tc takes 0 for its own default in the first two.
        let positive = |n: &u32| *n > 0;
        Link {
            layer: self.choice("linklayer", &layers).unwrap_or(LinkLayer::None),
            overhead: self.number("overhead", -1500, 1500).unwrap_or(0),
            mechanism: self
                .choice("linklayer_adaptation_mechanism", &mechanisms)
                .unwrap_or(Mechanism::Default),
            table_mtu: self.number("tcMTU", 0, 65535).filter(positive).unwrap_or(2047),
            // The table travels in one netlink attribute, two bytes an entry.
            table_size: self.number("tcTSIZE", 0, 32000).filter(positive).unwrap_or(512),
            mpu: self.number("tcMPU", 0, 65535).unwrap_or(0),
        }
    }
}

/// Why the kernel would not let a device have this name (`dev_valid_name`).
fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "." | ".." => Some("the kernel keeps this name"),
        _ if name.len() > 15 => Some("its name has more than 15 bytes"),
        _ if name.contains(['/', ':']) => Some("'/' and ':' cannot stand in its name"),
        _ if name.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Some("its name has blanks in it")
        }
        _ => None,
    }
}
