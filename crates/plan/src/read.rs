//! From a section to typed settings. The registry of [`crate::options`] says which options there are; this says
//! which value of which option becomes which setting.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sqm_core::direction::Direction;
use sqm_core::units::{Rate, shortened};

use crate::diagnostic::{Finding, Report};
use crate::link::LinkLayer;
use crate::options::{self, OptionInfo, PerSide};
use crate::own::{self, OwnScript};
use crate::recipes;
use crate::settings::{
    Autorate, CakeOption, CakeValue, DirectionSettings, Facing, Leaf, Limits, Link, Moving, Reflector,
    Script, Settings,
};
use crate::side::Side;
use crate::uci;
use crate::value;

/// Reads a section, reporting what is wrong with it.
///
/// A value that cannot be read is replaced by a plain one in the answer, so that the rest can still be checked; the
/// error in the report keeps it from being used. `None` if nothing more can be said without the value.
pub(crate) fn section(
    section: &uci::Section<'_>,
    source: own::Source<'_>,
    report: &mut Report,
) -> Option<Settings> {
    report.disabled = false;
    let mut reader = Reader::of(section, source, report);
    // A value that is neither on nor off is an error; the rest of such a section is then checked as if it were on.
    let is_given = reader.text(&options::ENABLED).is_some();
    let enabled = reader.given(&options::ENABLED, value::switch).unwrap_or(is_given);
    reader.report.disabled = !enabled;
    reader.report_unknown(section);
    reader.report_hidden();

    let interface = reader.interface();
    let facing = reader.value(&options::FACING, |text| value::choice(text, &options::FACINGS));
    let drift = reader.given(&options::DRIFT, |text| value::choice(text, &options::DRIFTS));
    let (upload, download) = (reader.rate(&options::UPLOAD), reader.rate(&options::DOWNLOAD));
    let (leaving, arriving) = match facing {
        Facing::Internet => (upload, download),
        Facing::Lan => (download, upload),
    };
    let egress = reader.direction(Side::Egress, leaving);
    let ingress = reader.direction(Side::Ingress, arriving);
    let link = reader.link();
    let autorate = reader.autorate(download, upload);
    let squash_dscp = reader.given(&options::SQUASH_DSCP, value::switch);
    let squash_ingress = reader.given(&options::SQUASH_INGRESS, value::switch);
    let use_mq = reader.value(&options::USE_MQ, value::switch);
    let autoflow = reader.value(&options::AUTOFLOW, value::switch);
    let mark_mask = reader.value(&options::MARK_MASK, value::mark_mask);
    let debug_logging = reader.value(&options::DEBUG_LOGGING, value::switch);
    let verbosity = reader.number(&options::VERBOSITY);
    let lines = reader.given.iter().filter_map(|(name, given)| {
        let option = options::find(name)?;
        Some((option.name, given.line))
    });
    Some(recipes::own::with_uses(Settings {
        section: section.index,
        line: section.line,
        enabled,
        interface: interface?,
        facing,
        drift,
        lines: lines.collect(),
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
    }))
}

/// Most reflectors of a section, a choice: each is probed several times a second, and a few are enough.
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
    /// Options that are probably meant by names that are none, with that name and its line.
    misspelt: BTreeMap<&'static str, (&'a str, usize)>,
    /// The texts that `option script` may name.
    source: own::Source<'r>,
    report: &'r mut Report,
}

impl<'a, 'r> Reader<'a, 'r> {
    fn of(section: &uci::Section<'a>, source: own::Source<'r>, report: &'r mut Report) -> Self {
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
                Some(earlier) if value.is_empty() => {
                    let message = format!("an empty value leaves the value on line {}", earlier.line);
                    report.warning(Finding::at(line, message).foreign_option(name));
                }
                Some(earlier) => {
                    let message = format!("this replaces the value on line {}", earlier.line);
                    report.warning(Finding::at(line, message).foreign_option(name));
                    *earlier = Given {
                        value: Cow::Borrowed(value),
                        line,
                    };
                }
                None if value.is_empty() && !is_list => {}
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
            misspelt: BTreeMap::new(),
            source,
            report,
        }
    }

    /// Reports options that are in no registry: misspelt ones, and those of other software that shares the file. A name one letter
    /// from ours may be another program's own (OpenWiFi has `auto_rate`), so that it is no error.
    fn report_unknown(&mut self, section: &uci::Section<'a>) {
        let mut reported = BTreeSet::new();
        for setting in &section.settings {
            let name = setting.name;
            if options::find(name).is_some() || !reported.insert(name) {
                continue;
            }
            let meant = options::meant(name).filter(|meant| !self.given.contains_key(meant));
            if let Some(meant) = meant {
                self.misspelt.entry(meant).or_insert((name, setting.line));
            }
            let finding = Finding::at(setting.line, "ignored: sqm has no such option");
            self.report.warning(finding.foreign_option(name).suggest(meant));
        }
    }

    /// Reports options that OpenWrt's form hides, because their check box is not ticked, and that apply all the same, as in
    /// sqm-scripts. Values that are the default are not worth a warning: OpenWrt's first configuration has some.
    fn report_hidden(&mut self) {
        for (check_box, hidden) in &options::CHECK_BOXES {
            if self.text(check_box) != Some("0") {
                continue;
            }
            let differs = |name: &&&str| {
                let option = options::find(name);
                option.is_some_and(|option| self.is_given(option) && self.text(option) != option.default)
            };
            let names: Vec<&str> = hidden.iter().filter(differs).copied().collect();
            if !names.is_empty() {
                let message = format!(
                    "it hides fields of OpenWrt's form and switches nothing off: this section's {} counts as if it were ticked, as in \
                     sqm-scripts",
                    names.join(", ")
                );
                let line = self
                    .given
                    .get(check_box.name)
                    .map_or(self.section_line, |given| given.line);
                self.report
                    .warning(Finding::at(line, message).option(check_box.name));
            }
        }
    }

    /// The text of an option, if the section gives it one.
    fn text(&self, option: &OptionInfo) -> Option<&str> {
        self.given.get(option.name).map(|given| given.value.trim())
    }

    fn is_given(&self, option: &OptionInfo) -> bool {
        self.given.contains_key(option.name)
    }

    /// Reports an error about an option, on its line, or the section's if it is not given.
    fn error(&mut self, option: &OptionInfo, error: Finding) {
        let line = self
            .given
            .get(option.name)
            .map_or(self.section_line, |given| given.line);
        self.report.error(error.on_line(line).option(option.name));
    }

    /// Reports that a section lacks an option without which nothing can be planned.
    fn missing(&mut self, option: &OptionInfo, message: &str) {
        let mut message = format!("missing: {message}");
        if let Some((name, line)) = self.misspelt.get(option.name) {
            let name = shortened(name);
            message += &format!(". Option '{name}' on line {line} is probably meant to be it");
        }
        self.error(option, Finding::of_value(message));
    }

    /// Reports a warning about an option that the section gives.
    fn warning(&mut self, option: &OptionInfo, warning: Finding) {
        let line = self
            .given
            .get(option.name)
            .map_or(self.section_line, |given| given.line);
        self.report.warning(warning.on_line(line).option(option.name));
    }

    /// The value of an option that the section gives; `None`, too, for one in error.
    fn given<T>(&mut self, option: &OptionInfo, read: impl Fn(&str) -> Result<T, Finding>) -> Option<T> {
        match read(self.text(option)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(option, error);
                None
            }
        }
    }

    /// The value of an option, or its default.
    fn value<T>(&mut self, option: &OptionInfo, read: impl Fn(&str) -> Result<T, Finding>) -> T {
        self.given(option, &read).unwrap_or_else(|| default(option, read))
    }

    /// The whole number of an option that the section gives.
    fn given_number<N: TryFrom<i64>>(&mut self, option: &OptionInfo) -> Option<N> {
        self.given(option, |text| value::number(text, range(option)))
    }

    /// The whole number of an option, or its default.
    fn number<N: TryFrom<i64>>(&mut self, option: &OptionInfo) -> N {
        self.value(option, |text| value::number(text, range(option)))
    }

    fn autorate(&mut self, download: Option<Rate>, upload: Option<Rate>) -> Option<Autorate> {
        let only = match self.value(&options::AUTORATE, moving) {
            Moving::Neither => return None,
            Moving::Both => None,
            Moving::Only(direction) => Some(direction),
        };
        let fixed = |rate| Limits { min: rate, max: rate };
        Some(Autorate {
            only,
            download: match only {
                Some(Direction::Upload) => fixed(download),
                _ => {
                    let download = (&options::DOWNLOAD, download);
                    self.limits(&options::MIN_DOWNLOAD, download, &options::MAX_DOWNLOAD)
                }
            },
            upload: match only {
                Some(Direction::Download) => fixed(upload),
                _ => {
                    let upload = (&options::UPLOAD, upload);
                    self.limits(&options::MIN_UPLOAD, upload, &options::MAX_UPLOAD)
                }
            },
            reflectors: self.reflectors(),
            log: self.given(&options::AUTORATE_LOG, value::log_name),
        })
    }

    fn limits(
        &mut self,
        least: &OptionInfo,
        (middle, rate): (&OptionInfo, Option<Rate>),
        most: &OptionInfo,
    ) -> Limits {
        let mut given = |option| self.is_given(option).then(|| self.rate(option)).flatten();
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
                let at = if smaller.name == middle.name {
                    larger
                } else {
                    smaller
                };
                let message = format!("'{}' is more than '{}'", smaller.name, larger.name);
                self.error(at, Finding::of_value(message));
            }
        }
        limits
    }

    /// Addresses with blanks or commas between.
    fn reflectors(&mut self) -> Vec<Reflector> {
        let option = &options::AUTORATE_REFLECTORS;
        let text = self.text(option).unwrap_or_default().to_owned();
        let mut reflectors = Vec::new();
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        for word in words.filter(|word| !word.is_empty()) {
            if reflectors.len() == MOST_REFLECTORS {
                let message = format!("more than {MOST_REFLECTORS} reflectors, the limit: a few are enough");
                self.error(option, Finding::of_value(message));
                break;
            }
            match word.parse::<Reflector>() {
                Ok(reflector) => reflectors.push(reflector),
                Err(error) => {
                    let message = format!(
                        "'{}' {error}: write 192.0.2.1 for a host that answers pings, sqm://192.0.2.1 for 'sqm serve', \
                         irtt://192.0.2.1 for 'irtt server', with :PORT for another port than the default",
                        shortened(word)
                    );
                    self.error(option, Finding::of_value(message));
                }
            }
        }
        reflectors
    }

    fn interface(&mut self) -> Option<String> {
        let option = &options::INTERFACE;
        if !self.is_given(option) {
            self.missing(
                option,
                "name the network device to shape, such as 'eth0' or 'pppoe-wan'",
            );
        }
        let name = self.given(option, value::device_name)?;
        if let Some(finding) = value::unlikely_device(&name) {
            self.warning(option, finding);
        }
        Some(name)
    }

    /// The option that holds in a direction: its own if it is given, else the one for both.
    fn own_or_both(
        &self,
        own: &'static PerSide,
        side: Side,
        both: &'static OptionInfo,
    ) -> &'static OptionInfo {
        let own = own.on(side);
        if self.is_given(own) { own } else { both }
    }

    /// The setup script of a direction. An error in the option for both is found for each, and reported once.
    fn script(&mut self, side: Side) -> Option<Script> {
        let option = self.own_or_both(&options::SCRIPT, side, &options::SCRIPT_OF_BOTH);
        if !self.is_given(option) {
            let list: Vec<&str> = Script::built_in().map(Script::file_name).collect();
            self.missing(option, &format!("choose one of {}", list.join(", ")));
        }
        let name = self.text(option)?.to_owned();
        if !name.ends_with(own::ENDING) {
            return self.given(option, value::script);
        }
        if let Some(fault) = value::own_name_fault(&name) {
            self.error(option, fault);
            return None;
        }
        let file = match (self.source)(&name) {
            Ok(file) => file,
            Err(message) => {
                self.error(option, Finding::of_value(message));
                return None;
            }
        };
        let path = file.path.clone();
        match OwnScript::parse(&name, file) {
            Ok(own) => Some(Script::Own(own)),
            Err(errors) => {
                for error in errors {
                    self.error(option, recipes::own::finding(&path, error));
                }
                None
            }
        }
    }

    /// The leaf of a direction. A setup script that is CAKE has no leaf: a word for it has no effect, even if it is unknown.
    fn leaf(&mut self, side: Side, script: Option<&Script>) -> Option<Leaf> {
        let both = &options::QDISC_OF_BOTH;
        let option = self.own_or_both(&options::QDISC, side, both);
        let Some(text) = self.text(option) else {
            return Some(default(both, value::leaf));
        };
        match script.filter(|script| script.is_cake()) {
            Some(script) if value::leaf(text).is_err() => {
                let (script, text) = (script.file_name(), shortened(text));
                let message = format!("ignored: {script} always uses cake, not '{text}'");
                self.warning(option, Finding::of_value(message));
                Some(Leaf::Cake)
            }
            _ => self.given(option, value::leaf),
        }
    }

    fn direction(&mut self, side: Side, rate: Option<Rate>) -> Option<DirectionSettings> {
        let script = self.script(side);
        let qdisc = self.leaf(side, script.as_ref());
        // A quantum for both directions takes precedence over a burst for one of them.
        let burst = self.number(&options::BURST_OF_BOTH);
        let quantum = self.given_number(&options::QUANTUM_OF_BOTH).unwrap_or(burst);
        let burst_micros = self.given_number(options::BURST.on(side)).unwrap_or(burst);
        let quantum_micros = self.given_number(options::QUANTUM.on(side)).unwrap_or(quantum);
        let words = self.text(options::WORDS.on(side)).unwrap_or_default().to_owned();
        Some(DirectionSettings {
            rate,
            ecn: self.value(options::ECN.on(side), |text| {
                value::choice(text, &options::ECN_CHOICES)
            }),
            limit: self.limit(side, qdisc),
            target: self.value(options::TARGET.on(side), value::target),
            burst_micros,
            quantum_micros,
            cake: self.cake(side),
            options: words,
            script: script?,
            qdisc: qdisc?,
        })
    }

    /// The leaf's limit: packets, or for bfifo bytes, which may have a unit of `tc`.
    fn limit(&mut self, side: Side, qdisc: Option<Leaf>) -> Option<u32> {
        let option = options::LIMIT.on(side);
        match qdisc {
            Some(Leaf::Bfifo) => self.given(option, |text| value::bytes(text, range(option))),
            _ => self.given_number(option),
        }
    }

    /// The typed options of CAKE: for each parameter the direction's own, or else the one for both.
    fn cake(&mut self, side: Side) -> Vec<CakeOption> {
        let mut read = Vec::new();
        for parameter in &options::CAKE {
            let option = self.own_or_both(&parameter.own, side, &parameter.both);
            if let Some(value) = self.given(option, parameter.read) {
                self.warn_of_microseconds(option, value);
                read.push(CakeOption {
                    name: option.name,
                    value,
                });
            }
        }
        read
    }

    /// `tc` reads a time without a unit in microseconds, which few people mean.
    fn warn_of_microseconds(&mut self, option: &OptionInfo, value: CakeValue) {
        let text = self.text(option).unwrap_or_default();
        if matches!(value, CakeValue::Rtt(_)) && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let message = format!("'{text}' is {text} us, as in tc");
            let meant = Some(format!("{text}ms"));
            self.warning(option, Finding::of_value(message).suggest(meant));
        }
    }

    fn rate(&mut self, option: &OptionInfo) -> Option<Rate> {
        /// Stands in for a rate in error, so that the direction counts as shaped and its other options are checked.
        const UNREADABLE: Option<Rate> = Some(Rate::from_kbits_per_sec(1000));

        let Some(text) = self.text(option).map(str::to_owned) else {
            let message = "there is no default; give the line's rate, such as '85mbit', or 0 not to shape this \
                           direction";
            self.missing(option, message);
            return UNREADABLE;
        };
        let rate = match value::rate(&text) {
            Ok(rate) => rate,
            Err(error) => {
                self.error(option, error);
                return UNREADABLE;
            }
        };
        if let Some(number) = text.to_ascii_lowercase().strip_suffix("bps") {
            let rate = rate.unwrap_or(Rate::from_bits_per_sec(0));
            let message = format!("'{text}' counts bytes, as in tc: it is {rate}");
            let meant = Some(format!("{number}bit"));
            self.warning(option, Finding::of_value(message).suggest(meant));
        }
        rate
    }

    fn link(&mut self) -> Link {
        let preset = self.given(&options::LINK, options::preset);
        // OpenWrt's page adds 'none' whenever it saves a section that has no link layer.
        let layer = self.given(&options::LINK_LAYER, options::link_layer);
        let layer = layer.filter(|layer| preset.is_none() || *layer != LinkLayer::None);
        Link {
            preset,
            layer: layer.unwrap_or_else(|| preset.map_or(LinkLayer::None, |preset| preset.layer)),
            overhead: self
                .given_number(&options::OVERHEAD)
                .unwrap_or_else(|| preset.map_or(0, |preset| preset.overhead)),
            mechanism: self.value(&options::MECHANISM, |text| {
                value::choice(text, &options::MECHANISMS)
            }),
            table_mtu: self.positive_number(&options::TABLE_MTU),
            table_size: self.positive_number(&options::TABLE_SIZE),
            mpu: self
                .given_number(&options::MPU)
                .unwrap_or_else(|| preset.map_or(0, |preset| preset.mpu)),
        }
    }

    /// A number of the size table, for which 0 is another way to say its default, as in `tc`.
    fn positive_number(&mut self, option: &OptionInfo) -> u32 {
        match self.number(option) {
            0 => default(option, |text| value::number(text, range(option))),
            number => number,
        }
    }
}

/// The range of a whole number; any number if the registry has none.
fn range(option: &OptionInfo) -> (i64, i64) {
    option.range.unwrap_or((i64::MIN, i64::MAX))
}

/// The value of `autorate`: a switch, or one direction.
fn moving(text: &str) -> Result<Moving, Finding> {
    match value::switch(text) {
        Ok(true) => Ok(Moving::Both),
        Ok(false) => Ok(Moving::Neither),
        Err(_) => value::choice(text, &options::MOVING),
    }
}

/// The default of an option that has one.
fn default<T>(option: &OptionInfo, read: impl Fn(&str) -> Result<T, Finding>) -> T {
    let default = option.default.and_then(|text| read(text).ok());
    default.expect("a test reads every default of the registry")
}
