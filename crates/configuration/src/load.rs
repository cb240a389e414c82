//! Reads the configuration and makes plans from it, for every command. The file may be a device or a pipe. All errors go to
//! standard error, and a file with an error is refused as a whole.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::observe;
use sqm_plan::{Loaded, RateOverrides};

use crate::{Invalid, Parsed, rate_override, staged};
use sqm_process::failure::Failure;

/// Reads the text of the configuration with changes that OpenWrt's `uci` has staged, and a line for each of them.
pub fn read(config: &Path) -> Result<(Vec<u8>, Vec<String>), Failure> {
    if matches!(super::read_if_there(config), Ok(None)) {
        return Err(Failure::Usage(anyhow!(
            "there is no configuration {}: run 'sqm setup' to make one, or name another file with --config",
            config.display()
        )));
    }
    let text = text(config).map_err(Failure::Usage)?;
    Ok(staged::counted(config, text))
}

/// Reads the text of the configuration like [`read`], and prints the lines as warnings on standard error.
pub fn read_with_warnings(config: &Path) -> Result<Vec<u8>, Failure> {
    let (text, staged) = read(config)?;
    staged.iter().for_each(|line| errln!("warning: {line}"));
    Ok(text)
}

/// Refuses a command that changes the configuration while changes are staged.
pub fn refuse_staged(config: &Path) -> Result<(), Failure> {
    match staged::obstacle(config) {
        Some(obstacle) => Err(Failure::Usage(anyhow!("{}: {obstacle}", config.display()))),
        None => Ok(()),
    }
}

/// Reads the text of a file in the configuration's format. The error has no exit code.
pub fn text(config: &Path) -> anyhow::Result<Vec<u8>> {
    // Standard input, and the path that a shell makes for <(...), may be a pipe.
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
    // If there is a byte beyond the limit, the text is too long.
    let read = file.take(limit + 1).read_to_end(&mut text);
    read.with_context(|| name.to_string())?;
    if text.len() as u64 > limit {
        return Err(anyhow!(
            "{name} has more than {limit} bytes, the limit for a configuration"
        ));
    }
    Ok(text)
}

/// Makes plans from the text for the devices `links`. Prints all errors of the text on standard error.
pub fn parse(text: &[u8], config: &Path, links: &[Link]) -> Result<Loaded, Failure> {
    let (_, loaded) = parse_and_plan(text.to_owned(), config, links)?;
    Ok(loaded)
}

/// Like [`parse`], and also returns the parsed text, which can be planned again.
pub fn parse_and_plan(text: Vec<u8>, config: &Path, links: &[Link]) -> Result<(Parsed, Loaded), Failure> {
    crate::parse_and_plan(text, config, links).map_err(|invalid| refuse(&invalid, config))
}

/// Prints the errors of a configuration, because of which a command does nothing.
fn refuse(invalid: &Invalid, config: &Path) -> Failure {
    invalid.print();
    let count = match invalid.0.len() {
        1 => "an error".to_owned(),
        n => format!("{n} errors"),
    };
    Failure::Usage(anyhow!("{} has {count}; nothing was done", config.display()))
}

/// The devices of this machine. Empty if the kernel does not report them: a plan can be made on any machine.
pub fn links() -> Vec<Link> {
    let Ok(mut socket) = Socket::open() else {
        return Vec::new();
    };
    observe::links(&mut socket).unwrap_or_default()
}

/// Like [`parse`], but with the rates that autorate has brought into force. Also returns these rates.
pub fn parse_in_force(
    text: &[u8],
    config: &Path,
    socket: &mut Socket,
    links: &[Link],
    records: &Path,
) -> Result<(Loaded, RateOverrides), Failure> {
    let (parsed, loaded) = parse_and_plan(text.to_owned(), config, links)?;
    Ok(rate_override::in_force(socket, links, records, &parsed, loaded))
}
