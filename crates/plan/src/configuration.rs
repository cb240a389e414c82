//! A configuration file as a whole: read once, planned as often as needed.

use std::collections::BTreeMap;

use sqm_core::direction::PerDirection;
use sqm_core::units::Rate;

use crate::device::Device;
use crate::diagnostic::{Diagnostic, Finding, Report};
use crate::line::ConfiguredLine;
use crate::plan::Plan;
use crate::plan::moving::MovingRates;
use crate::settings::Settings;
use crate::{own, read, uci, validate};

/// A configuration file that was read, with the settings of its sections and what is wrong with them.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// Settings of all sections that could be read, in the order of the file.
    sections: Vec<Settings>,
    /// Findings so far. Those of [`Configuration::plan`] are added to a copy.
    report: Report,
}

/// The plans of a configuration without errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// One plan for each enabled section, in the order of the file.
    pub plans: Vec<Plan>,
    /// The line of each plan, as it is configured.
    pub lines: Vec<ConfiguredLine>,
    /// The settings of each plan.
    pub settings: Vec<Settings>,
    /// Options without effect, and values that are probably not meant.
    pub warnings: Vec<Diagnostic>,
}

/// Rates that hold in place of those of the file, by interface; `None` leaves that of the file. `option autorate` and
/// `sqm tune` change them.
pub type RateOverrides = BTreeMap<String, PerDirection<Option<Rate>>>;

/// Most enabled sections of a file, a choice: no machine has as many lines, and plans are much larger than the text that asks
/// for them.
const MOST_INTERFACES: usize = 1000;

impl Configuration {
    /// Reads a file's text. What is wrong with a value is kept for [`Configuration::plan`], which finds what is wrong with the
    /// whole, so that all errors are reported together. Time and memory are in proportion to the text.
    ///
    /// `file_name` is for the messages only.
    ///
    /// # Errors
    /// Text that is not in UCI's format.
    pub fn parse(text: &[u8], file_name: &str) -> Result<Self, Vec<Diagnostic>> {
        Self::parse_with(text, file_name, &own::none)
    }

    /// Like [`Configuration::parse`], with a source of the texts that `option script` may name.
    ///
    /// # Errors
    /// Text that is not in UCI's format.
    pub fn parse_with(
        text: &[u8],
        file_name: &str,
        source: own::Source<'_>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut report = Report::new(file_name);
        let document = match uci::Document::parse_bytes(text) {
            Ok(document) => document,
            Err(errors) => {
                for uci::Error {
                    line,
                    message,
                    suggestion,
                } in errors
                {
                    report.error(Finding::at(line, message).suggest(suggestion));
                }
                return Err(report.finish().0);
            }
        };
        let mut sections: Vec<Settings> = Vec::new();
        let mut enabled = 0;
        for section in validate::queues(&document, &mut report) {
            let Some(settings) = read::section(&section, source, &mut report) else {
                continue;
            };
            enabled += usize::from(settings.enabled);
            if enabled > MOST_INTERFACES {
                let message = format!(
                    "more than {MOST_INTERFACES} sections are enabled, the limit for one machine: disable some"
                );
                report.error(Finding::at(settings.line, message));
                break;
            }
            sections.push(settings);
        }
        Ok(Self { sections, report })
    }

    /// The settings of all sections that could be read, enabled or not, in the order of the file.
    pub fn sections(&self) -> &[Settings] {
        &self.sections
    }

    /// Checks the whole and plans each enabled section, at the rates of `rates` where there are any.
    ///
    /// `rates` may lie outside the section's `min_…` and `max_…` rates: autorate keeps its own rates within them, and
    /// `sqm tune` leaves them on purpose while it measures a line without its shaper. The rates that the text gives are always
    /// checked against them.
    ///
    /// `device_of` answers the facts about a device ([`Device::absent`] where there is no such device yet): bursts depend on
    /// its MTU, and framing on its kind. Rates are rounded as [`Settings::at_rates`] does.
    ///
    /// # Errors
    /// All errors of the file, of each kind the first twenty and how many more there are.
    pub fn plan(
        &self,
        device_of: &dyn Fn(&str) -> Device,
        rates: &RateOverrides,
    ) -> Result<Loaded, Vec<Diagnostic>> {
        let mut report = self.report.clone();
        let mut planned: Vec<(Settings, Plan)> = Vec::new();
        let mut lines = Vec::new();
        for section in &self.sections {
            let settings = match rates.get(&section.interface) {
                Some(rates) => section.at_rates(*rates),
                None => section.clone(),
            };
            report.disabled = !settings.enabled;
            let device = device_of(&settings.interface);
            if let Some(mut plan) = validate::settings(&settings, &device, &mut report)
                && settings.enabled
            {
                plan.autorate = MovingRates::of(section, &plan);
                lines.push(ConfiguredLine::of(&settings, &plan, &device));
                planned.push((settings, plan));
            }
        }
        validate::together(&planned, &mut report);

        let (errors, warnings) = report.finish();
        if !errors.is_empty() {
            return Err(errors);
        }
        let (settings, plans) = planned.into_iter().unzip();
        Ok(Loaded {
            plans,
            lines,
            settings,
            warnings,
        })
    }
}

/// Reads and plans a file at its own rates: [`Configuration::parse`], then [`Configuration::plan`].
///
/// # Errors
/// All errors of the file.
pub fn load(
    text: &[u8],
    file_name: &str,
    device_of: &dyn Fn(&str) -> Device,
) -> Result<Loaded, Vec<Diagnostic>> {
    Configuration::parse(text, file_name)?.plan(device_of, &RateOverrides::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overridden_rates_are_planned_as_if_the_file_held_them() {
        let text = |download: &str, upload: &str, script: &str, facing: &str| {
            format!(
                "config queue\n option enabled 1\n option interface eth1\n option download {download}\n \
                 option upload {upload}\n option script {script}\n option facing {facing}\n"
            )
        };
        let planned = |text: &str, rates: &RateOverrides| {
            let configuration = Configuration::parse(text.as_bytes(), "sqm").unwrap();
            configuration.plan(&Device::absent, rates).unwrap()
        };
        let kbit = |kbit: u64| Some(Rate::from_bits_per_sec(kbit * 1000 + 999));
        for script in [
            "best_of_cake.qos",
            "simple.qos",
            "simplest_tbf.qos",
            "hfsc_lite.qos",
        ] {
            for facing in ["internet", "lan"] {
                for (download, upload, written) in [
                    (None, None, ("20mbit", "4mbit")),
                    (kbit(7001), None, ("7001", "4mbit")),
                    (kbit(0), kbit(900), ("1", "900")),
                ] {
                    let rates = RateOverrides::from([("eth1".to_owned(), PerDirection { download, upload })]);
                    let overridden = planned(&text("20mbit", "4mbit", script, facing), &rates);
                    let held = planned(&text(written.0, written.1, script, facing), &RateOverrides::new());
                    assert_eq!(overridden, held, "{script} {facing}");
                }
            }
        }
    }

    #[test]
    fn overridden_rates_are_not_checked_against_the_bounds_of_autorate() {
        let text = |download: &str| {
            format!(
                "config queue\n option enabled 1\n option interface eth1\n option download {download}\n \
                 option upload 0\n option script best_of_cake.qos\n option autorate 1\n option max_download 30mbit\n"
            )
        };
        let configuration = Configuration::parse(text("20mbit").as_bytes(), "sqm").unwrap();
        let download = Some(Rate::from_kbits_per_sec(10_000_000));
        let rates = PerDirection {
            download,
            upload: None,
        };
        let rates = RateOverrides::from([("eth1".to_owned(), rates)]);
        let loaded = configuration.plan(&Device::absent, &rates).unwrap();
        assert_eq!(loaded.lines[0].download, download);
        assert!(load(text("40mbit").as_bytes(), "sqm", &Device::absent).is_err());
    }

    #[test]
    fn findings_name_the_section_that_they_are_about() {
        let text = "# ours\nconfig other\nconfig queue\n option enabled 1\n option interface eth1\n option download 1mbit\n \
                    option upload fast\n option script best_of_cake.qos\n";
        let errors = load(text.as_bytes(), "sqm", &Device::absent).unwrap_err();
        let places = errors.iter().map(|error| (error.line, error.section));
        assert_eq!(places.collect::<Vec<_>>(), [(7, Some(1))]);
        let errors = load(b"option upload 1\n", "sqm", &Device::absent).unwrap_err();
        assert_eq!(errors[0].section, None);
    }

    #[test]
    fn a_rate_for_another_interface_changes_nothing() {
        let text = "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n \
                    option upload 4mbit\n option script simple.qos\n";
        let configuration = Configuration::parse(text.as_bytes(), "sqm").unwrap();
        let rate = PerDirection {
            download: Some(Rate::from_kbits_per_sec(1000)),
            upload: None,
        };
        let plan = |rates: &RateOverrides| configuration.plan(&Device::absent, rates);
        let other = RateOverrides::from([("eth0".to_owned(), rate)]);
        assert_eq!(plan(&other), plan(&RateOverrides::new()));
    }
}
