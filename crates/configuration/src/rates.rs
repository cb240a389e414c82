//! Rates that hold instead of those of the file: `option autorate` moves them between their bounds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use sqm_core::direction::PerDirection;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::stack;
use sqm_plan::Loaded;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::settings::{Limits, Settings};
use sqm_plan::uci::{Document, Section};

use sqm_kernel::status::InterfaceStatus;

/// The rates of both directions; none for one that is not shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// From the internet to the home.
    pub download: Option<Rate>,
    /// From the home to the internet.
    pub upload: Option<Rate>,
}

impl Rates {
    /// Settings at these rates, as if they were read from [`written_into`] their file.
    pub fn put_into(self, settings: &Settings) -> Settings {
        settings.at_rates(PerDirection {
            download: self.download,
            upload: self.upload,
        })
    }
}

/// By interface.
pub type Held = BTreeMap<String, Rates>;

/// A configuration's text with these rates for its own.
pub fn written_into<'a>(text: &'a [u8], held: &Held) -> Cow<'a, [u8]> {
    if held.is_empty() {
        return Cow::Borrowed(text);
    }
    let Ok(mut document) = Document::parse_bytes(text) else {
        return Cow::Borrowed(text);
    };
    let sections = document.sections();
    let shaped = sections
        .iter()
        .filter_map(|section| Some((section.index, held.get(interface_of(section)?)?)));
    let shaped: Vec<(usize, &Rates)> = shaped.collect();
    for (section, rates) in shaped {
        for (option, rate) in [("download", rates.download), ("upload", rates.upload)] {
            if let Some(rate) = rate {
                let is_set = document.set(section, option, &kbits(rate).to_string());
                debug_assert!(is_set, "the section is there");
            }
        }
    }
    Cow::Owned(document.to_string().into_bytes())
}

/// As a file says it; none at all would be 0.
fn kbits(rate: Rate) -> u64 {
    (rate.bits_per_sec() / 1000).max(1)
}

/// Of an option that stands twice the last holds.
fn interface_of<'a>(section: &Section<'a>) -> Option<&'a str> {
    let mut settings = section.settings.iter().rev();
    settings
        .find(|setting| setting.name == "interface")
        .map(|setting| setting.value)
}

/// A configuration planned at the rates that the kernel holds, where autorate may have chosen them, and these rates. A
/// rate beyond its bounds nobody has chosen: the file's is planned.
pub fn in_force(
    socket: &mut Socket,
    links: &[Link],
    records: &Path,
    (text, file): (&[u8], &str),
    loaded: Loaded,
) -> (Loaded, Held) {
    let held: Held = loaded
        .lines
        .iter()
        .filter_map(|line| {
            let status = line
                .autorate
                .as_ref()
                .and_then(|_| InterfaceStatus::read(socket, links, &line.interface, records).ok())?;
            Some((line.interface.clone(), chosen(line, &status)))
        })
        .collect();
    let device_of = |name: &str| stack::device(links, name);
    match sqm_plan::load(&written_into(text, &held), file, &device_of) {
        Ok(again) => (
            Loaded {
                warnings: loaded.warnings,
                ..again
            },
            held,
        ),
        Err(_) => (loaded, Held::new()),
    }
}

/// For people, one line each.
pub fn told(held: &Held) -> Vec<String> {
    let mbit = |rate: Option<Rate>| rate.map_or_else(|| "as configured".to_owned(), |rate| rate.to_string());
    held.iter()
        .map(|(interface, rates)| {
            let (download, upload) = (mbit(rates.download), mbit(rates.upload));
            format!("{interface}: autorate holds download {download}, upload {upload}")
        })
        .collect()
}

fn chosen(line: &ConfiguredLine, status: &InterfaceStatus) -> Rates {
    let egress = status.egress.rate_bits_per_sec;
    let ingress = status
        .ingress
        .as_ref()
        .and_then(|ingress| ingress.rate_bits_per_sec);
    let (download, upload) = match line.faces_lan {
        true => (egress, ingress),
        false => (ingress, egress),
    };
    let limits = line.autorate.as_ref();
    let within = |rate: Option<u64>, configured: Option<Rate>, limits: Limits| {
        let rate = Rate::from_bits_per_sec(rate?);
        let is_within = limits.min.is_none_or(|min| rate >= min) && limits.max.is_none_or(|max| rate <= max);
        (configured.is_some() && is_within).then_some(rate)
    };
    Rates {
        download: limits.and_then(|limits| within(download, line.download, limits.download)),
        upload: limits.and_then(|limits| within(upload, line.upload, limits.upload)),
    }
}

#[cfg(test)]
mod tests {
    use sqm_plan::device::Device;
    use sqm_plan::recipes;

    use super::*;

    #[test]
    fn rates_put_into_settings_are_those_written_into_their_file() {
        let kbit = |kbit: u64| Some(Rate::from_bits_per_sec(kbit * 1000 + 999));
        for script in [
            "best_of_cake.qos",
            "simple.qos",
            "simplest_tbf.qos",
            "hfsc_lite.qos",
        ] {
            for facing in ["internet", "lan"] {
                let text = format!(
                    "config queue\n option enabled 1\n option interface eth1\n option download 20mbit\n \
                     option upload 4mbit\n option script {script}\n option facing {facing}\n"
                );
                let load = |text: &[u8]| sqm_plan::load(text, "sqm", &Device::absent).expect("it is good");
                let loaded = load(text.as_bytes());
                for (download, upload) in [(None, None), (kbit(7001), None), (kbit(0), kbit(900))] {
                    let rates = Rates { download, upload };
                    let held = Held::from([("eth1".to_owned(), rates)]);
                    let written = load(&written_into(text.as_bytes(), &held)).plans;
                    let put = recipes::plan(&rates.put_into(&loaded.settings[0]), &Device::absent("eth1"));
                    assert_eq!(put.as_ref(), Ok(&written[0]), "{text}: {rates:?}");
                }
            }
        }
    }
}
