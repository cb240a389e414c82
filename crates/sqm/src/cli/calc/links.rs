//! `sqm calc links`: lists the link presets that `option link` accepts.

use std::process::ExitCode;

use serde::Serialize;
use sqm_plan::arithmetic;
use sqm_plan::link::{LinkLayer, PRESETS, Preset};

use crate::json;
use sqm_process::failure::Failure;

/// The access technologies for `option link`, with the bytes that each adds to an IP packet.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc links
  sqm calc links --json | jq '.[] | select(.framing == \"ptm\")'")]
pub(super) struct Links {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

impl Links {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let rows: Vec<Row> = PRESETS.iter().map(Row::of).collect();
        if self.json {
            json::print(&json::list(&rows))?;
            return Ok(ExitCode::SUCCESS);
        }
        outln!(
            "{:<20} {:>8} {:>4} {:<8} {:>10}  what the bytes are",
            "link",
            "overhead",
            "mpu",
            "framing",
            "goodput %"
        );
        for row in rows {
            outln!(
                "{:<20} {:>8} {:>4} {:<8} {:>10.1}  {}: {}",
                row.name,
                row.overhead_bytes,
                row.mpu_bytes,
                row.framing,
                row.goodput_percent,
                row.about,
                row.source
            );
        }
        outln!(
            "\noverhead and mpu are bytes per packet, counted from the IP header; goodput is what TCP over IPv4 with"
        );
        outln!("timestamps carries of the gross rate in packets of 1500 bytes.");
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    about: &'static str,
    overhead_bytes: i32,
    mpu_bytes: u32,
    framing: &'static str,
    goodput_percent: f64,
    source: &'static str,
}

impl Row {
    fn of(preset: &Preset) -> Self {
        const PACKET: u32 = 1500;
        const HEADERS: u32 = 20 + 20 + 12;
        Self {
            name: preset.name,
            about: preset.about,
            overhead_bytes: preset.overhead,
            mpu_bytes: preset.mpu,
            framing: match preset.layer {
                LinkLayer::Atm => "atm",
                LinkLayer::Ptm => "ptm",
                LinkLayer::None | LinkLayer::Ethernet => "ethernet",
            },
            goodput_percent: f64::from(PACKET - HEADERS)
                / f64::from(arithmetic::framing(preset).line_len(PACKET))
                * 100.0,
            source: preset.source,
        }
    }
}
