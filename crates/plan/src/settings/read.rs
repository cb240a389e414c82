//! From the words of a section to typed settings, each option with its meaning, its bounds and its errors.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sqm_core::nearest::nearest;
use sqm_core::spec::cake::Cake;
use sqm_core::units::{Nanos, Rate, shortened};

use super::{
    Autorate, CakeOption, CakeValue, DirectionSettings, Facing, LOG_FOLDER, Leaf, Limits, Link, Mechanism,
    Reflector, Script, Settings, Target,
};
use crate::diagnostic::{Finding, Report};
use crate::link::{self, LinkLayer};
use crate::uci;

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
        let facing = reader
            .choice("facing", &[("internet", Facing::Internet), ("lan", Facing::Lan)])
            .unwrap_or(Facing::Internet);
        let (upload, download) = (reader.rate("upload"), reader.rate("download"));
        let (leaving, arriving) = match facing {
            Facing::Internet => (upload, download),
            Facing::Lan => (download, upload),
        };
        let egress = reader.direction("egress", leaving);
        let ingress = reader.direction("ingress", arriving);
        let link = reader.link();
        let autorate = reader.autorate(download, upload);
        let squash_dscp = reader.switch("squash_dscp");
        let squash_ingress = reader.switch("squash_ingress");
        let use_mq = reader.flag("use_mq", false);
        let autoflow = reader.flag("autoflow", false);
        let mark_mask = reader.mask("mark_mask").unwrap_or(0xff);
        let debug_logging = reader.flag("debug_logging", false);
        let verbosity = reader.number("verbosity", 0, 10).unwrap_or(5);
        let lines = reader
            .given
            .iter()
            .filter(|(name, _)| is_known(name))
            .map(|(name, given)| ((*name).to_owned(), given.line))
            .collect();
        Some(Self {
            line: section.line,
            enabled,
            interface: interface?,
            facing,
            egress: egress?,
            ingress: ingress?,
            squash_dscp,
            squash_ingress,
            use_mq,
            autoflow,
            mark_mask,
            link,
            autorate,
            debug_logging,
            verbosity,
            lines,
        })
    }
}

/// How a typed option of CAKE becomes CAKE's words.
enum CakeWords {
    /// On and off.
    Flag(&'static str, &'static str),
    /// One of CAKE's own words.
    Word(&'static [&'static str]),
    /// The keyword and a value, or one of the words.
    Value(&'static str, &'static [&'static str]),
    /// Off, on, more.
    Filter,
}

/// The typed options of CAKE. Each also exists with `egress_` and `ingress_` before it, for one direction.
const CAKE_OPTIONS: [(&str, CakeWords); 11] = [
    (
        "cake_rtt",
        CakeWords::Value(
            "rtt",
            &[
                "datacentre",
                "lan",
                "metro",
                "regional",
                "internet",
                "oceanic",
                "satellite",
                "interplanetary",
            ],
        ),
    ),
    (
        "cake_tins",
        CakeWords::Word(&["besteffort", "precedence", "diffserv3", "diffserv4", "diffserv8"]),
    ),
    (
        "cake_isolation",
        CakeWords::Word(&[
            "flowblind",
            "srchost",
            "dsthost",
            "hosts",
            "flows",
            "dual-srchost",
            "dual-dsthost",
            "triple-isolate",
        ]),
    ),
    ("cake_nat", CakeWords::Flag("nat", "nonat")),
    ("cake_wash", CakeWords::Flag("wash", "nowash")),
    ("cake_ack_filter", CakeWords::Filter),
    ("cake_ingress", CakeWords::Flag("ingress", "egress")),
    ("cake_split_gso", CakeWords::Flag("split-gso", "no-split-gso")),
    ("cake_memlimit", CakeWords::Value("memlimit", &[])),
    ("cake_fwmark", CakeWords::Value("fwmark", &[])),
    ("cake_autorate_ingress", CakeWords::Flag("autorate-ingress", "")),
];

/// A time a token bucket may send ahead, microseconds.
const BURST_MICROS: u32 = 1000;

/// Options that sqm-scripts reads, then ours with those of sqm-scripts that were variables outside the file, then those
/// that only a web form reads, to decide what it shows.
const OPTIONS: [&str; 44] = [
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
    "link",
    "facing",
    "autoflow",
    "mark_mask",
    "egress_script",
    "ingress_script",
    "egress_qdisc",
    "ingress_qdisc",
    "shaper_burst_dur_us",
    "eshaper_burst_dur_us",
    "ishaper_burst_dur_us",
    "autorate",
    "shaper_quantum_dur_us",
    "eshaper_quantum_dur_us",
    "ishaper_quantum_dur_us",
    "qdisc_advanced",
    "qdisc_really_really_advanced",
    "linklayer_advanced",
];

/// And those that mean nothing without `autorate`.
const AUTORATE_OPTIONS: [&str; 6] = [
    "autorate_reflectors",
    "autorate_log",
    "min_download",
    "max_download",
    "min_upload",
    "max_upload",
];

/// Each is asked several times a second.
const MOST_REFLECTORS: usize = 64;

/// An option's value and its line.
struct Given<'a> {
    value: Cow<'a, str>,
    line: usize,
}

/// Takes values out of one section.
struct Reader<'a, 'r> {
    section_line: usize,
    /// Options with a value that is not empty; an empty one counts as absent, as in sqm-scripts.
    given: BTreeMap<&'a str, Given<'a>>,
    report: &'r mut Report,
}

impl<'a, 'r> Reader<'a, 'r> {
    fn of(section: &uci::Section<'a>, report: &'r mut Report) -> Self {
        let mut given: BTreeMap<&str, Given<'_>> = BTreeMap::new();
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
                    let all = earlier.value.to_mut();
                    all.push(' ');
                    all.push_str(value);
                }
                Some(earlier) => {
                    let message = format!("it is given again here and replaces line {}", earlier.line);
                    report.warning(Finding::at(line, message).foreign_option(name));
                    *earlier = Given {
                        value: Cow::Borrowed(value),
                        line,
                    };
                }
                None => {
                    given.insert(
                        name,
                        Given {
                            value: Cow::Borrowed(value),
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
            if is_known(name) {
                continue;
            }
            let known = plain_options().chain(CAKE_OPTIONS.iter().map(|(name, _)| *name));
            let meant = nearest(name, known).filter(|meant| !self.given.contains_key(meant));
            // A slip of the finger asks for something; a name that is longer or shorter by more is another program's.
            if let Some(meant) = meant.filter(|meant| meant.len().abs_diff(name.len()) <= 2) {
                let finding = Finding::at(setting.line, "no such option").foreign_option(name);
                self.report.error(finding.suggest(Some(meant)));
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

    #[track_caller]
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
        self.switch(option).unwrap_or(default)
    }

    /// A UCI boolean, if it is given.
    fn switch(&mut self, option: &str) -> Option<bool> {
        match self.text(option)? {
            "1" | "on" | "true" | "yes" | "enabled" => Some(true),
            "0" | "off" | "false" | "no" | "disabled" => Some(false),
            other => {
                let message = format!("'{}' is neither on (1) nor off (0)", shortened(other));
                let meant = nearest(
                    other,
                    ["on", "off", "true", "false", "yes", "no", "enabled", "disabled"],
                );
                self.error(option, message, meant);
                None
            }
        }
    }

    fn autorate(&mut self, download: Option<Rate>, upload: Option<Rate>) -> Option<Autorate> {
        if !self.flag("autorate", false) {
            for option in AUTORATE_OPTIONS {
                if let Some(given) = self.given.get(option) {
                    let message = "ignored: autorate is off";
                    self.report
                        .warning(Finding::at(given.line, message).option(option));
                }
            }
            return None;
        }
        Some(Autorate {
            download: self.limits("min_download", "download", download, "max_download"),
            upload: self.limits("min_upload", "upload", upload, "max_upload"),
            reflectors: self.reflectors("autorate_reflectors"),
            log: self.log_name("autorate_log"),
        })
    }

    fn limits(&mut self, least: &str, middle: &str, rate: Option<Rate>, most: &str) -> Limits {
        let mut given = |option: &str| self.text(option).is_some().then(|| self.rate(option)).flatten();
        let limits = Limits {
            min: given(least),
            max: given(most),
        };
        let [min, rate, max] = [limits.min, rate, limits.max].map(|rate| rate.map(Rate::bits_per_sec));
        let pairs = [
            (least, min, middle, rate),
            (middle, rate, most, max),
            (least, min, most, max),
        ];
        for (smaller, low, larger, high) in pairs {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                let at = if smaller == middle { larger } else { smaller };
                self.error(at, format!("'{smaller}' is more than '{larger}'"), None::<String>);
            }
        }
        limits
    }

    /// The name of a file in [`LOG_FOLDER`], alone or with the folder before it.
    fn log_name(&mut self, option: &str) -> Option<String> {
        /// Room for what is added when the log is put aside.
        const MAX_BYTES: usize = 200;
        let text = self.text(option).filter(|text| !text.is_empty())?;
        let in_folder = text
            .strip_prefix(LOG_FOLDER)
            .and_then(|rest| rest.strip_prefix('/'));
        let name = in_folder.unwrap_or(text);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+@".contains(c);
        let is_name = !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= MAX_BYTES
            && name.chars().all(is_plain);
        if is_name {
            return Some(name.to_owned());
        }
        let message = format!("'{}' is not the name of a file in {LOG_FOLDER}", shortened(text));
        let advice = format!(
            "write a name such as rates.csv, of letters, digits and . _ - + @; the log is then {LOG_FOLDER}/rates.csv"
        );
        self.error(option, message, Some(advice));
        None
    }

    /// Addresses with blanks between.
    fn reflectors(&mut self, option: &str) -> Vec<Reflector> {
        let text = self.text(option).unwrap_or_default().to_owned();
        let mut reflectors = Vec::new();
        for word in text.split_whitespace() {
            if reflectors.len() == MOST_REFLECTORS {
                let message = format!("more than {MOST_REFLECTORS} reflectors: a few are enough");
                self.error(option, message, None::<String>);
                break;
            }
            match word.parse::<Reflector>() {
                Ok(reflector) => reflectors.push(reflector),
                Err(error) => {
                    let message = format!("'{}' {error}", shortened(word));
                    let advice = "write 192.0.2.1 for one that answers pings, sqm://192.0.2.1 for 'sqm serve', \
                                  irtt://192.0.2.1 for 'irtt server', with :PORT if it is not the usual one";
                    self.error(option, message, Some(advice));
                }
            }
        }
        reflectors
    }

    /// The bits of a firewall mark: decimal, or hexadecimal after `0x`.
    fn mask(&mut self, option: &str) -> Option<u32> {
        let text = self.text(option)?;
        let read = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        // Three marks need two bits at least.
        match read {
            Ok(mask) if mask & 3 == 3 => Some(mask),
            _ => {
                let message = format!(
                    "'{}' is not a mask that has its two lowest bits set, such as 0xff",
                    shortened(text)
                );
                self.error(option, message, None::<String>);
                None
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

    /// The set-up of a direction: its own option, or the one for both.
    fn script(&mut self, side: &str) -> Option<Script> {
        let own = format!("{side}_script");
        let option = if self.given.contains_key(own.as_str()) {
            own.as_str()
        } else {
            "script"
        };
        let names = Script::ALL.map(Script::file_name);
        let list = names.join(", ");
        let Some(name) = self.text(option) else {
            // Said once, for the first direction that misses it.
            if side == "egress" || self.given.contains_key("egress_script") {
                self.error(option, format!("missing: choose one of {list}"), None::<String>);
            }
            return None;
        };
        let script = Script::ALL.into_iter().find(|script| script.file_name() == name);
        if script.is_none() && (side == "egress" || option != "script") {
            let message = format!("unknown script '{}'; there are {list}", shortened(name));
            let meant = nearest(name, names);
            self.error(option, message, meant);
        }
        script
    }

    /// The leaf of a direction: its own option, or the one for both.
    fn leaf(&mut self, side: &str) -> Option<Leaf> {
        let own = format!("{side}_qdisc");
        let option = if self.given.contains_key(own.as_str()) {
            own.as_str()
        } else {
            "qdisc"
        };
        let Some(name) = self.text(option) else {
            return Some(Leaf::FqCodel);
        };
        let leaf = Leaf::ALL.into_iter().find(|leaf| leaf.name() == name);
        if leaf.is_none() && (side == "egress" || option != "qdisc") {
            let names = Leaf::ALL.map(Leaf::name);
            let message = format!(
                "unknown queueing discipline '{}'; choose one of {}",
                shortened(name),
                names.join(", ")
            );
            let meant = nearest(name, names);
            self.error(option, message, meant);
        }
        leaf
    }

    fn direction(&mut self, side: &str, rate: Option<Rate>) -> Option<DirectionSettings> {
        let letter = &side[..1];
        let (script, qdisc) = (self.script(side), self.leaf(side));
        // A second is far beyond any use, and keeps the numbers small.
        let mut duration = |of: &str, what: &str, default| {
            let option = format!("{of}shaper_{what}_dur_us");
            self.number(&option, 0, 1_000_000).unwrap_or(default)
        };
        // What is said for both directions stands before what is said of the burst in one.
        let burst = duration("", "burst", BURST_MICROS);
        let quantum = duration("", "quantum", burst);
        let burst_micros = duration(letter, "burst", burst);
        let quantum_micros = duration(letter, "quantum", quantum);
        Some(DirectionSettings {
            rate,
            ecn: self
                .choice(&format!("{side}_ecn"), &[("ECN", true), ("NOECN", false)])
                .unwrap_or(true),
            limit: self.number(&format!("{letter}limit"), 1, u32::MAX.into()),
            target: self.target(&format!("{letter}target")),
            burst_micros,
            quantum_micros,
            cake: self.cake(side),
            options: self
                .text(&format!("{letter}qdisc_opts"))
                .unwrap_or_default()
                .to_owned(),
            script: script?,
            qdisc: qdisc?,
        })
    }

    /// The typed options of CAKE: those for both directions, then this one's own, which win.
    fn cake(&mut self, side: &str) -> Vec<CakeOption> {
        let mut read = Vec::new();
        for (name, value) in &CAKE_OPTIONS {
            let own = format!("{side}_{name}");
            let option = if self.given.contains_key(own.as_str()) {
                own
            } else {
                (*name).to_owned()
            };
            let Some(text) = self.text(&option).map(str::to_owned) else {
                continue;
            };
            if let Some(words) = self.cake_words(&option, &text, value) {
                let mut cake = Cake::default();
                if cake.apply(&words).is_ok()
                    && let Some(value) = cake_value(name, &cake)
                {
                    read.push(CakeOption { name: option, value });
                }
            }
        }
        read
    }

    fn cake_words(&mut self, option: &str, text: &str, value: &CakeWords) -> Option<String> {
        let one_of = |reader: &mut Self, words: &[&'static str]| {
            let choices: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
            reader.choice(option, &choices).map(str::to_owned)
        };
        match value {
            CakeWords::Flag(on, off) => self
                .switch(option)
                .map(|is_on| if is_on { *on } else { *off }.to_owned()),
            CakeWords::Word(words) => one_of(self, words),
            CakeWords::Value(_, words) if words.contains(&text) => Some(text.to_owned()),
            CakeWords::Value(keyword, _) => {
                let words = format!("{keyword} {text}");
                // Blanks inside would smuggle other words in.
                let read = match text.split_whitespace().count() {
                    1 => Cake::default()
                        .apply(&words)
                        .map_err(|error| (error.reason(), error.suggestion)),
                    _ => Err((format!("'{}' is not one value", shortened(text)), None)),
                };
                match read {
                    Ok(()) => Some(words),
                    Err((reason, suggestion)) => {
                        self.error(option, reason, suggestion);
                        None
                    }
                }
            }
            CakeWords::Filter => {
                let choices = [
                    ("on", "ack-filter"),
                    ("off", "no-ack-filter"),
                    ("1", "ack-filter"),
                    ("0", "no-ack-filter"),
                    ("aggressive", "ack-filter-aggressive"),
                ];
                self.choice(option, &choices).map(str::to_owned)
            }
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
            ("ptm", LinkLayer::Ptm),
        ];
        let mechanisms = [
            ("default", Mechanism::Default),
            ("cake", Mechanism::Cake),
            ("tc_stab", Mechanism::TcStab),
            ("htb_private", Mechanism::HtbPrivate),
        ];
        let presets: Vec<_> = link::PRESETS.iter().map(|preset| (preset.name, preset)).collect();
        let preset = self.choice("link", &presets);
        // tc takes 0 for its own default in the first two.
        let positive = |n: &u32| *n > 0;
        Link {
            preset,
            layer: self
                .choice("linklayer", &layers)
                .unwrap_or_else(|| preset.map_or(LinkLayer::None, |preset| preset.layer)),
            overhead: self
                .number("overhead", -1500, 1500)
                .unwrap_or_else(|| preset.map_or(0, |preset| preset.overhead)),
            mechanism: self
                .choice("linklayer_adaptation_mechanism", &mechanisms)
                .unwrap_or(Mechanism::Default),
            table_mtu: self.number("tcMTU", 0, 65535).filter(positive).unwrap_or(2047),
            // The table travels in one netlink attribute, two bytes an entry.
            table_size: self.number("tcTSIZE", 0, 32000).filter(positive).unwrap_or(512),
            mpu: self
                .number("tcMPU", 0, 65535)
                .unwrap_or_else(|| preset.map_or(0, |preset| preset.mpu)),
        }
    }
}

/// The value that this option has set.
fn cake_value(option: &str, cake: &Cake) -> Option<CakeValue> {
    Some(match option {
        "cake_rtt" => CakeValue::Rtt(cake.rtt),
        "cake_tins" => CakeValue::Tins(cake.tins),
        "cake_isolation" => CakeValue::Isolation(cake.isolation),
        "cake_nat" => CakeValue::Nat(cake.nat),
        "cake_wash" => CakeValue::Wash(cake.wash),
        "cake_ack_filter" => CakeValue::AckFilter(cake.ack_filter),
        "cake_ingress" => CakeValue::Ingress(cake.ingress),
        "cake_split_gso" => CakeValue::SplitGso(cake.split_gso),
        "cake_memlimit" => CakeValue::MemLimit(cake.memlimit),
        "cake_fwmark" => CakeValue::FwMark(cake.fwmark),
        "cake_autorate_ingress" => CakeValue::AutorateIngress(cake.autorate_ingress),
        _ => return None,
    })
}

/// Every option that is read.
#[cfg(test)]
pub(crate) fn names() -> Vec<String> {
    let directions = |name: &str| {
        [
            format!("egress_{name}"),
            format!("ingress_{name}"),
            name.to_owned(),
        ]
    };
    let cake = CAKE_OPTIONS.iter().flat_map(|(name, _)| directions(name));
    plain_options().map(str::to_owned).chain(cake).collect()
}

/// All but CAKE's own.
fn plain_options() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().chain(AUTORATE_OPTIONS)
}

/// Whether this option is read.
fn is_known(name: &str) -> bool {
    plain_options().any(|option| option == name) || is_cake_option(name)
}

/// Whether this is a typed option of CAKE, for both directions or one.
fn is_cake_option(name: &str) -> bool {
    let bare = name
        .strip_prefix("egress_")
        .or_else(|| name.strip_prefix("ingress_"))
        .unwrap_or(name);
    CAKE_OPTIONS.iter().any(|(option, _)| *option == bare)
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
