//! `sqm calc goodput` and `sqm calc gross`: convert between the gross rate of a line and the goodput that a speed
//! test shows.

use std::process::ExitCode;

use serde::Serialize;
use sqm_core::units::Rate;
use sqm_plan::arithmetic;
use sqm_plan::line_rate;

use super::line::Packet;
use super::{mbit, print};
use sqm_process::failure::Failure;

/// The goodput that a speed test can reach on a line, or behind a shaper, with this gross rate.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc goodput 100mbit --link docsis          3.82 % less than gross
  sqm calc goodput 100mbit --link ethernet-vlan-pppoe --timestamps
  sqm calc goodput 100mbit --overhead 100 --size 1000 --whole    counts whole IP packets
  sqm calc goodput 100mbit --overhead 100 --size 256 --json")]
pub(super) struct Goodput {
    /// Gross rate, such as 100mbit.
    #[arg(value_parser = line_rate::parse)]
    rate: Rate,
    #[command(flatten)]
    packet: Packet,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// The gross rate behind a speed test's result: the rate to set a shaper to for this goodput.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc gross 93.39mbit --link ethernet-vlan-pppoe --timestamps
  sqm calc gross 20mbit --link adsl-pppoe-llc --json")]
pub(super) struct Gross {
    /// Goodput, such as 93.39mbit.
    #[arg(value_parser = line_rate::parse)]
    goodput: Rate,
    #[command(flatten)]
    packet: Packet,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Goodput {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        print(&Answer::of(self.rate, &self.packet)?, self.json, Answer::words)
    }
}

impl Gross {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let uncounted = self.packet.uncounted()?;
        let gross = arithmetic::gross(
            self.goodput,
            self.packet.size(),
            uncounted,
            &self.packet.framing(),
        );
        // Packets without payload have been refused above, so that there is a gross rate.
        let gross = gross.unwrap_or(self.goodput);
        print(&Answer::of(gross, &self.packet)?, self.json, Answer::words)
    }
}

#[derive(Serialize)]
struct Answer {
    gross_bits_per_sec: u64,
    goodput_bits_per_sec: u64,
    goodput_percent: f64,
    packet_bytes: u32,
    payload_bytes: u32,
    on_the_line_bytes: u32,
    packets_per_sec: u64,
    /// Rate of the acknowledgements in the other direction.
    acknowledgements_bits_per_sec: u64,
}

impl Answer {
    fn of(gross: Rate, packet: &Packet) -> Result<Self, Failure> {
        let (size, uncounted, framing) = (packet.size(), packet.uncounted()?, packet.framing());
        let goodput = arithmetic::goodput(gross, size, uncounted, &framing);
        let acknowledgements = arithmetic::acknowledgements(gross, size, packet.headers(), &framing);
        let payload = size - uncounted.bytes();
        Ok(Self {
            gross_bits_per_sec: gross.bits_per_sec(),
            goodput_bits_per_sec: goodput.bits_per_sec(),
            goodput_percent: f64::from(payload) / f64::from(framing.line_len(size)) * 100.0,
            packet_bytes: size,
            payload_bytes: payload,
            on_the_line_bytes: framing.line_len(size),
            packets_per_sec: arithmetic::packets_per_sec(gross, size, &framing),
            acknowledgements_bits_per_sec: acknowledgements.bits_per_sec(),
        })
    }

    fn words(&self) -> String {
        let of = |bits_per_sec| mbit(Rate::from_bits_per_sec(bits_per_sec));
        format!(
            "gross             {:>12.3} Mbit/s  {} packets/s of {} bytes, {} on the line\n\
             goodput           {:>12.3} Mbit/s  {:.2} % of gross ({:.2} % less): {}\n\
             acknowledgements  {:>12.3} Mbit/s  in the other direction, one for two packets\n",
            of(self.gross_bits_per_sec),
            self.packets_per_sec,
            self.packet_bytes,
            self.on_the_line_bytes,
            of(self.goodput_bits_per_sec),
            self.goodput_percent,
            100.0 - self.goodput_percent,
            match self.payload_bytes {
                whole if whole == self.packet_bytes => "whole IP packets".to_owned(),
                payload => format!("{payload} bytes of payload in a packet"),
            },
            of(self.acknowledgements_bits_per_sec),
        )
    }
}
