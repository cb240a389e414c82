//! The configured framing and rates of the line that was measured.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sqm_core::direction::Direction;
use sqm_core::spec::cake::Cells;
use sqm_core::units::Rate;
use sqm_measure::overhead_fit::Configured;
use sqm_plan::line::ConfiguredLine;

use sqm_configuration::{load, uci_override};
use sqm_process::failure::Failure;

/// The configuration file, unless another one is named.
const USUAL: &str = "/etc/config/sqm";
/// Share of the rate that the 64/65-byte coding of PTM leaves (ITU-T G.993.2, annex N). It is applied to the rate,
/// because the sweep fits straight lines; CAKE applies it to each packet and rounds to whole bytes.
const PTM: f64 = 64.0 / 65.0;

/// The lines in the named configuration file, or in the usual one if it exists.
pub(super) fn lines(named: Option<&PathBuf>) -> Result<Vec<ConfiguredLine>, Failure> {
    let file = match named {
        Some(file) => file.clone(),
        None => uci_override::of(Path::new(USUAL)),
    };
    if named.is_none() && !file.exists() {
        return Ok(Vec::new());
    }
    Ok(load::parse(&load::read_with_warnings(&file)?, &file, &load::links())?.lines)
}

/// The line that a test from this address used: the only one there is, or the one on the address's device.
pub(super) fn of_test(lines: &[ConfiguredLine], local: IpAddr) -> Option<&ConfiguredLine> {
    match lines {
        [only] => Some(only),
        several => {
            let device = sqm_measure::client::interface_of(local)?;
            several.iter().find(|line| line.interface == device)
        }
    }
}

/// The configured figures of one direction; none if it is not shaped.
pub(super) fn direction(line: &ConfiguredLine, direction: Direction) -> Option<Configured> {
    let rate: Option<Rate> = match direction {
        Direction::Download => line.download,
        Direction::Upload => line.upload,
    };
    let coding = if line.framing.cells == Cells::Ptm {
        PTM
    } else {
        1.0
    };
    Some(Configured {
        rate_mbit: rate?.bits_per_sec() as f64 / 1e6 * coding,
        overhead: f64::from(line.framing.overhead),
        atm: line.framing.cells == Cells::Atm,
    })
}
