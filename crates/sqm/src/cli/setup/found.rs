//! The rates and the overhead that a search found, before they are written.

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::Value;
use sqm_configuration::{Draft, EditError};
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_plan::OptionValue;
use sqm_plan::link::Preset;
use sqm_process::failure::Failure;

/// The findings of `sqm tune --json`.
pub(super) struct Found {
    pub(super) download: Rate,
    pub(super) upload: Rate,
    /// Options that the rates were found with.
    options: Vec<OptionValue>,
    overhead: Option<Overhead>,
    pub(super) warning: Option<String>,
}

/// The overhead of each packet.
struct Overhead {
    measured: Measured,
    /// As the configuration counted it during the search, bytes.
    counted: i64,
}

/// A measured overhead, bytes beyond IP, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    measured_bytes: f64,
    measured_from_bytes: f64,
    measured_to_bytes: f64,
}

impl Found {
    pub(super) fn of(report: &Value) -> Result<Self, Failure> {
        let rate = |name: &str| {
            let kbit = report[name].as_u64();
            kbit.map(Rate::from_kbits_per_sec)
                .with_context(|| format!("the search reports no {name}"))
        };
        let overhead = &report["overhead"];
        let options = match &overhead["options"] {
            Value::Null => Vec::new(),
            options => serde_json::from_value(options.clone()).context("the search reports wrong options")?,
        };
        let bytes = |name: &str| overhead[name].as_f64();
        Ok(Self {
            download: rate("download_kbit")?,
            upload: rate("upload_kbit")?,
            options,
            overhead: overhead["counted_bytes"].as_i64().and_then(|counted| {
                let measured = Measured {
                    measured_bytes: bytes("measured_bytes")?,
                    measured_from_bytes: bytes("measured_from_bytes")?,
                    measured_to_bytes: bytes("measured_to_bytes")?,
                };
                Some(Overhead { measured, counted })
            }),
            warning: report["warning"].as_str().map(str::to_owned),
        })
    }

    /// The lines of the summary. `link` is the line's kind, which gave the overhead that was counted before.
    pub(super) fn summary(&self, link: &Preset) -> String {
        let mut text = format!(
            "rates      {} down, {} up, as the search found them\n",
            self.download, self.upload
        );
        if let Some(overhead) = &self.overhead {
            text += &format!("overhead   {}\n", overhead.words(self.set_overhead(), link));
        }
        text
    }

    /// The measured overhead, if the server could measure it.
    pub(super) fn measured_overhead(&self) -> Option<Measured> {
        self.overhead.as_ref().map(|overhead| overhead.measured)
    }

    /// The overhead that will be configured in place of the counted one.
    pub(super) fn set_overhead(&self) -> Option<i32> {
        self.options.iter().find_map(|option| match option {
            OptionValue::Overhead(bytes) => Some(*bytes),
            _ => None,
        })
    }

    /// The configuration with what was found, in the section of the interface.
    pub(super) fn written(&self, text: &[u8], interface: &str) -> Result<Vec<u8>, Failure> {
        let mut draft = Draft::of(text).map_err(|errors| anyhow!("{}", errors[0].message))?;
        let section = draft
            .section_of(interface)
            .with_context(|| format!("the configuration no longer has a section for {interface}"))?;
        let rates = [
            OptionValue::Rate(Direction::Download, self.download),
            OptionValue::Rate(Direction::Upload, self.upload),
        ];
        let mut options = rates.iter().chain(&self.options);
        let set: Result<(), EditError> = options.try_for_each(|option| draft.set(section, option));
        set.context("the configuration cannot be changed")?;
        Ok(draft.finish())
    }
}

impl Overhead {
    fn words(&self, set: Option<i32>, link: &Preset) -> String {
        let Self { measured, counted } = self;
        let Measured {
            measured_bytes: bytes,
            measured_from_bytes: from,
            measured_to_bytes: to,
        } = measured;
        let measured =
            format!("measured {bytes:.0} bytes on each packet (95 % between {from:.0} and {to:.0})");
        match set {
            Some(bytes) => format!("{bytes} in place of {counted} of {}: {measured}", link.name),
            None => format!("{counted}, of {}: {measured}", link.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::questions::parse_kind;
    use super::*;

    const CONFIG: &str = "config queue\n\toption interface 'eth0'\n\toption enabled '1'\n\toption download '1'\n\
                          \toption upload '2'\n\toption link 'vdsl2' # mine\n";

    fn report(overhead: Value) -> Value {
        json!({"download_kbit": 79_000, "upload_kbit": 19_000, "warning": null, "overhead": overhead})
    }

    #[test]
    fn a_measured_overhead_is_shown_beside_the_one_of_the_preset_and_written() {
        let link = parse_kind("vdsl2").unwrap();
        let measured = |options: Value| {
            json!({"measured_bytes": 29.8, "measured_from_bytes": 29.1, "measured_to_bytes": 30.7, "counted_bytes": 22,
                   "options": options})
        };
        let found = Found::of(&report(measured(json!([["overhead", "30"]])))).unwrap();
        let summary = found.summary(link);
        assert!(
            summary.contains("overhead   30 in place of 22 of vdsl2: measured 30 bytes on each packet (95 % between 29 and 31)"),
            "{summary}"
        );
        let text = String::from_utf8(found.written(CONFIG.as_bytes(), "eth0").unwrap()).unwrap();
        let expected = CONFIG
            .replace("download '1'", "download '79000'")
            .replace("upload '2'", "upload '19000'");
        assert_eq!(text, expected + "\toption overhead '30'\n");
        // An overhead that fits stays.
        let found = Found::of(&report(measured(json!([])))).unwrap();
        assert!(
            found
                .summary(link)
                .contains("overhead   22, of vdsl2: measured 30")
        );
        assert!(
            !String::from_utf8(found.written(CONFIG.as_bytes(), "eth0").unwrap())
                .unwrap()
                .contains("overhead")
        );
        // A server that cannot measure it says nothing of it.
        let found = Found::of(&report(Value::Null)).unwrap();
        assert!(!found.summary(link).contains("overhead"));
        assert!(found.written(CONFIG.as_bytes(), "eth1").is_err());
    }
}
