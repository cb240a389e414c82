//! The line as a section describes it: figures that a measurement can confirm or refute.

use sqm_core::spec::cake::Framing;
use sqm_core::units::{Nanos, Rate};

use crate::device::Device;
use crate::framing;
use crate::plan::Plan;
use crate::settings::{Autorate, Facing, Settings};

/// A line as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredLine {
    /// The device that leads to it.
    pub interface: String,
    /// Shaped rate towards the home; none if that direction is not shaped.
    pub download: Option<Rate>,
    /// Shaped rate towards the network.
    pub upload: Option<Rate>,
    /// The size of an IP packet on it.
    pub framing: Framing,
    /// Index of the section among those of the file, from 0.
    pub section: usize,
    /// True if the download leaves through the device.
    pub faces_lan: bool,
    /// The shortest interval of its CoDel queues, which is the longest round trip that they are made for; `None` without
    /// such a queue.
    pub interval: Option<Nanos>,
    /// How the daemon may change the rates, if it may.
    pub autorate: Option<Autorate>,
}

impl ConfiguredLine {
    pub(crate) fn of(settings: &Settings, plan: &Plan, device: &Device) -> Self {
        let (download, upload) = match settings.facing {
            Facing::Internet => (settings.ingress.rate, settings.egress.rate),
            Facing::Lan => (settings.egress.rate, settings.ingress.rate),
        };
        Self {
            interface: settings.interface.clone(),
            download,
            upload,
            framing: framing::on_the_line(settings, device),
            section: settings.section,
            faces_lan: settings.facing == Facing::Lan,
            interval: plan.least_interval(),
            autorate: settings.autorate.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_the_name_of_a_file_in_one_folder() {
        let load = |log: &str| {
            let text = format!(
                "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n option upload 4mbit\n \
                 option script best_of_cake.qos\n option autorate 1\n option autorate_log '{log}'\n"
            );
            crate::load(text.as_bytes(), "sqm", &Device::absent)
        };
        for (given, name) in [
            ("rates.csv", Some("rates.csv")),
            ("/var/log/sqm/wan-1.csv", Some("wan-1.csv")),
            ("", None),
        ] {
            let log = load(given).unwrap().lines[0].autorate.clone().unwrap().log;
            assert_eq!(log.as_deref(), name);
        }
        let long = "x".repeat(201);
        for wrong in [
            "/etc/shadow",
            "/etc/config/sqm",
            "/run/sqm/wan0.json",
            "/var/log/sqm/../../../etc/shadow",
            "/var/log/sqm",
            "/var/log/sqm/",
            "/var/log/sqm//etc/shadow",
            "/var/log/sqmx",
            "../rates.csv",
            "folder/rates.csv",
            ".hidden",
            "..",
            ".",
            "two words",
            "new\tline",
            "ra\u{200b}tes",
            &long,
        ] {
            let errors = load(wrong).unwrap_err();
            let text = errors[0].to_string();
            assert!(
                errors.len() == 1 && text.starts_with("sqm:8: option 'autorate_log'"),
                "{errors:?}"
            );
            assert!(
                text.contains("is not the name of a file in /var/log/sqm"),
                "{text}"
            );
        }
    }

    #[test]
    fn autorate_has_bounds_around_the_rates() {
        let load = |more: &str| {
            let text = format!(
                "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n option upload 0\n \
                 option script best_of_cake.qos\n {more}"
            );
            crate::load(text.as_bytes(), "sqm", &Device::absent)
        };
        let given = "option autorate 1\n option min_download 2mbit\n option max_download 80mbit\n \
                     list autorate_reflectors 192.0.2.1\n list autorate_reflectors sqm://[2001:db8::1]:5000\n";
        let autorate = load(given).unwrap().lines[0].autorate.clone().unwrap();
        let mbit = |n: u64| Some(Rate::from_kbits_per_sec(n * 1000));
        assert_eq!(
            (autorate.download.min, autorate.download.max),
            (mbit(2), mbit(80))
        );
        assert_eq!(autorate.upload.max, None);
        assert_eq!(autorate.reflectors.len(), 2);
        for wrong in [
            "max_download 10mbit",
            "min_download 30mbit",
            "autorate_reflectors dns.example",
            "autorate_reflectors udp://192.0.2.1",
        ] {
            let errors = load(&format!("option autorate 1\n option {wrong}\n")).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
        }
        let off = load("option max_download 10mbit\n").unwrap();
        assert!(off.lines[0].autorate.is_none());
        assert!(
            off.warnings[0].to_string().contains("autorate is off"),
            "{:?}",
            off.warnings
        );
    }

    #[test]
    fn the_least_interval_of_its_queues_is_known() {
        let interval = |script: &str, more: &str| {
            let text = format!(
                "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n option upload 4mbit\n \
                 option autorate 1\n option script {script}.qos\n {more}"
            );
            let loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).unwrap();
            loaded.lines[0].interval
        };
        let millis = |n| Some(Nanos::from_millis(n));
        assert_eq!(interval("best_of_cake", ""), millis(100));
        assert_eq!(
            interval("best_of_cake", "option cake_rtt satellite\n"),
            millis(1000)
        );
        assert_eq!(
            interval("piece_of_cake", "option egress_cake_rtt 50ms\n"),
            millis(50)
        );
        let patient = "option qdisc fq_codel\n option qdisc_advanced 1\n option qdisc_really_really_advanced 1\n \
                       option iqdisc_opts 'interval 600ms'\n option eqdisc_opts 'interval 700ms'\n";
        assert_eq!(interval("simple", patient), millis(600));
        assert_eq!(interval("simple", "option qdisc pfifo\n"), None);
    }

    #[test]
    fn a_line_counts_as_cake_does_and_knows_its_section() {
        // The first section is not enabled: that is the default.
        let text = "config queue\n option interface eth1\n option download 1\n option upload 1\n\
                    config queue\n option enabled 1\n option interface eth1\n option download 8mbit\n\
                    option upload 1mbit\n option linklayer atm\n option overhead 44\n option tcMPU 96\n option script best_of_cake.qos\n";
        let loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).unwrap();
        let [line] = &loaded.lines[..] else {
            panic!("{:?}", loaded.lines);
        };
        assert_eq!(line.section, 1);
        assert_eq!(
            line.framing.line_len(40),
            2 * 53,
            "an acknowledgement: 96 bytes in two cells"
        );
        assert_eq!(line.framing.line_len(1500), 33 * 53);
    }
}
