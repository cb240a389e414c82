//! What the configuration says of the line that was measured.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::{observe, stack};
use sqm_measure::result::Direction;
use sqm_measure::sweep::Configured;
use sqm_plan::line::ConfiguredLine;

use crate::failure::Failure;

/// Where the configuration is unless told.
const USUAL: &str = "/etc/config/sqm";
/// What the coding of PTM leaves of the rate.
const PTM: f64 = 64.0 / 65.0;

/// The lines of a configuration: of the file named, else of the usual one if it is there.
pub(super) fn lines(named: Option<&PathBuf>) -> Result<Vec<ConfiguredLine>, Failure> {
    let file = match named {
        Some(file) => file.as_path(),
        None if Path::new(USUAL).exists() => Path::new(USUAL),
        None => return Ok(Vec::new()),
    };
    let name = file.display().to_string();
    let text = std::fs::read(file)
        .with_context(|| format!("cannot read the configuration {name}"))
        .map_err(Failure::Usage)?;
    let links = links();
    let loaded = sqm_plan::load(&text, &name, &|device| stack::device(&links, device)).map_err(|errors| {
        errors.iter().for_each(|error| eprintln!("error: {error}"));
        Failure::Usage(anyhow!("{name} has errors; nothing was measured"))
    })?;
    Ok(loaded.lines)
}

/// The line that a test from this address went over: the only one there is, or that of the address's device.
pub(super) fn of_test(lines: &[ConfiguredLine], local: IpAddr) -> Option<&ConfiguredLine> {
    match lines {
        [only] => Some(only),
        several => {
            let device = sqm_measure::client::interface_of(local)?;
            several.iter().find(|line| line.interface == device)
        }
    }
}

/// The figures of one direction; none if it is not shaped.
pub(super) fn direction(line: &ConfiguredLine, direction: Direction) -> Option<Configured> {
    let rate: Option<Rate> = match direction {
        Direction::Down => line.download,
        Direction::Up => line.upload,
    };
    let coding = if line.ptm { PTM } else { 1.0 };
    Some(Configured {
        rate_mbit: rate?.bits_per_sec() as f64 / 1e6 * coding,
        overhead: f64::from(line.overhead),
        atm: line.atm,
    })
}

fn links() -> Vec<Link> {
    let Ok(mut socket) = Socket::open() else {
        return Vec::new();
    };
    observe::links(&mut socket).unwrap_or_default()
}
