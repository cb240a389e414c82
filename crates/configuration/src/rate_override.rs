//! Rates that replace those of the configuration file: `option autorate` moves the rates of an interface within bounds.

use std::path::Path;

use sqm_core::direction::PerDirection;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::status::InterfaceStatus;
use sqm_plan::line::ConfiguredLine;
use sqm_plan::settings::Limits;
use sqm_plan::{Loaded, RateOverrides};

use crate::Parsed;

/// The rates of one interface that replace its configured ones; `None` keeps the configured rate of that direction.
pub type RateOverride = PerDirection<Option<Rate>>;

/// Plans the configuration with the rates that the kernel holds, for interfaces with `option autorate`. `loaded` is its plan at
/// its own rates. Also returns the rates. A rate outside the bounds of autorate is not its choice: the configured rate is planned instead.
pub fn in_force(
    socket: &mut Socket,
    links: &[Link],
    records: &Path,
    parsed: &Parsed,
    loaded: Loaded,
) -> (Loaded, RateOverrides) {
    let overrides: RateOverrides = loaded
        .lines
        .iter()
        .filter_map(|line| {
            let status = line
                .autorate
                .as_ref()
                .and_then(|_| InterfaceStatus::read(socket, links, &line.interface, records).ok())?;
            Some((line.interface.clone(), within_bounds(line, &status)))
        })
        .collect();
    match parsed.plan(links, &overrides) {
        Ok(again) => (
            Loaded {
                warnings: loaded.warnings,
                ..again
            },
            overrides,
        ),
        Err(_) => (loaded, RateOverrides::new()),
    }
}

/// One line of text for each interface, for a person.
pub fn describe(overrides: &RateOverrides) -> Vec<String> {
    let mbit = |rate: Option<Rate>| rate.map_or_else(|| "as configured".to_owned(), |rate| rate.to_string());
    overrides
        .iter()
        .map(|(interface, rates)| {
            let (download, upload) = (mbit(rates.download), mbit(rates.upload));
            format!("{interface}: autorate has set download {download}, upload {upload}")
        })
        .collect()
}

/// The rates that the kernel holds, without those that are outside the bounds of autorate.
fn within_bounds(line: &ConfiguredLine, status: &InterfaceStatus) -> RateOverride {
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
    RateOverride {
        download: limits.and_then(|limits| within(download, line.download, limits.download)),
        upload: limits.and_then(|limits| within(upload, line.upload, limits.upload)),
    }
}
