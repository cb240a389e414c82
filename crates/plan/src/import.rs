//! From files of other programs to sections of our configuration: those of sqm-scripts here, those of cake-autorate and
//! sqm-autorate in [`autorate`].
//!
//! sqm-scripts on generic Linux has `default.conf`, `<device>.iface.conf` and `sqm.conf`. The first two are shell, sourced by some of sqm-scripts' own programs and read as an environment file by systemd. What both
//! readings agree on is read here: one `NAME=value` a line, quoted or not. `sqm.conf` is only ever sourced, so that it may
//! name variables that were set before. Anything else is an error, because a line that is skipped may be the one that
//! matters.

pub mod autorate;
mod counted;
mod globals;
pub mod script;
mod shell;

use std::collections::BTreeMap;
use std::fmt;

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use crate::options;
use crate::uci::quote;
pub use counted::keep_counted_bytes;
pub use globals::globals;
use shell::Assignment;

/// A file and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// As it was given.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
    /// The program that reads it.
    pub reader: Reader,
}

/// The program that reads a file of sqm-scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A shell or systemd, which knows no `$NAME`.
    ShellOrSystemd,
    /// A shell: `$NAME` and `${NAME}` are what was set before.
    Shell,
}

/// A section of our configuration and how it differs from what it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The device.
    pub interface: String,
    /// Options in the order in which they are written.
    pub options: Vec<(&'static str, String)>,
    /// Everything that is not carried over as it was, and why.
    pub differences: Vec<Remark>,
    /// True if it was made of the file of a program that only moves rates: the rest of the section is a choice.
    pub is_autorate: bool,
}

impl Imported {
    /// The value of an option that the section has.
    pub fn get(&self, option: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options
            .find(|(name, _)| *name == option)
            .map(|(_, value)| value.as_str())
    }

    fn set(&mut self, option: &'static str, value: String) {
        match self.options.iter_mut().find(|(name, _)| *name == option) {
            Some((_, old)) => *old = value,
            None => self.options.push((option, value)),
        }
    }
}

/// Something to know, or an error, printed as `file:line: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file's name; empty if it is about no file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// The difference or error.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:{}: ", self.file, self.line)?;
        }
        f.write_str(&self.message)
    }
}

/// The section as text.
impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "config queue")?;
        for (option, value) in &self.options {
            writeln!(f, "\toption {option} {}", quote(value))?;
        }
        Ok(())
    }
}

/// Variables that become several options, part of one, or none.
const SPECIAL: [&str; 4] = ["IFACE", "LIMIT", "INGRESS_CAKE_OPTS", "EGRESS_CAKE_OPTS"];

/// Variables that have no meaning here, and why.
const WITHOUT_MEANING: [(&str, &str); 24] = [
    ("TARGET", "sqm-scripts reads it but does not use it"),
    (
        "SQM_DEBUG",
        "sqm writes no log files; 'sqm daemon' reports what happens",
    ),
    ("SQM_VERBOSITY_MIN", "messages go to standard error"),
    (
        "SQM_SYSLOG",
        "messages go to standard error, and with systemd to its journal",
    ),
    ("SQM_CHECK_QDISCS", "sqm asks the kernel for its features"),
    ("SQM_LIB_DIR", "sqm uses no shell scripts"),
    ("SQM_STATE_DIR", "'--state-dir' sets the state folder"),
    ("SQM_QDISC_STATE_DIR", "'--state-dir' sets the state folder"),
    ("TC", "sqm starts no other programs"),
    ("IP", "sqm starts no other programs"),
    ("IPTABLES", "sqm starts no other programs"),
    ("IP6TABLES", "sqm starts no other programs"),
    ("TC_BINARY", "sqm starts no other programs"),
    ("IP_BINARY", "sqm starts no other programs"),
    ("IPTABLES_BINARY", "sqm starts no other programs"),
    ("IP6TABLES_BINARY", "sqm starts no other programs"),
    ("NFT_BINARY", "sqm starts no other programs"),
    ("INSMOD", "the kernel loads modules by itself"),
    ("ALL_MODULES", "the kernel loads modules by itself"),
    (
        "SHAPER_BURST",
        "sqm-scripts no longer reads it; SHAPER_BURST_DUR_US, a time, replaced it",
    ),
    ("IPTABLES_ARGS", "sqm sets firewall rules through nftables"),
    ("NFT_TABLE", "the table's name is 'sqm_' and the device's name"),
    ("DEV", "the IFB's name is 'ifb4' and the device's name"),
    ("CLEANUP", "'sqm stop' handles a device that no longer exists"),
];

/// `sqm.conf` as sqm-scripts ships it: says where its own parts are, and nothing of this line.
const SHIPPED: [(&str, &str); 5] = [
    ("SQM_LIB_DIR", "/usr/lib/sqm"),
    ("SQM_STATE_DIR", "/run/sqm"),
    ("SQM_QDISC_STATE_DIR", "/run/sqm/available_qdiscs"),
    ("SQM_CHECK_QDISCS", "fq_codel codel pie sfq cake"),
    ("SQM_SYSLOG", "0"),
];

/// The rates of sqm-scripts where one is missing, kbit/s: those of a line of 2012.
const MISSING_RATES: [(&str, &str, &str); 2] =
    [("download", "DOWNLINK", "14698"), ("upload", "UPLINK", "2302")];

/// Most errors, and most unknown variables, that are reported; a choice.
const MOST_REMARKS: usize = 20;

/// Makes a section of the files, of which a later one overrides an earlier: `default.conf`, the device's own, `sqm.conf`.
///
/// # Errors
/// Every line that is no plain assignment, and what sqm-scripts itself could not start with.
pub fn import(interface: &str, sources: &[Source<'_>]) -> Result<Imported, Vec<Remark>> {
    let mut given: BTreeMap<String, Given> = BTreeMap::new();
    let mut errors = Vec::new();
    for source in sources {
        for (line, text) in shell::lines(source.text) {
            if errors.len() == MOST_REMARKS {
                break;
            }
            let is_shell = source.reader == Reader::Shell;
            let known = |name: &str| {
                given
                    .get(name)
                    .filter(|_| is_shell)
                    .map(|given| given.value.clone())
            };
            let file = source.name.to_owned();
            match shell::assignment(text, known) {
                Ok(Assignment { name, value }) => drop(given.insert(name, Given { file, line, value })),
                Err(message) => errors.push(Remark { file, line, message }),
            }
        }
    }
    let importer = Importer {
        given,
        imported: Imported {
            interface: interface.to_owned(),
            options: Vec::new(),
            differences: Vec::new(),
            is_autorate: false,
        },
    };
    match importer.section() {
        Ok(imported) if errors.is_empty() => Ok(imported),
        Ok(_) => Err(errors),
        Err(error) => {
            errors.push(error);
            Err(errors)
        }
    }
}

/// A variable's value and where it stands.
struct Given {
    file: String,
    line: usize,
    value: String,
}

impl Given {
    fn remark(&self, message: String) -> Remark {
        Remark {
            file: self.file.clone(),
            line: self.line,
            message,
        }
    }
}

struct Importer {
    given: BTreeMap<String, Given>,
    imported: Imported,
}

impl Importer {
    fn section(mut self) -> Result<Imported, Remark> {
        self.names()?;
        for option in options::OF_SQM_SCRIPTS {
            self.option(option.name, option.variables)?;
        }
        self.limit();
        self.base_words();
        self.without_meaning();
        Ok(self.imported)
    }

    /// The device is named by the file, unless a file says otherwise, which sqm-scripts reads afterwards.
    fn names(&mut self) -> Result<(), Remark> {
        if let Some(iface) = self.given.remove("IFACE") {
            if iface.value.is_empty() {
                return Err(iface.remark("IFACE is empty: sqm-scripts starts nothing then".into()));
            }
            if iface.value != self.imported.interface {
                let file = std::mem::replace(&mut self.imported.interface, iface.value.clone());
                let remark = iface.remark(format!(
                    "IFACE is {} but the file is for {file}: sqm-scripts shapes {0}, so the section is for {0}",
                    iface.value
                ));
                self.differ(remark);
            }
        }
        let interface = self.imported.interface.clone();
        self.set("interface", interface);
        Ok(())
    }

    fn option(&mut self, option: &'static str, names: &[&str]) -> Result<(), Remark> {
        let mut found = None;
        for name in names {
            // Nothing is the same as not being there, and the next spelling counts.
            let given = self.given.remove(*name);
            let Some(given) = given.filter(|given| !given.value.is_empty()) else {
                continue;
            };
            match &found {
                None => found = Some((*name, given)),
                Some((first, _)) => {
                    let remark = given.remark(format!(
                        "{name} is another name for {first}, and the file sets both: remove one"
                    ));
                    self.differ(remark);
                }
            }
        }
        match found {
            Some((_, given)) if option == "enabled" => self.enabled(&given),
            Some((_, given)) => self.set(option, given.value),
            None => self.missing(option)?,
        }
        Ok(())
    }

    /// sqm-scripts asks whether this is another number than 1, so that what is no number starts like a 1.
    fn enabled(&mut self, given: &Given) {
        let number = given.value.trim().parse::<i64>();
        let is_on = !matches!(number, Ok(number) if number != 1);
        self.set("enabled", u8::from(is_on).to_string());
        let why = match number {
            Ok(0 | 1) => return,
            Ok(_) => "sqm-scripts starts the device only if it is 1, so the section is disabled",
            Err(_) => {
                "that is not a number, and sqm-scripts then starts the device, so the section is enabled"
            }
        };
        let remark = given.remark(format!("ENABLED is '{}': {why}", given.value));
        self.differ(remark);
    }

    /// Does as sqm-scripts does without this variable, where we would do something else.
    fn missing(&mut self, option: &'static str) -> Result<(), Remark> {
        if option == "script" {
            return Err(everywhere(
                "SCRIPT is missing, and sqm-scripts starts nothing without it",
            ));
        }
        // The file being there is enough.
        if option == "enabled" {
            self.set(option, "1".to_owned());
        }
        let rate = MISSING_RATES.iter().find(|(name, ..)| *name == option);
        if let Some((_, variable, kbit)) = rate {
            self.set(option, (*kbit).to_owned());
            self.differ(everywhere(format!(
                "{variable} is missing, and sqm-scripts would use {kbit} kbit/s: set option {option} to the \
                 line's rate"
            )));
        }
        Ok(())
    }

    /// `LIMIT` stands for both directions where they have none of their own.
    fn limit(&mut self) {
        let Some(limit) = self.given.remove("LIMIT").filter(|limit| !limit.value.is_empty()) else {
            return;
        };
        if self.get("qdisc") == Some("bfifo") {
            let remark = limit.remark(
                "LIMIT is left out: with bfifo it counts packets, but options ilimit and elimit count bytes"
                    .into(),
            );
            self.differ(remark);
            return;
        }
        for option in ["ilimit", "elimit"] {
            if self.get(option).is_none() {
                self.set(option, limit.value.clone());
            }
        }
    }

    /// `INGRESS_CAKE_OPTS` and `EGRESS_CAKE_OPTS` replace the first words of the two setup scripts that are made of cake. Ours keep
    /// theirs, and later words win.
    fn base_words(&mut self) {
        let script = self.get("script").unwrap_or_default().to_owned();
        let is_plain = script.starts_with("piece_of_cake");
        for (variable, option) in [
            ("INGRESS_CAKE_OPTS", "iqdisc_opts"),
            ("EGRESS_CAKE_OPTS", "eqdisc_opts"),
        ] {
            let given = self.given.remove(variable);
            let Some(given) = given.filter(|given| !given.value.is_empty()) else {
                continue;
            };
            if !is_plain && !script.starts_with("layer_cake") {
                let remark = given.remark(format!(
                    "{variable} has no effect with {script}, in sqm-scripts too"
                ));
                self.differ(remark);
                continue;
            }
            let mut words: Vec<&str> = given.value.split_whitespace().collect();
            if !words.contains(&"nat") {
                words.push("nonat");
            }
            // The words that the setup scripts themselves put behind those first words.
            let arrives = option == "iqdisc_opts";
            if is_plain || arrives && self.get("squash_ingress").unwrap_or("1") == "1" {
                words.push("besteffort");
            }
            if arrives && words.contains(&"nowash") && self.get("squash_dscp").unwrap_or("1") == "1" {
                words.push("wash");
            }
            let own = self.get(option).unwrap_or_default().to_owned();
            words.extend(own.split_whitespace());
            let words = words.join(" ");
            let remark = given.remark(format!("{variable} is now part of option {option}: '{words}'"));
            self.differ(remark);
            self.set(option, words);
        }
    }

    /// Reports the variables that no option stands for.
    fn without_meaning(&mut self) {
        let mut unknown = 0;
        for (name, given) in std::mem::take(&mut self.given) {
            if SHIPPED.contains(&(name.as_str(), given.value.as_str())) {
                continue;
            }
            let why = WITHOUT_MEANING.iter().find(|(known, _)| *known == name);
            let message = match why {
                Some((_, why)) => format!("{name} is left out: {why}"),
                None => {
                    unknown += 1;
                    if unknown > MOST_REMARKS {
                        continue;
                    }
                    let options = options::OF_SQM_SCRIPTS
                        .iter()
                        .flat_map(|option| option.variables.iter().copied());
                    let known = options.chain(SPECIAL);
                    match nearest(&name, known) {
                        Some(near) => format!(
                            "{} is not a variable of sqm-scripts and is left out; did you mean {near}?",
                            shortened(&name)
                        ),
                        None => format!(
                            "{} is not a variable of sqm-scripts and is left out",
                            shortened(&name)
                        ),
                    }
                }
            };
            let remark = given.remark(message);
            self.differ(remark);
        }
        if let Some(more) = unknown.checked_sub(MOST_REMARKS).filter(|more| *more > 0) {
            self.differ(everywhere(format!(
                "{more} more names that are not variables of sqm-scripts are left out"
            )));
        }
    }

    fn get(&self, option: &str) -> Option<&str> {
        self.imported.get(option)
    }

    fn set(&mut self, option: &'static str, value: String) {
        self.imported.set(option, value);
    }

    fn differ(&mut self, remark: Remark) {
        self.imported.differences.push(remark);
    }
}

/// About no line.
fn everywhere(message: impl Into<String>) -> Remark {
    Remark {
        file: String::new(),
        line: 0,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests;
