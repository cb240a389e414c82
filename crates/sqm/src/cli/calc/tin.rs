//! `sqm calc tin`: the tin to which CAKE assigns a packet with a DSCP.

use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use sqm_core::diffserv::Layout;
use sqm_core::packet::Network;
use sqm_core::spec::cake::{Cake, Tins};

use super::print_rows;
use crate::cli::dscp::parse_dscp;
use sqm_process::failure::Failure;

/// The tin of CAKE for packets with this DSCP, in each mode, and the share of the rate up to which the tin has
/// priority.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc tin ef
  sqm calc tin cs1 --tins diffserv4
  sqm calc tin 46 --json")]
pub(super) struct Tin {
    /// A number from 0 to 63, or a name: be, le, ef, cs1, af41.
    #[arg(value_parser = parse_dscp)]
    dscp: u8,
    /// Only this mode.
    #[arg(long, value_name = "MODE", value_parser = parse_tins)]
    tins: Option<Tins>,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

const MODES: [(&str, Tins); 5] = [
    ("besteffort", Tins::Besteffort),
    ("precedence", Tins::Precedence),
    ("diffserv3", Tins::Diffserv3),
    ("diffserv4", Tins::Diffserv4),
    ("diffserv8", Tins::Diffserv8),
];

/// Parses a tin mode by CAKE's name for it.
pub(super) fn parse_tins(word: &str) -> Result<Tins, String> {
    let mut cake = Cake::default();
    match MODES.iter().find(|(name, _)| *name == word) {
        Some((_, tins)) => Ok(*tins),
        None => Err(match cake.apply(word) {
            Err(error) => error.to_string(),
            Ok(()) => format!("'{word}' is not a tin mode"),
        }),
    }
}

impl Tin {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let modes = MODES
            .iter()
            .filter(|(_, mode)| self.tins.is_none_or(|only| only == *mode));
        let rows: Vec<Row> = modes
            .map(|(name, mode)| Row::of(name, *mode, self.dscp))
            .collect();
        print_rows(&rows, self.json, |rows| {
            let mut text = format!(
                "DSCP {} (DS field {:#04x})\n{:<12}{:>5}  {:<12} {:>10}\n",
                self.dscp,
                self.dscp << 2,
                "mode",
                "tin",
                "",
                "of the rate"
            );
            for row in rows {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "{:<12}{:>2}/{:<2}  {:<12} {:>9.2} %",
                    row.mode, row.tin, row.tins, row.name, row.share_percent
                );
            }
            text
        })
    }
}

#[derive(Serialize)]
struct Row {
    mode: &'static str,
    /// Number of the tin, counted from 1 as `tc` and firewall marks do.
    tin: usize,
    tins: usize,
    name: &'static str,
    /// Share of the rate up to which the tin has priority.
    share_percent: f64,
}

impl Row {
    fn of(name: &'static str, mode: Tins, dscp: u8) -> Self {
        const RATE: u64 = 1_000_000_000_000;
        let layout = Layout::of(mode);
        let tin = layout.tin_of(Network::Ipv4, dscp << 2);
        let place = layout.display.iter().position(|shown| *shown == tin).unwrap_or(0);
        let share = layout.shares(RATE).nth(tin.into()).map_or(0, |(rate, _)| rate);
        Self {
            mode: name,
            tin: place + 1,
            tins: layout.count(),
            name: layout.names[place],
            share_percent: share as f64 / RATE as f64 * 100.0,
        }
    }
}
