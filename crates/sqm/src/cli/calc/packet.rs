//! `sqm calc packet`: the size of packets on the line.

use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::line::Line;
use super::print_rows;
use sqm_process::failure::Failure;

/// Sizes that are shown by default, bytes: a bare TCP acknowledgement, voice, games, a packet of 576 bytes, the
/// smallest IPv6 MTU, and full packets with and without PPPoE.
const USUAL: [u32; 7] = [40, 100, 200, 576, 1280, 1492, 1500];

/// Sizes of packets on the line, with overhead, minimum size and cells.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc packet --link adsl-pppoe-llc
  sqm calc packet --overhead 44 150
  sqm calc packet --link vdsl2 40 1500 --json")]
pub(super) struct Packet {
    #[command(flatten)]
    line: Line,
    /// Sizes of IP packets, bytes [default: the usual ones].
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65535))]
    sizes: Vec<u32>,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Packet {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let framing = self.line.framing();
        let sizes = if self.sizes.is_empty() {
            &USUAL[..]
        } else {
            &self.sizes
        };
        let rows: Vec<Row> = sizes
            .iter()
            .map(|&size| Row {
                packet_bytes: size,
                on_the_line_bytes: framing.line_len(size),
                added_percent: f64::from(framing.line_len(size)) / f64::from(size) * 100.0 - 100.0,
            })
            .collect();
        print_rows(&rows, self.json, |rows| {
            let mut text = format!("{:>8} {:>12} {:>9}\n", "packet", "on the line", "added");
            for row in rows {
                let (size, line, added) = (row.packet_bytes, row.on_the_line_bytes, row.added_percent);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{size:>6} B {line:>10} B {added:>7.1} %");
            }
            text
        })
    }
}

#[derive(Serialize)]
struct Row {
    packet_bytes: u32,
    on_the_line_bytes: u32,
    /// Bytes that the line adds, in percent of the packet.
    added_percent: f64,
}
