//! The configuration file as every command reads it: whole and found good, then narrowed to what is asked for.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::{observe, stack};
use sqm_plan::Loaded;
use sqm_plan::plan::Plan;

use crate::configuration;
use crate::failure::Failure;
use crate::rates::{self, Held};

/// Which sections of which file.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    pub(super) config: PathBuf,
    /// Only these interfaces; else all that are configured.
    #[arg(value_name = "INTERFACE")]
    pub(super) interfaces: Vec<String>,
}

/// A configuration's text.
pub(crate) fn read(config: &Path) -> Result<Vec<u8>, Failure> {
    text(config).map_err(Failure::Usage)
}

/// The same, with the reason alone.
pub(crate) fn text(config: &Path) -> anyhow::Result<Vec<u8>> {
    // Standard input, and what a shell names for <(...), may be a pipe.
    let is_stream = config.starts_with("/dev") || config.starts_with("/proc");
    let text = match is_stream {
        true => stream(config),
        false => configuration::read(config).map_err(anyhow::Error::from),
    };
    text.context("cannot read the configuration")
}

fn stream(config: &Path) -> anyhow::Result<Vec<u8>> {
    let (name, limit) = (config.display(), configuration::MAX_BYTES);
    let file = File::open(config).with_context(|| name.to_string())?;
    let mut text = Vec::new();
    // One byte beyond the limit shows that there is more.
    let read = file.take(limit + 1).read_to_end(&mut text);
    read.with_context(|| name.to_string())?;
    if text.len() as u64 > limit {
        return Err(anyhow!(
            "{name} has more than {limit} bytes, which is the most that is read"
        ));
    }
    Ok(text)
}

/// What it says, on these devices. All its errors go to standard error.
pub(crate) fn parse(text: &[u8], config: &Path, links: &[Link]) -> Result<Loaded, Failure> {
    let file = config.display().to_string();
    sqm_plan::load(text, &file, &|name| stack::device(links, name)).map_err(|errors| {
        errors.iter().for_each(|error| errln!("error: {error}"));
        let count = match errors.len() {
            1 => "an error".to_owned(),
            n => format!("{n} errors"),
        };
        Failure::Usage(anyhow!("{file} has {count}; nothing was done"))
    })
}

/// The devices that are there. None where the kernel does not tell: a plan can be made on any machine.
pub(super) fn links() -> Vec<Link> {
    let Ok(mut socket) = Socket::open() else {
        return Vec::new();
    };
    observe::links(&mut socket).unwrap_or_default()
}

/// The same at the rates that autorate has brought into force, and which these are.
pub(crate) fn parse_in_force(
    text: &[u8],
    config: &Path,
    socket: &mut Socket,
    links: &[Link],
    records: &Path,
) -> Result<(Loaded, Held), Failure> {
    let loaded = parse(text, config, links)?;
    let file = config.display().to_string();
    Ok(rates::in_force(socket, links, records, (text, &file), loaded))
}

impl Which {
    /// The plans asked for. All errors of the file go to standard error, and so do warnings.
    pub(super) fn plans(&self, links: &[Link]) -> Result<Vec<Plan>, Failure> {
        let loaded = parse(&read(&self.config)?, &self.config, links)?;
        loaded
            .warnings
            .iter()
            .for_each(|warning| errln!("warning: {warning}"));
        self.narrow(loaded.plans)
    }

    /// The same at the rates that autorate has brought into force, and which these are; without warnings.
    pub(super) fn plans_in_force(
        &self,
        socket: &mut Socket,
        links: &[Link],
        records: &Path,
    ) -> Result<(Vec<Plan>, Held), Failure> {
        let text = read(&self.config)?;
        let (loaded, held) = parse_in_force(&text, &self.config, socket, links, records)?;
        Ok((self.narrow(loaded.plans)?, held))
    }

    fn narrow(&self, plans: Vec<Plan>) -> Result<Vec<Plan>, Failure> {
        let file = self.config.display();
        if plans.is_empty() {
            errln!("sqm: {file} has no enabled section: nothing is to be shaped");
        }
        if self.interfaces.is_empty() {
            return Ok(plans);
        }
        let enabled: Vec<_> = plans.iter().map(|plan| plan.interface.clone()).collect();
        if let Some(unknown) = self.interfaces.iter().find(|name| !enabled.contains(name)) {
            let enabled = match &enabled[..] {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            return Err(Failure::Usage(anyhow!(
                "{file} has no enabled section for {unknown}; enabled are: {enabled}"
            )));
        }
        Ok(plans
            .into_iter()
            .filter(|plan| self.interfaces.contains(&plan.interface))
            .collect())
    }
}
