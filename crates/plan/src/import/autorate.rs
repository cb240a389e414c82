//! From the configurations of cake-autorate (`config.NAME.sh`, OpenWrt's `/etc/config/cake-autorate`) and sqm-autorate
//! (`/etc/config/sqm-autorate`) to sections with `option autorate`.
//!
//! Both programs move the rates of queues that another program sets up. Here one section does both.

use std::collections::BTreeMap;

use super::shell::{self, Statement};
use super::{Imported, Remark, Source, everywhere};
use crate::uci;
use crate::value;

/// A value, and the place where it is set.
struct Given {
    file: String,
    line: usize,
    value: String,
}

impl Given {
    /// False for the words with which UCI turns something off.
    fn is_on(&self) -> bool {
        value::switch(self.value.trim()).unwrap_or(true)
    }
}

type Values = BTreeMap<String, Given>;

/// Makes a section of a shell file of cake-autorate.
///
/// # Errors
/// Every line that is no assignment.
pub fn from_shell(source: &Source<'_>) -> Result<Imported, Vec<Remark>> {
    let mut values = Values::new();
    let mut errors = Vec::new();
    for Statement { line, assignment } in shell::statements(source.text) {
        let file = source.name.to_owned();
        match assignment {
            Ok(shell::Assignment { name, value }) => {
                values.insert(name, Given { file, line, value });
            }
            Err(message) if errors.len() < super::MOST_REMARKS => {
                errors.push(Remark { file, line, message });
            }
            Err(_) => {}
        }
    }
    match errors.is_empty() {
        true => Ok(CAKE_AUTORATE.section(values)),
        false => Err(errors),
    }
}

/// Makes sections of a UCI file of cake-autorate or sqm-autorate; `None` if it is a file of neither.
///
/// # Errors
/// Text that is not in UCI's format.
pub fn from_uci(source: &Source<'_>) -> Result<Option<Vec<Imported>>, Vec<Remark>> {
    let located = |error: uci::Error| Remark {
        file: source.name.to_owned(),
        line: error.line,
        message: error.message,
    };
    let document = uci::Document::parse(source.text)
        .map_err(|errors| errors.into_iter().map(located).collect::<Vec<_>>())?;
    let sections = document.sections();
    let values = |section: &uci::Section<'_>| {
        let mut values = Values::new();
        for setting in &section.settings {
            let given = values.entry(setting.name.to_owned()).or_insert_with(|| Given {
                file: source.name.to_owned(),
                line: setting.line,
                value: String::new(),
            });
            match setting.is_list && !given.value.is_empty() {
                true => given.value.extend([" ", setting.value]),
                false => setting.value.clone_into(&mut given.value),
            }
        }
        values
    };
    let of_kinds = |kinds: &[&str]| -> Vec<Values> {
        let sections = sections.iter().filter(|section| kinds.contains(&section.kind));
        sections.map(values).collect()
    };
    let instances = of_kinds(&["cake-autorate", "cake_autorate"]);
    if !instances.is_empty() {
        let sections = instances.into_iter().map(|values| CAKE_AUTORATE.section(values));
        return Ok(Some(sections.collect()));
    }
    let networks = of_kinds(&["network"]);
    if networks.is_empty() {
        return Ok(None);
    }
    // The program reads the first section of each kind.
    let mut all: Values = networks.into_iter().next().unwrap_or_default();
    for kind in ["output", "advanced_settings"] {
        all.extend(of_kinds(&[kind]).into_iter().next().unwrap_or_default());
    }
    Ok(Some(vec![SQM_AUTORATE.section(all)]))
}

/// The variables of one program.
struct Program {
    name: &'static str,
    upload_device: &'static [&'static str],
    download_device: &'static [&'static str],
    /// The device that it uploads through if none is named.
    usual_device: Option<&'static str>,
    download: Rates,
    upload: Rates,
}

/// The variables of one direction's rates, kbit/s, and the values of the program where one is missing. Of several names the
/// later ones are older.
struct Rates {
    direction: &'static str,
    options: [&'static str; 3],
    /// Turns the moving of the rate on or off; empty if the program has no such variable.
    adjust: &'static str,
    least: &'static [&'static str],
    /// The least rate in percent of the base rate, with its range.
    least_percent: Option<(&'static str, u64, u64)>,
    base: &'static [&'static str],
    most: &'static [&'static str],
    usual: (u64, u64, Option<u64>),
}

const CAKE_AUTORATE: Program = Program {
    name: "cake-autorate",
    upload_device: &["ul_if"],
    download_device: &["dl_if"],
    usual_device: Some("wan"),
    download: Rates {
        direction: "download",
        options: ["min_download", "download", "max_download"],
        adjust: "adjust_dl_shaper_rate",
        least: &["min_dl_shaper_rate_kbps"],
        least_percent: None,
        base: &["base_dl_shaper_rate_kbps"],
        most: &["max_dl_shaper_rate_kbps"],
        usual: (5000, 20_000, Some(80_000)),
    },
    upload: Rates {
        direction: "upload",
        options: ["min_upload", "upload", "max_upload"],
        adjust: "adjust_ul_shaper_rate",
        least: &["min_ul_shaper_rate_kbps"],
        least_percent: None,
        base: &["base_ul_shaper_rate_kbps"],
        most: &["max_ul_shaper_rate_kbps"],
        usual: (5000, 20_000, Some(35_000)),
    },
};

const SQM_AUTORATE: Program = Program {
    name: "sqm-autorate",
    upload_device: &["upload_interface", "transmit_interface"],
    download_device: &["download_interface", "receive_interface"],
    usual_device: None,
    download: Rates {
        direction: "download",
        options: ["min_download", "download", "max_download"],
        adjust: "",
        least: &["download_min_kbits", "receive_kbits_min"],
        least_percent: Some(("download_min_percent", 10, 60)),
        base: &["download_base_kbits", "receive_kbits_base"],
        most: &[],
        usual: (2000, 10_000, None),
    },
    upload: Rates {
        direction: "upload",
        options: ["min_upload", "upload", "max_upload"],
        adjust: "",
        least: &["upload_min_kbits", "transmit_kbits_min"],
        least_percent: Some(("upload_min_percent", 10, 60)),
        base: &["upload_base_kbits", "transmit_kbits_base"],
        most: &[],
        usual: (2000, 10_000, None),
    },
};

/// The least rate of sqm-autorate if none is given, in percent of its base rate.
const USUAL_PERCENT: u64 = 20;

/// How many reflectors cake-autorate asks at a time if `no_pingers` does not say so.
const USUAL_PINGERS: usize = 6;

impl Program {
    fn section(&self, values: Values) -> Imported {
        let mut importer = Importer {
            values,
            program: self,
            imported: Imported {
                interface: String::new(),
                options: Vec::new(),
                differences: Vec::new(),
                is_autorate: true,
            },
        };
        importer.device();
        let enabled = importer.take(&["enabled"]).is_none_or(|given| given.is_on());
        importer.set("enabled", if enabled { "1" } else { "0" });
        let upload_only = importer.take(&["upload_only"]).is_some_and(|given| given.is_on());
        let download = match upload_only {
            true => {
                importer.take_rates(&self.download);
                importer.set("download", "0");
                false
            }
            false => importer.rates(&self.download),
        };
        let upload = importer.rates(&self.upload);
        importer.set("script", "best_of_cake.qos");
        let moving = match (download, upload) {
            (true, true) => "1",
            (true, false) => "download",
            (false, true) => "upload",
            (false, false) => "0",
        };
        importer.set("autorate", moving);
        importer.reflectors();
        importer.imported.differences.push(everywhere(format!(
            "{} moves the rates of queues that another program sets up: a new section uses best_of_cake.qos, and option \
             link tells it the kind of line",
            self.name
        )));
        importer.left_out();
        importer.imported
    }
}

struct Importer<'a> {
    values: Values,
    program: &'a Program,
    imported: Imported,
}

impl Importer<'_> {
    /// Takes the first of these values that is given and not empty.
    fn take(&mut self, names: &[&str]) -> Option<Given> {
        let taken: Vec<Given> = names
            .iter()
            .filter_map(|name| self.values.remove(*name))
            .collect();
        taken.into_iter().find(|given| !given.value.trim().is_empty())
    }

    fn set(&mut self, option: &'static str, value: impl Into<String>) {
        self.imported.set(option, value.into());
    }

    fn differ(&mut self, given: &Given, message: String) {
        self.imported.differences.push(Remark {
            file: given.file.clone(),
            line: given.line,
            message,
        });
    }

    fn missing(&mut self, message: String) {
        self.imported.differences.push(everywhere(message));
    }

    /// The upload leaves through the device of the line. The download arrives there, and the other programs name the IFB.
    fn device(&mut self) {
        let program = self.program;
        let upload = self.take(program.upload_device);
        let download = self.take(program.download_device);
        let device = match (&upload, program.usual_device) {
            (Some(upload), _) => upload.value.trim().to_owned(),
            (None, usual) => {
                let usual = usual.unwrap_or_default();
                let name = program.upload_device[0];
                self.missing(format!(
                    "{name} is missing: name the device of the line as option interface"
                ));
                usual.to_owned()
            }
        };
        if let Some(download) = download {
            let name = program.download_device[0];
            let ifb = crate::plan::Plan::ifb_of(&device);
            if download.value.trim() != ifb {
                let message = format!(
                    "{name} is {}: sqm makes the device {ifb} for packets that arrive on {device}",
                    download.value.trim()
                );
                self.differ(&download, message);
            }
        }
        self.imported.interface.clone_from(&device);
        self.set("interface", device);
    }

    fn take_rates(&mut self, rates: &Rates) -> [Option<Given>; 4] {
        let percent = rates.least_percent.and_then(|(name, ..)| self.take(&[name]));
        let adjust = self.take(&[rates.adjust]);
        let [least, base, most] = [rates.least, rates.base, rates.most].map(|names| self.take(names));
        if let (Some(percent), None) = (&percent, &least) {
            return [adjust, self.of_percent(rates, percent, base.as_ref()), base, most];
        }
        [adjust, least, base, most]
    }

    /// A least rate that is given in percent.
    fn of_percent(&self, rates: &Rates, percent: &Given, base: Option<&Given>) -> Option<Given> {
        let (_, lowest, highest) = rates.least_percent?;
        let base = base.map_or(Some(rates.usual.1), |base| base.value.trim().parse().ok())?;
        let percent_of_base = percent.value.trim().parse::<u64>().ok()?.clamp(lowest, highest);
        Some(Given {
            file: percent.file.clone(),
            line: percent.line,
            value: (base.saturating_mul(percent_of_base) / 100).to_string(),
        })
    }

    /// Sets the three rates of a direction. Answers whether the rate moves.
    fn rates(&mut self, rates: &Rates) -> bool {
        let [adjust, least, base, most] = self.take_rates(rates);
        let program = self.program.name;
        let (usual_least, usual_base, usual_most) = rates.usual;
        let base = match base {
            Some(base) => base.value.trim().to_owned(),
            None => {
                let name = rates.base[0];
                self.missing(format!(
                    "{name} is missing, and {program} would use {usual_base} kbit/s: set option {} to a rate that the \
                     line usually has",
                    rates.options[1]
                ));
                usual_base.to_string()
            }
        };
        let [min, middle, max] = rates.options;
        if let Some(adjust) = adjust.filter(|adjust| !adjust.is_on()) {
            let message = format!(
                "{} is off: the {} stays at {base} kbit/s",
                rates.adjust, rates.direction
            );
            self.differ(&adjust, message);
            self.set(rates.options[1], base);
            return false;
        }
        let of_percent = |base: &str| base.parse::<u64>().ok().map(|base| base * USUAL_PERCENT / 100);
        let least = match least {
            Some(least) => least.value.trim().to_owned(),
            None => {
                let usual = rates
                    .least_percent
                    .and_then(|_| of_percent(&base))
                    .unwrap_or(usual_least);
                self.missing(format!(
                    "{} is missing, and {program} would use {usual} kbit/s",
                    rates.least[0]
                ));
                usual.to_string()
            }
        };
        self.set(min, least);
        self.set(middle, base);
        match (most, usual_most) {
            (Some(most), _) => self.set(max, most.value.trim()),
            (None, Some(usual)) => {
                self.missing(format!(
                    "{} is missing, and {program} would use {usual} kbit/s",
                    rates.most[0]
                ));
                self.set(max, usual.to_string());
            }
            (None, None) => {}
        }
        true
    }

    /// cake-autorate asks the first ones of its list; the rest is for when one of them fails.
    fn reflectors(&mut self) {
        let pingers = self.take(&["no_pingers"]);
        let method = self.take(&["pinger_method", "pinger_binary"]);
        let Some(reflectors) = self.take(&["reflectors"]) else {
            return;
        };
        let is_irtt = method.is_some_and(|method| method.value.trim() == "irtt");
        let scheme = if is_irtt { "irtt://" } else { "" };
        let all: Vec<String> = reflectors
            .value
            .split_whitespace()
            .map(|address| format!("{scheme}{address}"))
            .collect();
        let wanted = pingers.and_then(|pingers| pingers.value.trim().parse().ok());
        let used = wanted.unwrap_or(USUAL_PINGERS).min(all.len());
        if used < all.len() {
            let message = format!(
                "of {} reflectors the first {used} are kept, which {} asks at a time",
                all.len(),
                self.program.name
            );
            self.differ(&reflectors, message);
        }
        self.set("autorate_reflectors", all[..used].join(" "));
    }

    /// Reports the variables that no option stands for, in groups of one reason.
    fn left_out(&mut self) {
        let mut groups: BTreeMap<&'static str, (Given, Vec<String>)> = BTreeMap::new();
        for (name, given) in std::mem::take(&mut self.values) {
            let (_, names) = groups.entry(reason(&name)).or_insert_with(|| (given, Vec::new()));
            names.push(sqm_core::units::shortened(&name));
        }
        for (reason, (given, names)) in groups {
            let shown = names.len().min(super::MOST_REMARKS);
            let more = match names.len() - shown {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!("left out: {}{more}: {reason}", names[..shown].join(", "));
            self.differ(&given, message);
        }
    }
}

/// Why a variable has no option.
fn reason(name: &str) -> &'static str {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if begins(&[
        "output_",
        "log_",
        "debug",
        "stats_file",
        "speed_hist_file",
        "suppress_",
        "mqtt",
    ]) {
        "'sqm daemon' logs what happens, and option autorate_log keeps each decision"
    } else if begins(&[
        "ping",
        "reflector",
        "randomize_reflectors",
        "retain_reflector",
        "irtt_",
        "num_reflectors",
    ]) || has(&["pinger", "peer_reselection", "ping_response"])
    {
        "sqm chooses how it probes; option autorate_reflectors names the hosts"
    } else if has(&[
        "thr",
        "delay",
        "owd",
        "alpha",
        "bufferbloat",
        "shaper_rate",
        "refractory",
        "load_level",
        "hist_size",
    ]) || begins(&[
        "monitor_",
        "rate_controller",
        "min_change_interval",
        "tick_",
        "min_shaper",
    ]) {
        "sqm's controller has no such parameter"
    } else if begins(&[
        "enable_sleep",
        "sustained_idle",
        "startup_wait",
        "if_up",
        "monitor_cpu",
    ]) {
        "the daemon waits for the device and for traffic by itself"
    } else {
        "import knows no such variable"
    }
}

#[cfg(test)]
mod tests;
