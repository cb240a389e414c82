//! `sqm calc shape`: shaper rates to begin with.

use std::process::ExitCode;

use serde::Serialize;
use sqm_core::units::Rate;
use sqm_plan::arithmetic::{self, Known};
use sqm_plan::line_rate;

use super::print;
use sqm_process::failure::Failure;

/// The rates to start with: 85 % of the contract's, or 95 % of those measured without shaping.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc shape --advertised 7mbit 768kbit
  sqm calc shape --measured 6.2mbit 670kbit")]
pub(super) struct Shape {
    /// Download and upload as advertised.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = line_rate::parse,
          required_unless_present = "measured", conflicts_with = "measured")]
    advertised: Vec<Rate>,
    /// Download and upload as measured, with SQM off.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = line_rate::parse)]
    measured: Vec<Rate>,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Shape {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let (rates, known) = if self.measured.is_empty() {
            (&self.advertised, Known::Advertised)
        } else {
            (&self.measured, Known::Measured)
        };
        let shaped = |n: usize| {
            let rate = rates.get(n).copied();
            rate.map_or(0, |rate| arithmetic::shaped(rate, known).kbits_per_sec())
        };
        let answer = Answer {
            download_kbit_per_sec: shaped(0),
            upload_kbit_per_sec: shaped(1),
        };
        print(&answer, self.json, |answer| {
            format!(
                "\toption download '{}'\n\toption upload '{}'\n",
                answer.download_kbit_per_sec, answer.upload_kbit_per_sec
            )
        })
    }
}

#[derive(Serialize)]
struct Answer {
    download_kbit_per_sec: u64,
    upload_kbit_per_sec: u64,
}
