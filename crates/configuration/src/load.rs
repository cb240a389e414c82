//! From the configuration file to plans, as every command reads it: a device or a pipe may stand for the file, all errors go to
//! standard error, and a file with an error is refused as a whole.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::{observe, stack};
use sqm_plan::Loaded;

use crate::rates::{self, Held};
use sqm_process::failure::Failure;

/// A configuration's text.
pub fn read(config: &Path) -> Result<Vec<u8>, Failure> {
    text(config).map_err(Failure::Usage)
}

/// The same, with the reason alone.
pub fn text(config: &Path) -> anyhow::Result<Vec<u8>> {
    // Standard input, and what a shell names for <(...), may be a pipe.
    let is_stream = config.starts_with("/dev") || config.starts_with("/proc");
    let text = match is_stream {
        true => stream(config),
        false => super::read(config).map_err(anyhow::Error::from),
    };
    text.context("cannot read the configuration")
}

fn stream(config: &Path) -> anyhow::Result<Vec<u8>> {
    let (name, limit) = (config.display(), super::MAX_BYTES);
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
pub fn parse(text: &[u8], config: &Path, links: &[Link]) -> Result<Loaded, Failure> {
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
pub fn links() -> Vec<Link> {
    let Ok(mut socket) = Socket::open() else {
        return Vec::new();
    };
    observe::links(&mut socket).unwrap_or_default()
}

/// The same at the rates that autorate has brought into force, and which these are.
pub fn parse_in_force(
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
